// SPDX-License-Identifier: Apache-2.0
// Chooses the calls of trials, and counts their votes.
#include "collectives/node/tuning_trial.hpp"

#include <algorithm>
#include <bit>
#include <cmath>

namespace lockstep::node {
namespace {

constexpr std::uint32_t most_misses = 16;  // calls in a row that are looked at for one that fits
constexpr std::size_t most_skips = 9;      // times that a trial looks in vain, later and later
constexpr std::size_t near = 4;            // a switch point this many times away is near
constexpr std::uint64_t longest_pause = 1U << 18U;
constexpr std::size_t least_segment = 16U << 10U;

// Count the calls of a pair by each way; guesses. Of 5,900 calls, 20 go by the neighbour.
constexpr std::size_t timed_calls = 8;
constexpr std::size_t warm_up_calls = 12;
constexpr std::size_t calls_of_pair = 2 * timed_calls + warm_up_calls;

// Returns the turns from one pair to the next. They vary, so that a program's rhythm does not hide a kind of call.
std::uint64_t turns_between(std::uint64_t turn) { return 3840 + (turn * 0x9e3779b97f4a7c15ULL >> 52U); }

std::size_t index_of(std::size_t Tuning::*field) {
  const auto fields = tuning_fields();
  return static_cast<std::size_t>(std::ranges::find(fields, field, &TuningField::value) - fields.begin());
}

// Collects neighbours.
class NeighbourList {
 public:
  explicit NeighbourList(const Tuning& tuning) : tuning_(tuning) {}

  // Adds the value that makes a call of this size change sides, if its switch point is near.
  void flip(std::size_t Tuning::*field, std::size_t bytes) {
    const std::size_t from = tuning_.*field;
    if (bytes >= 64 && bytes < from && from / near <= bytes) add(field, std::bit_floor(bytes));
    if (bytes >= 64 && bytes >= from && bytes / near < from) add(field, std::bit_ceil(bytes + 1));
  }
  // Adds the double and the half of a size that is cut out of so many bytes.
  void resize(std::size_t Tuning::*field, std::size_t bytes, std::size_t least, std::size_t most) {
    const std::size_t size = tuning_.*field;
    if (bytes > size && 2 * size <= most) add(field, 2 * size);
    if (bytes > size / 2 && size / 2 >= least) add(field, size / 2);
  }
  Neighbours take() const { return found_; }

 private:
  void add(std::size_t Tuning::*field, std::size_t value) {
    if (found_.count < Neighbours::most) found_.all[found_.count++] = {index_of(field), value};
  }

  const Tuning& tuning_;
  Neighbours found_;
};

}  // namespace

Neighbours neighbours_of(const Tuning& tuning, const Spec& spec, int members, std::size_t slot_bytes) {
  NeighbourList list(tuning);
  if (members < 2 || is_unequal(spec.collective) || spec.collective == Collective::barrier) return list.take();
  const std::size_t bytes = spec.count * spec.element_bytes;
  const std::size_t in_all = bytes * static_cast<std::size_t>(members);
  if (spec.collective == Collective::all_reduce && members > 2) list.flip(&Tuning::each_combines_from, bytes);
  if (spec.collective == Collective::all_reduce || spec.collective == Collective::reduce) {
    list.flip(&Tuning::two_phase_from, bytes);
    list.flip(&Tuning::stream_from, bytes);
    if (bytes >= tuning.two_phase_from) list.resize(&Tuning::segment, bytes, least_segment, slot_bytes);
    return list.take();
  }
  if (reduces(spec.collective)) return list.take();
  list.resize(&Tuning::step, bytes, least_segment, slot_bytes);
  // See suits_process_reading(): elsewhere the flip may change nothing.
  if (!is_rooted(spec.collective) && in_all < tuning.stream_from) list.flip(&Tuning::process_read_from, bytes);
  if (spec.collective == Collective::broadcast || spec.collective == Collective::scatter)
    list.flip(&Tuning::flow_from, bytes / 4);  // into at most four parts
  else
    list.flip(&Tuning::stream_from, in_all);
  return list.take();
}

TrialVote TrialVote::of(std::span<const double> seconds_in_use, std::span<const double> seconds_of_neighbour) {
  TrialVote vote;
  std::array<double, trial_pairs> gains{};
  const std::size_t pairs = std::min({seconds_in_use.size(), seconds_of_neighbour.size(), gains.size()});
  if (pairs == 0) return vote;
  constexpr double least = 1e-9;
  for (std::size_t i = 0; i < pairs; ++i) {
    gains[i] = std::log(std::max(least, seconds_in_use[i]) / std::max(least, seconds_of_neighbour[i]));
    if (gains[i] > 0) ++vote.wins;
  }
  const auto middle = gains.begin() + static_cast<std::ptrdiff_t>(pairs / 2);
  std::nth_element(gains.begin(), middle, gains.begin() + static_cast<std::ptrdiff_t>(pairs));
  vote.gain_permille = static_cast<std::int32_t>(std::lround(1000 * *middle));
  return vote;
}

bool is_clearly_behind(std::span<const TrialVote> votes, std::size_t pairs) {
  constexpr std::int64_t least_gain = 95;  // permille: a tenth
  std::int64_t gain = 0;
  std::size_t wins = 0;
  for (const TrialVote& vote : votes) {
    gain += vote.gain_permille;
    wins += vote.wins;
  }
  const auto members = static_cast<std::int64_t>(votes.size());
  return members > 0 && gain >= least_gain * members && 4 * wins >= 3 * pairs * votes.size();
}

const Tuning& TuningTrial::choose(std::uint64_t turn, const Spec& spec) {
  is_timing_ = false;
  if (phase_ == Phase::vote) {
    count_votes(turn);
    return room_->tuning();
  }
  if (phase_ == Phase::search) search(spec);
  if (phase_ == Phase::sample && CallKind::of(spec) == trial_.kind) return sample(turn);
  if (++misses_ >= most_misses) skip(turn);
  return room_->tuning();
}

// Opens a trial if this call lies near a switch point. Trials take the neighbours of a call in turns.
void TuningTrial::search(const Spec& spec) {
  const Neighbours found = neighbours_of(room_->tuning(), spec, room_->size(), room_->memory().slot_bytes());
  if (found.count == 0) return;
  trial_.times_ahead = 0;
  open(spec, found.all[number_ % found.count]);
}

void TuningTrial::open(const Spec& spec, const Neighbour& neighbour) {
  trial_.kind = CallKind::of(spec);
  trial_.neighbour = neighbour;
  trial_.tuning = room_->tuning();
  trial_.tuning.*tuning_fields()[neighbour.field].value = neighbour.value;
  trial_.calls = trial_.pairs = 0;
  trial_.skips = 0;
  trial_.knows_last_step = false;
  phase_ = Phase::sample;
}

// Leaves a program alone that makes other calls just now. The pair under way begins again.
void TuningTrial::skip(std::uint64_t turn) {
  if (phase_ == Phase::search || trial_.skips >= most_skips) return close(turn, 2 * first_turn);
  misses_ = 0;
  trial_.calls = 0;
  next_turn_ = turn + (std::uint64_t{512} << trial_.skips++);
}

// Gives the calls of a pair their ways: first a row by the value in use, then a row by the neighbour. Only the later
// part of the neighbour's row is timed. Its first calls write to memory that the other members' caches have dropped,
// which is faster than it would be in the long run.
const Tuning& TuningTrial::sample(std::uint64_t turn) {
  misses_ = 0;
  const std::size_t call = trial_.calls++;
  if (call == 0) trial_.seconds[0][trial_.pairs] = trial_.seconds[1][trial_.pairs] = 0;
  const bool is_neighbour = call >= timed_calls;
  is_timing_ = !is_neighbour || call >= timed_calls + warm_up_calls;
  is_timing_neighbour_ = is_neighbour;
  if (trial_.calls == calls_of_pair) next_turn_ = turn + turns_between(turn);
  begin_ = Clock::now();
  return is_neighbour ? trial_.tuning : room_->tuning();
}

void TuningTrial::end_call(double seconds) {
  is_timing_ = false;
  if (phase_ != Phase::sample || trial_.pairs >= trial_pairs) return;  // the timed call was given up
  trial_.seconds[is_timing_neighbour_ ? 1 : 0][trial_.pairs] += seconds;
  if (trial_.calls < calls_of_pair) return;
  trial_.calls = trial_.skips = 0;
  if (++trial_.pairs < trial_pairs) return;
  const TrialVote vote = TrialVote::of(trial_.seconds[0], trial_.seconds[1]);
  room_->memory().header_of(room_->index()).trial_votes[number_ % 2].store(vote.pack(), std::memory_order_relaxed);
  phase_ = Phase::vote;
}

// Reads the votes when all have written theirs. A member wrote its vote before the step after `last_step`. This member
// has published two rings of lines more, and so has seen that all others have published all but the last ring of them.
void TuningTrial::count_votes(std::uint64_t turn) {
  const StepNumber last = room_->ring().last();
  if (!trial_.knows_last_step) {
    trial_.knows_last_step = true;
    trial_.last_step = last;
  }
  if (!reaches(last, trial_.last_step + 2 * line_ring)) return;
  std::array<TrialVote, RoomMemory::most_members> votes{};
  const auto members = static_cast<std::size_t>(room_->size());
  for (std::size_t member = 0; member < members; ++member) {
    votes[member] = TrialVote::unpack(
        room_->memory().header_of(static_cast<int>(member)).trial_votes[number_ % 2].load(std::memory_order_relaxed));
  }
  ++number_;
  if (!is_clearly_behind(std::span(votes).first(members), trial_pairs)) {
    pause_ = std::min(2 * pause_, longest_pause);  // without a gain the next trial comes later and later
    return close(turn, pause_);
  }
  constexpr std::size_t trials_needed = 2;
  if (++trial_.times_ahead < trials_needed) {
    trial_.pairs = 0;
    trial_.knows_last_step = false;
    phase_ = Phase::sample;
    return;
  }
  room_->thresholds().give_up(tuning_fields()[trial_.neighbour.field], trial_.neighbour.value);
  pause_ = first_turn;
  close(turn, pause_);
}

// Ends the trial or the search. The next call that asks comes after so many turns.
void TuningTrial::close(std::uint64_t turn, std::uint64_t pause) {
  phase_ = Phase::search;
  misses_ = 0;
  next_turn_ = turn + pause;
}

}  // namespace lockstep::node
