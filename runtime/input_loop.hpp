// SPDX-License-Identifier: Apache-2.0
// Reads the steps of a loop over a distributed data set, perhaps ahead in a thread, and ends the loops of all processes
// together.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "runtime/data/read_ahead.hpp"
#include "runtime/input_agreement.hpp"
#include "runtime/input_steps.hpp"
#include "runtime/strategy.hpp"

namespace lockstep::detail {

// Describes a loop, besides its source.
struct LoopDescription {
  std::string identity;  // Must be the same in all processes.
  bool has_one_sequence = true;
  int prefetch = 0;  // Is the number of steps that a thread reads ahead.
};

// Holds the source of a loop that all processes have begun.
template <class C>
struct StartedLoop {
  std::unique_ptr<StepSource<C>> source;
  std::int64_t length = 0;  // Counts the steps of the longest loop.
};
// Begins a loop in all processes. `open` returns the source of this one. If it throws in one process, all fail.
template <class C, class Open>
StartedLoop<C> start_loop(Strategy& strategy, const LoopDescription& description, Open&& open) {
  require_equal_pipelines(strategy, description.identity);
  StartedLoop<C> loop;
  LoopStart mine{.pipeline = description.identity, .has_one_sequence = description.has_one_sequence};
  try {
    loop.source = open();
    mine.length = loop.source->length();
    mine.beginning = hash(loop.source->position());
  } catch (...) {
    mine.failure = std::current_exception();
  }
  loop.length = agree_on_start(strategy, mine);
  return loop;
}

// Reads steps in order. One thread at a time may use it.
template <class C>
class StepReader {
 public:
  // `keeps_positions` lets position_before() find those of steps.
  StepReader(std::unique_ptr<StepSource<C>> source, std::size_t pieces, int prefetch, bool keeps_positions)
      : source_(std::move(source)), pieces_(pieces), keeps_positions_(keeps_positions || prefetch > 0) {
    if (prefetch == 0) return;
    ahead_ =
        std::make_unique<data::ReadAhead<InputStep<C>>>(static_cast<std::size_t>(prefetch), [this](InputStep<C>& step) {
          read_here(step);
          return !step.is_end && !step.failure;
        });
  }
  // Replaces a step by the next one. After the last step it has empty pieces.
  void read(InputStep<C>& step) {
    if (!ahead_ || has_ended_) return read_here(step);
    ahead_->give_back(std::move(step));
    step = ahead_->take();
    has_ended_ = step.is_end;
    if (has_ended_) ahead_->pause();
  }
  // Returns the position before the next step that read() returns.
  Bytes position() {
    if (!ahead_) return source_->position();
    ahead_->pause();
    return ahead_->front() == nullptr ? source_->position() : position_before(*ahead_->front());
  }
  // Returns the position before a step that read() has returned.
  Bytes position_before(const InputStep<C>& step) {
    if (step.before.rows == 0) return *step.before.base;
    if (ahead_) ahead_->pause();  // Two threads do not call a pipeline's functions at once.
    const std::unique_ptr<StepSource<C>> other = source_->reopen();
    other->seek(*step.before.base);
    InputStep<C> passed;
    passed.pieces.resize(pieces_);
    for (std::uint64_t i = 0; i < step.before.rows; ++i) other->read(passed);
    return other->position();
  }
  void seek(std::span<const std::byte> position) {
    if (ahead_) ahead_->pause();
    source_->seek(position);
    if (ahead_) ahead_->clear();
    has_ended_ = false;
    positions_.go_to({});
  }

 private:
  static constexpr std::uint64_t steps_apart = 64;  // Is read again by position() at most; a guess.

  void read_here(InputStep<C>& step) {
    step.pieces.resize(pieces_);
    step.failure = nullptr;
    step.is_end = false;
    try {
      if (keeps_positions_) step.before = positions_.at(*source_);
      source_->read(step);
      positions_.pass(1);
    } catch (...) {
      step.failure = std::current_exception();
    }
  }

  std::unique_ptr<StepSource<C>> source_;
  std::size_t pieces_;
  bool keeps_positions_;
  data::RowPositions positions_{steps_apart};
  bool has_ended_ = false;  // True if the thread has read its last step, and that step has been taken.
  std::unique_ptr<data::ReadAhead<InputStep<C>>> ahead_;  // Its thread uses the members above.
};

// Is a loop of one process. All processes make and use theirs alike.
template <class C>
class InputLoop {
 public:
  // Begins a loop. `open` returns the source of this process.
  template <class Open>
  InputLoop(Strategy& strategy, const LoopDescription& description, Open&& open)
      : InputLoop(strategy, description, start_loop<C>(strategy, description, open)) {}

  // Returns the next step; null at the end of the longest loop. Its pieces may be exchanged. Throws the failure of any
  // process, again at each call until seek().
  InputStep<C>* next() {
    require_cross_replica(strategy_, "next");
    if (failure_) std::rethrow_exception(failure_);
    if (has_ended_) return nullptr;
    try {
      has_ended_ = !(agreement_ ? read_together() : read_alone());
    } catch (...) {
      failure_ = std::current_exception();
      throw;
    }
    if (has_ended_) return nullptr;
    ++returned_;
    return &current_;
  }
  // Lets the processes' counts travel with a reducer's gradients.
  void travel_with(GradientReducer& reducer) {
    if (agreement_) agreement_->travel_with(reducer);
  }
  // Returns the rows of all replicas in the latest step, if they are known without a message.
  std::optional<std::int64_t> global_rows() const { return rows_; }
  // Returns the number of steps of the longest loop, from its beginning.
  std::int64_t steps() const { return length_; }

  Bytes position() {
    if (failure_) throw Error(Code::usage, "the position of a loop that has failed", "save the position before next()");
    Bytes position = place_in_source();
    if (description_.has_one_sequence) return position;
    Writer writer;
    writer.put(returned_).put(std::span<const std::byte>(position));
    return writer.take();
  }
  // Stays at its place if the bytes are no position.
  void seek(std::span<const std::byte> position) {
    if (agreement_ && agreement_->is_begun()) {
      const Bytes here = place_in_source();
      agreement_->finish();
      try {
        go_to(position);
      } catch (...) {
        reader_.seek(here);
        throw;
      }
    } else {
      go_to(position);
    }
    failure_ = nullptr;
    has_ended_ = false;
    has_sought_ = true;
  }

 private:
  InputLoop(Strategy& strategy, LoopDescription description, StartedLoop<C> loop)
      : strategy_(strategy),
        description_(std::move(description)),
        is_alone_(strategy.channel(Channel::input).size() == 1),
        length_(loop.length),
        reader_(std::move(loop.source), static_cast<std::size_t>(strategy.num_local_replicas()), description_.prefetch,
                asks_others()) {
    if (asks_others()) agreement_.emplace(strategy);
  }
  Bytes place_in_source() {
    return agreement_ && agreement_->is_begun() ? reader_.position_before(next_) : reader_.position();
  }
  void go_to(std::span<const std::byte> position) {
    if (description_.has_one_sequence) {
      reader_.seek(position);
      returned_ = 0;
      return;
    }
    Reader bytes(position);
    const auto returned = bytes.get<std::int64_t>();
    reader_.seek(bytes.get_bytes());
    returned_ = returned;
  }
  // True if the end of the loop depends on data that the processes have not read.
  bool asks_others() const { return length_ == data::unknown_length && !is_alone_; }
  bool knows_all_rows() const { return description_.has_one_sequence || is_alone_; }
  std::string place() const {
    return text("process ", strategy_.channel(Channel::input).rank(), " reads element ", returned_, " of ",
                description_.identity, ", counted from ",
                has_sought_ && description_.has_one_sequence ? "the first one since seek()" : "0");
  }

  // Reads the current step without the other processes. Returns false at the end.
  bool read_alone() {
    reader_.read(current_);
    if (current_.failure) fail_for_all(strategy_, current_.failure, place());
    rows_ = knows_all_rows() ? std::optional(current_.rows) : std::nullopt;
    return knows_all_rows() ? !current_.is_end : length_ == data::infinite || returned_ < length_;
  }
  // Learns whether any process has the next step, makes it the current one, and asks for the one after it.
  bool read_together() {
    if (!agreement_->is_begun()) ask_for_next();
    const StepAgreement::State all = agreement_->finish();
    const bool ends_differ = description_.has_one_sequence && all.with_data > 0 && all.ended > 0;
    if (all.failed > 0 || ends_differ) fail_together(strategy_, own_failure(ends_differ), place());
    rows_ = description_.has_one_sequence ? next_.rows : all.rows;
    if (all.with_data == 0) return false;
    std::swap(current_, next_);
    ask_for_next();
    return true;
  }
  void ask_for_next() {
    reader_.read(next_);
    const bool has_failed = next_.failure != nullptr;
    agreement_->begin({.with_data = !has_failed && !next_.is_end,
                       .ended = !has_failed && next_.is_end,
                       .failed = has_failed,
                       .rows = has_failed ? 0 : next_.rows});
  }
  std::exception_ptr own_failure(bool ends_differ) const {
    if (next_.failure || !ends_differ || !next_.is_end) return next_.failure;
    return std::make_exception_ptr(Error(Code::mismatch, "its data ends here, and other processes have more",
                                         "give all processes the same data, or use distribute_from()"));
  }

  Strategy& strategy_;
  LoopDescription description_;
  bool is_alone_;
  std::int64_t length_;  // Counts the steps of the longest loop.
  StepReader<C> reader_;
  InputStep<C> current_;
  InputStep<C> next_;  // Is the next step, if the processes talk about it.
  std::optional<StepAgreement> agreement_;
  std::int64_t returned_ = 0;  // Counts the steps that next() has returned.
  std::optional<std::int64_t> rows_;
  bool has_ended_ = false;
  bool has_sought_ = false;
  std::exception_ptr failure_;
};

}  // namespace lockstep::detail
