// SPDX-License-Identifier: Apache-2.0
// Every algorithm of all_reduce, by its name: all members get the same bytes, for all types and operations.
#include <gtest/gtest.h>

#include <bit>
#include <mutex>
#include <set>
#include <tuple>

#include "collectives/algorithms/algorithms.hpp"
#include "collectives/communicator/local.hpp"
#include "tests/support/holds.hpp"
#include "tests/support/sanitized.hpp"
#include "topology/base/bytes.hpp"
#include "topology/base/text.hpp"
#include "topology/machine/read_machine.hpp"

namespace lockstep::test {
namespace {

// Returns values of which some are rounded away beside others, and some are no numbers.
template <class T>
std::vector<T> values_of(int member, std::size_t count) {
  std::vector<T> all(count);
  for (std::size_t i = 0; i < count; ++i) {
    const auto mixed = static_cast<std::uint32_t>(i * 2'654'435'761U + static_cast<unsigned>(member) * 40'503U);
    const float value = std::bit_cast<float>(mixed);
    if constexpr (std::is_integral_v<T>)
      all[i] = static_cast<T>(mixed);
    else
      all[i] = T(mixed % 7 == 0 ? value : static_cast<float>(mixed >> 8U) / 65'536.F);
  }
  return all;
}

// Combines by one operation. Returns false if the algorithm does not suit it.
template <class T, class Op>
bool combine(Communicator& world, const std::string& algorithm, Op op, std::size_t count) {
  std::vector<T> data = values_of<T>(world.rank(), count);
  try {
    if (world.plan_all_reduce(data, op).algorithm() != algorithm) return false;
  } catch (const Error&) {
    return false;
  }
  world.all_reduce(data, op);
  std::vector<std::uint64_t> hashes(static_cast<std::size_t>(world.size()));
  const std::uint64_t mine = hash(std::as_bytes(std::span(data)));
  world.all_gather(std::span(&mine, 1), hashes);
  for (const std::uint64_t each : hashes)
    EXPECT_EQ(each, hashes.front()) << to_string(Op::op) << " of " << count << ' ' << to_string(data_type_of<T>);
  return true;
}

template <class T>
bool combine_all(Communicator& world, const std::string& algorithm) {
  bool has_run = false;
  for (const std::size_t count : {std::size_t{1}, std::size_t{4099}}) {
    const auto run = [&](auto... ops) { ((has_run |= combine<T>(world, algorithm, ops, count)), ...); };
    run(sum, avg, min, max, prod);
  }
  return has_run;
}

template <class... T>
bool combine_types(Communicator& world, const std::string& algorithm) {
  return (... + static_cast<int>(combine_all<T>(world, algorithm))) > 0;  // runs all of them
}

TEST(AllReduces, GiveTheSameBytesOnAllMembersByEveryAlgorithm) {
  std::set<std::string> names{std::string(node_algorithm)};
  for (const Algorithm& each : algorithms()) {
    if (each.collective == Collective::all_reduce) names.emplace(each.name);
  }
  EXPECT_GT(names.size(), 10U);
  const auto racks = std::make_shared<const Topology>(
      topology_from_description("4 x node(core:2 pu:1)", 2).with_racks({"a", "a", "b", "b"}, 0));
  for (const std::string& name : names) {
    std::mutex mutex;
    bool has_run = false;
    const auto body = [&](Communicator& world) {
      const testing::ScopedTrace trace(__FILE__, __LINE__, text(name, " of ", world.size()));
      const bool mine =
          sanitized ? combine_types<f16, std::int32_t>(world, name)  // Sanitizers take many times as long.
                    : combine_types<f16, bf16, float, double, std::int8_t, std::int16_t, std::int32_t, std::int64_t,
                                    std::uint8_t, std::uint16_t, std::uint32_t, std::uint64_t>(world, name);
      const std::lock_guard lock(mutex);
      has_run |= mine;
    };
    CommunicatorOptions options;
    options.algorithm = text("all_reduce:", name);
    for (const std::shared_ptr<const Topology>& topology : {local_topology(3), racks})
      run_members(topology, body, options, {}, Log(LogLevel::error));
    EXPECT_TRUE(has_run) << name;
  }
}

}  // namespace
}  // namespace lockstep::test
