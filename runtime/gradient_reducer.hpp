// SPDX-License-Identifier: Apache-2.0
// Gradients that become ready one after the other while a backward pass goes on, combined over all replicas in buckets
// that begin as soon as they are full. The first step learns the order in which they become ready; from then on the
// buckets are frozen, the same on all replicas.
#pragma once

#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "runtime/strategy.hpp"
#include "runtime/variable.hpp"

namespace lockstep {

// A gradient as all replicas know it.
struct GradientSpec {
  std::string name;
  DataType type = DataType::f32;
  std::size_t count = 0;
};
template <class T>
GradientSpec gradient_of(const Variable<T>& variable) {
  return {variable.name(), data_type_of<T>, variable.shape().count()};
}

struct BucketOptions {
  // A bucket is closed when it holds so many bytes; the first one sooner, so that the network begins early.
  std::size_t bytes = std::size_t{25} << 20U;
  std::size_t first_bytes = std::size_t{1} << 20U;
  NamedOp op = sum;
};

// Which gradients go together, by their numbers: in that order, each bucket up to the one that fills it.
std::vector<std::vector<int>> plan_buckets(const std::vector<GradientSpec>& gradients, const std::vector<int>& order,
                                           const BucketOptions& options);

class GradientReducer {
 public:
  // Of the gradients in the order of the forward pass: at first the last ones are expected first. The strategy must
  // outlive it. All processes make it alike.
  GradientReducer(Strategy& strategy, std::vector<GradientSpec> gradients, const BucketOptions& options = {});

  const std::vector<GradientSpec>& gradients() const { return gradients_; }
  // What a replica of this process combines together; frozen after its first step.
  const std::vector<std::vector<int>>& buckets(int local = 0) const { return reductions_.at(index(local)).buckets; }
  bool is_frozen(int local = 0) const { return reductions_.at(index(local)).frozen; }

  class BackwardPass;

 private:
  struct Bucket {
    std::optional<Batch> batch;  // of the memory in which the gradients were last
    Request request;
    std::size_t ready = 0;
    bool is_elsewhere = false;  // than its batch knows
    // What the streams that were named were given before their gradients were ready; and whether some named none.
    std::vector<std::shared_ptr<gpu::StreamMark>> behind;
    bool is_in_default_stream = false;
  };
  // Of one replica of this process, used by its thread alone.
  struct ReplicaReduction {
    bool frozen = false;
    std::vector<std::vector<int>> buckets;
    std::vector<int> bucket_of;  // by gradient
    std::vector<Bucket> state;
    std::vector<TensorView> views;  // where each gradient was last
    std::vector<bool> is_ready;
    std::vector<int> order;  // in which they became ready in this step
    std::size_t begun = 0;   // buckets, the first ones
    std::size_t ended = 0;
    std::weak_ptr<detail::CommunicatorCore> core;  // that the batches are for
  };
  static std::size_t index(int local) { return static_cast<std::size_t>(local); }

  void lay_out(ReplicaReduction& reduction, const std::vector<int>& order) const;
  std::vector<int> reversed() const;
  std::string name_of(int which) const;

  Strategy* strategy_;
  std::vector<GradientSpec> gradients_;
  BucketOptions options_;
  std::deque<ReplicaReduction> reductions_;
};

// One backward pass of a replica, made in its function, after the memory of the gradients: one that ends without
// finish(), by an exception, lets go of that memory, and fails the run.
class GradientReducer::BackwardPass {
 public:
  BackwardPass(GradientReducer& reducer, ReplicaContext& replica);
  ~BackwardPass();
  BackwardPass(const BackwardPass&) = delete;
  BackwardPass& operator=(const BackwardPass&) = delete;

  // Gradient number `which` has its value, and stays where it is until finish(). Each comes once, in any order. In a
  // GPU's memory it has it when the GPU has done what is in the default stream now.
  template <class T>
  void ready(int which, std::span<T> gradient, Origin origin = Origin::here()) {
    take(which, {gradient.data(), data_type_of<T>, gradient.size()}, std::nullopt, origin);
  }
  // When the GPU has done what is in that stream of it now (CUDA's cudaStream_t). By NCCL it is combined beside what is
  // put there later, and nothing waits on the host.
  template <class T>
  void ready(int which, std::span<T> gradient, gpu::Stream stream, Origin origin = Origin::here()) {
    take(which, {gradient.data(), data_type_of<T>, gradient.size()}, stream, origin);
  }
  template <class T>
  void ready(int which, Tensor<T>& gradient, Origin origin = Origin::here()) {
    take(which, {gradient.data(), data_type_of<T>, gradient.size()}, std::nullopt, origin);
  }
  // Waits until all are combined, in place.
  void finish(Origin origin = Origin::here());

 private:
  void take(int which, const TensorView& gradient, std::optional<gpu::Stream> stream, Origin origin);
  static void mark(Bucket& bucket, std::optional<gpu::Stream> stream);
  void check(int which, const TensorView& gradient) const;
  void begin_full_ones(Origin origin);
  void freeze(Origin origin);
  [[noreturn]] void refuse_missing() const;

  GradientReducer& reducer_;
  ReplicaContext& replica_;
  ReplicaReduction& reduction_;
};

}  // namespace lockstep
