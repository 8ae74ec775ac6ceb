// SPDX-License-Identifier: Apache-2.0
// Combines gradients over all replicas while a backward pass still computes others. Gradients form buckets, and a full
// bucket starts at once. The first step learns the order in which gradients become ready; then the buckets are frozen,
// the same on all replicas.
#pragma once

#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "runtime/count_digits.hpp"
#include "runtime/gradient_buckets.hpp"
#include "runtime/strategy.hpp"
#include "runtime/variable.hpp"

namespace lockstep {

// Describes a gradient equally on all replicas.
struct GradientSpec {
  std::string name;
  DataType type = DataType::f32;
  std::size_t count = 0;
};
// Returns the description of a variable's gradient.
template <class T>
GradientSpec gradient_of(const Variable<T>& variable) {
  return {variable.name(), data_type_of<T>, variable.shape().count()};
}

// Holds the sizes of buckets and the operation.
struct BucketOptions {
  // Closes a bucket that holds so many bytes. The first bucket is smaller, so that the network starts early.
  std::size_t bytes = detail::default_bucket_bytes;
  std::size_t first_bytes = detail::default_first_bucket_bytes;
  NamedOp op = sum;
  // Tells the reducers of a program apart, besides the names of their gradients.
  std::string tag = "gradients";
  // Is the number of counts that a step adds up beside its gradients; see BackwardPass::add_counts().
  std::size_t counts = 0;
};

// Divides gradients, by their numbers, into buckets: in the given order, each bucket up to the gradient that fills it.
// A gradient of a bucket's size or more has one of its own.
std::vector<std::vector<int>> plan_buckets(const std::vector<GradientSpec>& gradients, const std::vector<int>& order,
                                           const BucketOptions& options);

// Lets numbers of each process travel with the gradients of each step. They come back as sums over all processes.
class TravellingCounts {
 public:
  TravellingCounts() = default;
  TravellingCounts(const TravellingCounts&) = delete;
  TravellingCounts& operator=(const TravellingCounts&) = delete;
  virtual ~TravellingCounts() = default;
  // Returns the number of counts, which never changes.
  virtual std::size_t size() const = 0;
  // Give this process's counts when a backward pass begins, and take the sums when it is finished. The first local
  // replica calls them.
  virtual void give(std::span<std::int64_t> counts) = 0;
  virtual void take(std::span<const std::int64_t> sums) = 0;
};

// Combines the gradients of one model. All processes of the strategy make it alike.
class GradientReducer {
 public:
  // Takes the gradients in the order of the forward pass: the first step expects the last ones first. The strategy
  // must outlive it. Throws Error usage for no gradients.
  GradientReducer(Strategy& strategy, std::vector<GradientSpec> gradients, const BucketOptions& options = {});

  // Returns the gradients in the order in which they were given.
  const std::vector<GradientSpec>& gradients() const { return gradients_; }
  // Returns the buckets of a replica of this process. They are frozen after its first step.
  const std::vector<std::vector<int>>& buckets(int local = 0) const { return reductions_.at(index(local)).buckets; }
  bool is_frozen(int local = 0) const { return reductions_.at(index(local)).frozen; }

  // Lets counts travel with each step from now on, instead of others before them. All processes call it between two
  // steps. The counts must live until stop_carrying().
  void carry(TravellingCounts& counts);
  bool is_carrying() const { return carried_ != nullptr; }
  // Ends it, if the reducer still carries these counts.
  void stop_carrying(const TravellingCounts& counts);

  class BackwardPass;

 private:
  struct Bucket {
    std::optional<Batch> batch;  // Refers to the memory in which the gradients were last.
    Request request;
    std::uint64_t tag = 0;   // Is the identity of its gradients, which replicas compare.
    std::size_t wanted = 0;  // Counts the gradients, and the counts of the last bucket as one.
    std::size_t ready = 0;
    bool is_elsewhere = false;  // True if a gradient lies at another address than in the batch.
    // Mark the work that named streams had before their gradients were ready. `is_in_default_stream` is true if some
    // gradient named no stream.
    std::vector<std::shared_ptr<gpu::StreamMark>> behind;
    bool is_in_default_stream = false;
  };
  // Holds the counts of a replica, which travel with the last bucket.
  struct StepCounts {
    std::span<std::int64_t> given;  // Is empty until the program gives them.
    std::vector<std::int64_t> all;  // Holds the program's counts, and behind them those that travel along.
    bool are_complete = false;
    detail::CountDigits format;
    std::vector<std::byte> digits;      // Is in the host's memory.
    std::shared_ptr<std::byte> on_gpu;  // Is used instead, if the bucket's gradients of that type are on a GPU.
    int device = gpu::MemoryLocation::host;
    TensorView view();
    void copy_to_gpu() const;  // Waits for the work in the GPU's default stream.
  };
  // Belongs to one replica of this process; only its thread uses it.
  struct ReplicaReduction {
    bool frozen = false;
    std::vector<std::vector<int>> buckets;
    std::vector<int> bucket_of;  // Is indexed by gradient.
    std::vector<Bucket> state;
    StepCounts counts;
    std::vector<TensorView> views;  // Holds where each gradient was last.
    std::vector<bool> is_ready;
    std::vector<int> order;  // Holds the order in which gradients became ready in this step.
    std::size_t begun = 0;   // Counts buckets from the first one.
    std::size_t ended = 0;
    std::weak_ptr<detail::CommunicatorCore> core;  // Refers to the communicator of the batches.
  };
  static std::size_t index(int local) { return static_cast<std::size_t>(local); }

  void lay_out_again();
  void lay_out(ReplicaReduction& reduction, const std::vector<int>& order) const;
  std::vector<int> reversed() const;
  std::string name_of(int which) const;
  // Returns the number of counts in a step.
  std::size_t counts() const { return options_.counts + (carried_ == nullptr ? 0 : carried_->size()); }
  // Returns the identity of some gradients, by their names and order.
  std::uint64_t tag_of(const std::vector<int>& which) const;

  Strategy* strategy_;
  std::vector<GradientSpec> gradients_;
  BucketOptions options_;
  std::uint64_t tag_ = 0;  // Is the identity of all gradients.
  TravellingCounts* carried_ = nullptr;
  std::deque<ReplicaReduction> reductions_;
};

// Is one backward pass of a replica, made in its function, after the memory of the gradients. If it ends by an
// exception, without finish(), it releases that memory and fails the run.
class GradientReducer::BackwardPass {
 public:
  BackwardPass(GradientReducer& reducer, ReplicaContext& replica);
  ~BackwardPass();
  BackwardPass(const BackwardPass&) = delete;
  BackwardPass& operator=(const BackwardPass&) = delete;

  // Announces that gradient number `which` has its value, and stays in place until finish(). Each comes once, in any
  // order. In a GPU's memory it has its value when the work now in the default stream is done.
  template <class T>
  void ready(int which, std::span<T> gradient, Origin origin = Origin::here()) {
    take(which, {gradient.data(), data_type_of<T>, gradient.size()}, std::nullopt, origin);
  }
  // Announces a gradient that is complete when the work now in `stream` (CUDA's cudaStream_t) is done. NCCL combines
  // it beside work put into the stream later, and nothing waits on the host.
  template <class T>
  void ready(int which, std::span<T> gradient, gpu::Stream stream, Origin origin = Origin::here()) {
    take(which, {gradient.data(), data_type_of<T>, gradient.size()}, stream, origin);
  }
  template <class T>
  void ready(int which, Tensor<T>& gradient, Origin origin = Origin::here()) {
    take(which, {gradient.data(), data_type_of<T>, gradient.size()}, std::nullopt, origin);
  }
  // Gives this replica's counts, as many as BucketOptions::counts, before finish(), which replaces them by their sums
  // over all replicas: the number of examples, or 1 for a replica that has more data, or that asks to stop. The sums
  // are exact. They travel with the last bucket, which therefore starts after this call. If no type in that bucket
  // can carry them, or if the strategy has cross_device_ops, they take a call of their own.
  void add_counts(std::span<std::int64_t> counts, Origin origin = Origin::here());
  // Waits until all gradients are combined, in place.
  void finish(Origin origin = Origin::here());

 private:
  void take(int which, const TensorView& gradient, std::optional<gpu::Stream> stream, Origin origin);
  static void mark(Bucket& bucket, std::optional<gpu::Stream> stream);
  void check(int which, const TensorView& gradient) const;
  void begin_full_ones(Origin origin);
  void encode_counts(Origin origin);
  void put_counts(Bucket& bucket, const std::vector<int>& members);
  void finish_counts(Origin origin);
  void freeze(Origin origin);
  [[noreturn]] void refuse_missing() const;

  GradientReducer& reducer_;
  ReplicaContext& replica_;
  ReplicaReduction& reduction_;
};

}  // namespace lockstep
