// SPDX-License-Identifier: Apache-2.0
// Runs the kernels of a reduction over contributions, block by block.
#include "collectives/node/combine.hpp"

#include <algorithm>
#include <bit>
#include <cstring>

#include "collectives/algorithms/algorithms.hpp"
#include "topology/base/error.hpp"
#include "topology/base/text.hpp"

namespace lockstep::node {
namespace {

constexpr std::size_t bytes_at_once = 4096;  // bytes; a few such blocks stay in the first cache

std::size_t elements_at_a_time(const Spec& spec) {
  return std::max<std::size_t>(1, bytes_at_once / std::max<std::size_t>(1, spec.element_bytes));
}

bool goes_by_tree(const Call& call) {
  return call.plan->spec.order == Order::reproducible || call.user.apply != nullptr;
}

}  // namespace

void Combiner::reserve(const Call& call) {
  const Spec& spec = call.plan->spec;
  if (call.user.apply == nullptr && call.kernel == nullptr) {
    throw Error(Code::internal, text("no reduction is known for ", to_string(spec.op), " of ", to_string(spec.type)));
  }
  if (!goes_by_tree(call)) return;
  const auto levels = static_cast<std::size_t>(std::bit_width(static_cast<unsigned>(call.plan->size)));
  const std::size_t bytes = (levels + 1) * elements_at_a_time(spec) * spec.element_bytes + 64;
  if (memory_.size() < bytes) memory_.resize(bytes);
}

void Combiner::set(const Call& call) {
  reserve(call);
  call_ = &call;
  element_ = call.plan->spec.element_bytes;
  by_tree_ = goes_by_tree(call);
  divides_ = call.plan->spec.op == ReduceOp::avg;
  is_plain_ = !by_tree_ && !divides_;
  block_ = elements_at_a_time(call.plan->spec);
  scratch_ = aligned(memory_.data());
}

void Combiner::two(void* target, const void* left, const void* right, std::size_t count) const {
  if (call_->user.apply != nullptr)
    call_->user.apply(call_->user.state.data(), target, left, right, count);
  else
    call_->kernel->two(target, left, right, count);
}

void Combiner::combine_otherwise(void* target, const void* const* sources, int number, std::size_t count) {
  if (count == 0) return;
  add_up(target, sources, number, count);
  if (divides_) divide(call_->plan->spec.type, target, target, count, call_->plan->size);
}

void Combiner::add_up(void* target, const void* const* sources, int number, std::size_t count) {
  if (number == 1) {
    if (target != sources[0]) call_->copy(target, sources[0], count * element_);
  } else if (!by_tree_) {
    call_->kernel->many(target, sources, number, count);
  } else if (number == 2) {
    two(target, sources[0], sources[1], count);
  } else {
    for (std::size_t at = 0; at < count; at += block_) {
      value(sources, 0, number, at * element_, std::min(block_, count - at), 0,
            static_cast<std::byte*>(target) + at * element_);
    }
  }
}

// Returns the combination of the members [first, last). It is in `target`, unless it is one member's own contribution.
const std::byte* Combiner::value(const void* const* sources, int first, int last, std::size_t skip, std::size_t count,
                                 std::size_t level, std::byte* target) {
  if (last - first == 1) return static_cast<const std::byte*>(sources[first]) + skip;
  const int middle = balanced_middle(first, last);
  std::byte* const left_room = scratch_ + level * block_ * element_;
  const std::byte* left = value(sources, first, middle, skip, count, level + 1, left_room);
  // The left result stays in this level's scratch; the levels below are free again.
  const std::byte* right =
      value(sources, middle, last, skip, count, level + 1, scratch_ + (level + 1) * block_ * element_);
  two(target, left, right, count);
  return target;
}

}  // namespace lockstep::node
