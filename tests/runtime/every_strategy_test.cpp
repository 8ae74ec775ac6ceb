// SPDX-License-Identifier: Apache-2.0
// One set of tests for every strategy and layout: what replicas see, what they do together, and what is refused.
#include <atomic>
#include <bit>
#include <cmath>
#include <limits>
#include <thread>

#include "runtime/default_strategy.hpp"
#include "runtime/extended.hpp"
#include "runtime/variable.hpp"
#include "tests/runtime/layouts.hpp"
#include "tests/support/holds.hpp"
#include "tests/support/refusal.hpp"
#include "topology/base/bytes.hpp"
#include "topology/base/text.hpp"

namespace lockstep::test {
namespace {

using EveryStrategy = EveryLayout;

TEST_P(EveryStrategy, RunsAFunctionInEveryReplica) {
  const auto ids = strategy->run([](ReplicaContext& context) { return context.replica_id_in_sync_group(); });
  ASSERT_EQ(ids.size(), strategy->num_local_replicas());
  for (int i = 0; i < ids.size(); ++i) EXPECT_EQ(ids[i], first() + i);
  EXPECT_EQ(strategy->reduce("SUM", ids), sum_of_ids());
  EXPECT_EQ(strategy->reduce(max, ids), size() - 1);
  std::atomic<int> calls = 0;
  strategy->run([&] { ++calls; });
  EXPECT_EQ(calls, strategy->num_local_replicas());
}

TEST_P(EveryStrategy, ArgumentsAreEachReplicasOwnOrTheSameForAll) {
  auto own = strategy->distribute_values_from([](ValueContext context) {
    return static_cast<float>(10 * context.replica_id_in_sync_group + context.num_replicas_in_sync);
  });
  const auto sums = strategy->run([](float mine, int same) { return mine + static_cast<float>(same); }, own, 100);
  for (int i = 0; i < sums.size(); ++i) EXPECT_EQ(sums[i], static_cast<float>(10 * (first() + i) + size() + 100));
  strategy->run([](float& mine) { mine = -1; }, own);
  EXPECT_EQ(strategy->local_results(own), std::vector<float>(static_cast<std::size_t>(own.size()), -1.0F));
  EXPECT_EQ(strategy->local_results(7), std::vector<int>{7});
}

TEST_P(EveryStrategy, ReplicasCombineAndGather) {
  const auto results = strategy->run([](ReplicaContext& context) {
    std::vector<double> data(1000, context.replica_id_in_sync_group() + 1.0);
    context.all_reduce(data, sum);
    const int biggest = context.all_reduce(context.replica_id_in_sync_group(), max);
    const auto all = context.all_gather(context.replica_id_in_sync_group());
    auto request = context.all_reduce_async(data, avg);
    request.wait();
    return data[999] + 1000 * biggest + 1e6 * static_cast<double>(all.back() + static_cast<int>(all.size()));
  });
  const int n = size();
  for (const double each : results.local()) EXPECT_EQ(each, n * (n + 1) / 2 + 1000 * (n - 1) + 1e6 * (2 * n - 1));
}

// From four bytes to 1.2 MB, of odd lengths, with infinities and with NaNs that differ. Two threads also sum 64 MB.
TEST_P(EveryStrategy, SumsAreTheSameBytesOnAllReplicas) {
  const std::size_t much = GetParam().name == "mirrored_2" ? 16'000'001 : 300'001;
  for (const std::size_t count : {std::size_t{1}, std::size_t{3}, std::size_t{1001}, std::size_t{65'537}, much}) {
    const auto all = strategy->run([&](ReplicaContext& context) {
      const auto me = static_cast<unsigned>(context.replica_id_in_sync_group());
      std::vector<float> data(count);
      for (std::size_t i = 0; i < count; ++i) {
        const auto mixed = static_cast<std::uint32_t>(i * 2'654'435'761U + me * 40'503U);
        data[i] = std::ldexp(static_cast<float>(mixed >> 8U), static_cast<int>(mixed % 60) - 30);
        if (mixed % 101 == 0) data[i] = std::numeric_limits<float>::infinity() * (me % 2 == 0 ? 1.F : -1.F);
        if (mixed % 103 == 0) data[i] = std::bit_cast<float>(0x7fc00000U + me);
      }
      context.all_reduce(data, sum);
      return context.all_gather(hash(std::as_bytes(std::span(data))));
    });
    for (const auto& hashes : all.local()) {
      for (const std::uint64_t each : hashes) EXPECT_EQ(each, hashes.front()) << count << " floats";
    }
  }
}

TEST_P(EveryStrategy, EntersAndLeavesContexts) {
  EXPECT_FALSE(in_cross_replica_context());
  EXPECT_EQ(&get_strategy(), &default_strategy());
  {
    const Scope scope = strategy->scope();
    EXPECT_EQ(&get_strategy(), strategy.get());
    EXPECT_TRUE(has_strategy());
    EXPECT_TRUE(in_cross_replica_context());
    EXPECT_EQ(replica_context(), nullptr);
    const Scope again = strategy->scope();
    EXPECT_TRUE(in_cross_replica_context());
  }
  EXPECT_FALSE(has_strategy());
  strategy->run([&](ReplicaContext& context) {
    EXPECT_EQ(replica_context(), &context);
    EXPECT_EQ(&get_strategy(), strategy.get());
    EXPECT_FALSE(in_cross_replica_context());
    const Scope scope = strategy->scope();
    EXPECT_EQ(replica_context(), &context) << "whoever is in a replica stays there";
    EXPECT_EQ(&context.strategy(), strategy.get());
    EXPECT_EQ(context.num_replicas_in_sync(), size());
  });
  EXPECT_FALSE(has_strategy());
}

TEST_P(EveryStrategy, ReplicasComeTogetherInTheMiddle) {
  const auto all = strategy->run([&](ReplicaContext& context) {
    int total = 0;
    for (int step = 0; step < 20; ++step) {  // in loops and branches, as often as they like
      if (step % 3 == 1) continue;
      const int mine = context.merge_call(
          [&](Strategy& merged, const PerReplica<int>& ids, const PerReplica<std::string>& words) {
            EXPECT_TRUE(in_cross_replica_context());
            EXPECT_EQ(&merged, strategy.get());
            EXPECT_EQ(words[0], "step " + std::to_string(step));
            const int sum = merged.reduce("SUM", ids);
            std::deque<int> back;
            for (const int id : ids.local()) back.push_back(1000 * id + sum);
            return PerReplica<int>(back);
          },
          context.replica_id_in_sync_group(), text("step ", step));
      EXPECT_EQ(mine, 1000 * context.replica_id_in_sync_group() + sum_of_ids());
      total += context.merge_call([](Strategy&) { return 1; });
      context.merge_call([](Strategy&) {});
      EXPECT_EQ(replica_context(), &context);
    }
    return total;
  });
  for (const int each : all.local()) EXPECT_EQ(each, 13);
}

TEST_P(EveryStrategy, PlainValuesAreReducedWhereThatHasAMeaning) {
  EXPECT_EQ(strategy->reduce("mean", 3.5), 3.5);
  EXPECT_EQ(strategy->reduce(max, 4), 4);
  EXPECT_EQ(strategy->reduce("SUM", 0), 0);
  if (size() == 1) {
    EXPECT_EQ(strategy->reduce("SUM", 1.0), 1.0);
  } else {
    const std::string said = refusal([&] { strategy->reduce("SUM", 1.0); }, Code::usage);
    EXPECT_NE(said.find("cannot be reduced with the given reduce op SUM"), std::string::npos) << said;
  }
  EXPECT_PRED2(holds, refusal([&] { strategy->reduce("average", 1); }, Code::usage), "no reduction 'average'");
}

TEST_P(EveryStrategy, ReductionsHaveNamesInAnyLetters) {
  const auto one = strategy->run([] { return Tensor<float>(1.F); });
  for (const auto& [word, expected] : {std::pair("mean", 1), {"MEAN", 1}, {"sum", size()}, {"SUM", size()}}) {
    const auto found = static_cast<float>(expected);
    EXPECT_EQ(strategy->reduce(word, one).item(), found) << word;
    EXPECT_EQ(strategy->extended().reduce_to(word, one).value().item(), found) << word;
    for (const auto& each : strategy->extended().batch_reduce_to<float>(word, {{one, {}}, {one, {}}}))
      EXPECT_EQ(each.value().item(), found) << word;
    if (size() == 1) {
      EXPECT_EQ(strategy->reduce(word, 1.0), 1.0) << word;
    }
  }
}

TEST_P(EveryStrategy, ExceptionsInMergeCallEndTheRun) {
  const auto thrown = [&](const std::function<void(ReplicaContext&)>& function) {
    end_calls();
    try {
      strategy->run(function);
      ADD_FAILURE() << "nothing was thrown";
    } catch (const ReplicaError& error) {
      if (error.replica() == first()) {
        EXPECT_THROW(std::rethrow_exception(error.cause()), std::out_of_range);
      }
      EXPECT_NE(std::string(error.what()).find("in the middle"), std::string::npos) << error.what();
    }
    EXPECT_FALSE(has_strategy());
    EXPECT_FALSE(in_cross_replica_context());
  };
  thrown([](ReplicaContext&) { throw std::out_of_range("in the middle of it"); });
  thrown([](ReplicaContext& context) {
    context.merge_call([](Strategy&) { throw std::out_of_range("in the middle of all"); });
  });
  EXPECT_EQ(strategy->run([] { return 1; })[0], 1);
}

// What one run returned, as it is, is the next one's argument.
TEST_P(EveryStrategy, RunsTakeResultsOfRuns) {
  const auto four = strategy->run([] { return 4.0; });
  const auto both = strategy->run(
      [](double x) {
        return std::map<std::string, double>{{"a", x * 2}, {"b", x * x}};
      },
      four);
  const auto last = strategy->run(
      [](const std::map<std::string, double>& of, double more) { return of.at("a") + 2 * of.at("b") + more; }, both, 2);
  for (int i = 0; i < strategy->num_local_replicas(); ++i) {
    EXPECT_EQ(four[i], 4);
    EXPECT_EQ(both.at("a")[i], 8);
    EXPECT_EQ(both.at("b")[i], 16);
    EXPECT_EQ(last[i], 42);
  }
}

TEST_P(EveryStrategy, CallsForAllAreRefusedInAReplica) {
  const auto refused = [&](const std::function<void()>& call) {
    try {
      strategy->run([&](ReplicaContext&) { call(); });
      ADD_FAILURE() << "nothing was thrown";
    } catch (const ReplicaError& error) {
      EXPECT_PRED2(holds, error.what(), "requires being in cross-replica context");
    }
  };
  refused([&] { strategy->run([] {}); });
  refused([&] { strategy->reduce(max, 1); });
  refused([&] { strategy->distribute_values_from([](ValueContext) { return 1; }); });
}

// A thread works for each replica, by the replica's handle. It asks and reads, and leaves collectives to the replica.
TEST_P(EveryStrategy, ThreadsOfReplicasEnterTheirContext) {
  const Scope inside(*strategy);
  Variable<float> v([] { return Tensor<float>(7.F); }, {.aggregation = Aggregation::sum});
  const auto work = [&](ReplicaContext& replica, const ContextHandle& here) {
    EXPECT_FALSE(has_strategy());
    const ContextHandle::Enter entered(here);
    EXPECT_EQ(&get_strategy(), strategy.get());
    ASSERT_EQ(replica_context(), &replica);
    EXPECT_EQ(v.read().item(), 7.F);
    const auto is_refused = [&](const std::function<void()>& call, std::string_view words) {
      EXPECT_PRED2(holds, refusal(call, Code::usage), words);
    };
    is_refused([&] { static_cast<void>(replica.all_reduce(1, sum)); }, "belong to the replica's own thread");
    is_refused([&] { replica.merge_call([](Strategy&) {}); }, "belong to the replica's own thread");
    is_refused([&] { v.assign_add(Tensor<float>(1.F)); }, "which may only read it");
    is_refused([&] { strategy->run([] {}); }, "requires being in cross-replica context");
    is_refused([&] { const ContextHandle::Enter twice(here); }, "where it already is");
  };
  strategy->run([&](ReplicaContext& replica) {
    std::jthread helper([&, here = current_context()] { work(replica, here); });
    const int total = replica.all_reduce(1, sum);
    helper.join();
    EXPECT_EQ(total, size());
    EXPECT_EQ(replica_context(), &replica);
    std::thread foreign([&] { EXPECT_NE(replica_context(), &replica); });
    foreign.join();
  });
  std::thread outside([here = current_context(), this] {
    const ContextHandle::Enter entered(here);
    EXPECT_EQ(&get_strategy(), strategy.get());
    EXPECT_TRUE(in_cross_replica_context());
    EXPECT_PRED2(holds, refusal([&] { strategy->run([] {}); }, Code::usage), "by a handle");
  });
  outside.join();
}

INSTANTIATE_TEST_SUITE_P(All, EveryStrategy, testing::ValuesIn(layouts()),
                         [](const auto& each) { return each.param.name; });

}  // namespace
}  // namespace lockstep::test
