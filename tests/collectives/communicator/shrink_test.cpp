// SPDX-License-Identifier: Apache-2.0
// Members that are threads, one of which leaves, fails or does not come: the others make a smaller communicator, and go
// on with all that one can do.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <latch>
#include <mutex>
#include <optional>
#include <set>
#include <thread>

#include "collectives/engine/forwarding_transport.hpp"
#include "collectives/engine/local_transport.hpp"
#include "tests/collectives/communicator/members.hpp"
#include "tests/support/own_process.hpp"
#include "topology/base/error.hpp"
#include "topology/base/progress_hooks.hpp"
#include "topology/local_exchange.hpp"

namespace lockstep::test {
namespace {

// Sums until somebody is gone.
Error failure_of(Communicator& all) {
  try {
    for (;;) {
      std::array<int, 3> numbers = {1, 2, 3};
      all.all_reduce(numbers, sum);
      EXPECT_EQ(numbers[2], 3 * all.size());
    }
  } catch (const Error& error) {
    return error;
  }
}

void expect_to_work(Communicator& all) {
  const int n = all.size();
  std::vector<int> numbers(1000, all.rank() + 1);
  all.all_reduce(numbers, sum);
  EXPECT_EQ(numbers, std::vector<int>(1000, n * (n + 1) / 2));
  std::vector<int> ranks(static_cast<std::size_t>(n));
  all.all_gather(std::vector{all.rank()}, ranks);
  for (int rank = 0; rank < n; ++rank) EXPECT_EQ(ranks[static_cast<std::size_t>(rank)], rank);
  std::vector<int> letter(1);
  all.sendrecv(std::vector{all.rank()}, (all.rank() + 1) % n, letter, (all.rank() + n - 1) % n);
  EXPECT_EQ(letter[0], (all.rank() + n - 1) % n);
}

// Sees who has ended a second after all others.
class SeesLate final : public ForwardingTransport {
 public:
  SeesLate(std::unique_ptr<Transport> to, bool& has_seen) : ForwardingTransport(std::move(to)), has_seen_(has_seen) {}

  PeerState peer_state(int peer) override {
    const PeerState found = ForwardingTransport::peer_state(peer);
    if (found == PeerState::reachable) return found;
    const auto now = std::chrono::steady_clock::now();
    if (!since_) since_ = now;
    has_seen_ = now - *since_ > std::chrono::seconds(1);
    return has_seen_ ? found : PeerState::reachable;
  }

 private:
  bool& has_seen_;
  std::optional<std::chrono::steady_clock::time_point> since_;
};

class Shrink : public testing::Test {
 protected:
  // The members' old ranks, by those who go on.
  static std::vector<int> old_ranks(Communicator& smaller, int old_rank) {
    std::vector<int> all(static_cast<std::size_t>(smaller.size()));
    smaller.all_gather(std::vector{old_rank}, all);
    return all;
  }
};

TEST_F(Shrink, ThoseThatAreLeftGoOnInTheirOrder) {
  std::latch done{3};  // by the others, whose last call would fail as well
  with_members(4, [&](Communicator& world) {
    expect_to_work(world);
    if (world.rank() == 1) {
      done.wait();
      const Communicator gone = std::move(world);
      return;
    }
    done.count_down();
    const Error error = failure_of(world);
    EXPECT_EQ(error.code(), Code::peer_failed) << error.what();
    Communicator smaller = world.shrink("those that are left");
    EXPECT_EQ(smaller.size(), 3);
    EXPECT_EQ(smaller.name(), "those that are left");
    EXPECT_EQ(smaller.topology().size(), 3);
    EXPECT_EQ(smaller.ranks(), (std::vector{0, 1, 2}));
    EXPECT_EQ(old_ranks(smaller, world.rank()), (std::vector{0, 2, 3}));
    expect_to_work(smaller);
    EXPECT_TRUE(world.failed());
    std::vector<int> number(1);
    EXPECT_THROW(world.all_reduce(number, sum), Error);
  });
}

TEST_F(Shrink, ResultsCanBeSplitAndShrunk) {
  std::latch done{3};
  with_members(5, [&](Communicator& world) {
    if (world.rank() == 0) {
      const Communicator gone = std::move(world);
      return;
    }
    failure_of(world);
    Communicator four = world.shrink();
    auto half = four.split(four.rank() % 2, -four.rank());
    EXPECT_EQ(half->size(), 2);
    EXPECT_EQ(half->rank(), 1 - four.rank() / 2);
    expect_to_work(*half);
    expect_to_work(four);
    if (world.rank() == 4) {
      done.wait();
      const Communicator gone = std::move(four);
      return;
    }
    done.count_down();
    failure_of(four);
    Communicator three = four.shrink();
    EXPECT_EQ(old_ranks(three, world.rank()), (std::vector{1, 2, 3}));
    expect_to_work(three);
    Communicator again = three.duplicate("again");
    expect_to_work(again);
  });
}

TEST_F(Shrink, OneAloneGoesOn) {
  with_members(2, [](Communicator& world) {
    if (world.rank() == 0) {
      const Communicator gone = std::move(world);
      return;
    }
    failure_of(world);
    Communicator alone = world.shrink();
    EXPECT_EQ(alone.size(), 1);
    expect_to_work(alone);
  });
}

// Nobody is gone, but a call has failed on one, and all that had not failed hear of it by the others' going on.
TEST_F(Shrink, AllThatLiveStayInIt) {
  with_members(3, [](Communicator& world) {
    if (world.rank() == 2) std::this_thread::sleep_for(std::chrono::milliseconds(50));
    Communicator same = world.shrink();
    EXPECT_EQ(same.size(), 3);
    expect_to_work(same);
  });
}

// MPI may end the process if it is called after a death. The stop is for ever, so each case has a process.
TEST_F(Shrink, MpiIsCalledInNoWaitAfterAFailureOrAShrink) {
  const auto ends_mpi = [](const std::function<void(Communicator&)>& body) {
    std::atomic<int> calls = 0;
    const OutsideProgress progress([&] { ++calls; });
    run_outside_progress();
    EXPECT_EQ(calls, 1);
    with_members(2, body);
    const int before = calls;
    run_outside_progress();
    EXPECT_EQ(calls, before);
  };
  in_own_process([&] {
    ends_mpi([](Communicator& world) {
      const Communicator same = world.shrink();
      EXPECT_EQ(same.size(), 2);
    });
  });
  in_own_process([&] {
    ends_mpi([](Communicator& world) {
      if (world.rank() == 0) {
        const Communicator gone = std::move(world);
        return;
      }
      failure_of(world);
    });
  });
}

TEST_F(Shrink, ACommunicatorOfMessagesOnlyWithItsOptions) {
  CommunicatorOptions options;
  options.node_memory = false;
  options.checksums = true;
  options.order = Order::reproducible;
  options.progress_thread = true;
  const auto body = [](Communicator& world) {
    if (world.rank() == 1) {
      const Communicator gone = std::move(world);
      return;
    }
    failure_of(world);
    Communicator smaller = world.shrink();
    EXPECT_EQ(smaller.order(), Order::reproducible);
    EXPECT_TRUE(smaller.options().checksums);
    expect_to_work(smaller);
  };
  with_members(4, body, options);
}

TEST_F(Shrink, OnceOnly) {
  with_members(2, [](Communicator& world) {
    Communicator same = world.shrink();
    try {
      world.shrink();
      ADD_FAILURE() << "it was shrunk twice";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::usage);
      EXPECT_NE(std::string_view(error.what()).find("was shrunk before"), std::string_view::npos);
    }
    expect_to_work(same);
  });
}

// It is there and does not come: who waits must not go on without it.
TEST_F(Shrink, LiveMembersThatAreMissingAreNamedByAll) {
  std::mutex mutex;
  std::set<std::string> said;
  std::atomic<int> ended = 0;
  const auto body = [&](Communicator& world) {
    if (world.rank() == 1) {
      while (ended < 2) std::this_thread::sleep_for(std::chrono::milliseconds(5));
      return;
    }
    try {
      world.shrink();
      ADD_FAILURE() << "it went on";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::stall);
      const std::lock_guard lock(mutex);
      said.insert(error.what());
    }
    ++ended;
  };
  with_members(3, body, {}, {std::chrono::milliseconds(100), std::chrono::milliseconds(400)});
  ASSERT_EQ(said.size(), 1U);
  EXPECT_NE(said.begin()->find("rank 1 did not come"), std::string::npos) << *said.begin();
}

// Half of them and the first one are enough to decide, but nobody goes on before he knows who is gone.
TEST_F(Shrink, WaitsUntilAllSeeTheLoss) {
  run_local(
      4,
      [](Exchange& exchange) {
        bool has_seen = exchange.rank() != 2;
        const auto maker = [&](Exchange& of) -> std::unique_ptr<Transport> {
          if (of.rank() != 2 || of.size() != 4) return local_transport(of);
          return std::make_unique<SeesLate>(local_transport(of), has_seen);
        };
        Communicator world(exchange, local_topology(4), {0, 1, 2, 3}, maker, {.node_memory = false});
        if (exchange.rank() == 3) {
          const Communicator gone = std::move(world);
          return;
        }
        Communicator smaller = world.shrink();
        EXPECT_TRUE(has_seen) << exchange.rank();
        EXPECT_EQ(smaller.size(), 3);
      },
      short_limits, Log(LogLevel::off));
}

// Many times, with deaths at any moment of the smaller one's making.
TEST_F(Shrink, SurvivesMembersThatLeaveMeanwhile) {
  for (int round = 0; round < 60; ++round) {
    with_members(5, [&](Communicator& world) {
      if (world.rank() == 3) {
        const Communicator gone = std::move(world);
        return;
      }
      if (world.rank() == round % 3) {
        std::this_thread::sleep_for(std::chrono::microseconds(round * 40));
        const Communicator gone = std::move(world);
        return;
      }
      Communicator smaller = world.shrink();
      try {
        expect_to_work(smaller);
      } catch (const Error& error) {  // it was there to the end of the making
        EXPECT_EQ(error.code(), Code::peer_failed) << error.what();
        smaller = smaller.shrink();
        expect_to_work(smaller);
      }
      EXPECT_EQ(smaller.size(), 3);
    });
  }
}

}  // namespace
}  // namespace lockstep::test
