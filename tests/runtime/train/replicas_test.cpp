// SPDX-License-Identifier: Apache-2.0
// What two replicas compute together, against TensorFlow's values.
#include <gtest/gtest.h>

#include "runtime/train/layers.hpp"
#include "runtime/train/optimizer.hpp"
#include "runtime/train/tape.hpp"
#include "tests/runtime/quick.hpp"
#include "tests/runtime/train/goldens.hpp"

namespace lockstep::train {
namespace {

using lockstep::test::expect_near;
using lockstep::test::golden_cases;
using lockstep::test::GoldenCase;
using lockstep::test::quick;

constexpr int replicas = 2;

std::string of_replica(const std::string& name, int replica) { return text(name, '.', replica); }

void expect_normalized(Strategy& strategy, const GoldenCase& golden) {
  const Scope scope = strategy.scope();
  BatchNormalization layer({.momentum = golden.number("momentum"),
                            .epsilon = golden.number("epsilon"),
                            .synchronized = golden.is_set("synchronized")});
  layer.build(golden.tensor("x.0").shape().without(0));
  const auto name_of = [&](const AnyVariable& each) { return each.name().substr(layer.name().size() + 1); };
  for (const AnyVariable& each : layer.variables()) each.as<float>().assign(golden.tensor(name_of(each)));
  using Tensors = std::map<std::string, Tensor<float>>;
  const auto found = strategy.run([&](ReplicaContext& replica) {
    const int id = replica.replica_id_in_sync_group();
    const TapeTensor x = golden.tensor(of_replica("x", id));
    Tape tape({.persistent = true});
    tape.watch(x);
    const TapeTensor out = layer(x, true);
    const TapeTensor target = reduce_sum(out * TapeTensor(golden.tensor(of_replica("upstream", id))));
    Tensors all{{"out", out.to<float>()}, {"grad.x", tape.gradient(target, x).to<float>()}};
    for (const AnyVariable& each : layer.trainable_variables())
      all.emplace("grad." + name_of(each), tape.gradient(target, each).to<float>());
    return std::make_shared<Tensors>(std::move(all));
  });
  for (int replica = 0; replica < replicas; ++replica) {
    for (const auto& [name, value] : *found[replica]) {
      SCOPED_TRACE(of_replica(name, replica));
      expect_near(value, golden.tensor(of_replica(name, replica)), 5e-6);
    }
    for (const AnyVariable& each : layer.variables()) {
      if (each.trainable()) continue;
      SCOPED_TRACE(of_replica(name_of(each), replica));
      expect_near(each.as<float>().parts()[static_cast<std::size_t>(replica)],
                  golden.tensor(of_replica("after." + name_of(each), replica)), 2e-6);
    }
  }
}

void expect_reduced(Strategy& strategy, const GoldenCase& golden) {
  using Both = std::pair<Tensor<float>, Tensor<float>>;
  const auto found = strategy.run([&](ReplicaContext& replica) {
    const int id = replica.replica_id_in_sync_group();
    const TapeTensor x = golden.tensor(of_replica("x", id));
    Tape tape;
    tape.watch(x);
    const TapeTensor all = golden.word("op") == "sum" ? all_reduce_sum(replica, x) : all_reduce_mean(replica, x);
    const TapeTensor out = all * TapeTensor(golden.tensor(of_replica("c", id)));
    return std::make_shared<Both>(out.to<float>(), tape.gradient(out, x).to<float>());
  });
  for (int replica = 0; replica < replicas; ++replica) {
    expect_near(found[replica]->first, golden.tensor(of_replica("out", replica)));
    expect_near(found[replica]->second, golden.tensor(of_replica("grad.x", replica)));
  }
}

void expect_changed(Strategy& strategy, const GoldenCase& golden) {
  const Scope scope = strategy.scope();
  const Variable<float> variable(golden.tensor("start"));
  SGD optimizer(golden.number("learning_rate"));
  strategy.run([&](ReplicaContext& replica) {
    const AnyTensor mine(golden.tensor(of_replica("gradient", replica.replica_id_in_sync_group())));
    optimizer.apply({{variable, Gradient(mine)}});
  });
  expect_near(variable.read(), golden.tensor("after"));
}

TEST(TwoReplicas, ComputeTensorFlowsValues) {
  std::map<std::string, int> cases;
  for (const GoldenCase& golden : golden_cases("replicas")) {
    SCOPED_TRACE(golden.name());
    MirroredStrategy strategy(replicas, quick());
    ++cases[golden.name().substr(0, golden.name().find('/'))];
    if (golden.has("layer"))
      expect_normalized(strategy, golden);
    else if (golden.has("op"))
      expect_reduced(strategy, golden);
    else
      expect_changed(strategy, golden);
  }
  EXPECT_EQ(cases, (std::map<std::string, int>{{"all_reduce", 4}, {"apply_gradients", 1}, {"batch_normalization", 4}}));
}

}  // namespace
}  // namespace lockstep::train
