// SPDX-License-Identifier: Apache-2.0
// What goes wrong when a communicator is used wrongly: every member gets an error that says who did what, nothing
// hangs, and nothing goes on afterwards as if all were well.
#include <gtest/gtest.h>
#include <pthread.h>

#include <array>
#include <atomic>
#include <barrier>
#include <complex>
#include <mutex>
#include <thread>

#include "tests/collectives/communicator/members.hpp"
#include "tests/support/holds.hpp"
#include "topology/base/progress_hooks.hpp"

namespace lockstep::test {
namespace {

using Body = std::function<void(Communicator&)>;

// What each member's body ended with; empty where it ended well.
std::vector<std::string> ends(int size, const Body& body,
                              WaitLimits wait_limits = {std::chrono::seconds(5), std::chrono::seconds(20)},
                              CommunicatorOptions options = {}) {
  std::vector<std::string> all(static_cast<std::size_t>(size));
  const auto member = [&](Communicator& world) {
    try {
      body(world);
      world.barrier();  // who was done before the mistake was known learns of it here
    } catch (const Error& error) {
      all[static_cast<std::size_t>(world.rank())] = error.what();
    }
    EXPECT_TRUE(world.failed());
  };
  run_members(size, member, std::move(options), wait_limits, Log(LogLevel::off));
  return all;
}

using Words = std::initializer_list<std::string_view>;
void expect_all(const std::vector<std::string>& texts, Words words);

// Member 1 does something else than the others, in the memory of the node and by messages.
void expect_told_apart(const Body& one, const Body& others, Words words, bool strict = false) {
  const auto body = [&](Communicator& world) { (world.rank() == 1 ? one : others)(world); };
  for (const bool in_node : {true, false}) {
    CommunicatorOptions options;
    options.node_memory = in_node;
    options.strict = strict;
    expect_all(ends(3, body, {std::chrono::seconds(5), std::chrono::seconds(20)}, options), words);
  }
}

template <class Op>
Body batch_of(std::vector<std::size_t> counts, Op op) {
  return [=](Communicator& world) {
    std::vector<std::vector<float>> data;
    for (const std::size_t count : counts) data.emplace_back(count, 1.F);
    Batch batch(world);
    for (auto& each : data) batch.all_reduce(each, op);
    batch.run();
  };
}

float add(float a, float b) { return a + b; }
float larger(float a, float b) { return a > b ? a : b; }
template <class Op>
Body reduce_by(Op op, std::size_t count = 100) {
  return [=](Communicator& world) {
    std::vector<float> mine(count, 1.F);
    world.all_reduce(mine, op);
  };
}

void expect_all(const std::vector<std::string>& texts, std::initializer_list<std::string_view> words) {
  for (std::size_t rank = 0; rank < texts.size(); ++rank) {
    for (const std::string_view word : words)
      EXPECT_NE(texts[rank].find(word), std::string::npos)
          << "rank " << rank << ": " << texts[rank] << "\nlacks " << word;
  }
}

// EngineMismatch has every other field of a call.
TEST(Misuse, CallsThatDifferInOneArgumentAreAMismatch) {
  expect_told_apart(reduce_by(sum, 101), reduce_by(sum), {"E016", "101 f32", "100 f32", "rank 1"});
  const auto gather = [](std::size_t other) {
    return [=](Communicator& world) {
      const std::vector<std::size_t> counts = {1, 2, other};
      std::vector<int> all(3 + other);
      world.all_gather_v(std::vector<int>(counts[static_cast<std::size_t>(world.rank())]), all, counts);
    };
  };
  expect_told_apart(gather(5), gather(4), {"E016", "all_gather_v", "rank 1"});
}

TEST(Misuse, ABatchInAnotherOrderOrShapeIsAMismatch) {
  constexpr std::string_view order = "differ in order, shape";
  expect_told_apart(batch_of({2, 4}, sum), batch_of({4, 2}, sum), {"E016", "6 f32 in 2 tensors", order, "rank 1"});
  expect_told_apart(batch_of({3, 3}, sum), batch_of({2, 4}, sum), {"E016", order});
  expect_told_apart(batch_of({6}, sum), batch_of({2, 4}, sum), {"E016", "of 6 f32,", "6 f32 in 2 tensors"});
  expect_told_apart(batch_of({200'000, 100}, avg), batch_of({100, 200'000}, avg), {"E016", order});
  const auto broadcasts = [](std::vector<std::size_t> counts) {
    return [=](Communicator& world) {
      std::vector<std::vector<int>> data;
      for (const std::size_t count : counts) data.emplace_back(count, world.rank());
      Batch batch(world);
      for (auto& each : data) batch.broadcast(each, 0);
      batch.start().wait();
    };
  };
  expect_told_apart(broadcasts({5, 7}), broadcasts({7, 5}), {"E016", "12 i32 in 2 tensors", order});
}

TEST(Misuse, AnotherFunctionIsAMismatch) {
  expect_told_apart(reduce_by(commutative(&add)), reduce_by(commutative(&larger)), {"E016", "functions differ"});
  expect_told_apart(reduce_by(commutative([](float a, float b) { return a + b; })),
                    reduce_by(commutative([](float a, float b) { return a > b ? a : b; })),
                    {"E016", "functions differ"});
  expect_told_apart(reduce_by(ordered(&add)), reduce_by(commutative(&add)), {"E016", "user, ordered", "rank 1"});
  expect_told_apart(reduce_by(commutative(&add, "first")), reduce_by(commutative(&add, "second")),
                    {"E016", "functions differ"});
  with_members(3, [](Communicator& world) {
    std::vector<float> mine(100, 1.F);
    world.all_reduce(mine, commutative(&add));
    EXPECT_EQ(mine[99], 3.F);
    // A name stands for the function.
    if (world.rank() == 1)
      world.all_reduce(mine, commutative(&add, "add"));
    else
      world.all_reduce(mine, commutative([](float a, float b) { return a + b; }, "add"));
    EXPECT_EQ(mine[99], 9.F);
  });
}

// Members pack by the names alone, and two functions of one type and two names are two.
TEST(Misuse, NamedFunctionsOfABatchNeedNotBeTheSame) {
  with_members(3, [](Communicator& world) {
    std::vector<float> first(100, 1.F);
    std::vector<float> second(50, 2.F);
    const auto add_all = [&](const auto& function) {
      Batch batch(world);
      batch.all_reduce(first, commutative(function, "add")).all_reduce(second, commutative(function, "add too"));
      batch.run();
    };
    if (world.rank() == 1)
      add_all(&add);
    else
      add_all([](float a, float b) { return a + b; });
    EXPECT_EQ(first[99], 3.F);
    EXPECT_EQ(second[49], 6.F);
  });
}

TEST(Misuse, AnotherLineIsAMismatchOnlyIfSet) {
  const Body one = [](Communicator& world) { EXPECT_EQ(world.all_reduce(1, sum), 3); };
  const Body others = [](Communicator& world) { EXPECT_EQ(world.all_reduce(1, sum), 3); };
  with_members(3, [&](Communicator& world) { (world.rank() == 1 ? one : others)(world); });
  expect_told_apart(one, others, {"E016", "LOCKSTEP_STRICT", "misuse_test.cpp"}, true);
  const auto meet = [](Communicator& world) { world.barrier(); };
  const Body split = [=](Communicator& world) {
    meet(world);  // all members make this call
    world.split(0);
  };
  const Body other_split = [=](Communicator& world) {
    meet(world);
    world.split(0);
  };
  expect_told_apart(split, other_split, {"E016", "LOCKSTEP_STRICT"}, true);
  CommunicatorOptions strict;
  strict.strict = true;
  const auto same = [](Communicator& world) {
    for (int turn = 0; turn < 3; ++turn) EXPECT_EQ(world.all_reduce(1, sum), 3);
  };
  with_members(3, same, strict);
  // Builds spell the path of one file in different ways.
  const auto at = [](const char* file) {
    return [=](Communicator& world) { EXPECT_EQ(world.all_reduce(1, sum, Origin{file, 7}), 3); };
  };
  const auto spell = [&](Communicator& world) {
    constexpr std::array paths = {"step.cpp", "./step.cpp", "source/../source/step.cpp"};
    at(paths.at(static_cast<std::size_t>(world.rank())))(world);
  };
  with_members(3, spell, strict);
  expect_told_apart(at("source/step.cpp"), at("source/steps.cpp"), {"E016", "LOCKSTEP_STRICT"}, true);
}

TEST(Misuse, TheLineOfABatchIsThatWhereItStarts) {
  CommunicatorOptions strict;
  strict.strict = true;
  const auto added_at = [](Communicator& world, int line) {
    Batch batch(world);
    static thread_local std::array<int, 2> counts;
    static thread_local std::array<float, 2> values;
    batch.all_reduce(counts, sum, Origin{"step.cpp", line}).all_reduce(values, sum, Origin{"step.cpp", line + 1});
    return batch;
  };
  const auto elsewhere = [&](Communicator& world) {
    Batch batch = added_at(world, world.rank());
    for (int turn = 0; turn < 3; ++turn) batch.run();
    batch.run();  // all go on to another line together
  };
  with_members(3, elsewhere, strict);
  const auto run_at = [&](int line) {
    return [=](Communicator& world) {
      Batch batch = added_at(world, 1);
      batch.run(Origin{"step.cpp", 10});
      batch.run(Origin{"step.cpp", line});
    };
  };
  expect_told_apart(run_at(20), run_at(30), {"E016", "LOCKSTEP_STRICT", "step.cpp:20", "step.cpp:30"}, true);
}

TEST(Misuse, BadArgumentsOfOneMemberAreReportedToAll) {
  const auto wrong = [](const Body& body) {
    return ends(3, [&](Communicator& world) {
      if (world.rank() == 1) body(world);
    });
  };
  std::vector<int> data(9);
  expect_all(wrong([&](Communicator& world) { world.broadcast(data, 3); }), {"root 3", "0 to 2", "misuse_test.cpp"});
  expect_all(wrong([&](Communicator& world) { world.broadcast(data, -1); }), {"root -1"});
  expect_all(wrong([&](Communicator& world) {
               world.all_reduce(std::span(data).first(5), std::span(data).subspan(2, 5), sum);
             }),
             {"overlap"});
  expect_all(wrong([&](Communicator& world) { world.all_reduce(std::vector<int>(4), data, sum); }), {"9", "4"});
  expect_all(wrong([&](Communicator& world) { world.all_gather(data, data); }), {"27 are needed"});
  expect_all(wrong([&](Communicator& world) {
               const int count = -1;
               world.all_reduce(std::span(data.data(), static_cast<std::size_t>(count)), sum);
             }),
             {"negative"});
  expect_all(wrong([&](Communicator& world) {
               const std::vector<std::size_t> counts = {1, 2};
               world.all_gather_v(std::span(data).first(1), std::span(data).last(3), counts);
             }),
             {"2 counts", "3 members"});
  expect_all(wrong([&](Communicator& world) {
               const std::vector<std::size_t> counts = {4, 1, 4};
               const std::vector<std::size_t> offsets = {0, 3, 5};
               world.all_gather_v(std::vector<int>(1), data, counts, offsets);
             }),
             {"overlap at element 3"});
  expect_all(wrong([&](Communicator& world) {
               const std::vector<std::size_t> counts = {4, 1, ~std::size_t{0} - 3};
               world.all_gather_v(std::vector<int>(1), data, counts);
             }),
             {"negative"});
  expect_all(wrong([&](Communicator& world) {
               world.all_reduce(std::span<std::complex<double>>(static_cast<std::complex<double>*>(nullptr), 3), sum);
             }),
             {"address 0"});
}

// What moves no data is a call as well.
TEST(Misuse, SplitsAndAllocationsDifferFromOtherCalls) {
  const auto split = [](Communicator& world) { world.split(world.rank() % 2); };
  const auto copy = [](Communicator& world) { world.duplicate("copy"); };
  const auto memory = [](Communicator& world) { world.allocate<float>(10); };
  const auto reduce = [](Communicator& world) { EXPECT_EQ(world.all_reduce(1, sum), -1); };
  const auto meet = [](Communicator& world) { world.barrier(); };
  const auto differ = [](const Body& one, const Body& others, std::initializer_list<std::string_view> words) {
    expect_all(ends(4,
                    [&](Communicator& world) {
                      world.barrier();  // all members make this call
                      (world.rank() == 2 ? one : others)(world);
                    }),
               words);
  };
  differ(split, reduce, {"E016", "split", "all_reduce of 1 i32", "rank 2", "misuse_test.cpp"});
  differ(meet, copy, {"E016", "split", "barrier", "rank 2", "misuse_test.cpp"});
  differ(memory, split, {"E016", "split", "allocate", "rank 2", "misuse_test.cpp"});
  differ(reduce, memory, {"E016", "allocate", "all_reduce of 1 i32", "rank 2", "misuse_test.cpp"});
}

TEST(Misuse, MembersMissingInASplitAreNamed) {
  std::atomic<int> ended = 0;
  const auto texts = ends(3,
                          [&](Communicator& world) {
                            if (world.rank() == 1) {
                              while (ended < 2) std::this_thread::sleep_for(std::chrono::milliseconds(10));
                              return;
                            }
                            try {
                              world.split(0);
                            } catch (const Error&) {
                              ++ended;
                              throw;
                            }
                          },
                          {std::chrono::milliseconds(200), std::chrono::seconds(1)});
  for (const int rank : {0, 2}) {
    const std::string& said = texts[static_cast<std::size_t>(rank)];
    EXPECT_NE(said.find("has waited"), std::string::npos) << said;
    EXPECT_NE(said.find("split"), std::string::npos) << said;
    EXPECT_NE(said.find("rank 1"), std::string::npos) << said;
  }
}

TEST(Misuse, AFailedCommunicatorRefusesAndOthersGoOn) {
  run_members(
      2,
      [](Communicator& world) {
        auto other = world.duplicate("other");
        std::vector<int> data(4);
        EXPECT_THROW(world.broadcast(data, 7), Error);
        try {
          for (;;) world.all_reduce(data, sum);
        } catch (const Error& error) {
          EXPECT_NE(std::string_view(error.what()).find("root 7"), std::string_view::npos) << error.what();
        }
        try {
          world.all_reduce(data, sum);
          ADD_FAILURE() << "a failed communicator went on";
        } catch (const Error& error) {
          EXPECT_EQ(error.code(), Code::already_failed) << error.what();
          EXPECT_NE(std::string_view(error.what()).find("root 7"), std::string_view::npos) << error.what();
        }
        EXPECT_EQ(other.all_reduce(1, sum), 2);
      },
      {}, short_limits, Log(LogLevel::off));
}

TEST(Misuse, ARequestThatIsDroppedIsAnErrorWithItsLine) {
  std::vector<std::string> lines;
  std::mutex mutex;
  const Log log(LogLevel::warn, [&](LogLevel, std::string_view line) {
    const std::lock_guard lock(mutex);
    lines.emplace_back(line);
  });
  std::atomic<int> failed = 0;
  run_members(
      2,
      [&](Communicator& world) {
        std::vector<int> data(100000);
        try {
          if (world.rank() == 0) {
            world.all_reduce_async(data, sum);
          } else {
            world.all_reduce(data, sum);
          }
          world.barrier();
        } catch (const Error& error) {
          ++failed;
          EXPECT_NE(std::string_view(error.what()).find("misuse_test.cpp"), std::string_view::npos) << error.what();
        }
      },
      {}, short_limits, log);
  EXPECT_EQ(failed, 2);
  EXPECT_FALSE(lines.empty());
}

// The other member has given its part, so the call ends while it begins, and needs no wait. After an exception of the
// program the request is no mistake.
TEST(Misuse, ARequestThatIsDroppedAfterItsEndIsAnErrorToo) {
  for (const bool throws : {false, true}) {
    std::atomic<int> lines = 0;
    const Log log(LogLevel::error, [&](LogLevel, std::string_view) { ++lines; });
    std::atomic<int> failed = 0;
    std::barrier both(2);
    run_members(
        2,
        [&](Communicator& world) {
          int number = 1;
          const auto begin = [&] { return world.all_reduce_async(std::span(&number, 1), sum); };
          for (int i = 0; i < 3; ++i) begin().wait();
          Request first = world.rank() == 1 ? begin() : Request();
          both.arrive_and_wait();
          try {
            first.wait();
            if (world.rank() == 0) {
              const Request dropped = begin();
              if (throws) throw std::runtime_error("the disk is full");
            }
            world.barrier();
          } catch (const Error& error) {
            ++failed;
            EXPECT_EQ(number, 16);
            EXPECT_EQ(error.code(), throws || world.rank() == 1 ? Code::peer_failed : Code::usage) << error.what();
            EXPECT_PRED2(holds, error.what(), "misuse_test.cpp");
            EXPECT_PRED2(holds, error.what(),
                         throws ? "cancelled after another error" : "destroyed before it was waited for");
          } catch (const std::runtime_error&) {
            ++failed;
          }
        },
        {}, short_limits, log);
    EXPECT_EQ(failed, 2);
    EXPECT_EQ(lines == 0, throws);
  }
}

TEST(Misuse, ACommunicatorThatEndsWithRequestsInFlightReportsThem) {
  std::atomic<int> failed = 0;
  std::atomic<bool> ended = false;  // until then the call of rank 0 cannot finish
  run_members(
      2,
      [&](Communicator& world) {
        Request request;
        std::vector<int> data(1000);
        try {
          auto copy = world.duplicate("short");
          if (world.rank() == 0) {
            request = copy.all_reduce_async(data, sum);
            std::optional<Communicator> gone(std::move(copy));
            gone.reset();
            ended = true;
            request.wait();
          } else {
            while (!ended) std::this_thread::yield();
            copy.all_reduce(data, sum);
            copy.barrier();
          }
        } catch (const Error& error) {
          ++failed;
          EXPECT_NE(std::string_view(error.what()).find("destroyed"), std::string_view::npos) << error.what();
        }
      },
      {}, short_limits, Log(LogLevel::off));
  EXPECT_EQ(failed, 2);
}

TEST(Misuse, CommunicatorDestroyedInsideItsOwnReductionEndsTheProcessByName) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  std::atomic<bool> is_destroyed = false;  // by one member: the words of two that end the process at once would mix
  const auto destroy = [&](Communicator& world) {
    std::optional<Communicator> mine = world.duplicate("mine");
    const auto add = commutative([&](int a, int b) {
      if (!is_destroyed.exchange(true)) mine.reset();
      return a + b;
    });
    static_cast<void>(mine->all_reduce(1, add));
  };
  EXPECT_DEATH(run_members(2, destroy, {}, short_limits, Log(LogLevel::off)),
               "communicator \"mine\" was destroyed inside one of its own calls.* -> destroy");
}

TEST(Misuse, CancelledThreadEndsItsCallFirst) {
  const auto member = [](Communicator& world) {
    const auto add = commutative([](int a, int b) {
      ::pthread_testcancel();
      return a + b;
    });
    ::pthread_cancel(::pthread_self());
    const int all = world.all_reduce(1, add);
    int before = PTHREAD_CANCEL_DISABLE;
    ::pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);  // the thread is not the test's to end
    EXPECT_EQ(before, PTHREAD_CANCEL_ENABLE);
    EXPECT_EQ(all, 2);
  };
  run_members(2, member, {}, short_limits, Log(LogLevel::off));
}

// A repeated call defers the end of its thread only when it waits for long.
TEST(Misuse, CancelledThreadEndsItsRepeatedCallFirst) {
  for (const bool blocks : {true, false}) {
    std::atomic<bool> is_waiting = false;
    const auto member = [&](Communicator& world) {
      // MPI has places where the system ends a cancelled thread, and a long wait calls it.
      ProgressHook mpi([&] {
        is_waiting = true;
        ::pthread_testcancel();
      });
      std::vector<int> sums(50);
      for (int& each : sums) each = world.all_reduce(1, sum);
      if (world.rank() == 0) {
        mpi.busy();
        ::pthread_cancel(::pthread_self());
      } else {
        while (!is_waiting) std::this_thread::yield();
      }
      int all = 1;
      if (blocks)
        all = world.all_reduce(1, sum);
      else
        world.all_reduce_async(std::span(&all, 1), sum).wait();
      int before = PTHREAD_CANCEL_DISABLE;
      ::pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
      mpi.idle();
      EXPECT_EQ(before, PTHREAD_CANCEL_ENABLE);
      EXPECT_EQ(all, 2);
      EXPECT_EQ(sums, std::vector<int>(50, 2));
    };
    run_members(2, member, {}, short_limits, Log(LogLevel::off));
  }
}

// Calls of every kind, each where there is one like it, or none, before the limit: in the node's memory and by
// messages.
TEST(Misuse, CallsEndInTheTimeThatTheProgramGivesThem) {
  const Body kinds[] = {
      [](Communicator& world) { static_cast<void>(world.all_reduce(1, sum)); },
      [](Communicator& world) {
        std::vector<float> mine(1000);
        world.all_reduce_async(mine, sum).wait();
      },
      [](Communicator& world) {
        std::vector<float> mine(10);
        if (world.rank() == 1)
          world.send(mine, 0);
        else
          world.recv(mine, 1);
      },
  };
  for (const Body& call : kinds) {
    for (const bool in_memory : {true, false}) {
      for (const bool repeated : {true, false}) {
        std::string said;
        run_members(
            2,
            [&](Communicator& world) {
              const auto limited = [&](std::chrono::milliseconds limit, std::chrono::milliseconds late) {
                if (world.rank() == 1) std::this_thread::sleep_for(late);
                world.set_timeout(limit);
                call(world);
                world.set_timeout({});
              };
              if (repeated) limited(std::chrono::seconds(20), std::chrono::milliseconds(0));
              if (repeated) call(world);
              try {
                limited(std::chrono::milliseconds(100), std::chrono::milliseconds(400));
                world.barrier();
              } catch (const Error& error) {
                if (world.rank() == 0) said = error.what();
              }
            },
            {.node_memory = in_memory}, {std::chrono::seconds(5), std::chrono::seconds(20)}, Log(LogLevel::off));
        EXPECT_NE(said.find("the program has set this call's limit"), std::string::npos) << said;
        EXPECT_NE(said.find("rank 1"), std::string::npos) << said;
      }
    }
  }
  // What was planned before has the limit of now.
  std::string said;
  run_members(
      2,
      [&](Communicator& world) {
        std::vector<float> mine(1000);
        Batch batch(world);
        batch.all_reduce(mine, sum);
        batch.run();
        world.set_timeout(std::chrono::milliseconds(100));
        if (world.rank() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(400));
        try {
          batch.run();
          world.barrier();
        } catch (const Error& error) {
          if (world.rank() == 0) said = error.what();
        }
      },
      {}, {std::chrono::seconds(5), std::chrono::seconds(20)}, Log(LogLevel::off));
  EXPECT_NE(said.find("the program has set this call's limit"), std::string::npos) << said;
  run_members(1, [](Communicator& world) { EXPECT_THROW(world.set_timeout(std::chrono::seconds(-1)), Error); });
}

}  // namespace
}  // namespace lockstep::test
