// SPDX-License-Identifier: Apache-2.0
// Measures the thresholds. The members run all_reduces of their own in the room, and use the slowest member's time each
// time, so that all decide alike.
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <functional>
#include <span>
#include <type_traits>
#include <vector>

#include "collectives/node/node_collective.hpp"
#include "collectives/node/tuning.hpp"
#include "topology/base/error.hpp"
#include "topology/base/load_reading.hpp"
#include "topology/base/text.hpp"

namespace lockstep::node {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::uint32_t call_tag_of_measuring = 0x74756e65;
constexpr std::size_t largest = 4U << 20U;  // bytes; the largest size that is measured

// Runs and times calls in the room, together with the other members.
class TuningProbe {
 public:
  TuningProbe(Room& room, bool crowded, const WaitLimit& waiting, std::size_t most = largest)
      : room_(room),
        crowded_(crowded),
        poll_limits_(crowded ? PollLimits{0, 64} : PollLimits{1000, 0}),
        // A member that shares a core begins when it gets one; many calls together make that delay small. Otherwise
        // places of steps rotate through some MiB, and a few calls would still find what the way before has left there.
        in_a_row_(crowded ? 512U << 10U : 2U << 20U),
        waiting_(waiting),
        in_(most),
        out_(most) {}

  // Returns the microseconds of an all_reduce of so many bytes with each tuning: the slowest member's in the fastest of
  // some rounds. The tunings take turns, so that a disturbance affects all. Returns nothing if there is no time left.
  std::vector<double> times(std::size_t bytes, std::span<const Tuning> tunings) {
    return times(plan_of(bytes / sizeof(float), DataType::f32, ReduceOp::sum), bytes, tunings);
  }
  // Returns the same for a collective that passes on blocks of so many bytes.
  std::vector<double> times_of_blocks(Collective collective, std::size_t bytes, std::span<const Tuning> tunings) {
    const auto n = static_cast<std::size_t>(room_.size());
    Plan plan = plan_of(bytes / sizeof(float), DataType::f32, ReduceOp::sum);
    plan.spec.collective = collective;
    if (collective == Collective::broadcast) return times(plan, bytes, tunings);
    plan.spec.output_blocks = Blocks::even(plan.spec.count, room_.size());
    plan.output_count = n * plan.spec.count;
    if (out_.size() < n * bytes) out_.resize(n * bytes);
    return times(plan, n * bytes, tunings);
  }
  // Returns the nanoseconds of a small step: the slowest member's in the fastest of some rows.
  double step() {
    constexpr int rows = 8;
    constexpr int in_a_row = 16;
    const Plan plan = plan_of(1, DataType::f32, ReduceOp::sum);
    const Call call = call_of(plan, in_.data(), out_.data());
    double best = 1e9;
    for (int row = 0; row < rows; ++row) {
      run(call, best_guess());
      const auto begin = Clock::now();
      for (int i = 0; i < in_a_row; ++i) run(call, best_guess());
      const std::chrono::duration<double, std::nano> taken = Clock::now() - begin;
      best = std::min(best, taken.count() / in_a_row);
    }
    return slowest(best);
  }
  // Returns the picoseconds per byte handed to others, in the fastest round just measured, by the first tuning.
  double write_cost() { return slowest(write_cost_); }
  // Returns the largest value of all members.
  double slowest(double mine) {
    Plan plan = plan_of(1, DataType::f64, ReduceOp::max);
    double all = mine;
    run(call_of(plan, &mine, &all), best_guess());
    return all;
  }
  // Sends the first member's bytes to all.
  void tell(void* data, std::size_t bytes) {
    Plan plan = plan_of(bytes, DataType::u8, ReduceOp::sum);
    plan.spec.collective = Collective::broadcast;
    run(call_of(plan, data, data), best_guess());
  }
  // Returns how far the rounds of one way lay apart, over all that was measured; see MeasurementConditions.
  double spread() const {
    if (spreads_.empty()) return 1;
    std::vector<double> sorted = spreads_;
    std::ranges::nth_element(sorted, sorted.begin() + static_cast<std::ptrdiff_t>(sorted.size() / 2));
    return sorted[sorted.size() / 2];
  }
  // True if all the time is spent; all members agree.
  bool is_over() const { return spent_ > budget; }

 private:
  std::vector<double> times(const Plan& plan, std::size_t bytes, std::span<const Tuning> tunings) {
    if (is_over()) return {};
    const Call call = call_of(plan, in_.data(), out_.data());
    const int rounds = crowded_ ? 4 : 7;
    const std::size_t calls = std::clamp<std::size_t>(in_a_row_ / bytes, 1, 16);
    std::vector<double> best(tunings.size(), 1e9);
    std::vector<std::vector<double>> all(tunings.size());
    for (int round = 0; round < rounds; ++round) {
      for (std::size_t which = 0; which < tunings.size(); ++which) {
        run(call, tunings[which]);  // the last tuning's data in the caches must not count for this one
        room_.write_strategy().forget();
        const auto begin = Clock::now();
        for (std::size_t i = 0; i < calls; ++i) run(call, tunings[which]);
        const std::chrono::duration<double, std::micro> taken = Clock::now() - begin;
        all[which].push_back(taken.count());
        if (taken.count() / static_cast<double>(calls) >= best[which]) continue;
        best[which] = taken.count() / static_cast<double>(calls);
        if (which == 0) write_cost_ = room_.write_strategy().mean();
      }
      const std::chrono::duration<double> since_begin = Clock::now() - begin_;
      spent_ = slowest(since_begin.count());
      if (is_over()) break;
    }
    for (double& each : best) each = slowest(each);
    for (std::vector<double>& each : all) note_spread(each);
    return best;
  }

  void note_spread(std::vector<double>& rounds) {
    if (rounds.size() < 3) return;
    std::ranges::sort(rounds);
    spreads_.push_back(rounds[rounds.size() / 2] / rounds.front());
  }

  static constexpr double budget = 0.9;  // seconds, so that a start stays below one

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
    work_.begin(room_, tuning, call, static_cast<const std::byte*>(call.input), call_tag_of_measuring,
                room_.buffers().queries());
    const auto begin = Clock::now();
    for (unsigned turns = 1; !work_.is_done(); ++turns) {
      if (work_.advance(poll_limits_)) continue;
      ::sched_yield();  // another process may need this core, even if cores are not shared
      look_at_others(turns, Clock::now() - begin);
    }
  }

  void look_at_others(unsigned turns, std::chrono::duration<double> lasted) const {
    constexpr unsigned between_looks = 4096;
    if (turns % between_looks == 0 && waiting_.lost) {
      if (const auto who = waiting_.lost())
        throw Error(Code::peer_failed, text("measuring this node's memory: ", *who), "see that process's own error");
    }
    if (lasted < std::chrono::duration<double>(waiting_.limit_seconds)) return;
    throw Error(Code::stall, text("measuring this node's memory: ranks ", work_.missing().to_string(), " did not come"),
                "run `lockstep stat` on their hosts; LOCKSTEP_TIMEOUT sets the limit");
  }

  Tuning best_guess() const { return guessed_tuning(room_.size()); }

  Room& room_;
  bool crowded_;  // calls take longer, so there is less time
  PollLimits poll_limits_;
  std::size_t in_a_row_;  // bytes of calls that are measured together
  const WaitLimit& waiting_;
  std::vector<std::byte> in_;
  std::vector<std::byte> out_;
  Clock::time_point begin_ = Clock::now();
  double spent_ = 0;
  double write_cost_ = 0;
  std::vector<double> spreads_;
  NodeCollective work_;
};

// Returns the logarithm of the second way's time over the first's. Returns 0 if there was no time to measure.
double change(const std::vector<double>& times) { return times.empty() ? 0 : std::log(times[1] / times[0]); }

// Returns the size from which the second way is used, so that all sizes together lose least; one disturbed size does
// not decide. Returns `beyond` if it is never worth it.
std::size_t switch_point(std::span<const std::size_t> sizes, std::size_t beyond,
                         const std::function<double(std::size_t)>& change_at) {
  std::size_t from = beyond;
  double sum = 0;
  double least = 0;
  for (std::size_t i = sizes.size(); i > 0; --i) {
    sum += change_at(sizes[i - 1]);
    if (sum >= least) continue;
    least = sum;
    from = sizes[i - 1];
  }
  return from;
}

// Finds one threshold after another; later ones are measured with the earlier results.
class TuningSearch {
 public:
  TuningSearch(Room& room, bool crowded, const WaitLimit& waiting)
      : room_(room),
        crowded_(crowded),
        probe_(room, crowded, waiting),
        best_(guessed_tuning(room.size())),
        found_(best_) {
    best_.direct_from = best_.stream_from = best_.process_read_from = best_.two_phase_from = best_.slow_write_from =
        best_.spread_from = never;
  }

  // Finds all thresholds, and returns them with the load meanwhile.
  TuningMeasurement measured() {
    const LoadReading reading;
    TuningMeasurement measurement{.tuning = all(), .conditions = {}};
    measurement.conditions = {.load = worst(reading.over()),
                              .spread = probe_.slowest(probe_.spread()),
                              .members = room_.size(),
                              .processors = static_cast<int>(std::max(1L, ::sysconf(_SC_NPROCESSORS_ONLN))),
                              .crowded = crowded_};
    return measurement;
  }

 private:
  // Returns the worst load of all members; an unknown figure is the least.
  Load worst(const Load& mine) {
    return {.stolen = probe_.slowest(mine.stolen),
            .off_core = probe_.slowest(mine.off_core),
            .switches = probe_.slowest(mine.switches),
            .queue = probe_.slowest(mine.queue)};
  }

  // Returns all thresholds. Those that there was no time for stay as guessed.
  Tuning all() {
    // Members that share cores have less time, so the most important thresholds come first there.
    if (crowded_) find_slow();
    if (crowded_) find_switches();
    find_segment();
    find_step();
    if (!crowded_) find_spread();
    if (!crowded_) find_slow();
    find_flow();
    if (!crowded_) find_switches();
    // An output is read next, and so is better in a cache while it fits there. Single calls do not show that: by them
    // 2 or 4 MiB seemed faster past the caches, where repeated calls take two to three times as long (2026-11-30).
    keep(&Tuning::stream_from, guessed_tuning(room_.size()).stream_from);
    if (room_.buffers().reader().works()) find_process_reading();
    constexpr std::array<std::size_t, 4> small = {256, 1U << 10U, 4U << 10U, 16U << 10U};
    if (room_.buffers().queries() != AddressQueries::none)
      find(&Tuning::direct_from, small, 64U << 10U);
    else
      keep(&Tuning::direct_from, std::min<std::size_t>(best_.two_phase_from, 4U << 10U));
    return found_;
  }

  Tuning with(std::size_t Tuning::*field, std::size_t value) const {
    Tuning changed = best_;
    changed.*field = value;
    return changed;
  }

  std::size_t room_size() const { return static_cast<std::size_t>(room_.size()); }

  void find_switches() {
    constexpr std::array<std::size_t, 5> little = {64, 1U << 10U, 4U << 10U, 16U << 10U, 64U << 10U};
    if (room_.size() > 2) {
      find(&Tuning::each_combines_from, little, never, never, 1);
      if (best_.each_combines_from == little.front())
        keep(&Tuning::each_combines_from, 1);  // it paid at no measured size
    }
    constexpr std::array<std::size_t, 6> middle = {4U << 10U,   16U << 10U,  64U << 10U,
                                                   128U << 10U, 256U << 10U, 1U << 20U};
    find(&Tuning::two_phase_from, middle, 2U << 20U);
  }

  void find_segment() {
    std::vector<Tuning> tunings;
    for (std::size_t each = 16U << 10U; each <= std::min<std::size_t>(256U << 10U, room_.memory().slot_bytes());
         each *= 2) {
      tunings.push_back(with(&Tuning::segment, each));
      tunings.back().two_phase_from = 64;
    }
    keep(&Tuning::segment, best_of(tunings, {256U << 10U, 1U << 20U, 2U << 20U}, [&](std::size_t bytes) {
                             return probe_.times(bytes, tunings);
                           }).segment);
  }

  void find_step() {
    std::vector<Tuning> tunings;
    for (std::size_t each = 32U << 10U; each <= std::min<std::size_t>(256U << 10U, room_.memory().slot_bytes());
         each *= 2)
      tunings.push_back(with(&Tuning::step, each));
    keep(&Tuning::step, best_of(tunings, {128U << 10U, 512U << 10U, 2U << 20U}, [&](std::size_t bytes) {
                          return probe_.times_of_blocks(Collective::all_gather, bytes / room_size(), tunings);
                        }).step);
  }

  void find_flow() {
    std::vector<Tuning> tunings;
    for (const std::size_t each : {4U << 10U, 8U << 10U, 16U << 10U, 32U << 10U, 256U << 10U})
      tunings.push_back(with(&Tuning::flow_from, each));
    keep(&Tuning::flow_from, best_of(tunings, {8U << 10U, 16U << 10U, 32U << 10U, 128U << 10U}, [&](std::size_t bytes) {
                               return probe_.times_of_blocks(Collective::broadcast, bytes, tunings);
                             }).flow_from);
  }

  // Returns the tuning with the least time over several sizes together.
  template <class Times>
  static Tuning best_of(const std::vector<Tuning>& tunings, std::initializer_list<std::size_t> sizes,
                        const Times& times_at) {
    std::vector<double> losses(tunings.size());
    for (const std::size_t bytes : sizes) {
      const std::vector<double> times = times_at(bytes);
      for (std::size_t i = 0; i < times.size(); ++i) losses[i] += std::log(times[i]);
    }
    return tunings[static_cast<std::size_t>(std::ranges::min_element(losses) - losses.begin())];
  }

  // Keeps a value, unless there was no time to measure it.
  void keep(std::size_t Tuning::*field, std::size_t value) {
    if (!probe_.is_over()) best_.*field = found_.*field = value;
  }

  // Finds the size from which value `taken` of a field beats value `left`.
  void find(std::size_t Tuning::*field, std::span<const std::size_t> sizes, std::size_t beyond,
            std::size_t left = never, std::size_t taken = 64) {
    keep(field, switch_point(sizes, beyond, [&](std::size_t bytes) {
           return change(probe_.times(bytes, std::array{with(field, left), with(field, taken)}));
         }));
  }

  // Times data that all members write and read at once: blocks that are passed on, and sums that are shared out.
  std::vector<double> of_blocks(std::size_t bytes, const std::array<Tuning, 2>& ways) {
    return probe_.times_of_blocks(Collective::all_gather, bytes, ways);
  }
  std::vector<double> of_sums(std::size_t bytes, std::array<Tuning, 2> ways) {
    for (Tuning& each : ways) each.two_phase_from = 64;
    return probe_.times(bytes, ways);
  }

  void find_spread() {
    constexpr std::array<std::size_t, 7> sizes = {1U << 10U,  4U << 10U,   8U << 10U, 16U << 10U,
                                                  64U << 10U, 256U << 10U, 1U << 20U};
    keep(&Tuning::spread_from, switch_point(sizes, never, [&](std::size_t bytes) {
      const std::array ways = {with(&Tuning::spread_from, never), with(&Tuning::spread_from, 64)};
      return change(of_blocks(bytes, ways)) + change(of_sums(bytes, ways));
    }));
  }

  // Finds how long a byte's write through the caches may take before going past them is as good. That is its time just
  // now, plus the extra time of the other way for a byte. Single writes of some KiB take up to twice the mean, and if
  // the other way is faster, readers gain by it too. So the limit is at least three times the present mean, or at least
  // half of it. Distant cores, whose write takes five times as long as that of near ones, are then on the other side of
  // it. Cores of a virtual machine move.
  void find_slow() {
    std::vector<double> limits;
    const std::array ways = {with(&Tuning::slow_write_from, WriteStrategy::never_slow),
                             with(&Tuning::slow_write_from, 0)};
    const auto add = [&](std::size_t bytes, const std::vector<double>& times) {
      constexpr double picoseconds = 1e6;  // in a microsecond
      if (times.empty()) return;
      const double now = probe_.write_cost();
      const double equal = now + (times[1] - times[0]) * picoseconds / static_cast<double>(bytes);
      limits.push_back(std::max(equal, equal > now ? 3 * now : now / 2));
    };
    for (const std::size_t bytes : {16U << 10U, 64U << 10U, 256U << 10U, 1U << 20U}) {
      add(bytes, of_blocks(bytes, ways));
      add(bytes, of_sums(bytes, ways));
    }
    room_.write_strategy().forget();
    if (limits.empty()) return;
    std::ranges::nth_element(limits, limits.begin() + static_cast<std::ptrdiff_t>(limits.size() / 2));
    keep(&Tuning::slow_write_from, static_cast<std::size_t>(std::clamp(limits[limits.size() / 2], 0.0, 1e9)));
  }

  // The time includes the system's work with pages, so slots are left only if reading is clearly better.
  void find_process_reading() {
    constexpr std::array<std::size_t, 5> blocks = {8U << 10U, 32U << 10U, 128U << 10U, 512U << 10U, 2U << 20U};
    const std::size_t fit = 2 * largest / static_cast<std::size_t>(room_.size());
    const auto fitting = std::ranges::count_if(blocks, [&](std::size_t bytes) { return bytes <= fit; });
    const double bias = std::log(1.2);
    keep(&Tuning::process_read_from,
         switch_point(std::span(blocks).first(static_cast<std::size_t>(fitting)), never, [&](auto bytes) {
           const std::array both = {with(&Tuning::process_read_from, never), with(&Tuning::process_read_from, 64)};
           return change(probe_.times_of_blocks(Collective::all_gather, bytes, both)) + bias;
         }));
  }

  Room& room_;
  bool crowded_;
  TuningProbe probe_;
  Tuning best_;   // the others are measured with it
  Tuning found_;  // measured so far, and guessed otherwise
};

}  // namespace

double step_nanoseconds(Room& room, const WaitLimit& waiting) {
  return TuningProbe(room, false, waiting, sizeof(float)).step();
}

TuningOffer broadcast_offer(Room& room, TuningOffer offer, const WaitLimit& waiting) {
  static_assert(std::is_trivially_copyable_v<TuningOffer>);
  TuningProbe(room, false, waiting, sizeof offer).tell(&offer, sizeof offer);
  return offer;
}

TuningMeasurement measured_tuning(Room& room, bool crowded, const WaitLimit& waiting) {
  return TuningSearch(room, crowded, waiting).measured();
}

}  // namespace lockstep::node
