// SPDX-License-Identifier: Apache-2.0
// Communicators over several nodes whose members meet in the memory of their node: what the planner takes, many calls
// at once, and what goes wrong in the middle of it. (That all of it is right is drawn in random_threads_test.cpp.)
#include <gtest/gtest.h>

#include <thread>

#include "collectives/communicator/batch.hpp"
#include "tests/collectives/communicator/members.hpp"
#include "tests/topology/shapes.hpp"

namespace lockstep::test {
namespace {

using Body = std::function<void(Communicator&)>;

CommunicatorOptions by(std::string algorithm, Order order = Order::fast) {
  CommunicatorOptions options{.order = order};
  options.algorithm = std::move(algorithm);
  return options;
}

void on_nodes(const std::vector<int>& members, const Body& body, CommunicatorOptions options = {},
              WaitLimits wait_limits = short_limits) {
  options.node_memory = true;
  run_members(nodes_of(members), body, std::move(options), wait_limits, Log(LogLevel::off));
}

TEST(IntraNode, AlgorithmsAreThereWhereMembersHaveNeighbours) {
  const auto taken = [](std::initializer_list<int> members, std::string algorithm, bool node_memory) {
    CommunicatorOptions options = by(std::move(algorithm));
    options.node_memory = node_memory;
    try {
      const auto body = [&](Communicator& world) {
        std::vector<int> data(100, world.rank());
        world.all_reduce(data, sum);
        EXPECT_EQ(data[99], world.size() * (world.size() - 1) / 2);
      };
      run_members(nodes_of(members), body, std::move(options), short_limits, Log(LogLevel::off));
    } catch (const Error& error) {
      return std::string(error.detail());
    }
    return std::string();
  };
  EXPECT_EQ(taken({2, 2}, "all_reduce:node_ring", true), "");
  EXPECT_EQ(taken({3, 1, 2}, "all_reduce:node_leaders", true), "");
  EXPECT_NE(taken({2, 2}, "all_reduce:node_ring", false).find("needs memory that the members of each node share"),
            std::string::npos);
  EXPECT_NE(taken({1, 1, 1}, "all_reduce:node_ring", true).find("node_ring, which"), std::string::npos);
}

// Members decide alike how blocks are cut, whether their data is in place or not.
TEST(IntraNode, AllToAllMayBeInPlaceOnSomeMembers) {
  const auto body = [](Communicator& world) {
    const auto size = static_cast<std::size_t>(world.size());
    const auto value = [](std::size_t from, std::size_t to, std::size_t at) {
      return static_cast<int>(from * 1'000'003 + to * 10'007 + at);
    };
    for (const std::size_t each : {std::size_t{20'480}, std::size_t{70'001}}) {
      const auto me = static_cast<std::size_t>(world.rank());
      std::vector<int> in(size * each);
      for (std::size_t i = 0; i < in.size(); ++i) in[i] = value(me, i / each, i % each);
      std::vector<int> out(in.size());
      const bool in_place = world.rank() % 2 == 0;
      if (in_place)
        world.all_to_all(in);
      else
        world.all_to_all(in, out);
      const std::vector<int>& result = in_place ? in : out;
      for (std::size_t i = 0; i < result.size(); ++i) ASSERT_EQ(result[i], value(i / each, me, i % each)) << i;
    }
  };
  for (const std::string_view table : {"", "all_to_all * * * pairwise 64K test\n"}) {
    for (const auto& nodes : {std::vector{2, 2}, std::vector{1, 1, 1}, std::vector{3, 1, 2}, std::vector{3}}) {
      for (const bool node_memory : {true, false}) {
        CommunicatorOptions options;
        options.table = table;
        options.node_memory = node_memory;
        const testing::ScopedTrace trace(__FILE__, __LINE__,
                                         text(nodes.size(), " nodes, memory ", node_memory ? "on " : "off ", table));
        run_members(nodes_of(nodes), body, options, short_limits, Log(LogLevel::off));
      }
    }
  }
}

// Segments of several calls are under way at once, and their rounds in the room come in one order.
TEST(IntraNode, CallsUnderWayShareTheRoom) {
  CommunicatorOptions options;
  options.table = "all_reduce * * * node_ring 4096 test\nbroadcast * * * node_leaders 4096 test\n";
  on_nodes(
      {2, 3, 1},
      [](Communicator& world) {
        constexpr std::size_t calls = 6;
        std::vector<std::vector<int>> data;
        for (std::size_t i = 0; i < calls; ++i) data.emplace_back(5000 + 3000 * i, world.rank() + static_cast<int>(i));
        for (int turn = 0; turn < 3; ++turn) {
          std::vector<Request> requests;
          auto sums = data;
          for (std::size_t i = 0; i < calls; ++i) {
            if (i % 2 == 0)
              requests.push_back(world.all_reduce_async(sums[i], sum));
            else
              requests.push_back(world.broadcast_async(sums[i], static_cast<int>(i)));
          }
          wait_all(requests);
          for (std::size_t i = 0; i < calls; ++i) {
            const int number = static_cast<int>(i);
            EXPECT_EQ(sums[i], std::vector<int>(data[i].size(), i % 2 == 0 ? 15 + 6 * number : 2 * number)) << i;
          }
        }
      },
      options);
}

// Segments go from member to member in a node as they come. A buffer may be written as soon as its call has ended.
TEST(IntraNode, SegmentsOfABroadcastFlowThroughNodes) {
  CommunicatorOptions options;
  // A member's block has 256 KiB, or less with five members: more than `direct_from` ever has. The last segment may
  // have fewer elements than there are members.
  options.table = "broadcast * * * node_trees 1M test\nall_reduce * * * node_ring 4096 test\n";
  for (const auto& nodes : {std::vector{4, 4, 4}, std::vector{5, 5}}) {
    const auto body = [&](Communicator& world) {
      for (const std::size_t count : {std::size_t{262'145}, std::size_t{262'147}, std::size_t{1'600'003}}) {
        for (const int root : {0, 3, world.size() - 1}) {
          std::vector<int> data(count, -1);
          std::vector<int> more(count / 2, -1);
          std::vector<int> sums(count / 4, world.rank());
          if (world.rank() == root) {
            for (std::size_t i = 0; i < count; ++i) data[i] = static_cast<int>(i) + root;
            for (std::size_t i = 0; i < more.size(); ++i) more[i] = static_cast<int>(i) - root;
          }
          Request second = world.broadcast_async(more, root);
          Request third = world.all_reduce_async(sums, sum);
          world.broadcast(data, root);
          for (std::size_t i = 0; i < count; ++i) ASSERT_EQ(data[i], static_cast<int>(i) + root) << i;
          std::ranges::fill(data, -2);
          second.wait();
          for (std::size_t i = 0; i < more.size(); ++i) ASSERT_EQ(more[i], static_cast<int>(i) - root) << i;
          std::ranges::fill(more, -2);
          third.wait();
          ASSERT_EQ(sums, std::vector<int>(sums.size(), world.size() * (world.size() - 1) / 2));
        }
      }
    };
    on_nodes(nodes, body, options);
  }
}

TEST(IntraNode, MapsElementsOnceBeforeAndAfter) {
  for (const auto* const algorithm : {"all_reduce:node_ring", "all_reduce:node_leaders", "all_reduce:node_doubling"}) {
    on_nodes(
        {2, 2},
        [&](Communicator& world) {
          std::vector<double> data(1000, world.rank());
          world.all_reduce(data, avg);
          EXPECT_EQ(data, std::vector<double>(1000, 1.5)) << algorithm;
          std::vector<double> in(1000, 1);
          std::vector<double> out(1000);
          world.all_reduce(in, out, premul_sum(static_cast<double>(world.rank())));
          EXPECT_EQ(out, std::vector<double>(1000, 6)) << algorithm;
          world.all_reduce(in, out, commutative([](double a, double b) { return a * 2 + b * 2; }));
          EXPECT_EQ(out, std::vector<double>(1000, 16)) << algorithm;
        },
        by(algorithm));
  }
}

// Ranks 1 and 4 have a long block between them, and send in turns. The others post their short ones all at once.
TEST(IntraNode, MembersOfAnAllToAllWithUnequalBlocksChooseAlone) {
  const auto count = [](int from, int to) -> std::size_t {
    return from == 1 && to == 4 ? 300'000U : static_cast<std::size_t>(from + to);
  };
  on_nodes({2, 2, 2}, [&](Communicator& world) {
    std::vector<std::size_t> sends;
    std::vector<std::size_t> receives;
    std::vector<int> in;
    std::vector<int> expected;
    for (int other = 0; other < world.size(); ++other) {
      sends.push_back(count(world.rank(), other));
      receives.push_back(count(other, world.rank()));
      in.insert(in.end(), sends.back(), 10 * world.rank() + other);
      expected.insert(expected.end(), receives.back(), 10 * other + world.rank());
    }
    for (int repeated = 0; repeated < 3; ++repeated) {
      std::vector<int> out(expected.size(), -1);
      world.all_to_all_v(in, sends, out, receives);
      EXPECT_EQ(out, expected);
    }
  });
}

// Its memory is only memory there, and so is that of who is split from it.
TEST(IntraNode, MemoryTakenTogetherIsMemory) {
  on_nodes({2, 3}, [](Communicator& world) {
    auto gradient = world.allocate<float>(5000);
    std::ranges::fill(gradient, 1.0F);
    world.all_reduce(gradient, sum);
    EXPECT_EQ(gradient[4999], 5.0F);
    auto near = world.split(world.rank() < 2 ? 0 : 1, world.rank());
    near->all_reduce(gradient, sum);
    EXPECT_EQ(gradient[0], 5.0F * static_cast<float>(near->size()));
  });
}

// What each member's body ended with.
std::vector<std::string> ends(std::initializer_list<int> members, std::size_t size, const Body& body,
                              WaitLimits wait_limits = short_limits) {
  std::vector<std::string> all(size);
  const auto member = [&](Communicator& world) {
    try {
      body(world);
      world.barrier();
    } catch (const std::exception& error) {
      all[static_cast<std::size_t>(world.rank())] = error.what();
    }
  };
  run_members(nodes_of(members), member, by("all_reduce:node_ring,barrier:node_leaders"), wait_limits,
              Log(LogLevel::off));
  return all;
}

TEST(IntraNode, MissingMembersAreNamedOnAllNodes) {
  constexpr WaitLimits wait_limits{std::chrono::milliseconds(500), std::chrono::milliseconds(2500)};
  for (const int late : {1, 3}) {
    const auto body = [&](Communicator& world) {
      std::vector<int> data(3000);
      world.all_reduce(data, sum);  // what follows is in the middle of its data
      if (world.rank() == late) {
        std::this_thread::sleep_for(std::chrono::milliseconds(4000));
        return;
      }
      world.all_reduce(data, sum);
    };
    const auto texts = ends({2, 2}, 4, body, wait_limits);
    for (std::size_t rank = 0; rank < texts.size(); ++rank) {
      if (static_cast<int>(rank) == late) continue;
      EXPECT_NE(texts[rank].find(text("rank ", late, " does not answer")), std::string::npos)
          << "late " << late << ": " << texts[rank];
      EXPECT_EQ(texts[rank].find("before its data"), std::string::npos) << texts[rank];
    }
  }
}

// On the root's node they have all data from it and wait for the late member's end. On the other node they wait for its
// block, and for that of its rail.
TEST(IntraNode, MembersThatAreMissingInAFlowAreNamed) {
  constexpr WaitLimits wait_limits{std::chrono::milliseconds(300), std::chrono::milliseconds(1200)};
  for (const int late : {2, 5}) {
    std::vector<std::string> texts(8);
    const auto body = [&](Communicator& world) {
      std::vector<int> data(600'000);
      try {
        world.broadcast(data, 0);  // what follows is in the middle of its data
        if (world.rank() == late) {
          std::this_thread::sleep_for(std::chrono::milliseconds(2000));
          return;
        }
        world.broadcast(data, 0);
        world.barrier();
      } catch (const std::exception& error) {
        texts[static_cast<std::size_t>(world.rank())] = error.what();
      }
    };
    CommunicatorOptions options;
    options.table = "broadcast * * * node_trees 1M test\n";
    on_nodes({4, 4}, body, options, wait_limits);
    for (int rank = 0; rank < 8; ++rank) {
      if (rank == late) continue;
      const std::string& named = texts[static_cast<std::size_t>(rank)];
      EXPECT_NE(named.find(text("rank ", late, " does not answer")), std::string::npos) << rank << ": " << named;
      const bool is_in_broadcast = late == 2 || rank / 4 == late / 4;
      EXPECT_TRUE(!is_in_broadcast || named.find("broadcast") != std::string::npos) << named;
    }
  }
}

TEST(IntraNode, AnExceptionOfAFunctionEndsTheCallOnAll) {
  const auto texts = ends({2, 2}, 4, [&](Communicator& world) {
    std::vector<int> data(3000, world.rank());
    world.all_reduce(data, commutative([me = world.rank()](int a, int b) {
                       if (me == 2) throw std::runtime_error("a sum that is none");
                       return a + b;
                     }));
  });
  for (std::size_t rank = 0; rank < 4; ++rank) {
    if (rank == 2) continue;
    EXPECT_NE(texts[rank].find("a sum that is none"), std::string::npos) << rank << ": " << texts[rank];
  }
}

}  // namespace
}  // namespace lockstep::test
