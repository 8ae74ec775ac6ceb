// SPDX-License-Identifier: Apache-2.0
// Calls that replicas mix up, under every strategy and layout: calls of other tags, gradients of other names, and other
// merge_calls, each of equal types and counts.
#include <gtest/gtest.h>

#include "runtime/cross_device_ops.hpp"
#include "tests/runtime/gradients.hpp"
#include "tests/runtime/layouts.hpp"
#include "tests/support/holds.hpp"
#include "tests/support/lacks.hpp"
#include "tests/support/refusal.hpp"

namespace lockstep::test {
namespace {

class Identity : public EveryLayout {
 protected:
  using Step = std::function<void(ReplicaContext&, bool is_other)>;

  // A process knows the names of the tags that it has used.
  void use_tags() {
    strategy->run([](ReplicaContext& context) {
      for (const char* tag : {"loss", "norm of it"}) (void)context.all_gather(1.0, {.tag = tag});
    });
  }
  // Runs a step that all replicas do alike `laps` times, and then one in which the first replica, or the first process
  // of several, does the other thing. Returns the error.
  std::string words_of_difference(const Step& step, int laps = 0) {
    const bool is_here = is_in_one_process();
    for (int lap = 0; lap < laps; ++lap) strategy->run([&](ReplicaContext& context) { step(context, false); });
    const auto differ = [&](ReplicaContext& context) {
      step(context, (is_here ? context.replica_id_in_sync_group() : first()) == 0);
    };
    end_calls();
    return refusal([&] { strategy->run(differ); }, Code::replica_failed);
  }
};

TEST_P(Identity, CallsOfOtherTagsAreAMismatch) {
  using Call = std::function<void(ReplicaContext&, const CommunicationOptions&)>;
  const std::pair<std::string_view, Call> calls[] = {
      {"a number", [](auto& context, auto& options) { (void)context.all_reduce(1.F, sum, options); }},
      {"a structure",
       [](auto& context, auto& options) {
         std::pair both(1.F, Tensor<float>(TensorShape{2}));
         context.all_reduce(both, max, options);
       }},
      {"a request",
       [](auto& context, auto& options) {
         std::vector<float> data(5);
         context.all_reduce_async(data, sum, options).wait();
       }},
      {"slices",
       [](auto& context, auto& options) {
         (void)context.all_reduce(IndexedSlices<float>(Tensor<float>({1}, {1.F}), {0}, TensorShape({9})), sum, options);
       }},
      {"numbers of all", [](auto& context, auto& options) { (void)context.all_gather(1, options); }},
      {"tensors of all",
       [](auto& context, auto& options) { (void)context.all_gather(Tensor<int>({1}, {1}), 0, options); }},
      {"the first one's", [](auto& context, auto& options) {
         (void)context.broadcast(1.0, 0, options);
         (void)context.all_reduce(1, sum);  // The first one learns here that the others have failed.
       }}};
  use_tags();
  for (const auto& [name, call] : calls) {
    const auto two_tags = [&call = call](ReplicaContext& context, bool is_other) {
      for (const bool is_second : {false, true}) call(context, {.tag = is_second == is_other ? "loss" : "norm of it"});
    };
    if (size() == 1) {
      strategy->run([&](ReplicaContext& context) { two_tags(context, true); });
      continue;
    }
    const std::string words = words_of_difference(two_tags);
    for (const std::string_view part : {"E016", "tagged \"loss\"", "tagged \"norm of it\"", "of each tag"})
      EXPECT_TRUE(holds(words, part)) << name << ": " << words;
    // Members do not send the description of a call that they know.
    EXPECT_TRUE(holds(words_of_difference(two_tags, 3), "E016")) << name;
  }
}

TEST_P(Identity, OperationsOfTheProgramCompareTagsToo) {
  if (size() == 1) GTEST_SKIP() << lacks("needs two replicas");
  strategy.reset();
  strategy = GetParam().with(std::make_shared<ReductionToOneDevice>());
  use_tags();
  const auto step = [](ReplicaContext& context, bool is_other) {
    std::vector<float> data(3);
    context.all_reduce(data, sum, {.tag = is_other ? "loss" : "norm of it"});
  };
  const std::string words = words_of_difference(step);
  for (const std::string_view part : {"E016", "tagged \"loss\"", "tagged \"norm of it\""})
    EXPECT_TRUE(holds(words, part)) << words;
}

TEST_P(Identity, CallsOfOtherLinesAreNoMismatch) {
  const auto step = [](ReplicaContext& context) {
    if (context.replica_id_in_sync_group() == 0) return context.all_reduce(1, sum);
    return context.all_reduce(1, sum);
  };
  EXPECT_EQ(strategy->run(step)[0], size());
  strategy.reset();
  strategy = GetParam().with(std::make_shared<ReductionToOneDevice>());
  EXPECT_EQ(strategy->run(step)[0], size());
}

TEST_P(Identity, GradientsOfOtherNamesAreAMismatch) {
  if (size() == 1) GTEST_SKIP() << lacks("needs two replicas");
  const auto words_of = [&](const std::vector<std::string>& names, const BucketOptions& options) {
    std::vector<GradientSpec> other;
    for (const std::string& each : names) other.push_back({each, DataType::f32, 3});
    GradientReducer here(*strategy, floats_of({3, 3}));
    GradientReducer there(*strategy, other, options);
    return words_of_difference([&](ReplicaContext& context, bool is_other) {
      std::vector<float> a(3);
      std::vector<float> b(3);
      GradientReducer::BackwardPass pass(is_other ? there : here, context);
      pass.ready(1, std::span(b));
      pass.ready(0, std::span(a));
      pass.finish();
    });
  };
  for (const std::string& words :
       {words_of({"layer1", "layer0"}, {}), words_of({"layer0", "layer1"}, {.tag = "generator"})}) {
    for (const std::string_view part : {"E016", "tagged \"gradients layer1 layer0\""})
      EXPECT_TRUE(holds(words, part)) << words;
  }
}

TEST_P(Identity, OtherMergeCallsAreFoundAtTheNextCollective) {
  if (size() == 1) GTEST_SKIP() << lacks("needs two replicas");
  const auto then_sum = [](ReplicaContext& context, bool is_other) {
    if (is_other)
      context.merge_call([](Strategy&) {});
    else
      context.merge_call([](Strategy&) {});
    (void)context.all_reduce(1, sum);
  };
  const auto sum_inside = [](ReplicaContext& context, bool is_other) {
    const auto sum_of_all = [](Strategy& all, const PerReplica<int>& values) { return all.reduce("SUM", values); };
    if (is_other)
      (void)context.merge_call(sum_of_all, 1);
    else
      (void)context.merge_call(sum_of_all, 1);
  };
  for (const auto& [step, laps] :
       {std::pair<Step, int>(then_sum, 0), {then_sum, 3}, {sum_inside, 0}, {sum_inside, 3}}) {
    const std::string words = words_of_difference(step, laps);
    EXPECT_TRUE(holds(words, "E016")) << words;
    if (laps == 0) {
      EXPECT_TRUE(holds(words, "merge_call")) << words;
    }
  }
}

// The buckets of a reducer are planned once, but what came before one may change from step to step.
TEST_P(Identity, MergeCallsBetweenGradientsMayComeAndGo) {
  GradientReducer reducer(*strategy, floats_of({3, 3}), {.bytes = 1, .first_bytes = 1});
  for (int step = 0; step < 8; ++step) {
    const auto sums = strategy->run([&](ReplicaContext& context) {
      std::vector<float> a(3, 1.F);
      std::vector<float> b(3, 2.F);
      GradientReducer::BackwardPass pass(reducer, context);
      pass.ready(1, std::span(b));
      if (step % 3 == 1) context.merge_call([](Strategy&) {});
      if (step % 4 >= 2) context.merge_call([](Strategy&) {});
      pass.ready(0, std::span(a));
      pass.finish();
      return a[0] + b[2];
    });
    EXPECT_EQ(sums[0], 3.F * static_cast<float>(size())) << step;
  }
}

INSTANTIATE_TEST_SUITE_P(All, Identity, testing::ValuesIn(layouts()), [](const auto& each) { return each.param.name; });

}  // namespace
}  // namespace lockstep::test
