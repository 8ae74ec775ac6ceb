// SPDX-License-Identifier: Apache-2.0
#include "collectives/engine/lift.hpp"

#include <sched.h>

#include <algorithm>
#include <chrono>

#include "collectives/kernels/kernels.hpp"

namespace lockstep {
namespace {

constexpr std::size_t copies_ahead = 3;

std::size_t up(std::size_t number, std::size_t by) { return (number + by - 1) / by; }

// Where input and output are one memory, and nothing was multiplied, it is there already.
bool stays(const Local& local, int lap) {
  const Slice to = local.target.at(lap);
  const Slice from = local.left.at(lap);
  return local.kind == Local::Kind::copy && to.space == Space::output && from.space == Space::input &&
         to.offset == from.offset;
}

// Calls use(slice, writes) for all that a round touches in a lap.
template <class Use>
void each_use(const Round& round, int lap, bool is_as_given, const Use& use) {
  for (const Message& each : round.sends) use(each.walk.at(lap), false);
  for (const Message& each : round.receives) use(each.walk.at(lap), true);
  for (const Local& each : round.locals) {
    use(each.left.at(lap), false);
    if (each.kind == Local::Kind::reduce) use(each.right.at(lap), false);
    if (!is_as_given || !stays(each, lap)) use(each.target.at(lap), true);
  }
  for (const Near& each : round.near) {
    use(each.from, false);
    use(each.to, true);
  }
}

}  // namespace

std::size_t lifted_piece(const gpu::Costs& costs, std::size_t element_bytes) {
  constexpr std::uint64_t worth = 4;  // beginnings, that the copy itself takes
  constexpr std::uint64_t line = 64;
  constexpr std::uint64_t most = 64U << 20U;
  const gpu::Cost slower = std::max(
      costs.down, costs.up, [](const gpu::Cost& a, const gpu::Cost& b) { return a.of(1U << 20U) < b.of(1U << 20U); });
  const std::uint64_t mib = 1U << 20U;
  const std::uint64_t bytes =
      slower.ns_per_mib == 0 ? most : std::clamp(worth * slower.ns * mib / slower.ns_per_mib, line, most);
  return up(bytes, line * element_bytes) * line * element_bytes;
}

// Of means all that reads a piece has to come before it is divided, too.
bool Lift::divides() const { return plan().spec.op == ReduceOp::avg && plan().result.count > 0; }

bool Lift::multiplies() const { return plan().spec.op == ReduceOp::premul_sum && reduces(plan().spec.collective); }

template <class Use>
void Lift::each_piece(const Slice& slice, std::size_t first, const Use& use) const {
  if (slice.count == 0 || slice.space == Space::scratch) return;
  const std::size_t begin = bytes_of(first + slice.offset);
  const std::size_t end = begin + bytes_of(slice.count);
  for (std::size_t piece = begin / lifting().piece; piece * lifting().piece < end; ++piece)
    use(static_cast<std::uint32_t>(piece));
}

// Goes through all rounds once: in which order they need what comes, and how often they write what goes.
void Lift::look_through() {
  const bool is_known = looked_through_ == call_->plan && looked_by_ == lifting().piece &&
                        looked_at_one_memory_ == lifting().is_one_memory;
  if (is_known) return;
  looked_through_ = call_->plan;
  looked_by_ = lifting().piece;
  looked_at_one_memory_ = lifting().is_one_memory;
  order_.clear();
  std::vector<bool> is_wanted(up(bytes_of(plan().input_count), lifting().piece));
  uses_.assign(up(bytes_of(plan().output_count), lifting().piece), 0);
  const auto want = [&](std::uint32_t piece) {
    if (piece >= is_wanted.size() || is_wanted[piece]) return;
    is_wanted[piece] = true;
    order_.push_back(piece);
  };
  for (int segment = 0; segment < plan().segments; ++segment) {
    const std::size_t first = static_cast<std::size_t>(segment) * plan().segment;
    for (const Round& round : plan().schedule_of(segment).rounds) {
      for (int lap = 0; lap < round.times; ++lap) {
        each_use(round, lap, is_as_given(), [&](const Slice& slice, bool writes) {
          const bool is_input = slice.space == Space::input;
          if (is_input || lifting().is_one_memory) each_piece(slice, first, want);
          if (!is_input && (writes || divides()))
            each_piece(slice, first, [&](std::uint32_t piece) { ++uses_[piece]; });
        });
      }
    }
  }
}

void Lift::begin(gpu::Ways& ways, const Call& call) {
  ways_ = &ways;
  call_ = &call;
  look_through();
  input_.assign(up(bytes_of(plan().input_count), lifting().piece), State::away);
  left_ = uses_;
  next_ = fetches() ? 0 : order_.size();
  coming_.clear();
  going_.clear();
  ways.begin(lifting().input_device, lifting().output_device);
  top_up();
}

void Lift::top_up() {
  while (next_ < order_.size() && coming_.size() < copies_ahead) {
    const std::uint32_t piece = order_[next_++];
    const std::size_t at = piece * lifting().piece;
    const std::size_t bytes = std::min(lifting().piece, bytes_of(plan().input_count) - at);
    const int device = lifting().input_device;
    const gpu::Stream down = ways_->down(device);
    auto* const to = const_cast<std::byte*>(static_cast<const std::byte*>(call_->input)) + at;
    gpu::layer()->begin_copy(device, to, lifting().input + at, bytes, down);
    input_[piece] = State::coming;
    coming_.push_back({piece, gpu::layer()->mark(device, down)});
  }
}

void Lift::arrived(std::uint32_t piece) {
  input_[piece] = State::here;
  if (!multiplies()) return;
  const std::size_t at = piece * lifting().piece;
  const std::size_t bytes = std::min(lifting().piece, bytes_of(plan().input_count) - at);
  auto* const here = const_cast<std::byte*>(static_cast<const std::byte*>(call_->input)) + at;
  scale(plan().spec.type, here, here, bytes / plan().spec.element_bytes, call_->factor);
}

bool Lift::advance() {
  bool moved = false;
  for (; !coming_.empty() && coming_.front().mark->is_reached(); coming_.pop_front(), moved = true)
    arrived(coming_.front().piece);
  if (moved) top_up();
  for (; !going_.empty() && going_.front()->is_reached(); going_.pop_front()) moved = true;
  return moved;
}

bool Lift::is_ready(const Round& round, int lap, std::size_t first) const {
  if (!fetches()) return true;
  bool is_here = true;
  each_use(round, lap, is_as_given(), [&](const Slice& slice, bool /*writes*/) {
    if (slice.space == Space::input || lifting().is_one_memory)
      each_piece(slice, first, [&](std::uint32_t piece) {
        is_here = is_here && (piece >= input_.size() || input_[piece] == State::here);
      });
  });
  return is_here;
}

void Lift::done(const Round& round, int lap, std::size_t first) {
  if (!brings()) return;
  each_use(round, lap, is_as_given(), [&](const Slice& slice, bool writes) {
    if (slice.space != Space::output || (!writes && !divides())) return;
    each_piece(slice, first, [&](std::uint32_t piece) {
      if (--left_[piece] == 0) leave(piece);
    });
  });
}

void Lift::leave(std::uint32_t piece) {
  const std::size_t at = piece * lifting().piece;
  const std::size_t bytes = std::min(lifting().piece, bytes_of(plan().output_count) - at);
  std::byte* const from = static_cast<std::byte*>(call_->output) + at;
  if (divides()) divide(plan().spec.type, from, from, bytes / plan().spec.element_bytes, plan().size);
  const int device = lifting().output_device;
  const gpu::Stream up = ways_->up(device);
  gpu::layer()->begin_copy(device, lifting().output + at, from, bytes, up);
  going_.push_back(gpu::layer()->mark(device, up));
}

bool Lift::abandon() noexcept {
  if (!is_on()) return true;
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(1);
  try {
    std::vector<std::shared_ptr<gpu::Mark>> marks;
    if (fetches()) marks.push_back(gpu::layer()->mark(lifting().input_device, ways_->down(lifting().input_device)));
    if (brings()) marks.push_back(gpu::layer()->mark(lifting().output_device, ways_->up(lifting().output_device)));
    end();
    while (!std::ranges::all_of(marks, [](const auto& mark) { return mark->is_reached(); })) {
      if (std::chrono::steady_clock::now() > limit) return false;
      ::sched_yield();
    }
    return true;
  } catch (const std::exception&) {
    end();
    return false;  // of a GPU that has failed nobody knows
  }
}

}  // namespace lockstep
