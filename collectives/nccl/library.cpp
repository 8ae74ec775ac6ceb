// SPDX-License-Identifier: Apache-2.0
// Finds the process's NCCL once, and lets tests replace it.
#include "collectives/nccl/library.hpp"

#include <atomic>
#include <utility>

namespace lockstep::nccl {
namespace {

struct LibrarySearch {
  std::string why_none;
  std::unique_ptr<NcclInterface> library = find();

  std::unique_ptr<NcclInterface> find() {
    if (gpu::own_backend() != nullptr) return load(why_none);
    why_none = gpu::why_none();
    return nullptr;
  }
};

// Is never destroyed, because members may remain when the process ends.
LibrarySearch& found() {
  static auto& all = *new LibrarySearch;
  return all;
}

std::atomic<NcclInterface*>& current() {
  static std::atomic<NcclInterface*> library = found().library.get();
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

// Returns null if tests have replaced the GPUs, because the machine's NCCL needs the machine's GPUs.
NcclInterface* library() {
  NcclInterface* const now = current().load(std::memory_order_acquire);
  return now == found().library.get() && gpu::backend() != gpu::own_backend() ? nullptr : now;
}

std::string why_none() { return library() != nullptr ? "" : found().why_none; }

NcclOverride::NcclOverride(std::unique_ptr<NcclInterface> library)
    : library_(std::move(library)), before_(current().exchange(library_.get())) {}

NcclOverride::~NcclOverride() { current().store(before_); }

}  // namespace lockstep::nccl
