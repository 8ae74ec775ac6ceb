// SPDX-License-Identifier: Apache-2.0
// Variables without the type of their elements, their paths, and their way to another strategy. Under every strategy
// and layout.
#include <complex>

#include "collectives/gpu/device_backend.hpp"
#include "runtime/any_variable.hpp"
#include "runtime/extended.hpp"
#include "tests/runtime/layouts.hpp"
#include "tests/runtime/variable_case.hpp"
#include "tests/support/holds.hpp"
#include "tests/support/refusal.hpp"

namespace lockstep::test {
namespace {

class AnyVariables : public EveryLayout {
 protected:
  template <class... A>
  auto in_scope(A... a) {
    const Scope scope = strategy->scope();
    return Variable(std::move(a)...);
  }
  static std::vector<std::string> paths(const Strategy& of) {
    std::vector<std::string> all;
    for (const AnyVariable& each : of.variables()) all.push_back(each.path());
    return all;
  }
};

TEST_P(AnyVariables, DescribeAVariable) {
  Variable<double> v = in_scope(row({1., 2., 3.}), on_read(Aggregation::sum));
  const AnyVariable any = v;
  EXPECT_EQ(any.name(), "v");
  EXPECT_EQ(any.path(), "v");
  EXPECT_EQ(any.type(), DataType::f64);
  EXPECT_EQ(any.shape(), TensorShape{3});
  EXPECT_EQ(any.trainable(), v.trainable());
  EXPECT_EQ(any.synchronization(), v.synchronization());
  EXPECT_EQ(any.aggregation(), Aggregation::sum);
  EXPECT_EQ(&any.strategy(), strategy.get());
  EXPECT_EQ(any.to_string(), v.to_string());
  EXPECT_EQ(strategy->extended().devices_of(any), strategy->devices()) << "a part of each replica's own";
  const TensorView part = any.part(0);
  EXPECT_EQ(part.bytes(), 24U);
  EXPECT_EQ(gpu::where(part.data).device, any.layout().parts[0].gpu);
  EXPECT_PRED2(holds, refusal([&] { static_cast<void>(any.part(99)); }, Code::usage), "part 99 of variable 'v'");

  EXPECT_EQ(any, AnyVariable(v));
  EXPECT_NE(any, AnyVariable(in_scope(row({1., 2., 3.}))));
  any.as<double>().assign(row({4., 5., 6.}));
  EXPECT_EQ(v.read(), row({4., 5., 6.}));
  EXPECT_PRED2(holds, refusal([&] { any.as<float>(); }, Code::usage), "as() of variable 'v' of f64 as one of f32");
}

TEST_P(AnyVariables, RestoreTheBytesThatTheySaved) {
  Variable<std::int64_t> count = in_scope(std::int64_t{0}, on_read(Aggregation::sum));
  Variable<float> weights = in_scope(row({1.F / 3, -0.F}), written(Aggregation::mean));
  strategy->run([&] { count.assign_add(std::int64_t{7}); });
  const std::vector<AnyVariable> all = {count, weights};
  std::vector<std::vector<std::byte>> saved;
  for (const AnyVariable& each : all) saved.push_back(each.saved());
  count.assign(std::int64_t{1});
  weights.assign(row({5.F, 5.F}));
  for (std::size_t i = 0; i < all.size(); ++i) all[i].restore(saved[i]);
  EXPECT_EQ(count.read().item(), 7 * size());
  EXPECT_EQ(weights.read(), row({1.F / 3, -0.F}));
  EXPECT_TRUE(std::signbit(weights.read()[1]));
  all[1].check_sync();
  EXPECT_PRED2(holds,
               refusal([&] { all[1].restore(saved[0].empty() ? saved[1] : std::vector<std::byte>(3)); }, Code::usage),
               "restore of variable 'v' of shape (2,) and 8 bytes: there are 3");
}

TEST_P(AnyVariables, HavePathsByNameScopes) {
  std::vector<AnyVariable> all;
  const Scope scope = strategy->scope();
  const auto make = [&] { all.emplace_back(Variable(1.F, {.name = "w"})); };
  make();
  {
    const NameScope model("model");
    make();
    const NameScope layer("dense");
    make();
    make();
    all.emplace_back(strategy->run([] {
      const NameScope inner("inner");
      return Variable(1.F, {.name = "w"});
    }));
    EXPECT_EQ(all.back().name(), "model/dense/inner/w") << "replicas are in the scopes of their run";
  }
  make();
  { const Variable gone(1.F, {.name = "gone"}); }
  EXPECT_EQ(all.back().name(), "w");
  EXPECT_EQ(paths(*strategy), (std::vector<std::string>{"w", "model/w", "model/dense/w", "model/dense/w_1",
                                                        "model/dense/inner/w", "w_1"}));
  EXPECT_EQ(strategy->variable("model/dense/w_1"), all[3]);
  EXPECT_PRED2(holds, refusal([&] { static_cast<void>(strategy->variable("gone")); }, Code::usage),
               "there is no variable 'gone' of ");
  EXPECT_PRED2(holds, refusal([&] { static_cast<void>(strategy->variable("gone")); }, Code::usage),
               "there are w, model/w, model/dense/w");
}

// The old strategy has failed. The handles stay.
TEST_P(AnyVariables, GoToAnotherStrategy) {
  Variable<float> mean = in_scope(row({1.F, 2.F}), written(Aggregation::mean));
  Variable<std::int64_t> count = in_scope(std::int64_t{0}, on_read(Aggregation::sum));
  strategy->run([&](ReplicaContext& context) {
    mean.assign_add(row({1.F, 1.F}));
    count.assign_add(std::int64_t{context.replica_id_in_sync_group() + 1});
  });
  const auto fail = [&](ReplicaContext& context) {
    if (context.replica_id_in_sync_group() == size() - 1) throw std::runtime_error("no more");
    static_cast<void>(context.all_reduce(1, sum));
  };
  end_calls();
  refusal([&] { strategy->run(fail); }, Code::replica_failed);
  EXPECT_PRED2(holds, ReplicaError(0, 2, 1, "is gone", nullptr, false).what(), "make a new strategy, and adopt() the");
  const std::unique_ptr<Strategy> old = std::exchange(strategy, GetParam().make());
  strategy->adopt(*old);
  EXPECT_TRUE(old->variables().empty());
  EXPECT_EQ(paths(*strategy), (std::vector<std::string>{"v", "v_1"}));
  EXPECT_EQ(&mean.strategy(), strategy.get());
  EXPECT_EQ(mean.read(), row({2.F, 3.F}));
  EXPECT_EQ(count.read().item(), size() * (size() + 1) / 2);
  strategy->run([&] {
    mean.assign_add(row({1.F, 1.F}));
    count.assign_add(std::int64_t{1});
  });
  EXPECT_EQ(mean.read(), row({3.F, 4.F}));
  EXPECT_EQ(count.read().item(), size() * (size() + 1) / 2 + size());
  mean.check_sync();
}

// The processes of a strategy may go on by themselves, with any number of replicas.
TEST_P(AnyVariables, GoToStrategiesOfAnotherSize) {
  Variable<float> weights = in_scope(2.F, written(Aggregation::sum));
  Variable<float> total = in_scope(0.F, on_read(Aggregation::sum));
  Variable<float> mean = in_scope(0.F, on_read(Aggregation::mean));
  float added_here = 0;
  for (int local = 0; local < strategy->num_local_replicas(); ++local)
    added_here += static_cast<float>(first() + local);
  strategy->run([&](ReplicaContext& context) {
    total.assign(static_cast<float>(context.replica_id_in_sync_group()));
    mean.assign(static_cast<float>(context.replica_id_in_sync_group()));
  });
  MirroredStrategy pair(5, {.log = Log(LogLevel::off)});
  for (const AnyVariable& each : strategy->variables()) pair.adopt(each);
  strategy.reset();
  EXPECT_EQ(weights.parts(), std::vector<Tensor<float>>(5, 2.F));
  weights.check_sync();
  EXPECT_EQ(total.read().item(), added_here);
  if (total.synchronization() == Synchronization::on_read) {
    EXPECT_EQ(total.parts().size(), 5U);
  }
  OneDeviceStrategy alone({.log = Log(LogLevel::off)});
  alone.adopt(pair);
  EXPECT_EQ(weights.parts().size(), 1U);
  EXPECT_EQ(total.read().item(), added_here);
  EXPECT_EQ(weights.read().item(), 2);
}

INSTANTIATE_TEST_SUITE_P(, AnyVariables, testing::ValuesIn(layouts()), [](const auto& one) { return one.param.name; });

}  // namespace
}  // namespace lockstep::test
