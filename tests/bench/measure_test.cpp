// SPDX-License-Identifier: Apache-2.0
// The instrument itself, with operations whose cost is known, among threads: it finds the time, names the slow member,
// shows a rare spike where it belongs, and sees wrong data.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>
#include <thread>

#include "bench/bench.hpp"
#include "bench/limits.hpp"
#include "bench/pairs.hpp"
#include "bench/statistics.hpp"
#include "tests/collectives/members.hpp"
#include "tests/topology/shapes.hpp"
#include "topology/base/text.hpp"
#include "topology/description.hpp"

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

void exchange(Communicator& world, Buffers& buffers, std::size_t element) {
  const std::span from(static_cast<std::byte*>(buffers.input()), buffers.input_count() * element);
  const std::span to(static_cast<std::byte*>(buffers.output()), buffers.output_count() * element);
  world.sendrecv(from, (world.rank() + 1) % world.size(), to, (world.rank() + world.size() - 1) % world.size());
}

// Every collective, every type that it has, every operation: right results are right, and one wrong bit is seen.
TEST(Subjects, are_checked_exactly) {
  with_members(3, [](Communicator& world) {
    int checked = 0;
    for (int collective = 0; collective < collective_count; ++collective) {
      for (int type = 0; type < static_cast<int>(DataType::boolean); ++type) {
        for (int op = 0; op < static_cast<int>(ReduceOp::premul_sum); ++op) {
          for (const bool in_place : {false, true}) {
            const Subject subject{.collective = static_cast<Collective>(collective),
                                  .type = static_cast<DataType>(type),
                                  .op = static_cast<ReduceOp>(op),
                                  .root = 1,
                                  .in_place = in_place,
                                  .count = 7};
            if (!why_not(subject).empty() || (op > 0 && !reduces(subject.collective))) continue;
            Buffers buffers(subject, 3, world.rank());
            buffers.fill();
            if (subject.collective == Collective::exchange)
              exchange(world, buffers, size_of(subject.type));
            else
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

// Random data within a bound that holds whatever the order, and that one lost contribution is beyond.
TEST(Subjects, are_checked_with_random_data) {
  with_members(5, [](Communicator& world) {
    int checked = 0;
    for (int collective = 0; collective < collective_count; ++collective) {
      for (int type = 0; type < static_cast<int>(DataType::boolean); ++type) {
        for (int op = 0; op <= static_cast<int>(ReduceOp::avg); ++op) {
          const Subject subject{.collective = static_cast<Collective>(collective),
                                .type = static_cast<DataType>(type),
                                .op = static_cast<ReduceOp>(op),
                                .root = 1,
                                .count = 301};
          if (!why_not(subject).empty() || (op > 0 && !reduces(subject.collective))) continue;
          Buffers buffers(subject, 5, world.rank());
          if (!buffers.takes_random()) continue;
          buffers.fill_randomly(9);
          if (subject.collective == Collective::exchange)
            exchange(world, buffers, size_of(subject.type));
          else
            world.team()->run(buffers.ask());
          EXPECT_EQ(buffers.count_beyond(9), 0U)
              << name_of(subject.collective) << ' ' << to_string(subject.type) << ' ' << to_string(subject.op);
          ++checked;
          if (buffers.output_count() == 0 || (subject.collective == Collective::exscan && world.rank() == 0)) continue;
          EXPECT_GT(buffers.count_beyond(8), buffers.output_count() / 2)
              << "data of another seed are others: " << name_of(subject.collective) << ' ' << to_string(subject.type)
              << ' ' << to_string(subject.op);
          auto* const first = static_cast<std::byte*>(buffers.output());
          if (reduces(subject.collective))
            std::fill_n(first, size_of(subject.type), std::byte{0xff});  // no number
          else
            *first ^= std::byte{1};
          EXPECT_EQ(buffers.count_beyond(9), 1U);
        }
      }
    }
    EXPECT_GT(checked, 150);
  });
}

TEST(Subjects, of_unequal_forms_share_what_equal_ones_have) {
  for (const int members : {1, 2, 3, 4, 5}) {
    for (const Collective collective : {Collective::all_gather_v, Collective::scatter_v, Collective::all_to_all_v}) {
      const Subject subject{.collective = collective, .count = 7};
      std::size_t total = 0;
      for (int peer = 0; peer < members; ++peer)
        total += collective == Collective::all_gather_v ? subject.count_between(peer, 0, members)
                                                        : subject.count_between(0, peer, members);
      EXPECT_EQ(total, 7U * static_cast<std::size_t>(members)) << name_of(collective) << ' ' << members;
    }
  }
  const Subject cross{.collective = Collective::all_to_all_v, .count = 8};
  EXPECT_EQ(cross.count_between(0, 1, 2), 12U);
  EXPECT_EQ(cross.count_between(1, 0, 2), 12U);
  EXPECT_EQ(cross.count_between(1, 1, 2), 4U);
}

TEST(Measure, prepares_each_sample_and_cleans_up_after_each_turn) {
  with_members(2, [](Communicator& world) {
    int before = 0;
    int calls = 0;
    int after = 0;
    const Candidate one{"one", [&] { ++calls; }, [&] { ++before; }, [&] { ++after; }};
    const Measured measured = measure(world, {&one, 1}, {.samples = 50}, 1);
    EXPECT_EQ(before, calls);
    EXPECT_EQ(after, static_cast<int>(measured.timings[0].blocks.size()) + 1) << "and after the warm-up";
  });
}

TEST(Limits, come_from_what_binds) {
  const Ceilings ceilings{.message_us = 2, .read = 10, .link = 1};
  const auto binding = [&](const Moves& moves, double kernel, double copy) {
    const auto limit = limit_of(moves, ceilings, kernel, copy);
    return text(limit ? limit->binding : "none", ' ', limit ? std::llround(limit->us) : 0);
  };
  EXPECT_EQ(binding({.memory = 8, .foreign = 8, .reduced = 8, .link = 8}, 1, 1), "lat 2");
  EXPECT_EQ(binding({.memory = 2e6}, 0, 4), "mem 250") << "4 GB/s copied are 8 GB/s through memory";
  EXPECT_EQ(binding({.memory = 8, .foreign = 1e6}, 0, 4), "read 100");
  EXPECT_EQ(binding({.reduced = 1e6}, 5, 4), "reduce 200");
  EXPECT_EQ(binding({.memory = 2e6, .link = 1e6}, 0, 4), "link 1000");
  EXPECT_EQ(limit_of({.memory = 8}, {}, 0, 0), std::nullopt);
}

TEST(Limits, know_what_any_algorithm_must_move) {
  const Topology topology =
      describe({{.shape = test::shape({.packages = 1, .numas = 1, .cores = 4, .threads = 1}), .count = 2, .ranks = 3}});
  const std::vector<int> ranks = {0, 1, 2, 3, 4, 5};
  const auto moves = [&](Collective collective) {
    return least_moves({.collective = collective, .type = DataType::u8, .count = 600}, 6, topology, ranks);
  };
  EXPECT_DOUBLE_EQ(moves(Collective::all_reduce).link, 600) << "2 (N - 1) / N of the vector";
  EXPECT_DOUBLE_EQ(moves(Collective::all_reduce).memory, 1200);
  EXPECT_DOUBLE_EQ(moves(Collective::all_reduce).foreign, 500);
  EXPECT_DOUBLE_EQ(moves(Collective::all_gather).link, 1800) << "three blocks come in";
  EXPECT_DOUBLE_EQ(moves(Collective::all_to_all).link, 5400) << "nine blocks go out";
  EXPECT_DOUBLE_EQ(moves(Collective::broadcast).link, 600);
  EXPECT_DOUBLE_EQ(moves(Collective::gather).link, 1800);
  EXPECT_DOUBLE_EQ(moves(Collective::barrier).memory, 0);
  EXPECT_DOUBLE_EQ(moves(Collective::broadcast).memory, 600) << "read once and written five times, by six";
  EXPECT_DOUBLE_EQ(moves(Collective::reduce).memory, 700) << "read by all and written once";
  EXPECT_DOUBLE_EQ(moves(Collective::gather).memory, 1200);
}

TEST(Limits, are_measured_among_threads) {
  with_members(2, [](Communicator& world) {
    const Ceilings ceilings = measure_ceilings(world, {.seconds = 0.05}, 1);
    EXPECT_GT(ceilings.message_us, 0);
    EXPECT_GT(ceilings.read, 0);
    EXPECT_EQ(ceilings.link, 0) << "one node has no link";
    const double kernel = measure_kernel(world, DataType::f32, ReduceOp::sum);
    EXPECT_GT(kernel, 0);
    EXPECT_LT(kernel, 100000);
  });
}

TEST(Pairs, are_all_there_and_disjoint_in_each_round) {
  for (const int members : {1, 2, 3, 4, 7, 8}) {
    std::vector<int> all(static_cast<std::size_t>(members));
    std::iota(all.begin(), all.end(), 10);
    std::set<std::pair<int, int>> seen;
    const auto rounds = rounds_of(all);
    EXPECT_EQ(rounds.size(), members < 2 ? 0U : static_cast<std::size_t>(members + members % 2 - 1));
    for (const auto& round : rounds) {
      std::set<int> busy;
      for (const auto& [a, b] : round) {
        EXPECT_LT(a, b);
        EXPECT_TRUE(busy.insert(a).second && busy.insert(b).second) << "somebody is in two pairs at once";
        EXPECT_TRUE(seen.emplace(a, b).second) << "a pair comes twice";
      }
    }
    EXPECT_EQ(seen.size(), static_cast<std::size_t>(members * (members - 1) / 2));
  }
}

TEST(Pairs, are_measured_and_the_same_on_all_members) {
  with_members(3, [](Communicator& world) {
    std::vector<PairLink> links;
    std::size_t steps = 0;
    measure_links(world, {.seconds = 0.005}, {}, links, [&](std::size_t done, std::size_t all) {
      EXPECT_LE(done, all);
      ++steps;
    });
    ASSERT_EQ(links.size(), 3U);
    EXPECT_GE(steps, 6U) << "three rounds and three pairs";
    double sum_of_all = 0;
    for (const PairLink& link : links) {
      EXPECT_GT(link.latency_us, 0);
      for (const double each : {link.there, link.back, link.both, link.together}) EXPECT_GT(each, 0);
      sum_of_all += link.there + link.back + link.together + link.latency_us;
    }
    EXPECT_EQ(world.all_reduce(sum_of_all, min), sum_of_all);
    EXPECT_EQ(world.all_reduce(sum_of_all, max), sum_of_all);
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

TEST(Bench, says_when_results_were_not_looked_at_and_how_far_it_is) {
  with_members(2, [](Communicator& world) {
    Wish wish{
        .subjects = {Subject{.cold = can_flush_caches()}}, .sizes = {64, 4096}, .effort = quick(), .check = false};
    wish.effort.seconds = 0.02;
    std::vector<std::size_t> told;
    wish.progress = [&](const Progress& now) {
      told.push_back(now.done);
      EXPECT_EQ(now.all, 2U);
      EXPECT_GT(now.seconds_left, 0);
    };
    bench::Run run;
    run_bench(world, wish, run, [](const bench::Run&) {});
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

TEST(Bench, says_what_it_leaves_out_and_how_ours_compares) {
  with_members(3, [](Communicator& world) {
    Wish wish{.subjects = {Subject{.collective = Collective::all_gather}}, .sizes = {8, 1200}, .effort = quick()};
    wish.effort.seconds = 0.02;
    bench::Run run;
    run_bench(world, wish, run, [](const bench::Run&) {});
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
    EXPECT_GE(run.rows[1].rounds, 1U);
    EXPECT_GE(run.rows[1].sent_bytes, 4096U) << "of two members, each gives all it has in one way or another";
    ASSERT_EQ(run.rows[1].baselines.size(), 1U);
    EXPECT_GT(run.rows[1].baselines[0].time.median, 0);
    EXPECT_TRUE(run.rows[2].baselines.empty());
    EXPECT_TRUE(run.exit_code == 0 || run.exit_code == 7) << run.verdict;
  });
}

}  // namespace
}  // namespace lockstep::bench
