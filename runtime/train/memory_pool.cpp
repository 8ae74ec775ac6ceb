// SPDX-License-Identifier: Apache-2.0
// Implements the pool as lists of equal blocks, one pool for each thread.
#include "runtime/train/memory_pool.hpp"

#include <bit>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <utility>
#include <vector>

namespace lockstep::train {
namespace {

constexpr std::size_t alignment = 64;
// Keeps at most this much unused memory in each thread: a guess, several steps of a small model's largest tensors.
constexpr std::size_t max_kept = std::size_t{1} << 30U;

// Rounds up to four sizes for each power of two, so that at most a fifth of a block is unused.
std::size_t block_size(std::size_t bytes) {
  constexpr std::size_t smallest = 256;
  if (bytes <= smallest) return smallest;
  const std::size_t step = std::size_t{1} << (std::bit_width(bytes - 1) - 3U);
  return (bytes + step - 1) / step * step;
}

class Pool {
 public:
  Pool() = default;
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;
  ~Pool() {
    for (auto& [size, blocks] : free_) {
      for (std::byte* block : blocks) release(block);
    }
  }
  std::byte* take(std::size_t size) {
    {
      const std::lock_guard lock(mutex_);
      std::vector<std::byte*>& blocks = free_[size];
      if (!blocks.empty()) {
        std::byte* const block = blocks.back();
        blocks.pop_back();
        kept_ -= size;
        return block;
      }
    }
    return static_cast<std::byte*>(::operator new(size, std::align_val_t(alignment)));
  }
  void give_back(std::byte* block, std::size_t size) {
    {
      const std::lock_guard lock(mutex_);
      if (kept_ + size <= max_kept) {
        free_[size].push_back(block);
        kept_ += size;
        return;
      }
    }
    release(block);
  }
  std::size_t kept() const {
    const std::lock_guard lock(mutex_);
    return kept_;
  }

 private:
  static void release(std::byte* block) { ::operator delete(block, std::align_val_t(alignment)); }

  mutable std::mutex mutex_;
  std::map<std::size_t, std::vector<std::byte*>> free_;  // Is sorted by the size of the blocks.
  std::size_t kept_ = 0;
};

const std::shared_ptr<Pool>& pool_of_thread() {
  thread_local const auto pool = std::make_shared<Pool>();
  return pool;
}

}  // namespace

AnyTensor uninitialized_tensor(DataType type, TensorShape shape) {
  const std::shared_ptr<Pool>& pool = pool_of_thread();
  const std::size_t size = block_size(shape.count() * size_of(type));
  std::shared_ptr<std::byte> memory(pool->take(size), [pool, size](std::byte* block) { pool->give_back(block, size); });
  return AnyTensor::in_memory(std::move(memory), type, std::move(shape));
}

std::size_t pooled_bytes() { return pool_of_thread()->kept(); }

}  // namespace lockstep::train
