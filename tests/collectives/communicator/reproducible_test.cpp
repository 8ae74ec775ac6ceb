// SPDX-License-Identifier: Apache-2.0
// The reproducible order: the same bits for every algorithm, piece size, splitting into nodes and transport, on data
// for which the order of summing matters.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <mutex>
#include <set>

#include "collectives/algorithms/algorithms.hpp"
#include "tests/collectives/communicator/members.hpp"
#include "tests/topology/shapes.hpp"

namespace lockstep::test {
namespace {

constexpr std::size_t count = 1000;

std::uint32_t mixed(std::uint32_t value) {
  value = (value ^ value >> 16U) * 0x7feb352dU;
  value = (value ^ value >> 15U) * 0x846ca68bU;
  return value ^ value >> 16U;
}

// Of different sizes and both signs, with all their digits in use, so that rounding depends on the order.
std::vector<float> data_of(int rank) {
  std::vector<float> all(count);
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint32_t digits = mixed(static_cast<std::uint32_t>(i * 8) + static_cast<std::uint32_t>(rank) + 1);
    const auto exponent = static_cast<int>(mixed(digits + 77) % 8);
    all[i] = static_cast<float>(std::ldexp(static_cast<double>(digits >> 8U) / 16777216.0 - 0.5, exponent));
  }
  return all;
}

// Written down once more: the left half is the largest power of two below the whole.
float tree_sum(const std::vector<std::vector<float>>& all, std::size_t i, int first, int last) {
  if (last - first == 1) return all[static_cast<std::size_t>(first)][i];
  int half = 1;
  while (half * 2 < last - first) half *= 2;
  return tree_sum(all, i, first, first + half) + tree_sum(all, i, first + half, last);
}

std::vector<std::vector<float>> everything(int size) {
  std::vector<std::vector<float>> all;
  for (int rank = 0; rank < size; ++rank) all.push_back(data_of(rank));
  return all;
}

std::vector<int> shares(int size, int on_each) {
  std::vector<int> all(static_cast<std::size_t>(size / on_each), on_each);
  if (size % on_each != 0) all.push_back(size % on_each);
  return all;
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

TEST(Reproducible, TheOrderMattersForThisData) {
  const auto all = everything(8);
  std::size_t differ = 0;
  for (std::size_t i = 0; i < count; ++i) {
    float ring = all[3][i];  // as a ring would, from member 3 around
    for (std::size_t step = 1; step < 8; ++step) ring += all[(3 + step) % 8][i];
    if (ring != tree_sum(all, i, 0, 8)) ++differ;
  }
  EXPECT_GE(differ, count / 2);
}

TEST(Reproducible, EveryAlgorithmAndEverySplitIntoNodesGivesTheSameBits) {
  int runs = 0;
  for (int size = 1; size <= 8; ++size) {
    const auto all = everything(size);
    std::vector<float> right(count);
    for (std::size_t i = 0; i < count; ++i) right[i] = tree_sum(all, i, 0, size);
    for (const int on_each : std::set{1, std::min(size, 2), std::min(size, 3), size}) {
      for (const Algorithm& row : algorithms()) {
        if (row.collective != Collective::all_reduce || !row.keeps.balanced) continue;
        CommunicatorOptions options{.order = Order::reproducible};
        options.algorithm = text("all_reduce:", row.name);
        std::mutex mutex;
        const auto body = [&](Communicator& world) {
          auto data = data_of(world.rank());
          world.all_reduce(data, sum);
          const std::lock_guard lock(mutex);
          ++runs;
          EXPECT_TRUE(same_bits(data, right)) << row.name << ' ' << size << " members, " << on_each << " on a node";
        };
        try {
          run_members(nodes_of(shares(size, on_each)), body, options, short_limits, Log(LogLevel::off));
        } catch (const Error& error) {
          EXPECT_EQ(error.code(), Code::bad_setting) << error.what();  // it does not fit this layout
        }
      }
    }
  }
  EXPECT_GT(runs, 200);
}

TEST(Reproducible, PartsOfACallHaveTheBitsOfOneCall) {
  with_members(5, [](Communicator& world) {
    auto exact = world.reproducible();
    EXPECT_EQ(exact.order(), Order::reproducible);
    auto whole = data_of(world.rank());
    auto parts = whole;
    exact.all_reduce(whole, sum);
    for (const std::size_t piece : {1U, 7U, 333U}) {
      auto again = parts;
      for (std::size_t at = 0; at < count; at += piece)
        exact.all_reduce(std::span(again).subspan(at, std::min(piece, count - at)), sum);
      EXPECT_TRUE(same_bits(again, whole)) << piece;
    }
    // And the other reductions agree with it.
    std::vector<float> out(count);
    exact.reduce(parts, out, sum, 3);
    if (world.rank() == 3) {
      EXPECT_TRUE(same_bits(out, whole));
    }
    std::vector<float> block(count / 5);
    exact.reduce_scatter(parts, block, sum);
    const auto begin = whole.begin() + world.rank() * static_cast<std::ptrdiff_t>(count / 5);
    EXPECT_TRUE(same_bits(block, std::vector<float>(begin, begin + count / 5)));
    exact.scan(parts, out, sum);
    if (world.rank() == 4) {
      EXPECT_TRUE(same_bits(out, whole));
    }
  });
}

TEST(Reproducible, FastGivesAllMembersTheSameBitsToo) {
  for (const Algorithm& row : algorithms()) {
    if (row.collective != Collective::all_reduce) continue;
    CommunicatorOptions options;
    options.algorithm = text("all_reduce:", row.name);
    const auto body = [&](Communicator& world) {
      auto data = data_of(world.rank());
      data[7] = std::nanf(world.rank() % 2 == 0 ? "5" : "9");
      world.all_reduce(data, sum);
      std::vector<float> first = data;
      world.broadcast(first, 0);
      EXPECT_TRUE(same_bits(first, data)) << row.name;
    };
    try {
      run_members(nodes_of({3, 3}), body, options, short_limits, Log(LogLevel::off));
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::bad_setting) << error.what();
    }
  }
}

}  // namespace
}  // namespace lockstep::test
