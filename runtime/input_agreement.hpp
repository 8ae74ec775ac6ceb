// SPDX-License-Identifier: Apache-2.0
// Lets the processes of a strategy read data in step: they begin loops alike, learn whether one of them still has data,
// and hear of failures.
#pragma once

#include <array>
#include <cstdint>
#include <exception>
#include <span>
#include <string>
#include <vector>

#include "collectives/communicator/communicator.hpp"
#include "runtime/data/stage.hpp"
#include "runtime/gradient_reducer.hpp"
#include "runtime/strategy.hpp"

namespace lockstep::detail {

// Compares the texts of the processes' pipelines. Throws Error mismatch on all if they differ.
void require_equal_pipelines(Strategy& strategy, const std::string& pipeline);
// Returns the opening of process 0.
data::Opening share_opening(Strategy& strategy, const data::Opening& mine);
// Returns the number of replicas of each process.
std::vector<int> replicas_of_processes(Strategy& strategy);

// Describes the data that a process begins to read.
struct LoopStart {
  std::string pipeline;                  // Is for errors.
  std::int64_t length = 0;               // Is the number of steps, data::infinite or data::unknown_length.
  std::uint64_t beginning = 0;           // Is the identity of the first position.
  bool has_one_sequence = true;          // True if all processes read the same elements, so that these must be equal.
  std::exception_ptr failure = nullptr;  // Is the exception if it cannot read.
};
// Returns the number of steps of the longest loop: data::unknown_length if one is unknown. Throws Error mismatch on all
// processes for different sequences, and the failure of one process on all.
std::int64_t agree_on_start(Strategy& strategy, const LoopStart& mine);

// Throws a failure of this process's input on all processes. The others hear it at their next collective.
[[noreturn]] void fail_for_all(Strategy& strategy, const std::exception_ptr& failure, const std::string& place);
// Throws the failure of one process on all. All processes call it; `mine` is null in those that have none.
[[noreturn]] void fail_together(Strategy& strategy, const std::exception_ptr& mine, const std::string& place);

// Adds up the states of all processes before each step of a loop whose length is unknown. Each sum is on its way while
// the step before runs.
class StepAgreement final : private TravellingCounts {
 public:
  struct State {
    std::int64_t with_data = 0;
    std::int64_t ended = 0;
    std::int64_t failed = 0;
    std::int64_t rows = 0;
  };

  explicit StepAgreement(Strategy& strategy) : strategy_(strategy) {}
  // Waits for the sum that is under way, if there is one.
  ~StepAgreement() override;
  StepAgreement(const StepAgreement&) = delete;
  StepAgreement& operator=(const StepAgreement&) = delete;

  // Lets the states travel with a reducer's gradients, which then saves their own message. The reducer must outlive it.
  void travel_with(GradientReducer& reducer);
  bool is_begun() const { return is_begun_; }
  void begin(const State& mine);
  // Waits for the other processes, and returns the sums.
  State finish();

 private:
  std::size_t size() const override { return numbers; }
  void give(std::span<std::int64_t> counts) override;
  void take(std::span<const std::int64_t> sums) override;
  void send();

  static constexpr std::size_t numbers = 4;

  Strategy& strategy_;
  GradientReducer* reducer_ = nullptr;
  std::array<std::int64_t, numbers> mine_{};
  std::array<std::int64_t, numbers> sums_{};
  bool is_begun_ = false;
  bool has_travelled_ = false;  // True if a backward pass has brought the sums.
  Request request_;
};

}  // namespace lockstep::detail
