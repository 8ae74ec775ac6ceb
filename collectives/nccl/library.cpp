// SPDX-License-Identifier: Apache-2.0
#include "collectives/nccl/library.hpp"

#include <atomic>
#include <utility>

namespace lockstep::nccl {
namespace {

struct Found {
  std::string why_none;
  std::unique_ptr<Library> library = find();

  std::unique_ptr<Library> find() {
    if (gpu::own_layer() != nullptr) return load(why_none);
    why_none = gpu::why_none();
    return nullptr;
  }
};

// Never destroyed: members may be left behind when the process ends.
Found& found() {
  static auto& all = *new Found;
  return all;
}

std::atomic<Library*>& current() {
  static std::atomic<Library*> library = found().library.get();
  return library;
}

}  // namespace

bool reduces(ReduceOp op, DataType type) {
  switch (type) {
    case DataType::f16:
    case DataType::bf16:
    case DataType::f32:
    case DataType::f64:
      return op == ReduceOp::sum || op == ReduceOp::prod || op == ReduceOp::avg;
    case DataType::i8:
    case DataType::i32:
    case DataType::i64:
    case DataType::u8:
    case DataType::u32:
    case DataType::u64:
      return op == ReduceOp::sum || op == ReduceOp::prod || op == ReduceOp::min || op == ReduceOp::max;
    default:
      return false;
  }
}

// The machine's NCCL is for the machine's GPUs.
Library* library() {
  Library* const now = current().load(std::memory_order_acquire);
  return now == found().library.get() && gpu::layer() != gpu::own_layer() ? nullptr : now;
}

std::string why_none() { return library() != nullptr ? "" : found().why_none; }

Instead::Instead(std::unique_ptr<Library> library)
    : library_(std::move(library)), before_(current().exchange(library_.get())) {}

Instead::~Instead() { current().store(before_); }

}  // namespace lockstep::nccl
