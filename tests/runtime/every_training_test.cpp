// SPDX-License-Identifier: Apache-2.0
// Differentiable ops that combine the tensors of all replicas, under every strategy and layout.
#include <gtest/gtest.h>

#include <cmath>

#include "runtime/train/ops.hpp"
#include "runtime/train/tape.hpp"
#include "tests/runtime/begun_calls.hpp"
#include "tests/runtime/layouts.hpp"

namespace lockstep::test {
namespace {

using namespace train;

// Draws numbers that differ between replicas.
Tensor<float> numbers_of(int replica, TensorShape shape, float first = 0) {
  Tensor<float> tensor(std::move(shape));
  for (std::size_t i = 0; i < tensor.size(); ++i)
    tensor[i] = first + std::sin(static_cast<float>(replica * 100) + static_cast<float>(i) * 1.7F);
  return tensor;
}
void expect_close(const Tensor<float>& found, const Tensor<float>& expected, float tolerance = 1e-5F) {
  ASSERT_EQ(found.shape(), expected.shape());
  for (std::size_t i = 0; i < found.size(); ++i)
    EXPECT_NEAR(found[i], expected[i], tolerance * (1 + std::abs(expected[i]))) << "element " << i;
}

class ReplicaOps : public EveryLayout {
 protected:
  const float n = static_cast<float>(size());
  // Calls a function in all replicas, and returns the calls that communicators of this process began for it.
  std::uint64_t calls_of(const std::function<void(ReplicaContext&)>& function) {
    end_calls();
    const std::uint64_t before = begun_calls();
    strategy->run([&](ReplicaContext& context) { function(context); });
    const std::uint64_t calls = begun_calls() - before;
    end_calls();
    return calls;
  }
};

// Is TensorFlow's testAllReduceSumGradientTape and testAllReduceMeanGradientTape.
TEST_P(ReplicaOps, SumTheGradientsOfASum) {
  strategy->run([&](ReplicaContext& context) {
    const auto id = static_cast<float>(context.replica_id_in_sync_group());
    const auto ids = static_cast<float>(sum_of_ids());
    const TapeTensor x = row({42.F, id});
    const TapeTensor factor = 1 + 2 * id;
    Tape tape({.persistent = true});
    tape.watch(x);
    const TapeTensor sums = all_reduce_sum(context, x);
    const TapeTensor means = all_reduce_mean(context, x);
    expect_close(sums.to<float>(), row({42 * n, ids}));
    expect_close(means.to<float>(), row({42.F, ids / n}));
    const float factors = n + 2 * ids;
    expect_close(tape.gradient(sums * factor, x).to<float>(), row({factors, factors}));
    expect_close(tape.gradient(means * factor, x).to<float>(), row({factors / n, factors / n}));
  });
}

// Is TensorFlow's testAllGatherGradient, with parts of different lengths.
TEST_P(ReplicaOps, GiveEachReplicaItsPartOfTheGradientOfAGather) {
  strategy->run([&](ReplicaContext& context) {
    const int me = context.replica_id_in_sync_group();
    for (const int axis : {0, 1}) {
      const auto shape_of = [&](int replica) { return TensorShape{2, 2}.with(axis, replica); };
      const TapeTensor x = numbers_of(me, shape_of(me));
      Tape tape;
      tape.watch(x);
      const TapeTensor all = all_gather(context, x, axis);
      std::vector<TapeTensor> parts;
      for (int i = 0; i < size(); ++i) parts.emplace_back(numbers_of(i, shape_of(i)));
      EXPECT_EQ(all.to<float>(), concat(parts, axis).to<float>());
      // Each replica weighs the elements of the whole by their places, and by its own number.
      const TapeTensor weights = numbers_of(9, all.shape());
      const Gradient gradient = tape.gradient(all * weights * TapeTensor(static_cast<float>(me + 1)), x);
      std::int64_t first = 0;
      for (int i = 0; i < me; ++i) first += i;
      const TapeTensor part = axis == 0 ? slice(weights, {first, 0}, {me, -1}) : slice(weights, {0, first}, {-1, me});
      expect_close(gradient.to<float>(), (part * TapeTensor(static_cast<float>(sum_of_ids() + size()))).to<float>());
    }
  });
}

// Holds the values and gradients of a batch.
struct NormalizedCase {
  Tensor<float> result, mean, variance, dx, dscale, doffset;
  NormalizedCase(ReplicaContext* context, const Tensor<float>& x, const Tensor<float>& weights) {
    const TapeTensor images = x;
    const TapeTensor scale = row({0.5F, 2.F});
    const TapeTensor offset = row({-1.F, 3.F});
    Tape tape;
    for (const TapeTensor& each : {images, scale, offset}) tape.watch(each);
    const NormalizedBatch batch = context == nullptr ? batch_norm(images, scale, offset, 1e-3)
                                                     : batch_norm(*context, images, scale, offset, 1e-3);
    result = batch.result.to<float>();
    mean = batch.mean.to<float>();
    variance = batch.variance.to<float>();
    const std::vector<Gradient> all =
        tape.gradient(batch.result * weights, std::vector<TapeTensor>{images, scale, offset});
    dx = all[0].to<float>();
    dscale = all[1].to<float>();
    doffset = all[2].to<float>();
  }
};

// Replica i has i examples, so the first one has none. Their mean is far from 0.
TEST_P(ReplicaOps, NormalizeByTheBatchOfAllReplicas) {
  strategy->run([&](ReplicaContext& context) {
    const int me = context.replica_id_in_sync_group();
    std::vector<TapeTensor> parts, weights;
    for (int i = 0; i < size(); ++i) {
      parts.emplace_back(numbers_of(i, {i, 3, 2}, 100));
      weights.emplace_back(numbers_of(i + 50, {i, 3, 2}));
    }
    const NormalizedCase whole(nullptr, concat(parts, 0).to<float>(), concat(weights, 0).to<float>());
    const auto mine = static_cast<std::size_t>(me);
    NormalizedCase part(&context, parts[mine].to<float>(), weights[mine].to<float>());
    const auto of_me = [&](const Tensor<float>& all) {
      return slice(all, {me * (me - 1) / 2, 0, 0}, {me, -1, -1}).to<float>();
    };
    if (size() == 1) return;
    expect_close(part.result, of_me(whole.result), 2e-4F);
    expect_close(part.mean, whole.mean);
    expect_close(part.variance, whole.variance, 1e-4F);
    expect_close(part.dx, of_me(whole.dx), 2e-4F);
    context.all_reduce(part.dscale, sum);
    context.all_reduce(part.doffset, sum);
    expect_close(part.dscale, whole.dscale, 1e-3F);
    expect_close(part.doffset, whole.doffset, 1e-4F);
  });
}

TEST_P(ReplicaOps, NormalizeWithOneMessageForwardAndOneBackward) {
  const auto reduce_twice = [](ReplicaContext& context) {
    std::vector<double> all(5);
    context.all_reduce(all, sum);
    context.all_reduce(all, sum);
  };
  const auto normalize = [](ReplicaContext& context) {
    const Tensor<float> x = numbers_of(context.replica_id_in_sync_group(), {4, 2});
    NormalizedCase(&context, x, x);
  };
  const std::uint64_t expected = size() == 1 ? 0 : calls_of(reduce_twice);
  EXPECT_EQ(calls_of(normalize), expected);
}

INSTANTIATE_TEST_SUITE_P(, ReplicaOps, testing::ValuesIn(layouts()), [](const auto& each) { return each.param.name; });

}  // namespace
}  // namespace lockstep::test
