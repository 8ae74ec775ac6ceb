// SPDX-License-Identifier: Apache-2.0
// The instrument itself, with operations whose cost is known, among threads: it finds the time, names the slow member,
// shows a rare spike where it belongs, and sees wrong data.
#include <algorithm>
#include <thread>

#include "bench/bench.hpp"
#include "bench/in_stream.hpp"
#include "bench/scores.hpp"
#include "bench/statistics.hpp"
#include "tests/collectives/communicator/members.hpp"
#include "tests/collectives/nccl/fake_nccl.hpp"
#include "tests/support/lacks.hpp"

namespace lockstep::bench {
namespace {

using test::with_members;

void be_busy(double us) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double, std::micro>(us);
  while (std::chrono::steady_clock::now() < end) continue;
}

Effort quick() { return {.seconds = 0.3, .block_us = 1000}; }

// Two cores are enough for two members; a third party on them makes samples longer, never shorter.
TEST(Measure, FindsATimeThatIsKnown) {
  with_members(2, [](Communicator& world) {
    const BenchCandidate one{"busy", [] { be_busy(200); }};
    const Measurement measured = measure(world, {&one, 1}, quick(), 1);
    const Summary time = summarize_blocks(measured.timings[0].blocks);
    EXPECT_GE(time.min, 199);
    EXPECT_LT(time.min, 2000);
    EXPECT_LE(time.min, time.median);
    EXPECT_GT(time.n, 9U);
    EXPECT_FALSE(measured.interrupted);
  });
}

TEST(Measure, ASampleIsTheSlowestMembers) {
  with_members(3, [](Communicator& world) {
    const BenchCandidate one{"uneven", [&] { be_busy(world.rank() == 1 ? 400 : 5); }};
    const Measurement measured = measure(world, {&one, 1}, quick(), 1);
    EXPECT_GE(summarize_blocks(measured.timings[0].blocks).min, 399);
    const auto& medians = measured.timings[0].rank_medians;
    ASSERT_EQ(medians.size(), 3U);
    EXPECT_GE(medians[1], 399);
    EXPECT_EQ(std::ranges::max_element(medians) - medians.begin(), 1);
  });
}

TEST(Measure, ARareSpikeIsInTheTailAndNotInTheMedian) {
  with_members(1, [](Communicator& world) {
    int call = 0;
    const BenchCandidate one{"spiky", [&] { be_busy(++call % 50 == 0 ? 3000 : 50); }};
    const Summary time = summarize_blocks(measure(world, {&one, 1}, {.samples = 1000}, 1).timings[0].blocks);
    EXPECT_LT(time.median, 1000);
    EXPECT_GE(time.max, 2999);
    EXPECT_GE(time.p99, 2999);
  });
}

TEST(Measure, TakesAsManySamplesAsItIsTold) {
  with_members(2, [](Communicator& world) {
    int calls = 0;
    const BenchCandidate one{"counted", [&] { ++calls; }};
    const Measurement measured = measure(world, {&one, 1}, {.warm_ups = 7, .samples = 123}, 1);
    std::size_t taken = 0;
    for (const auto& block : measured.timings[0].blocks) taken += block.size();
    EXPECT_GE(taken, 123U);
    EXPECT_LT(taken, 123U + 12U);
    EXPECT_EQ(static_cast<std::size_t>(calls), taken + 7);
  });
}

TEST(Measure, TheRatioOfTwoThingsSaysWhichIsFaster) {
  with_members(2, [](Communicator& world) {
    const std::vector<BenchCandidate> both = {{"ours", [] { be_busy(100); }}, {"theirs", [] { be_busy(200); }}};
    const Measurement measured = measure(world, both, quick(), 1);
    const Ratio ratio = ratio_of(measured, 1);
    EXPECT_GT(ratio.ci.low, 1.0) << "theirs takes twice as long";
    EXPECT_EQ(ratio.blocks, measured.timings[1].blocks.size());
  });
}

TEST(Measure, EndsEarlyForAllWhenOneWantsIt) {
  with_members(2, [](Communicator& world) {
    int calls = 0;
    const BenchCandidate one{"wanting", [&] {
                               if (++calls == 100 && world.rank() == 1) interrupt_wanted = true;
                             }};
    const Measurement measured = measure(world, {&one, 1}, {.seconds = 60, .samples = 100'000'000}, 1);
    EXPECT_TRUE(measured.interrupted);
    world.barrier();
    interrupt_wanted = false;
    world.barrier();
  });
}

TEST(Measure, PreparesEachSampleAndCleansUpAfterEachTurn) {
  with_members(2, [](Communicator& world) {
    int before = 0;
    int calls = 0;
    int after = 0;
    const BenchCandidate one{"one", [&] { ++calls; }, [&] { ++before; }, [&] { ++after; }};
    const Measurement measured = measure(world, {&one, 1}, {.samples = 50}, 1);
    EXPECT_EQ(before, calls);
    EXPECT_EQ(after, static_cast<int>(measured.timings[0].blocks.size()) + 1) << "and after the warm-up";
  });
}

TEST(Bench, RefusesSizesBeyondTheMemory) {
  with_members(2, [](Communicator& world) {
    const BenchOptions options{.subjects = {Subject{}}, .sizes = {std::uint64_t{1} << 60U}, .effort = quick()};
    bench::BenchRun run;
    try {
      run_bench(world, options, run, [](const bench::BenchRun&) {});
      ADD_FAILURE() << "it was measured";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::out_of_memory);
      EXPECT_NE(std::string_view(error.what()).find("MiB are free"), std::string_view::npos) << error.what();
    }
  });
}

TEST(Bench, SaysWhenResultsWereNotLookedAtAndHowFarItIs) {
  with_members(2, [](Communicator& world) {
    BenchOptions options{
        .subjects = {Subject{.cold = can_flush_caches()}}, .sizes = {64, 4096}, .effort = quick(), .check = false};
    options.effort.seconds = 0.02;
    std::vector<std::size_t> told;
    options.progress = [&](const BenchProgress& now) {
      told.push_back(now.done);
      EXPECT_EQ(now.all, 2U);
      EXPECT_GT(now.seconds_left, 0);
    };
    bench::BenchRun run;
    run_bench(world, options, run, [](const bench::BenchRun&) {});
    for (Row& row : run.rows) {
      EXPECT_TRUE(row.check.hash.empty());
      EXPECT_EQ(row.cold, can_flush_caches());
      row.noise.noisy = false;
    }
    conclude(run);
    EXPECT_EQ(told, (std::vector<std::size_t>{0, 1}));
    EXPECT_EQ(run.verdict, "2 rows measured, and results not checked");
  });
}

TEST(Bench, NamesSkippedSizesAndComparesWithBaselines) {
  with_members(3, [](Communicator& world) {
    BenchOptions options{
        .subjects = {Subject{.collective = Collective::all_gather}}, .sizes = {8, 1200}, .effort = quick()};
    options.effort.seconds = 0.02;
    bench::BenchRun run;
    run_bench(world, options, run, [](const bench::BenchRun&) {});
    ASSERT_EQ(run.rows.size(), 1U);
    ASSERT_FALSE(run.settings.empty());
    EXPECT_EQ(run.settings[0].value, "all_gather of 8 bytes");
    run.rows[0].noise.noisy = false;
    run.rows.resize(4, run.rows[0]);
    const std::vector<Ratio> ratios = {
        {2, {1.5, 3}, 9}, {0.5, {0.4, 0.6}, 9}, {1.1, {0.9, 1.2}, 9}, {0.9, {0.8, 0.95}, 9}};
    for (std::size_t i = 0; i < 4; ++i)
      run.rows[i].baselines = {{.name = "mpi", .algorithm = {}, .time = {}, .ratio = ratios[i]}};
    conclude(run);
    EXPECT_EQ(run.verdict, "all results right in 4 rows; against mpi 1 faster, 1 equal, 2 slower");
  });
}

std::vector<Subject> all_subjects() {
  std::vector<Subject> all;
  for (int i = 0; i < collective_count; ++i) {
    for (const bool in_place : {false, true}) {
      Subject subject{.collective = static_cast<Collective>(i), .type = DataType::i32, .in_place = in_place};
      if (why_not(subject).empty()) all.push_back(subject);
    }
  }
  return all;
}

void expect_whole(const StreamTiming& row, bool has_nccl, std::string_view of) {
  EXPECT_GE(row.operations, 5U) << of;
  EXPECT_GT(row.time.median, 0) << of;
  EXPECT_GT(row.busbw, 0) << of;
  EXPECT_GT(row.moved, 0) << of;
  EXPECT_GT(row.copied, 0) << of;
  std::vector<std::string> names;
  for (const Baseline& each : row.baselines) {
    names.push_back(each.name);
    EXPECT_GT(each.time.median, 0) << each.name;
    EXPECT_GT(each.ratio.value, 0) << each.name;
  }
  EXPECT_EQ(names,
            has_nccl ? (std::vector<std::string>{"plan", "nccl", "copy"}) : (std::vector<std::string>{"plan", "copy"}))
      << of;
}

// By the stream's own clock: what else the host does between is not in it, and many are waited for at once.
TEST(Bench, AStopwatchCountsOnlyTheWorkOfItsStream) {
  const gpu::BackendOverride gpus(std::make_unique<test::FakeGpus>(1));
  auto& fake = static_cast<test::FakeGpus&>(gpus.backend());
  const Stopwatch watch(0);
  std::atomic<int> done = 0;
  int begun = 0;
  std::atomic<bool> is_first_held = true;
  const double us = watch.time(10, [&] {
    ++begun;
    fake.put(watch.stream(), [&] {
      while (is_first_held) std::this_thread::yield();
      be_busy(300);
      ++done;
    });
    EXPECT_EQ(done, 0) << "nobody waits between them";
    if (begun == 10) is_first_held = false;
  });
  EXPECT_EQ(done, 10);
  EXPECT_GE(us, 299);
  EXPECT_LT(us, 3000) << "of one of them";
  fake.put(watch.stream(), [] { be_busy(5000); });
  EXPECT_LT(watch.time(1, [] {}), 4000) << "what was before the first mark";
  fake.put(watch.stream(), [] { throw Error(Code::device, "it fell off the bus"); });
  EXPECT_THROW(watch.time(1, [] {}), Error);
}

// All are put there before the first of them begins.
TEST(Bench, RowsByTheGpusClockAreInAStream) {
  const gpu::BackendOverride gpus(std::make_unique<test::FakeGpus>(2));
  auto& fake = static_cast<test::FakeGpus&>(gpus.backend());
  const nccl::NcclOverride library(std::make_unique<test::FakeNccl>(fake));
  with_members(2, [&](Communicator& world) {
    const Subject subject{.count = 3000};
    Buffers buffers(subject, 2, world.rank());
    GpuBuffers on(world, buffers, world.rank());
    buffers.fill();
    on.take();
    StreamRow row(world, subject, on, nullptr);
    const std::span<std::byte> there(fake.reach(on.output().data(), on.output().size()), on.output().size());
    const std::vector<std::byte> before(there.begin(), there.end());
    bool is_too_early = false;
    fake.put(row.stream(), [&] {
      while (fake.marks_of_time() < 2 * 2) std::this_thread::yield();
      is_too_early = !std::ranges::equal(there, before);
    });
    row.once();
    EXPECT_FALSE(is_too_early);
    EXPECT_FALSE(std::ranges::equal(there, before));
  });
}

// What a library does that does not know GPUs is measured with the copies that it needs.
TEST(Bench, BaselinesOfTheHostAreStaged) {
  const gpu::BackendOverride gpus(std::make_unique<test::FakeGpus>(1));
  auto& fake = static_cast<test::FakeGpus&>(gpus.backend());
  with_members(1, [&](Communicator& world) {
    const Subject subject{.count = 3000};
    Buffers buffers(subject, 1, 0);
    GpuBuffers on(world, buffers, 0);
    const int before = fake.copies();
    int when_called = 0;
    std::string also;
    const BenchCandidate staged = on.staged({.name = "mpi:best",
                                             .once = [&] { when_called = fake.copies(); },
                                             .before = [&] { also += "before "; },
                                             .after = [&] { also += "after "; },
                                             .algorithm = "tuned:ring"});
    staged.before();
    staged.once();
    staged.after();
    EXPECT_EQ(also, "before after ") << "what forces an algorithm stays around it";
    EXPECT_EQ(staged.name, "mpi:best");
    EXPECT_EQ(staged.algorithm, "tuned:ring");
    EXPECT_EQ(when_called, before + 1);
    EXPECT_EQ(fake.copies(), before + 2);
    EXPECT_EQ(fake.pinnings(), 1);
    BenchOptions options{.subjects = {Subject{}}, .sizes = {12'000}};
    options.effort = {.seconds = 0.01, .samples = 10};
    options.gpu = 0;
    options.baselines.emplace_back("memcpy", copy_candidate);
    bench::BenchRun run;
    run_bench(world, options, run, [](const bench::BenchRun&) {});
    ASSERT_NE(baseline_of(run.rows.at(0), "memcpy"), nullptr);
    EXPECT_GE(fake.copies(), before + 2 + 2 * 10);
  });
}

TEST(Measure, TakesTheTimeThatACandidateReturns) {
  with_members(2, [](Communicator& world) {
    const BenchCandidate one{.name = "timed", .timed = [&] { return world.rank() == 1 ? 7.0 : 3.0; }};
    const Summary time = summarize_blocks(measure(world, {&one, 1}, {.samples = 20}, 1).timings[0].blocks);
    EXPECT_EQ(time.median, 7) << "of the slowest";
    EXPECT_EQ(time.max, 7);
  });
}

// Checked as those of the host's memory are, and beside NCCL's own operation where it has one.
TEST(Bench, RowsLieInTheMemoryOfGpus) {
  const gpu::BackendOverride gpus(std::make_unique<test::FakeGpus>(3));
  const nccl::NcclOverride library(std::make_unique<test::FakeNccl>(static_cast<test::FakeGpus&>(gpus.backend())));
  with_members(3, [](Communicator& world) {
    BenchOptions options{.subjects = all_subjects(), .sizes = {12'000}};
    options.effort = {.seconds = 0.01, .samples = 10};
    options.gpu = choose_gpu(world);
    EXPECT_EQ(options.gpu, world.rank());
    options.against_nccl = NcclBaseline::make(world, *options.gpu);
    options.against_host = true;
    bench::BenchRun run;
    run_bench(world, options, run, [](const bench::BenchRun&) {});
    ASSERT_EQ(run.rows.size(), options.subjects.size());
    for (const Row& row : run.rows) {
      EXPECT_EQ(row.check.wrong, 0U) << row.collective;
      EXPECT_TRUE(row.check.ranks_equal) << row.collective;
      EXPECT_EQ(baseline_of(row, "host") != nullptr, row.collective != "sendrecv") << row.collective;
      const bool has_own = row.collective == "all_reduce" || row.collective == "reduce" ||
                           row.collective == "reduce_scatter" || row.collective == "all_gather" ||
                           row.collective == "broadcast";
      EXPECT_EQ(baseline_of(row, "nccl") != nullptr, has_own) << row.collective;
      const bool has_none = row.collective == "sendrecv" || row.collective == "barrier";
      ASSERT_EQ(row.in_stream.has_value(), !has_none) << row.collective;
      if (!has_none) expect_whole(*row.in_stream, has_own, row.collective);
      if (row.collective == "all_reduce") {
        EXPECT_EQ(row.algorithm, "nccl");
        EXPECT_TRUE(row.limit && row.limit->binding == "mem");
      }
    }
  });
  EXPECT_GT(static_cast<test::FakeNccl&>(library.library()).operations(), 0);
  EXPECT_EQ(static_cast<test::FakeNccl&>(library.library()).living(), 0);
}

TEST(Bench, RefusesGpusThatAreNotThere) {
  if (gpu::backend() != nullptr) GTEST_SKIP() << test::lacks("needs a machine without a GPU");
  with_members(2, [](Communicator& world) {
    try {
      choose_gpu(world);
      ADD_FAILURE() << "there was one";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::device);
      EXPECT_NE(std::string_view(error.what()).find("--device gpu: "), std::string_view::npos) << error.what();
    }
  });
}

TEST(Bench, WritesCompleteRows) {
  const auto body = [](Communicator& world) {
    BenchOptions options{.subjects = {Subject{}, Subject{.collective = Collective::barrier}}, .sizes = {8, 9, 4096}};
    options.effort = {.seconds = 0.05};
    options.baselines.emplace_back("memcpy", copy_candidate);
    bench::BenchRun run;
    std::size_t shown = 0;
    run_bench(world, options, run, [&](const bench::BenchRun& so_far) { EXPECT_EQ(so_far.rows.size(), ++shown); });
    conclude(run);
    ASSERT_EQ(run.rows.size(), 3U) << "8 and 9 bytes are both two elements";
    EXPECT_EQ(shown, 3U);
    EXPECT_EQ(run.rows[0].bytes, 8U);
    EXPECT_EQ(run.rows[1].count, 1024U);
    EXPECT_EQ(run.rows[2].collective, "barrier");
    for (const Row& row : run.rows) {
      EXPECT_GT(row.time.median, 0);
      EXPECT_EQ(row.check.wrong, 0U);
      EXPECT_TRUE(row.check.ranks_equal);
      EXPECT_FALSE(row.algorithm.empty());
      ASSERT_TRUE(row.limit);
      EXPECT_GT(row.limit->us, 0);
    }
    EXPECT_GE(run.rows[1].rounds, 1U);
    EXPECT_GE(run.rows[1].sent_bytes, 4096U) << "of two members, each gives all it has in one way or another";
    ASSERT_EQ(run.rows[1].baselines.size(), 1U);
    EXPECT_GT(run.rows[1].baselines[0].time.median, 0);
    EXPECT_TRUE(run.rows[2].baselines.empty());
    EXPECT_TRUE(run.exit_code == 0 || run.exit_code == 7) << run.verdict;
  };
  with_members(2, body, {.node_memory = false});
}

}  // namespace
}  // namespace lockstep::bench
