// SPDX-License-Identifier: Apache-2.0
// The instrument itself, with operations whose cost is known, among threads: it finds the time, names the slow member,
// shows a rare spike where it belongs, and sees wrong data.
#include <algorithm>
#include <thread>

#include "bench/bench.hpp"
#include "bench/statistics.hpp"
#include "tests/collectives/members.hpp"

namespace lockstep::bench {
namespace {

using test::with_members;

void be_busy(double us) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double, std::micro>(us);
  while (std::chrono::steady_clock::now() < end) continue;
}

Effort quick() { return {.seconds = 0.3, .block_us = 1000}; }

// Two cores are enough for two members; a third party on them makes samples longer, never shorter.
TEST(Measure, finds_a_time_that_is_known) {
  with_members(2, [](Communicator& world) {
    const Candidate one{"busy", [] { be_busy(200); }};
    const Measured measured = measure(world, {&one, 1}, quick(), 1);
    const Summary time = summarize_blocks(measured.timings[0].blocks);
    EXPECT_GE(time.min, 199);
    EXPECT_LT(time.min, 2000);
    EXPECT_LE(time.min, time.median);
    EXPECT_GT(time.n, 9U);
    EXPECT_FALSE(measured.interrupted);
  });
}

TEST(Measure, a_sample_is_the_slowest_members) {
  with_members(3, [](Communicator& world) {
    const Candidate one{"uneven", [&] { be_busy(world.rank() == 1 ? 400 : 5); }};
    const Measured measured = measure(world, {&one, 1}, quick(), 1);
    EXPECT_GE(summarize_blocks(measured.timings[0].blocks).min, 399);
    const auto& medians = measured.timings[0].rank_medians;
    ASSERT_EQ(medians.size(), 3U);
    EXPECT_GE(medians[1], 399);
    EXPECT_EQ(std::ranges::max_element(medians) - medians.begin(), 1);
  });
}

TEST(Measure, a_rare_spike_is_in_the_tail_and_not_in_the_median) {
  with_members(1, [](Communicator& world) {
    int call = 0;
    const Candidate one{"spiky", [&] { be_busy(++call % 50 == 0 ? 3000 : 50); }};
    const Summary time = summarize_blocks(measure(world, {&one, 1}, {.samples = 1000}, 1).timings[0].blocks);
    EXPECT_LT(time.median, 1000);
    EXPECT_GE(time.max, 2999);
    EXPECT_GE(time.p99, 2999);
  });
}

TEST(Measure, takes_as_many_samples_as_it_is_told) {
  with_members(2, [](Communicator& world) {
    int calls = 0;
    const Candidate one{"counted", [&] { ++calls; }};
    const Measured measured = measure(world, {&one, 1}, {.warm_ups = 7, .samples = 123}, 1);
    std::size_t taken = 0;
    for (const auto& block : measured.timings[0].blocks) taken += block.size();
    EXPECT_GE(taken, 123U);
    EXPECT_LT(taken, 123U + 12U);
    EXPECT_EQ(static_cast<std::size_t>(calls), taken + 7);
  });
}

TEST(Measure, the_ratio_of_two_things_says_which_is_faster) {
  with_members(2, [](Communicator& world) {
    const std::vector<Candidate> both = {{"ours", [] { be_busy(100); }}, {"theirs", [] { be_busy(200); }}};
    const Measured measured = measure(world, both, quick(), 1);
    const Ratio ratio = ratio_of(measured, 1);
    EXPECT_GT(ratio.ci.low, 1.0) << "theirs takes twice as long";
    EXPECT_EQ(ratio.blocks, measured.timings[1].blocks.size());
  });
}

TEST(Measure, ends_early_for_all_when_one_wants_it) {
  with_members(2, [](Communicator& world) {
    int calls = 0;
    const Candidate one{"wanting", [&] {
                          if (++calls == 100 && world.rank() == 1) interrupt_wanted = true;
                        }};
    const Measured measured = measure(world, {&one, 1}, {.seconds = 60, .samples = 100'000'000}, 1);
    EXPECT_TRUE(measured.interrupted);
    world.barrier();
    interrupt_wanted = false;
    world.barrier();
  });
}

// Every collective, every type that it has, every operation: right results are right, and one wrong bit is seen.
TEST(Subjects, are_checked_exactly) {
  with_members(3, [](Communicator& world) {
    int checked = 0;
    for (int collective = 0; collective <= static_cast<int>(Collective::exscan); ++collective) {
      for (int type = 0; type < static_cast<int>(DataType::boolean); ++type) {
        for (int op = 0; op < static_cast<int>(ReduceOp::premul_sum); ++op) {
          for (const bool in_place : {false, true}) {
            const Subject subject{static_cast<Collective>(collective),
                                  static_cast<DataType>(type),
                                  static_cast<ReduceOp>(op),
                                  1,
                                  in_place,
                                  7};
            if (!why_not(subject).empty() || (op > 0 && !reduces_data(subject.collective))) continue;
            Buffers buffers(subject, 3, world.rank());
            buffers.fill();
            world.team()->run(buffers.ask());
            std::uint64_t bits = 0;
            EXPECT_EQ(buffers.count_wrong(bits), 0U) << to_string(subject.collective) << ' ' << to_string(subject.type)
                                                     << ' ' << to_string(subject.op) << (in_place ? " in place" : "");
            ++checked;
            if (buffers.output_count() == 0 || (subject.collective == Collective::exscan && world.rank() == 0))
              continue;
            std::uint64_t other_bits = 0;
            *static_cast<std::byte*>(buffers.output()) ^= std::byte{1};
            EXPECT_EQ(buffers.count_wrong(other_bits), 1U);
            EXPECT_NE(bits, other_bits);
          }
        }
      }
    }
    EXPECT_GT(checked, 500);
  });
}

TEST(Sizes, are_those_of_nccl_tests) {
  EXPECT_EQ(count_of(Collective::all_reduce, DataType::f32, 1024, 4), 256U);
  EXPECT_EQ(count_of(Collective::all_gather, DataType::f32, 1024, 4), 64U);
  EXPECT_EQ(count_of(Collective::all_gather, DataType::f64, 8, 4), 0U);
  EXPECT_DOUBLE_EQ(bus_factor(Collective::all_reduce, 4), 1.5);
  EXPECT_DOUBLE_EQ(bus_factor(Collective::reduce_scatter, 4), 0.75);
  EXPECT_DOUBLE_EQ(bus_factor(Collective::broadcast, 4), 1);
}

TEST(Bench, refuses_what_memory_does_not_hold) {
  with_members(2, [](Communicator& world) {
    const Wish wish{.subjects = {Subject{}}, .sizes = {std::uint64_t{1} << 60U}, .effort = quick()};
    bench::Run run;
    try {
      run_bench(world, wish, run, [](const bench::Run&) {});
      ADD_FAILURE() << "it was measured";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::out_of_memory);
      EXPECT_NE(std::string_view(error.what()).find("MiB are free"), std::string_view::npos) << error.what();
    }
  });
}

TEST(Bench, rows_are_whole) {
  with_members(2, [](Communicator& world) {
    Wish wish{.subjects = {Subject{}, Subject{.collective = Collective::barrier}}, .sizes = {8, 9, 4096}};
    wish.effort = {.seconds = 0.05};
    wish.baselines.emplace_back("memcpy", copy_candidate);
    bench::Run run;
    std::size_t shown = 0;
    run_bench(world, wish, run, [&](const bench::Run& so_far) { EXPECT_EQ(so_far.rows.size(), ++shown); });
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
    ASSERT_EQ(run.rows[1].baselines.size(), 1U);
    EXPECT_GT(run.rows[1].baselines[0].time.median, 0);
    EXPECT_TRUE(run.rows[2].baselines.empty());
    EXPECT_TRUE(run.exit_code == 0 || run.exit_code == 7) << run.verdict;
  });
}

}  // namespace
}  // namespace lockstep::bench
