// SPDX-License-Identifier: Apache-2.0
// Sums gradients of variables over all replicas. Each replica keeps flat memory for them, so the buckets that travel
// are planned once and used in all steps.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "runtime/gradient_reducer.hpp"
#include "runtime/train/tape.hpp"

namespace lockstep::train {

// Holds the sizes of buckets, and the format in which gradients travel. A 16-bit format rounds each replica's gradients
// before they are added, and each sum. It changes nothing if there is only one replica.
struct ExchangeOptions {
  BucketOptions buckets;
  WireFormat wire = WireFormat::as_is;
  // Keeps rows of gradients apart, as they are in one replica with all examples. Otherwise a sum that is shorter adds
  // up equal rows.
  bool keeps_rows = false;
};

// Is the sum of a variable's gradients: elements, which its replica may change until its next step, or rows.
struct SummedGradient {
  std::size_t variable = 0;  // Is its number in the list.
  std::span<float> elements;
  std::optional<IndexedSlices<float>> rows;
};

// Belongs to an optimizer. Replicas of one process use it at once.
class GradientExchange {
 public:
  explicit GradientExchange(ExchangeOptions options);
  ~GradientExchange();
  GradientExchange(const GradientExchange&) = delete;
  GradientExchange& operator=(const GradientExchange&) = delete;

  // Returns the reducer of the last new list of variables; null if there was none with elements.
  GradientReducer* reducer() const;
  // Makes the reducer of these variables before the first step, which expects gradients of elements for all.
  void prepare(Strategy& strategy, const std::vector<AnyVariable>& variables);

  class Step;

 private:
  struct Plan;
  // Returns the plan for those of the variables that have gradients; null if no step has used one yet.
  Plan* find(Strategy& strategy, const std::vector<AnyVariable>& variables, const std::vector<bool>& has_gradient);
  // Makes it, unless it was prepared, or another replica of this process has made it.
  Plan& make(Strategy& strategy, const std::vector<AnyVariable>& variables, const std::vector<bool>& has_gradient,
             const std::vector<bool>& is_sparse, bool is_used);

  ExchangeOptions options_;
  mutable std::mutex mutex_;
  std::vector<std::unique_ptr<Plan>> plans_;
};

// Is one step of a replica. The first step of a list of variables learns which gradients have rows only. In later
// steps each gradient travels as soon as it is taken.
class GradientExchange::Step {
 public:
  // Is that of local replica `local`. Nothing travels if `replica` is null.
  Step(GradientExchange& exchange, Strategy& strategy, int local, ReplicaContext* replica,
       const std::vector<AnyVariable>& variables, Origin origin);
  ~Step();
  Step(const Step&) = delete;
  Step& operator=(const Step&) = delete;

  // Tells which variables have gradients: the same on all replicas.
  void begin(const std::vector<bool>& has_gradient);
  // Returns memory for the elements of a gradient.
  AnyTensor memory(std::size_t which);
  // Takes a gradient. Its elements are copied unless they are in that memory.
  void take(std::size_t which, const Gradient& gradient);
  // Waits for the sums, and returns them in the order of the variables.
  std::vector<SummedGradient> finish();

 private:
  void start(Plan& plan);
  void send(std::size_t which, const Gradient& gradient);
  IndexedSlices<float> rows_of(std::size_t which, const Gradient& gradient) const;
  IndexedSlices<float> sum_of_rows(const IndexedSlices<float>& mine) const;

  GradientExchange& exchange_;
  Strategy& strategy_;
  std::size_t local_;
  ReplicaContext* replica_;
  const std::vector<AnyVariable>& variables_;
  Origin origin_;
  std::vector<bool> has_gradient_;
  Plan* plan_ = nullptr;
  std::vector<std::optional<AnyTensor>> scratch_;
  std::vector<std::optional<IndexedSlices<float>>> rows_;
  std::vector<std::pair<std::size_t, Gradient>> learned_;  // Are in the order in which they were taken.
  std::optional<GradientReducer::BackwardPass> pass_;
};

}  // namespace lockstep::train
