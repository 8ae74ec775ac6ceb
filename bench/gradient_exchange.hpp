// SPDX-License-Identifier: Apache-2.0
// Exchanges the gradients of one step, as GradientReducer does in a backward pass that computes nothing: buckets start
// one after the other, each as a batch of its tensors. The candidates of the bench exchange them on communicators with
// other options.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "bench/gradients.hpp"
#include "bench/measure.hpp"
#include "collectives/communicator/batch.hpp"

namespace lockstep::bench {

// Exchanges gradients in place, many times. All members make it alike.
class GradientExchange {
 public:
  // `data` holds the gradients. Both must outlive the exchange.
  GradientExchange(Communicator& on, const GradientList& gradients, float* data);
  // Sums all gradients over the members.
  void run();

 private:
  std::vector<Batch> buckets_;
  std::vector<Request> requests_;
};

// Returns a candidate that exchanges gradients on a communicator, with the names of the algorithms that its buckets
// take. In a GPU's memory these are known after the calls have run. The communicator and the data must outlive it.
BenchCandidate exchange_candidate(Communicator& on, std::string name, const GradientList& gradients, float* data,
                                  bool is_on_gpu);

// Returns the call that does the same work as the bucket, for its plan.
detail::CallRequest bucket_request(const GradientBucket& bucket, float* data);

// Is a way to exchange gradients, beside the planner's own choice.
struct GradientWay {
  std::string name;       // "ring", "hierarchical" or "reproducible"
  std::string algorithm;  // the one that it forces; empty: none
  std::string why_not;    // the reason why it cannot be taken here; empty: it can
};

// Returns true for the name of a way.
bool is_gradient_way(std::string_view name);
// Finds out how a way exchanges these gradients. For `hierarchical` that is the algorithm by levels that the cost model
// finds cheapest for the largest bucket. All members call it, and get the same.
GradientWay find_gradient_way(Communicator& world, std::string_view name, const GradientList& gradients);
// Makes a communicator of the same members that takes the way. If the way forces an algorithm, it never uses NCCL.
std::unique_ptr<Communicator> communicator_for(Communicator& world, const GradientWay& way);

}  // namespace lockstep::bench
