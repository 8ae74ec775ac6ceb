// SPDX-License-Identifier: Apache-2.0
// Messages between nodes in 16 bits: all members get the same bits, as near to the exact sum as docs/reductions.md
// says, by every algorithm that may do so on every layout; and everything else is left as it is.
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <cstring>
#include <numeric>
#include <random>
#include <thread>

#include "collectives/algorithms/algorithms.hpp"
#include "collectives/engine/forwarding_transport.hpp"
#include "collectives/engine/local_transport.hpp"
#include "tests/collectives/communicator/members.hpp"
#include "tests/collectives/prove.hpp"
#include "tests/topology/shapes.hpp"
#include "topology/local_exchange.hpp"

namespace lockstep::test {
namespace {

using Layout = std::vector<int>;

constexpr std::size_t many = 20'001;  // odd, and enough for the link to be the limit

std::shared_ptr<const Topology> nodes_of_layout(const Layout& members) {
  return nodes_of(members, {{.name = "eth0", .mbit_per_s = 1000}});
}

std::string words_of(const Layout& layout) {
  std::string all;
  for (const int each : layout) all += text(all.empty() ? "" : "+", each);
  return all;
}

int members_of(const Layout& layout) { return std::accumulate(layout.begin(), layout.end(), 0); }

// Of both signs and several sizes, with all their digits in use.
std::vector<float> drawn(int rank, std::size_t count) {
  std::minstd_rand random(static_cast<unsigned>(rank) * 7919U + 17U);
  std::uniform_real_distribution<float> digits(-1, 1);
  std::vector<float> all(count);
  for (float& each : all) each = std::ldexp(digits(random), static_cast<int>(random() % 6));
  return all;
}

// What one step of rounding to nearest may change, relative to the number.
double unit_of(WireFormat wire) { return wire == WireFormat::bf16 ? std::ldexp(1, -8) : std::ldexp(1, -11); }

// Below which f16 has fewer digits.
double least_step(WireFormat wire) { return wire == WireFormat::bf16 ? std::ldexp(1, -134) : std::ldexp(1, -25); }

bool have_same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

// The bound that is documented, for so many roundings on the way and at the end.
void expect_near_the_sum(const std::vector<float>& result, int members, int roundings, WireFormat wire, double divisor,
                         const std::string& what) {
  std::vector<std::vector<float>> all;
  for (int rank = 0; rank < members; ++rank) all.push_back(drawn(rank, result.size()));
  const double relative = std::pow(1 + unit_of(wire), roundings) * std::pow(1 + std::ldexp(1, -24), members) - 1;
  for (std::size_t i = 0; i < result.size(); ++i) {
    double sum = 0;
    double magnitude = 0;
    for (const auto& each : all) {
      sum += each[i];
      magnitude += std::abs(each[i]);
    }
    const double bound = (relative * magnitude + roundings * least_step(wire)) / divisor;
    ASSERT_LE(std::abs(result[i] - sum / divisor), bound) << what << ", element " << i;
  }
}

// Runs it on threads; nothing where the algorithm does not fit the layout.
bool run_on(const Layout& layout, CommunicatorOptions options, const std::function<void(Communicator&)>& body) {
  try {
    run_members(nodes_of_layout(layout), body, std::move(options), short_limits, Log(LogLevel::off));
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::bad_setting) << error.what();
    return false;
  }
  return true;
}

CommunicatorOptions in_format(WireFormat wire, std::string algorithm = {}, bool node_memory = true) {
  CommunicatorOptions options;
  options.node_memory = node_memory;
  options.algorithm = algorithm.empty() ? algorithm : text("all_reduce:", algorithm);
  options.wire = wire;
  return options;
}

bool is_narrow(const PreparedCall& planned) { return planned.why().find("; between nodes in") != std::string::npos; }

const std::vector<Layout> layouts = {{1, 1}, {1, 1, 1}, {1, 1, 1, 1}, {2, 1},    {1, 3},      {2, 2},
                                     {3, 3}, {1, 2, 3}, {2, 2, 2},    {2, 2, 1}, {2, 2, 2, 2}};

TEST(Wire, AllMembersGetTheSameBitsWithinTheBound) {
  int runs = 0;
  for (const Layout& layout : layouts) {
    for (const Algorithm& row : algorithms()) {
      if (row.collective != Collective::all_reduce || !row.keeps.once) continue;
      for (const WireFormat wire : {WireFormat::bf16, WireFormat::f16}) {
        const std::string what = text(row.name, " on ", words_of(layout), " in ", to_string(wire));
        const int members = members_of(layout);
        std::vector<std::vector<float>> results(static_cast<std::size_t>(members));
        const bool fits =
            run_on(layout, in_format(wire, std::string(row.name), row.keeps.node), [&](Communicator& world) {
              auto data = drawn(world.rank(), many);
              EXPECT_TRUE(is_narrow(world.plan_all_reduce(data, sum))) << what;
              std::vector<float> out(many);
              world.all_reduce(data, out, sum);
              world.all_reduce(data, sum);
              EXPECT_TRUE(have_same_bits(data, out)) << what << ", in place";
              results[static_cast<std::size_t>(world.rank())] = std::move(out);
            });
        if (!fits) continue;
        ++runs;
        for (const auto& each : results) EXPECT_TRUE(have_same_bits(each, results.front())) << what;
        const bool by_nodes = row.keeps.node || row.name.starts_with("hierarchical");
        const int roundings = by_nodes ? static_cast<int>(layout.size()) : members;
        ASSERT_NO_FATAL_FAILURE(expect_near_the_sum(results.front(), members, roundings, wire, 1, what));
      }
    }
  }
  EXPECT_GT(runs, 100);
}

// Every element is rounded off where it has become whole, and nowhere else; the rest of the schedule is as it was.
TEST(Wire, EachSumIsRoundedOffOnce) {
  for (const Layout& layout : layouts) {
    Problem problem{.collective = Collective::all_reduce, .size = members_of(layout), .count = 101};
    int next = 0;
    for (const int each : layout) {
      auto& node = problem.levels.nodes.emplace_back(static_cast<std::size_t>(each));
      std::iota(node.begin(), node.end(), next);
      next += each;
    }
    for (const Algorithm& row : algorithms()) {
      if (row.collective != Collective::all_reduce || !row.keeps.once) continue;
      if (!fits(row, shape_of(problem, 0))) continue;
      std::vector<int> rounded(problem.count, 0);
      std::vector<Schedule> schedules;
      for (int index = 0; index < problem.size; ++index) {
        Shape shape = shape_of(problem, index);
        shape.rounds_off = true;
        schedules.push_back(row.build(shape));
        for (const Round& round : schedules.back().rounds) {
          for (const LocalStep& local : round.locals) {
            if (local.kind != LocalStepKind::round) continue;
            const Slice slice = local.target.at(0);
            EXPECT_EQ(slice.space, Space::output);
            for (std::size_t i = 0; i < slice.count; ++i) ++rounded[slice.offset + i];
          }
        }
      }
      EXPECT_EQ(rounded, std::vector<int>(problem.count, 1)) << row.name << " on " << words_of(layout);
      EXPECT_EQ(prove(problem, schedules).fault, "") << row.name << " on " << words_of(layout);
    }
  }
}

// In segments, several at a time, of several calls at once, whose memory is used again.
TEST(Wire, CallsAndSegmentsUnderWayKeepApart) {
  CommunicatorOptions options = in_format(WireFormat::bf16);
  options.table = "all_reduce * * * node_ring 32768 test\n";
  run_on({2, 3, 2}, options, [](Communicator& world) {
    const std::vector<std::size_t> counts = {many, 3 * many, 70'000};
    for (int turn = 0; turn < 3; ++turn) {
      std::vector<std::vector<float>> sums;
      std::vector<Request> requests;
      for (const std::size_t count : counts) sums.push_back(drawn(world.rank(), count));
      EXPECT_TRUE(is_narrow(world.plan_all_reduce(sums[1], avg)));
      for (auto& each : sums) requests.push_back(world.all_reduce_async(each, avg));
      wait_all(requests);
      for (const auto& each : sums) {
        auto first = each;
        world.broadcast(first, 0);
        EXPECT_TRUE(have_same_bits(first, each));
        ASSERT_NO_FATAL_FAILURE(expect_near_the_sum(each, 7, 3, WireFormat::bf16, 7, "in segments"));
      }
    }
  });
}

// Bytes that members send to other nodes, by rank.
class Counting final : public ForwardingTransport {
 public:
  Counting(std::unique_ptr<Transport> to, const Topology& topology, std::atomic<std::size_t>& far)
      : ForwardingTransport(std::move(to)), topology_(topology), far_(far) {}
  void post(RoundTag round_tag, std::span<const SendDescriptor> sends,
            std::span<const ReceiveDescriptor> receives) override {
    for (const SendDescriptor& each : sends) {
      if (topology_.member(each.peer).node != topology_.member(rank()).node) far_ += each.bytes;
    }
    ForwardingTransport::post(round_tag, sends, receives);
  }

 private:
  const Topology& topology_;
  std::atomic<std::size_t>& far_;
};

// What the body makes all members send to other nodes, without the node's memory.
std::size_t far_bytes(const Layout& layout, const CommunicatorOptions& options,
                      const std::function<void(Communicator&)>& body) {
  const auto topology = nodes_of_layout(layout);
  std::atomic<std::size_t> far = 0;
  const auto exchanges = make_local_exchanges(topology->size(), short_limits, Log(LogLevel::off));
  std::vector<int> ranks(static_cast<std::size_t>(topology->size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  const TransportMaker maker = [&](Exchange& exchange) {
    return std::make_unique<Counting>(local_transport(exchange), *topology, far);
  };
  std::vector<std::jthread> threads;
  for (const int rank : ranks) {
    threads.emplace_back([&, rank] {
      Communicator world(*exchanges[static_cast<std::size_t>(rank)], topology, ranks, maker, options);
      body(world);
    });
  }
  threads.clear();
  return far;
}

TEST(Wire, HalfOfTheBytesCrossBetweenNodes) {
  for (const auto* const algorithm : {"ring", "hierarchical_ring", "node_halving", "balanced_halving"}) {
    const auto body = [](Communicator& world) {
      std::vector<float> data(static_cast<std::size_t>(world.size()) * 4000, 1);
      world.all_reduce(data, sum);
      EXPECT_EQ(data[0], static_cast<float>(world.size()));
    };
    const std::size_t as_is = far_bytes({2, 2, 2, 2}, in_format(WireFormat::as_is, algorithm), body);
    const std::size_t narrow = far_bytes({2, 2, 2, 2}, in_format(WireFormat::bf16, algorithm), body);
    EXPECT_GT(narrow, 0U);
    EXPECT_EQ(as_is, 2 * narrow) << algorithm;
  }
}

// Other operations, types, collectives and orders, and what is so small that the link is not the limit.
TEST(Wire, EverythingElseKeepsItsBits) {
  const auto results_of = [](WireFormat wire) {
    std::vector<float> all;
    run_on({2, 2}, in_format(wire), [&](Communicator& world) {
      const auto keep = [&](const std::vector<float>& result) {
        if (world.rank() == 1) all.insert(all.end(), result.begin(), result.end());
      };
      const auto data = drawn(world.rank(), 4 * many);
      std::vector<float> out(data.size());
      world.all_reduce(data, out, max);
      keep(out);
      world.all_reduce(data, out, commutative([](float a, float b) { return a + b; }));
      keep(out);
      world.all_reduce(data, out, premul_sum(0.5));
      keep(out);
      auto exact = world.reproducible();
      EXPECT_EQ(exact.options().wire, world.options().wire);
      EXPECT_FALSE(is_narrow(exact.plan_all_reduce(data, out, sum)));
      exact.all_reduce(data, out, sum);
      keep(out);
      std::vector<float> block(many);
      world.reduce_scatter(data, block, sum);
      keep(block);
      world.all_gather(block, out);
      keep(out);
      const std::span small(data.data(), 16);
      std::vector<float> sums(16);
      world.all_reduce(small, sums, sum);
      keep(sums);
      const std::vector<double> doubles(data.begin(), data.end());
      std::vector<double> sum_of_doubles(doubles.size());
      world.all_reduce(doubles, sum_of_doubles, sum);
      keep({static_cast<float>(sum_of_doubles[0]), static_cast<float>(sum_of_doubles[many] * 1e9)});
    });
    return all;
  };
  const auto as_is = results_of(WireFormat::as_is);
  EXPECT_GT(as_is.size(), 21 * many);
  EXPECT_TRUE(have_same_bits(results_of(WireFormat::bf16), as_is));
  EXPECT_TRUE(have_same_bits(results_of(WireFormat::f16), as_is));
}

TEST(Wire, IsNotUsedOnOneNode) {
  run_on({4}, in_format(WireFormat::bf16), [](Communicator& world) {
    std::vector<float> data(many, 1.0F + std::ldexp(1.0F, -20));
    EXPECT_FALSE(is_narrow(world.plan_all_reduce(data, sum)));
    world.all_reduce(data, sum);
    EXPECT_EQ(data[0], 4.0F + std::ldexp(1.0F, -18));
  });
}

TEST(Wire, CarriesNansAndInfinities) {
  for (const WireFormat wire : {WireFormat::bf16, WireFormat::f16}) {
    run_on({2, 2}, in_format(wire), [&](Communicator& world) {
      std::vector<float> data(many, 20'000);
      data[0] = world.rank() == 3 ? std::nanf("77") : 1;
      data[1] = world.rank() == 0 ? INFINITY : 1;
      data[2] = world.rank() == 2 ? -INFINITY : 1;
      data[3] = 0x1p-140F;
      world.all_reduce(data, sum);
      EXPECT_TRUE(std::isnan(data[0]));
      EXPECT_EQ(data[1], INFINITY);
      EXPECT_EQ(data[2], -INFINITY);
      EXPECT_NEAR(data[3], 0, 4 * 0x1p-25);
      if (wire == WireFormat::f16)
        EXPECT_EQ(data[4], INFINITY);  // beyond 65504
      else
        EXPECT_NEAR(data[4], 80'000, 80'000 * 2.0 / 256);
    });
  }
}

TEST(Wire, DifferentFormatsAreAMismatch) {
  const auto topology = nodes_of_layout({2, 2});
  const auto exchanges = make_local_exchanges(4, short_limits, Log(LogLevel::off));
  std::vector<std::string> texts(4);
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < 4; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        Communicator world(*exchanges[static_cast<std::size_t>(rank)], topology, {0, 1, 2, 3}, local_transport,
                           in_format(rank == 2 ? WireFormat::f16 : WireFormat::bf16));
        std::vector<float> data(many);
        world.all_reduce(data, sum);
        world.barrier();
      } catch (const std::exception& error) {
        texts[static_cast<std::size_t>(rank)] = error.what();
      }
    });
  }
  threads.clear();
  for (const std::string& each : texts) {
    EXPECT_NE(each.find("E016"), std::string::npos) << each;
    EXPECT_NE(each.find("f16 between nodes"), std::string::npos) << each;
  }
}

}  // namespace
}  // namespace lockstep::test
