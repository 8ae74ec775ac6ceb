// SPDX-License-Identifier: Apache-2.0
// A model's gradients have its sizes and travel in the buckets of GradientReducer; every way to exchange them is
// checked, and a lost bucket is seen.
#include "bench/gradients.hpp"

#include <algorithm>
#include <numeric>

#include "bench/bench.hpp"
#include "bench/gradient_exchange.hpp"
#include "bench/scores.hpp"
#include "tests/collectives/communicator/members.hpp"
#include "tests/collectives/nccl/fake_nccl.hpp"
#include "tests/support/refusal.hpp"
#include "tests/topology/shapes.hpp"

namespace lockstep::bench {
namespace {

using test::refusal;
using test::with_members;

TEST(Gradients, HaveTheSizesOfTheirModels) {
  EXPECT_EQ(counts_of_model("cnn"), (std::vector<std::size_t>{288, 32, 2'768'896, 128, 1280, 10}));
  EXPECT_EQ(parse_gradients("mlp").tensors, 16U);
  EXPECT_EQ(parse_gradients("mlp").count, 8U * (1024 * 1024 + 1024));
  EXPECT_EQ(parse_gradients("resnet50").tensors, 161U);
  EXPECT_EQ(parse_gradients("resnet50").count, 25'557'032U) << "the parameters of ResNet-50";
  EXPECT_EQ(parse_gradients("7, 5x2").count, 17U);
  EXPECT_EQ(parse_gradients("7, 5x2").tensors, 3U);
}

TEST(Gradients, TravelInBucketsOfTheBackwardPass) {
  const GradientList cnn = parse_gradients("cnn");
  ASSERT_EQ(cnn.buckets.size(), 2U) << "the first ends behind 1 MiB";
  EXPECT_EQ(cnn.buckets[0].tensors.front(), (TensorRange{cnn.count - 10, 10})) << "the last gradient comes first";
  EXPECT_EQ(cnn.buckets[0].whole, (TensorRange{320, cnn.count - 320}));
  EXPECT_EQ(cnn.buckets[1].tensors, (std::vector<TensorRange>{{288, 32}, {0, 288}}));
  EXPECT_EQ(cnn.largest(), cnn.count - 320);
  EXPECT_EQ(cnn.to_text(), "6 tensors in 2 buckets of 10.6 MiB, 1.25 KiB");
  const GradientList resnet = parse_gradients("resnet50");
  std::size_t end = resnet.count;
  for (const GradientBucket& each : resnet.buckets) {
    EXPECT_EQ(each.whole.begin + each.whole.count, end) << "each element once";
    end = each.whole.begin;
  }
  EXPECT_EQ(end, 0U);
}

TEST(Gradients, RefuseModelsAndCountsThatAreNone) {
  const auto refused = [](std::string_view words) { return refusal([&] { parse_gradients(words); }, Code::usage); };
  EXPECT_NE(refused("resnet51").find("did you mean resnet50?"), std::string::npos);
  EXPECT_NE(refused("lots").find("choose from cnn, mlp, resnet50, or list the elements"), std::string::npos);
  EXPECT_NE(refused("64,0").find("has an empty gradient"), std::string::npos);
  EXPECT_NE(refused("64x0").find("has an empty gradient"), std::string::npos);
  EXPECT_NE(refused("1x100001").find("more than 100000 gradients"), std::string::npos);
  EXPECT_NE(refused("9000000000000").find("more than 1099511627776 elements"), std::string::npos);
  for (const std::string_view words : {"", "64,", "64xx2", "-1", "1.5", "99999999999999999999"}) refused(words);
  EXPECT_NE(refusal([] { gradient_list("nothing", {}); }, Code::usage).find("has no gradients"), std::string::npos);
}

TEST(Gradients, ThatStayBehindAreSeen) {
  with_members(3, [](Communicator& world) {
    const Subject subject = subject_of(parse_gradients("7,300000,5x20"));
    Buffers buffers(subject, 3, world.rank());
    GradientList lacking = *subject.gradients;
    ASSERT_EQ(lacking.buckets.size(), 2U);
    lacking.buckets.pop_back();
    std::uint64_t bits = 0;
    for (const bool is_whole : {true, false}) {
      buffers.fill();
      GradientExchange exchange(world, is_whole ? *subject.gradients : lacking, static_cast<float*>(buffers.output()));
      exchange.run();
      EXPECT_EQ(buffers.count_wrong(bits), is_whole ? 0U : 7U);
    }
  });
}

// Measures the gradients on members that lie on the given nodes.
void with_row(const std::vector<int>& nodes, const std::function<void(const Row&)>& judge) {
  const auto body = [&](Communicator& world) {
    BenchOptions options{.subjects = {subject_of(parse_gradients("7,300000,5x20"))}};
    options.effort = {.seconds = 0.01, .samples = 10};
    options.gradient_ways = {"ring", "hierarchical", "reproducible"};
    bench::BenchRun run;
    run_bench(world, options, run, [](const bench::BenchRun&) {});
    ASSERT_EQ(run.rows.size(), 1U);
    const Row& row = run.rows.front();
    EXPECT_EQ(row.collective, "gradients:7,300000,5x20");
    EXPECT_EQ(row.count, 300'107U);
    EXPECT_TRUE(row.in_place);
    EXPECT_EQ(row.check.wrong, 0U);
    EXPECT_TRUE(row.check.ranks_equal);
    EXPECT_TRUE(row.check.looked_at());
    EXPECT_GT(row.sent_bytes, row.bytes / 2);
    for (const Baseline& each : row.baselines) EXPECT_GT(each.time.median, 0) << each.name;
    if (world.rank() == 0) judge(row);
  };
  run_members(test::nodes_of(nodes), body, {}, test::short_limits, Log(LogLevel::off));
}

TEST(Gradients, AreMeasuredOverRingAndLevels) {
  with_row({2, 2}, [](const Row& row) {
    ASSERT_EQ(row.baselines.size(), 3U);
    EXPECT_EQ(row.baselines[0].algorithm, "ring");
    EXPECT_EQ(row.baselines[1].name, "hierarchical");
    EXPECT_TRUE(row.baselines[1].algorithm.starts_with("node_") ||
                row.baselines[1].algorithm.starts_with("hierarchical"))
        << row.baselines[1].algorithm;
    EXPECT_EQ(row.baselines[2].name, "reproducible");
    for (const Baseline& each : row.baselines) EXPECT_FALSE(is_rival(each.name)) << each.name << " is Lockstep, too";
  });
}

TEST(Gradients, LeaveOutLevelsThatAJobLacks) {
  with_row({1, 1, 1}, [](const Row& row) {
    ASSERT_EQ(row.baselines.size(), 2U);
    EXPECT_EQ(baseline_of(row, "hierarchical"), nullptr);
  });
  with_members(2, [](Communicator& world) {
    const GradientList mlp = parse_gradients("mlp");
    EXPECT_NE(find_gradient_way(world, "hierarchical", mlp).why_not.find("all_reduce:hierarchical_ring does not fit"),
              std::string::npos);
    EXPECT_EQ(find_gradient_way(world, "ring", mlp).why_not, "");
  });
  with_members(1, [](Communicator& world) {
    EXPECT_EQ(find_gradient_way(world, "ring", parse_gradients("mlp")).why_not, "one rank exchanges nothing");
  });
}

TEST(Gradients, OnGpusAreComparedWithNcclsOwnCalls) {
  const gpu::BackendOverride gpus(std::make_unique<test::FakeGpus>(2));
  const nccl::NcclOverride library(std::make_unique<test::FakeNccl>(static_cast<test::FakeGpus&>(gpus.backend())));
  with_members(2, [](Communicator& world) {
    BenchOptions options{.subjects = {subject_of(parse_gradients("7,300000,5x20"))}};
    options.effort = {.seconds = 0.01, .samples = 10};
    options.gpu = choose_gpu(world);
    options.against_nccl = NcclBaseline::make(world, *options.gpu);
    options.gradient_ways = {"ring"};
    bench::BenchRun run;
    run_bench(world, options, run, [](const bench::BenchRun&) {});
    ASSERT_EQ(run.rows.size(), 1U);
    const Row& row = run.rows.front();
    EXPECT_EQ(row.check.wrong, 0U);
    EXPECT_EQ(row.algorithm, "nccl");
    ASSERT_NE(baseline_of(row, "nccl"), nullptr);
    ASSERT_NE(baseline_of(row, "ring"), nullptr);
    EXPECT_EQ(baseline_of(row, "ring")->algorithm, "ring");
    EXPECT_FALSE(row.in_stream);
  });
}

}  // namespace
}  // namespace lockstep::bench
