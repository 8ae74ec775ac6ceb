// SPDX-License-Identifier: Apache-2.0
// Measures what suits the machine: the members run all_reduces of their own in the room, and take the slowest
// member's word for each time, so that all decide alike.
#include <sched.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <vector>

#include "collectives/node/tuning.hpp"
#include "collectives/node/work.hpp"
#include "topology/base/error.hpp"
#include "topology/base/text.hpp"

namespace lockstep::node {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::uint32_t mark = 0x74756e65;
constexpr std::size_t largest = 4U << 20U;  // bytes that are measured

class Probe {
 public:
  Probe(Room& room, bool crowded, double limit_seconds)
      : room_(room),
        looks_(crowded ? Looks{0, 64} : Looks{1000, 0}),
        limit_(limit_seconds),
        in_(largest),
        out_(largest) {}

  // Microseconds of an all_reduce of so many bytes, of the slowest member in the fastest of some rounds.
  double time(std::size_t bytes, const Tuning& tuning) {
    if (is_over()) return 0;
    Plan plan = plan_of(bytes / sizeof(float), DataType::f32, ReduceOp::sum);
    const Call call = call_of(plan, in_.data(), out_.data());
    constexpr int rounds = 5;
    const std::size_t calls = std::clamp<std::size_t>((256U << 10U) / bytes, 1, 16);
    double best = 1e9;
    for (int round = 0; round < rounds; ++round) {
      const auto begin = Clock::now();
      for (std::size_t i = 0; i < calls; ++i) run(call, tuning);
      const std::chrono::duration<double, std::micro> taken = Clock::now() - begin;
      best = std::min(best, taken.count() / static_cast<double>(calls));
    }
    best = slowest(best);
    const std::chrono::duration<double> since_begin = Clock::now() - begin_;
    spent_ = slowest(since_begin.count());
    return best;
  }
  // All the time is spent, in everybody's eyes.
  bool is_over() const { return spent_ > budget; }

 private:
  static constexpr double budget = 0.4;  // seconds

  Plan plan_of(std::size_t count, DataType type, ReduceOp op) const {
    Plan plan{.spec = {.type = type, .op = op, .element_bytes = size_of(type), .count = count},
              .size = room_.size(),
              .index = room_.index()};
    plan.input_count = plan.output_count = count;
    return plan;
  }
  static Call call_of(const Plan& plan, const void* in, void* out) {
    return {.plan = {std::shared_ptr<void>(), &plan},
            .input = in,
            .output = out,
            .kernel = find_kernel(plan.spec.type, plan.spec.op)};
  }

  void run(const Call& call, const Tuning& tuning) {
    work_.begin(room_, tuning, call, static_cast<const std::byte*>(call.input), mark, room_.has_reachable());
    const auto begin = Clock::now();
    while (!work_.is_done()) {
      if (work_.advance(looks_)) continue;
      ::sched_yield();  // whatever is said of cores, somebody else may need this one
      if (Clock::now() - begin < std::chrono::duration<double>(limit_)) continue;
      throw Error(Code::stall,
                  text("measuring this node's memory: ranks ", work_.missing().to_string(), " did not come"),
                  "look what those members do; LOCKSTEP_TIMEOUT sets the limit");
    }
  }

  double slowest(double mine) {
    Plan plan = plan_of(1, DataType::f64, ReduceOp::max);
    double all = mine;
    run(call_of(plan, &mine, &all), guessed_tuning(room_.size()));
    return all;
  }

  Room& room_;
  Looks looks_;
  double limit_;
  std::vector<std::byte> in_;
  std::vector<std::byte> out_;
  Clock::time_point begin_ = Clock::now();
  double spent_ = 0;
  Work work_;
};

// The smallest of the sizes from which on the other way is the faster one; behind all of them where it never is.
template <class IsBetter>
std::size_t switch_point(std::span<const std::size_t> sizes, std::size_t beyond, const IsBetter& is_better) {
  std::size_t from = beyond;
  for (std::size_t i = sizes.size(); i > 0; --i) {
    if (!is_better(sizes[i - 1])) break;
    from = sizes[i - 1];
  }
  return from;
}

}  // namespace

// What there was no time for is as it was guessed.
Tuning measured_tuning(Room& room, bool crowded, double limit_seconds) {
  Probe probe(room, crowded, limit_seconds);
  Tuning best = guessed_tuning(room.size());
  best.direct_from = best.stream_from = never;

  const auto with = [&](std::size_t Tuning::*field, std::size_t value) {
    Tuning changed = best;
    changed.*field = value;
    return changed;
  };
  constexpr std::array<std::size_t, 5> segments = {16U << 10U, 32U << 10U, 64U << 10U, 128U << 10U, 256U << 10U};
  double least = 1e12;
  std::size_t segment = best.segment;
  for (const std::size_t each : segments) {
    if (each > room.slot_bytes()) break;
    Tuning shared = with(&Tuning::segment, each);
    shared.halves_from = 64;
    const double us = probe.time(1U << 20U, shared);
    if (probe.is_over()) break;
    if (us < least) {
      least = us;
      segment = each;
    }
  }
  best.segment = segment;

  constexpr std::array<std::size_t, 5> middle = {4U << 10U, 16U << 10U, 64U << 10U, 256U << 10U, 1U << 20U};
  best.halves_from = switch_point(middle, never, [&](std::size_t bytes) {
    return probe.time(bytes, with(&Tuning::halves_from, 64)) < probe.time(bytes, with(&Tuning::halves_from, never));
  });
  constexpr std::array<std::size_t, 3> large = {1U << 20U, 2U << 20U, largest};
  // Where it does not pay yet, caches end somewhere: a result that fills the last one is thrown out of it anyway.
  const std::size_t full = std::max(4 * largest, guessed_tuning(room.size()).stream_from);
  best.stream_from = switch_point(large, full, [&](std::size_t bytes) {
    return probe.time(bytes, with(&Tuning::stream_from, 64)) < probe.time(bytes, with(&Tuning::stream_from, never));
  });
  if (room.has_reachable()) {
    constexpr std::array<std::size_t, 4> small = {256, 1U << 10U, 4U << 10U, 16U << 10U};
    best.direct_from = switch_point(small, 64U << 10U, [&](std::size_t bytes) {
      return probe.time(bytes, with(&Tuning::direct_from, 64)) < probe.time(bytes, with(&Tuning::direct_from, never));
    });
  } else {
    best.direct_from = std::min<std::size_t>(best.halves_from, 4U << 10U);
  }
  if (probe.is_over()) {
    const Tuning guess = guessed_tuning(room.size());
    return {.halves_from = guess.halves_from,
            .segment = best.segment,
            .stream_from = guess.stream_from,
            .direct_from = guess.direct_from};
  }
  return best;
}

}  // namespace lockstep::node
