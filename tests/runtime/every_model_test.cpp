// SPDX-License-Identifier: Apache-2.0
// Layers, losses and their variables under every strategy and layout.
#include <numeric>

#include "runtime/train/layers.hpp"
#include "runtime/train/losses.hpp"
#include "runtime/train/tape.hpp"
#include "tests/runtime/layouts.hpp"
#include "tests/runtime/train/goldens.hpp"

namespace lockstep::test {
namespace {

using namespace lockstep::train;

// Draws a matrix of numbers between -1 and 1, which differ from row to row.
Tensor<float> drawn(std::int64_t rows, std::int64_t columns, std::uint64_t seed) {
  return random_uniform({.low = -1, .high = 1, .seed = seed})({rows, columns});
}

class Models : public EveryLayout {
 protected:
  // Replica i has i examples of the whole batch, so the first of several replicas has none.
  std::int64_t whole_batch() const { return size() == 1 ? 2 : sum_of_ids(); }
  Tensor<float> part_of(const Tensor<float>& whole, ReplicaContext& context) const {
    const int me = context.replica_id_in_sync_group();
    return size() == 1 ? whole : whole.rows(me * (me - 1) / 2, me).copy();
  }
  // Sums a tensor over all replicas.
  static Tensor<float> summed(ReplicaContext& context, Tensor<float> mine) {
    context.all_reduce(mine, sum);
    return mine;
  }
};

TEST_P(Models, AreMirroredIfMadeInAScope) {
  const Scope scope = strategy->scope();
  Sequential model(InputLayer({3}), Dense(4, {.activation = relu}), BatchNormalization(), Dense(2));
  check_made_in(model.variables(), *strategy);
  for (const AnyVariable& each : model.variables()) each.check_sync();
  const Tensor<float> x = drawn(5, 3, 1);
  const Tensor<float> for_all = model(x).to<float>();
  const auto results = strategy->run([&] { return model(x).to<float>(); });
  for (const Tensor<float>& each : results.local()) EXPECT_EQ(each, for_all);
}

TEST_P(Models, AreBuiltInReplicas) {
  const Scope scope = strategy->scope();
  Sequential model(Dense(4), Dropout(0.5), Dense(2));
  Dense alone(3);
  strategy->run([&] { alone(model(Tensor<float>({2, 3}, 1.F), true)); });
  for (const Layer* layer : std::initializer_list<const Layer*>{&model, &alone}) {
    check_made_in(layer->variables(), *strategy);
    for (const AnyVariable& each : layer->variables()) each.check_sync();
  }
  EXPECT_EQ(model.variables().at(2).name(), "dense_1/kernel");
  EXPECT_EQ(alone.variables().at(0).shape(), TensorShape({2, 3}));
}

TEST_P(Models, DropOtherElementsInEachReplica) {
  const Tensor<float> x({1, 64}, 1.F);
  std::vector<Tensor<float>> seen;
  for (int run = 0; run < 2; ++run) {
    const Scope scope = strategy->scope();
    Dropout layer(0.5, {.seed = 3});
    const auto results = strategy->run([&](ReplicaContext& context) {
      const Tensor<float> first = layer(x, true).to<float>();
      return context.all_gather(join<float>({first, layer(x, true).to<float>()}, 0));
    });
    seen.push_back(results[0]);
  }
  EXPECT_EQ(seen[0], seen[1]);
  const std::int64_t masks = 2 * size();
  ASSERT_EQ(seen[0].shape(), TensorShape({masks, 64}));
  for (std::int64_t a = 0; a < masks; ++a) {
    for (std::int64_t b = 0; b < a; ++b) EXPECT_NE(seen[0].rows(a, 1).copy(), seen[0].rows(b, 1).copy());
  }
}

TEST_P(Models, NormalizeByEachReplicasOwnBatch) {
  const Scope scope = strategy->scope();
  BatchNormalization layer({.momentum = 0.5});
  layer.build({1});
  strategy->run([&](ReplicaContext& context) {
    const int me = context.replica_id_in_sync_group();
    layer(Tensor<float>({me, 1}, static_cast<float>(me)), true);
  });
  const Variable<float> mean = layer.variables()[2].as<float>();
  const Variable<float> variance = layer.variables()[3].as<float>();
  for (int local = 0; local < strategy->num_local_replicas(); ++local) {
    const int me = first() + local;
    EXPECT_EQ(mean.parts()[static_cast<std::size_t>(local)].item(), static_cast<float>(me) / 2);
    EXPECT_EQ(variance.parts()[static_cast<std::size_t>(local)].item(), me == 0 ? 1.F : 0.5F);
  }
  EXPECT_FLOAT_EQ(mean.read().item(), static_cast<float>(sum_of_ids()) / 2 / static_cast<float>(size()));
}

TEST_P(Models, NormalizeByTheWholeBatchIfSynchronized) {
  const Tensor<float> whole = drawn(whole_batch(), 3, 5);
  const Tensor<float> upstream = drawn(whole_batch(), 3, 6);
  struct Results {
    Tensor<float> out, grad_x, grad_gamma;
  };
  const auto call = [](BatchNormalization& layer, const TapeTensor& x, const Tensor<float>& by) {
    Tape tape({.persistent = true});
    tape.watch(x);
    const TapeTensor out = layer(x, true);
    const TapeTensor target = reduce_sum(out * TapeTensor(by));
    return Results{out.to<float>(), tape.gradient(target, x).to<float>(),
                   tape.gradient(target, layer.variables()[0]).to<float>()};
  };
  BatchNormalization alone({.momentum = 0.5});
  const Results wanted = call(alone, whole, upstream);
  const Scope scope = strategy->scope();
  BatchNormalization layer({.momentum = 0.5, .synchronized = true});
  layer.build({3});
  strategy->run([&](ReplicaContext& context) {
    const Results found = call(layer, part_of(whole, context), part_of(upstream, context));
    expect_near(found.out, part_of(wanted.out, context));
    expect_near(found.grad_x, part_of(wanted.grad_x, context), 1e-5, 1e-5);
    expect_near(summed(context, found.grad_gamma), wanted.grad_gamma, 1e-5, 1e-5);
  });
  for (std::size_t i = 2; i < 4; ++i) {
    for (const Tensor<float>& each : layer.variables()[i].as<float>().parts())
      expect_near(each, alone.variables()[i].as<float>().parts()[0]);
  }
}

TEST_P(Models, GiveSharesOfTheWholeLossAndGradient) {
  const Tensor<float> x = drawn(whole_batch(), 3, 7);
  const Tensor<float> labels = drawn(whole_batch(), 2, 8);
  const auto step = [](Dense& layer, const Tensor<float>& features, const Tensor<float>& wanted) {
    const MeanSquaredError squares({.reduction = Reduction::none});
    Tape tape;
    const TapeTensor loss = compute_average_loss(squares(wanted, layer(features, true)));
    const Tensor<float> gradient = tape.gradient(loss, layer.variables()[0]).to<float>();
    return std::pair(loss.to<float>(), gradient);
  };
  Dense alone(2, {.kernel_initializer = glorot_uniform({.seed = 9})});
  const auto [loss, gradient] = step(alone, x, labels);
  const Tensor<float> wanted_loss = loss;
  const Tensor<float> wanted_gradient = gradient;
  const Scope scope = strategy->scope();
  Dense layer(2, {.kernel_initializer = glorot_uniform({.seed = 9})});
  strategy->run([&](ReplicaContext& context) {
    const auto mine = step(layer, part_of(x, context), part_of(labels, context));
    expect_near(summed(context, mine.first), wanted_loss);
    expect_near(summed(context, mine.second), wanted_gradient);
  });
}

INSTANTIATE_TEST_SUITE_P(, Models, testing::ValuesIn(layouts()), [](const auto& one) { return one.param.name; });

}  // namespace
}  // namespace lockstep::test
