// SPDX-License-Identifier: Apache-2.0
// Optimizers under every strategy and layout: what replicas send, and that all parts of variables change equally.
#include <gtest/gtest.h>

#include <atomic>
#include <bit>
#include <cmath>
#include <cstring>

#include "runtime/cross_device_ops.hpp"
#include "runtime/default_strategy.hpp"
#include "runtime/train/ops.hpp"
#include "runtime/train/optimizer.hpp"
#include "tests/runtime/begun_calls.hpp"
#include "tests/runtime/layouts.hpp"
#include "tests/support/holds.hpp"
#include "tests/support/refusal.hpp"

namespace lockstep::train {
namespace {

using test::begun_calls;
using test::holds;
using test::refusal;

constexpr std::int64_t line_features = 37;

// Returns the gradient that a replica has in a step: numbers whose sum has other bits in another order.
Tensor<float> drawn_gradient(std::int64_t length, int replica, int step) {
  Tensor<float> all(TensorShape{length});
  for (std::size_t i = 0; i < all.size(); ++i)
    all[i] = std::sin(static_cast<float>(replica * 131 + step * 17 + static_cast<int>(i) * 7)) *
             std::pow(10.F, static_cast<float>((replica * 7 + static_cast<int>(i)) % 5) - 3.F);
  return all;
}

// Returns the sum by the balanced tree: the largest power of two is a branch.
Tensor<float> sum_by_tree(std::int64_t length, int first, int number, int step) {
  if (number == 1) return drawn_gradient(length, first, step);
  const int half = static_cast<int>(std::bit_floor(static_cast<unsigned>(number - 1)));
  return sum_by_tree(length, first, half, step) + sum_by_tree(length, first + half, number - half, step);
}

// Returns examples of a line: an input in each row.
Tensor<float> line_inputs(std::int64_t first, std::int64_t number) {
  Tensor<float> all(TensorShape{number, line_features});
  for (std::int64_t i = 0; i < number * line_features; ++i)
    all[static_cast<std::size_t>(i)] = std::cos(static_cast<float>(first * line_features + i));
  return all;
}

class EveryOptimizer : public test::EveryLayout {
 protected:
  // Is a model w x + b, element by element.
  struct Model {
    Variable<float> w{drawn_gradient(line_features, 1, 2), {.name = "w"}};
    Variable<float> b{Tensor<float>(TensorShape{line_features}, 0.5F), {.name = "b"}};
    std::vector<AnyVariable> all() const { return {w, b}; }
    TapeTensor loss(const Tensor<float>& x, float global_batch) const {
      return square(TapeTensor(x) * w + b - 1.F) * (1 / global_batch);
    }
  };
  Model made() const {
    const Scope inside = strategy->scope();
    return {};
  }
  bool shares_parts() const { return holds(strategy->describe(), "Central") && size() > 1; }
  // Takes one step in all replicas, along a tape: replica r has r + 1 examples, and the last one of several has none.
  void step(Optimizer& optimizer, const Model& model, int number) {
    strategy->run([&](ReplicaContext& context) {
      const int me = context.replica_id_in_sync_group();
      Tape tape;
      const TapeTensor loss = model.loss(line_inputs(number * batch() + me * (me + 1) / 2, examples(me)), global());
      optimizer.minimize(tape, loss, model.all());
    });
  }
  int examples(int replica) const { return size() > 1 && replica == size() - 1 ? 0 : replica + 1; }
  int batch() const {
    int all = 0;
    for (int replica = 0; replica < size(); ++replica) all += examples(replica);
    return all;
  }
  // Counts this process's replicas that call others.
  unsigned calling_replicas() const { return size() == 1 ? 0 : static_cast<unsigned>(strategy->num_local_replicas()); }
  float global() const { return static_cast<float>(batch()); }
  // Takes it in a program without a strategy.
  void step_alone(Optimizer& optimizer, const Model& model, int number) const {
    Tape tape;
    const TapeTensor loss = model.loss(line_inputs(number * batch(), batch()), global());
    optimizer.minimize(tape, loss, model.all());
  }
  static void expect_near(const Tensor<float>& found, const Tensor<float>& wanted, float within) {
    ASSERT_EQ(found.shape(), wanted.shape());
    for (std::size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i], wanted[i], within) << i;
  }
  static void expect_bits(const Variable<float>& found, const Tensor<float>& wanted) {
    for (const Tensor<float>& part : found.parts()) EXPECT_EQ(part, wanted);
    found.check_sync();
  }
};
INSTANTIATE_TEST_SUITE_P(, EveryOptimizer, testing::ValuesIn(test::layouts()),
                         [](const auto& each) { return each.param.name; });

TEST_P(EveryOptimizer, ChangeAllPartsByTheSumInTheOrderOfTheTree) {
  for (const char* const word : {"sgd", "adam", "adagrad"}) {
    Optimizer optimizer(word);
    Optimizer alone(word);
    const Model model = made();
    const Model reference;
    for (int step = 0; step < 5; ++step) {
      strategy->run([&](ReplicaContext& context) {
        const int me = context.replica_id_in_sync_group();
        optimizer.apply({{model.w, Gradient(drawn_gradient(line_features, me, step))},
                         {model.b, Gradient(drawn_gradient(line_features, me, 9))}});
      });
      alone.apply({{reference.w, Gradient(sum_by_tree(line_features, 0, size(), step))},
                   {reference.b, Gradient(sum_by_tree(line_features, 0, size(), 9))}});
      expect_bits(model.w, reference.w.read());
      expect_bits(model.b, reference.b.read());
    }
    EXPECT_EQ(optimizer.iterations(), 5);
    ASSERT_EQ(optimizer.variables().size(), alone.variables().size());
    for (std::size_t i = 1; i < optimizer.variables().size(); ++i) {
      EXPECT_EQ(optimizer.variables()[i].layout().parts.size(), AnyVariable(model.w).layout().parts.size());
      expect_bits(optimizer.variables()[i].as<float>(), alone.variables()[i].as<float>().read());
    }
  }
}

TEST_P(EveryOptimizer, EqualOneReplicaWithTheWholeBatch) {
  const OptimizerOptions kinds[] = {{}, {.clip_norm = 0.5F}, {.first_bucket_bytes = 1}};
  for (const OptimizerOptions& options : kinds) {
    SGD optimizer({.learning_rate = 0.1F, .momentum = 0.9F, .nesterov = true}, options);
    SGD alone({.learning_rate = 0.1F, .momentum = 0.9F, .nesterov = true}, options);
    const Model model = made();
    const Model reference;
    for (int number = 0; number < 6; ++number) {
      step(optimizer, model, number);
      step_alone(alone, reference, number);
    }
    expect_near(model.w.read(), reference.w.read(), 2e-6F);
    expect_near(model.b.read(), reference.b.read(), 2e-6F);
    expect_bits(model.w, model.w.parts().front());
  }
}

TEST_P(EveryOptimizer, ClipTheNormOfAllGradientsAfterTheSum) {
  const Model model = made();
  SGD optimizer(1, {.clip_norm = 5});
  const Tensor<float> before = model.w.read();
  strategy->run([&](ReplicaContext& /*context*/) {
    const float mine = 1.F / static_cast<float>(size());  // Each is below the limit; the norm of the sums is sqrt(74).
    optimizer.apply({{model.w, Gradient(Tensor<float>(TensorShape{line_features}, mine))},
                     {model.b, Gradient(Tensor<float>(TensorShape{line_features}, mine))}});
  });
  expect_near(before - model.w.read(), Tensor<float>(TensorShape{line_features}, 5 / std::sqrt(74.F)), 1e-6F);
}

TEST_P(EveryOptimizer, SendOneMessageInSeveralStepsIfAsked) {
  const Model model = made();
  const Model reference;
  SGD optimizer({.learning_rate = 0.1F, .momentum = 0.9F}, {.accumulate_steps = 3});
  SGD alone({.learning_rate = 0.1F, .momentum = 0.9F});
  for (int number = 0; number < 9; ++number) {
    const Tensor<float> before = model.w.read();
    const std::uint64_t calls = begun_calls();
    step(optimizer, model, number);
    const bool is_last = number % 3 == 2;
    if (number > 5 || (number > 2 && !is_last)) {  // The first two messages learn the order, and vote.
      EXPECT_EQ(begun_calls() - calls, is_last ? calling_replicas() : 0U) << number;
    }
    EXPECT_EQ(model.w.read() != before, is_last);
    EXPECT_EQ(optimizer.iterations(), (number + 1) / 3);
    if (!is_last) continue;
    Tape tape;  // One step takes the mean over the examples of three.
    const TapeTensor loss = reference.loss(line_inputs((number - 2) * batch(), 3 * batch()), 3 * global());
    alone.minimize(tape, loss, reference.all());
  }
  expect_near(model.w.read(), reference.w.read(), 2e-6F);
}

TEST_P(EveryOptimizer, PlanTheirCallsOnce) {
  const Model model = made();
  SGD optimizer(0.1F, {.first_bucket_bytes = 1});
  std::uint64_t calls = 0;
  for (int number = 0; number < 6; ++number) {
    const std::uint64_t before = begun_calls();
    step(optimizer, model, number);
    calls = begun_calls() - before;
    if (number < 2) continue;
    EXPECT_EQ(calls, 2U * calling_replicas()) << number;
  }
  if (size() == 1) return;
  for (int local = 0; local < strategy->num_local_replicas(); ++local) {
    EXPECT_TRUE(optimizer.reducer().is_frozen(local));
    EXPECT_EQ(optimizer.reducer().buckets(local).size(), 2U);
  }
}

TEST_P(EveryOptimizer, LetCountsTravelWithTheGradients) {
  struct Examples final : TravellingCounts {
    std::int64_t sum = 0;
    std::size_t size() const override { return 1; }
    void give(std::span<std::int64_t> counts) override { counts[0] = 5; }
    void take(std::span<const std::int64_t> sums) override { sum = sums[0]; }
  };
  const Model model = made();
  SGD optimizer;
  optimizer.build(model.all());
  Examples counts;
  optimizer.reducer().carry(counts);
  for (int number = 0; number < 3; ++number) {
    counts.sum = 0;
    step(optimizer, model, number);
    EXPECT_EQ(counts.sum % 5, 0);
    EXPECT_GE(counts.sum, 5) << number;
  }
  optimizer.reducer().stop_carrying(counts);
}

TEST_P(EveryOptimizer, GiveTheSameBitsForAnyNumberOfReplicasByVirtualOnes) {
  const bool fits = std::has_single_bit(static_cast<unsigned>(size()));
  const int parts = fits ? 8 : 4 * size();
  const Model model = made();
  const Model reference;
  SGD optimizer({.learning_rate = 0.1F, .momentum = 0.9F}, {.clip_norm = 3});
  SGD alone({.learning_rate = 0.1F, .momentum = 0.9F}, {.clip_norm = 3});
  const auto loss = [&](const Model& of, int number, int part) {
    TapeTensor all = of.loss(line_inputs(number * parts * 2 + part * 2, 1 + part % 2), 16);
    // The last part of a replica does not depend on b.
    return part % 8 == 7 ? square(TapeTensor(line_inputs(part, 1)) * of.w) : all;
  };
  for (int number = 0; number < 4; ++number) {
    strategy->run([&](ReplicaContext& /*context*/) {
      optimizer.minimize(
          parts, [&](int part) { return reduce_sum(loss(model, number, part)); }, model.all());
    });
    if (!fits) continue;
    alone.minimize(
        parts, [&](int part) { return reduce_sum(loss(reference, number, part)); }, reference.all());
  }
  expect_bits(model.w, fits ? reference.w.read() : model.w.parts().front());
  expect_bits(model.b, fits ? reference.b.read() : model.b.parts().front());
  end_calls();
  const auto odd = refusal(
      [&] {
        strategy->run([&](ReplicaContext& /*context*/) {
          optimizer.minimize(
              3 * size(), [&](int part) { return reduce_sum(loss(model, 0, part)); }, model.all());
        });
      },
      Code::replica_failed);
  EXPECT_TRUE(holds(odd, text(3 * size(), " virtual replicas on ", size()))) << odd;
}

TEST_P(EveryOptimizer, AddRowsOfAllReplicas) {
  for (const bool has_momentum : {false, true}) {
    const auto table = [&] {
      const Scope inside = strategy->scope();
      return Variable(Tensor<float>(TensorShape{6, 2}, 1.F), {.name = "table"});
    }();
    SGD optimizer({.learning_rate = 0.5F, .momentum = has_momentum ? 0.9F : 0});
    for (int step = 0; step < 3; ++step) {
      strategy->run([&](ReplicaContext& context) {
        const float me = 1.F + static_cast<float>(context.replica_id_in_sync_group());
        optimizer.apply(
            {{table, Gradient(IndexedSlices<float>(Tensor<float>({2, 2}, {me, 0, 0, 1}), {4, 1}, TensorShape{6, 2}))}});
      });
    }
    const float steps = has_momentum ? 1 + 1.9F + 2.71F : 3;
    Tensor<float> wanted(TensorShape{6, 2}, 1.F);
    wanted[8] -= 0.5F * steps * static_cast<float>(size() + sum_of_ids());
    wanted[3] -= 0.5F * steps * static_cast<float>(size());
    expect_near(table.read(), wanted, 1e-5F);
    table.check_sync();
  }
}

// Adagrad's sum of squares, and the norm of all rows, tell equal rows from their sum.
TEST_P(EveryOptimizer, KeepRowsApartAsOneReplicaDoes) {
  for (const bool clips : {true, false}) {
    const OptimizerOptions options{.clip_norm = clips ? 1.F : 0.F};
    const auto table_in = [&](Strategy& where) {
      const Scope inside = where.scope();
      return Variable(Tensor<float>(TensorShape{2, 1}, 1.F), {.name = "table"});
    };
    const auto optimizer_of = [&]() -> Optimizer {
      return clips ? Optimizer(SGD(0.5F, options)) : Optimizer(Adagrad(0.5F));
    };
    const auto rows = [](std::int64_t number) {
      return Gradient(IndexedSlices<float>(Tensor<float>({number, 1}, 1.F),
                                           std::vector<std::int64_t>(static_cast<std::size_t>(number)),
                                           TensorShape{2, 1}));
    };
    const auto table = table_in(*strategy);
    const auto alone = table_in(default_strategy());
    Optimizer optimizer = optimizer_of();
    Optimizer reference = optimizer_of();
    for (int step = 0; step < 2; ++step) {
      strategy->run([&] { optimizer.apply({{table, rows(3)}}); });
      reference.apply({{alone, rows(3 * size())}});
    }
    expect_near(table.read(), alone.read(), 1e-6F);
  }
}

TEST_P(EveryOptimizer, LearnThatATableHasGradientsOfRows) {
  for (const bool is_built : {false, true}) {
    const auto table = [&] {
      const Scope inside = strategy->scope();
      return Variable(Tensor<float>(TensorShape{6, 2}, 1.F), {.name = "table"});
    }();
    const Model model = made();
    const std::vector<AnyVariable> all{table, model.w};
    SGD optimizer(0.25F);
    if (is_built) optimizer.build(all);
    for (int step = 0; step < 3; ++step) {
      strategy->run([&](ReplicaContext& context) {
        Tape tape;
        const TapeTensor rows = gather(table, row({context.replica_id_in_sync_group() % 6, 1}));
        optimizer.minimize(tape, reduce_sum(rows) + reduce_sum(TapeTensor(model.w)), all);
      });
    }
    Tensor<float> wanted(TensorShape{6, 2}, 1.F);
    for (int replica = 0; replica < size(); ++replica) {
      for (const std::size_t at : {static_cast<std::size_t>(replica % 6) * 2, std::size_t{2}}) {
        wanted[at] -= 0.75F;
        wanted[at + 1] -= 0.75F;
      }
    }
    EXPECT_EQ(table.read(), wanted);
    EXPECT_EQ(optimizer.reducer().gradients().size(), 1U) << "rows travel as rows";
  }
}

// Is the number of calls at the time when a gradient went through the op of the next test.
std::atomic<std::uint64_t> calls_at_probe = 0;
constexpr Op probe_op = {
    "probe", [](const OpAttributes& /*none*/, std::span<const AnyTensor> inputs) { return inputs[0].shape(); }, nullptr,
    [](BackwardCall& call) {
      calls_at_probe = begun_calls();
      call.give(0, call.gradient());
    }};

TEST_P(EveryOptimizer, SendGradientsWhileTheBackwardPassRuns) {
  const Model model = made();
  SGD optimizer(0.1F, {.first_bucket_bytes = 1});
  for (int number = 0; number < 4; ++number) {
    const std::uint64_t before = begun_calls();
    strategy->run([&](ReplicaContext& /*context*/) {
      Tape tape;
      optimizer.minimize(tape, apply(probe_op, {TapeTensor(model.w) * 2.F}) * model.b, model.all());
    });
    if (number > 1 && size() > 1) {
      EXPECT_GE(calls_at_probe - before, 1U) << "the gradient of b is on its way before that of w is known";
    }
  }
}

TEST_P(EveryOptimizer, CombineGradientsByOperationsOfTheProgram) {
  strategy.reset();
  strategy = GetParam().with(std::make_shared<ReductionToOneDevice>());
  const Model model = made();
  const Model reference;
  SGD optimizer(0.1F);
  SGD alone(0.1F);
  for (int number = 0; number < 3; ++number) {
    step(optimizer, model, number);
    step_alone(alone, reference, number);
  }
  expect_near(model.w.read(), reference.w.read(), 2e-6F);
}

TEST_P(EveryOptimizer, GoOnUnderAnotherStrategy) {
  const Model model = made();
  const Model reference;
  SGD optimizer({.learning_rate = 0.1F, .momentum = 0.9F});
  SGD alone({.learning_rate = 0.1F, .momentum = 0.9F});
  for (int number = 0; number < 4; ++number) {
    if (number == 2) {
      const auto old = std::exchange(strategy, GetParam().make());
      strategy->adopt(*old);
    }
    step(optimizer, model, number);
    step_alone(alone, reference, number);
  }
  expect_near(model.w.read(), reference.w.read(), 2e-6F);
  EXPECT_EQ(optimizer.iterations(), 4);
}

// The values are those of TensorFlow's test of custom aggregation.
TEST_P(EveryOptimizer, LeaveTheSumToTheProgramIfAsked) {
  const auto v = [&] {
    const Scope inside = strategy->scope();
    return Variable(row({0.F, 0.F}), {.name = "v"});
  }();
  SGD optimizer(0.1F);
  const auto apply = [&] {
    strategy->run([&](ReplicaContext& context) {
      const float me = 1.F + static_cast<float>(context.replica_id_in_sync_group());
      optimizer.apply({{v, Gradient(row({me, me}))}}, {.aggregate = false});
    });
  };
  if (shares_parts()) {
    EXPECT_TRUE(holds(refusal(apply, Code::replica_failed), "apply without aggregation in CentralStorageStrategy"));
    EXPECT_EQ(v.read(), row({0.F, 0.F}));
    return;
  }
  apply();
  for (std::size_t i = 0; i < v.parts().size(); ++i) {
    const float wanted = -0.1F * (1.F + static_cast<float>(first() + static_cast<int>(i)));
    expect_near(v.parts()[i], row({wanted, wanted}), 1e-6F);
  }
}

TEST_P(EveryOptimizer, RoundGradientsThatTravelAs16Bits) {
  for (const WireFormat wire : {WireFormat::bf16, WireFormat::f16}) {
    const Model exact = made();
    const Model narrow = made();
    SGD optimizer(0.1F);
    SGD rounding(0.1F, {.wire = wire});
    float losses[2] = {};
    for (int number = 0; number < 10; ++number) {
      step(optimizer, exact, number);
      step(rounding, narrow, number);
    }
    for (const bool is_exact : {false, true}) {
      const Tensor<float> all = (is_exact ? exact : narrow).loss(line_inputs(0, 8), 8).to<float>();
      for (const float each : all) losses[is_exact ? 1 : 0] += each;
    }
    const float difference = std::abs(losses[0] / losses[1] - 1);
    RecordProperty(text("loss_difference_", to_string(wire)), text(difference));
    EXPECT_LT(difference, wire == WireFormat::bf16 ? 1e-2F : 1e-3F);
    EXPECT_EQ(difference > 0, size() > 1) << "one replica sends nothing";
    narrow.w.check_sync();
  }
}

TEST_P(EveryOptimizer, ChangeNothingInAStepThatFails) {
  for (const int accumulate : {1, 2}) {
    const Model model = made();
    SGD optimizer({.learning_rate = 0.1F, .momentum = 0.9F}, {.accumulate_steps = accumulate});
    for (int number = 0; number < 2; ++number) step(optimizer, model, number);
    const auto values = [&] {
      std::string all;
      for (const AnyVariable& each : strategy->variables()) all += each.to_string();
      return all;
    };
    const std::string before = values();
    end_calls();
    const auto failing = [&] {
      strategy->step([&](ReplicaContext& context) {
        Tape tape;
        const TapeTensor loss = model.loss(line_inputs(3, 2), 4);
        optimizer.minimize(tape, loss, model.all());
        if (context.replica_id_in_sync_group() == size() - 1) throw std::runtime_error("behind the optimizer");
        (void)context.all_reduce(1, sum);
      });
    };
    EXPECT_TRUE(holds(refusal(failing, Code::replica_failed), "behind the optimizer"));
    EXPECT_EQ(values(), before);
    step(optimizer, model, 2);
    EXPECT_NE(values(), before);
  }
}

TEST_P(EveryOptimizer, AreCalledInReplicas) {
  const Model model = made();
  SGD optimizer(0.1F);
  const Tensor<float> before = model.w.read();
  const auto apply = [&] { optimizer.apply({{model.w, Gradient(Tensor<float>(TensorShape{line_features}, 1.F))}}); };
  const Scope inside = strategy->scope();
  if (size() == 1) {
    apply();
    expect_near(model.w.read(), before - 0.1F, 1e-6F);
  } else {
    EXPECT_TRUE(holds(refusal(apply, Code::usage), "apply cannot be called in cross-replica context"));
    EXPECT_EQ(model.w.read(), before);
  }
}

TEST_P(EveryOptimizer, RefuseVariablesOfAnotherStrategy) {
  const Model outside;
  SGD optimizer(0.1F);
  end_calls();
  const auto words = refusal(
      [&] {
        strategy->run([&](ReplicaContext& /*context*/) {
          optimizer.apply({{outside.w, Gradient(Tensor<float>(TensorShape{line_features}, 1.F))}});
        });
      },
      Code::replica_failed);
  EXPECT_TRUE(holds(words, "for variables that were made in")) << words;
}

}  // namespace
}  // namespace lockstep::train
