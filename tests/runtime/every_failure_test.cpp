// SPDX-License-Identifier: Apache-2.0
// Exceptions in replicas of every strategy and layout: all processes report one, and the strategy can be used again.
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

#include "tests/runtime/layouts.hpp"
#include "tests/support/holds.hpp"
#include "tests/support/lacks.hpp"
#include "tests/support/refusal.hpp"
#include "tests/support/sanitized.hpp"
#include "topology/base/text.hpp"

namespace lockstep::test {
namespace {

class Failures : public EveryLayout {
 protected:
  // Runs the function, which must fail, and returns the error that all processes must have.
  ReplicaError error_of(const std::function<void(ReplicaContext&)>& function) {
    end_calls();
    try {
      strategy->run(function);
    } catch (const ReplicaError& error) {
      return error;
    }
    ADD_FAILURE() << "nothing was thrown";
    return {-1, 0, 0, "", nullptr, false};
  }
  // True if the text is the same on all processes.
  bool is_common(std::string words) {
    words.resize(500);
    const std::vector<char> mine(words.begin(), words.end());
    std::vector<char> first = mine;
    strategy->channel(Channel::input).broadcast(first, 0);
    return first == mine;
  }
  void expect_works() {
    const auto sums = strategy->run([](ReplicaContext& context) {
      return context.all_reduce(context.replica_id_in_sync_group(), sum) + context.all_reduce(1, sum);
    });
    for (const int each : sums.local()) EXPECT_EQ(each, sum_of_ids() + size());
    EXPECT_EQ(strategy->reduce("SUM", strategy->run([] { return 2; })), 2 * size());
  }
};

TEST_P(Failures, OfEachReplicaAreOneErrorOnAllProcesses) {
  for (int failing = 0; failing < size(); ++failing) {
    const ReplicaError error = error_of([&](ReplicaContext& context) {
      static_cast<void>(context.all_reduce(1, sum));
      if (context.replica_id_in_sync_group() == failing) throw std::out_of_range(text("no row ", failing));
      static_cast<void>(context.all_reduce(1, sum));
    });
    EXPECT_EQ(error.replica(), failing);
    EXPECT_EQ(error.run(), 3 * static_cast<std::uint64_t>(failing) + 1);
    EXPECT_EQ(std::string_view(error.what()),
              text("LOCKSTEP-E025 a replica's function threw: replica ", failing, " of ", size(), ": no row ", failing,
                   " -> the others were cancelled; the strategy can be used again"));
    const bool is_here = failing >= first() && failing < first() + strategy->num_local_replicas();
    const auto rethrow = [&] { std::rethrow_exception(error.cause()); };
    if (is_here)
      EXPECT_THROW(rethrow(), std::out_of_range);
    else
      EXPECT_TRUE(holds(refusal(rethrow, Code::peer_failed), text("no row ", failing)));
    expect_works();
  }
}

// Each replica throws an exception of its own, and one process wraps that of another.
TEST_P(Failures, OfManyReplicasAreOneErrorOnAllProcesses) {
  const ReplicaError all = error_of([](ReplicaContext& context) {
    static_cast<void>(context.all_reduce(1, sum));
    throw std::runtime_error(text("replica ", context.replica_id_in_sync_group(), " itself"));
  });
  EXPECT_TRUE(is_common(all.what())) << all.what();
  EXPECT_TRUE(holds(all.what(), text("replica ", all.replica(), " itself")));
  const ReplicaError wrapped = error_of([&](ReplicaContext& context) {
    if (context.replica_id_in_sync_group() == size() - 1) throw std::runtime_error("the cause");
    try {
      for (;;) static_cast<void>(context.all_reduce(1, sum));
    } catch (const Error& error) {
      throw std::runtime_error(text("wrapped: ", error.what()));
    }
  });
  EXPECT_TRUE(is_common(wrapped.what())) << wrapped.what();
  EXPECT_EQ(wrapped.replica(), size() - 1);
  EXPECT_FALSE(holds(wrapped.what(), "wrapped")) << wrapped.what();
  expect_works();
}

// The collectives of the replicas differ, so all of them fail.
TEST_P(Failures, OfACollectiveAreOneErrorOnAllProcesses) {
  if (size() == 1) GTEST_SKIP() << lacks("needs two replicas");
  const ReplicaError error = error_of([](ReplicaContext& context) {
    std::vector<float> data(context.replica_id_in_sync_group() == 0 ? 10 : 11);
    context.all_reduce(data, sum);
  });
  EXPECT_TRUE(is_common(error.what())) << error.what();
  EXPECT_TRUE(holds(error.what(), "made different calls")) << error.what();
  EXPECT_TRUE(holds(error.what(), "replica 0")) << error.what();
  EXPECT_FALSE(holds(error.what(), "rank")) << error.what();
  expect_works();
}

// The other processes combine values for all replicas when the exception comes. They do not know if the channel for
// training has failed as well.
TEST_P(Failures, AreLearntInACallForAllReplicas) {
  const auto ones = strategy->distribute_values_from([](ValueContext) { return 1; });
  std::string words;
  try {
    strategy->run([](ReplicaContext& context) {
      static_cast<void>(context.all_reduce(1, sum));
      if (context.replica_id_in_sync_group() != 0) return;
      std::this_thread::sleep_for(std::chrono::milliseconds(100));  // The others end the run.
      throw std::runtime_error("late");
    });
    static_cast<void>(strategy->reduce("SUM", ones));
  } catch (const Error& error) {
    words = error.what();
  }
  EXPECT_TRUE(holds(words, "late")) << words;
  expect_works();
}

TEST_P(Failures, AreLearntByProcessesThatHaveEndedTheRun) {
  static_cast<void>(strategy->run([] {}));
  const auto fail_late = [](ReplicaContext& context) {
    static_cast<void>(context.all_reduce(1, sum));
    if (context.replica_id_in_sync_group() != 0) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(100));  // The others end the run.
    throw std::runtime_error("late");
  };
  const auto next = [&] { strategy->run([](ReplicaContext& context) { return context.all_reduce(1, sum); }); };
  const std::string words = refusal(
      [&] {
        strategy->run(fail_late);
        next();
      },
      Code::replica_failed);
  EXPECT_TRUE(is_common(words)) << words;
  EXPECT_TRUE(holds(words, "late")) << words;
  expect_works();
  const ReplicaError error = error_of([&](ReplicaContext& context) {
    if (context.replica_id_in_sync_group() == size() - 1) throw std::runtime_error("again");
    for (int i = 0; size() > 1 && i < 2; ++i) static_cast<void>(context.all_reduce(1, sum));
  });
  EXPECT_EQ(error.run(), 5U) << "after run 2, which failed, and two more";
}

// A call outside of the replicas fails on one process, for its own argument.
TEST_P(Failures, OfCallsForAllEndOnlyTheCall) {
  if (is_in_one_process()) GTEST_SKIP() << lacks("needs two processes");
  const auto values = strategy->run([&] { return Tensor<float>(TensorShape{first() == 0 ? 2 : 3}); });
  for (int i = 0; i < 2; ++i) {
    end_calls();
    refusal([&] { strategy->reduce("SUM", values); }, Code::mismatch);
    expect_works();
  }
}

// Counts the descriptors, the shared memory and the memory of this process.
struct Resources {
  std::ptrdiff_t descriptors = entries("/proc/self/fd");
  std::ptrdiff_t shared = entries("/dev/shm");
  long pages = [] {
    long size = 0;
    long resident = 0;
    std::ifstream("/proc/self/statm") >> size >> resident;
    return resident;
  }();
  static std::ptrdiff_t entries(const char* folder) {
    return std::distance(std::filesystem::directory_iterator(folder), std::filesystem::directory_iterator());
  }
};

// FAILURES sets the number of repetitions; the night takes 2,000.
TEST_P(Failures, LeaveNothingBehind) {
  const char* const wanted = std::getenv("FAILURES");
  const int repetitions = wanted == nullptr ? 50 : std::atoi(wanted);
  const auto fail = [&](int i) {
    const int failing = i % size();
    const ReplicaError error = error_of([&](ReplicaContext& context) {
      std::vector<float> data(1000, 1.F);
      context.all_reduce(data, sum);
      if (context.replica_id_in_sync_group() == failing) throw std::out_of_range("no row");
      context.all_reduce(data, sum);
    });
    EXPECT_EQ(error.replica(), failing);
  };
  for (int i = 0; i < 20; ++i) fail(i);
  expect_works();
  const Resources before;
  for (int i = 0; i < repetitions && !HasFailure(); ++i) fail(i);
  expect_works();
  const Resources after;
  constexpr std::ptrdiff_t spare = 8;  // Other programs of the machine use /dev/shm as well.
  EXPECT_LE(after.descriptors, before.descriptors + 2);
  EXPECT_LE(after.shared, before.shared + spare);
  const long grown = (after.pages - before.pages) * 4;
  if (!sanitized) {  // Sanitizers keep freed memory.
    EXPECT_LE(grown, 4096) << "KiB after " << repetitions << " failures";
  }
  RecordProperty("grown_kib", static_cast<int>(grown));
}

// A thread waits in the channel of input for a process that has not come, and training goes on.
TEST_P(Failures, ChannelsDoNotWaitForEachOther) {
  Communicator& input = strategy->channel(Channel::input);
  const int processes = input.size();
  EXPECT_EQ(strategy->channel(Channel::checkpoints).size(), processes);
  EXPECT_EQ(processes == 1, is_in_one_process());
  std::atomic<bool> may_come = input.rank() + 1 < processes;
  std::atomic<int> sum_of_ranks = -1;
  std::thread reader([&] {
    while (!may_come) std::this_thread::yield();
    sum_of_ranks = input.all_reduce(input.rank(), sum);
  });
  for (int step = 0; step < 20; ++step) expect_works();
  static_cast<void>(error_of([](ReplicaContext&) { throw std::runtime_error("in a step"); }));
  expect_works();
  EXPECT_EQ(strategy->channel(Channel::training).all_reduce(1, sum), processes) << "made again";
  if (processes > 1) {
    EXPECT_EQ(sum_of_ranks, -1);
  }
  strategy->channel(Channel::checkpoints).barrier();
  may_come = true;
  reader.join();
  EXPECT_EQ(sum_of_ranks, processes * (processes - 1) / 2);
}

INSTANTIATE_TEST_SUITE_P(All, Failures, testing::ValuesIn(layouts()), [](const auto& each) { return each.param.name; });

}  // namespace
}  // namespace lockstep::test
