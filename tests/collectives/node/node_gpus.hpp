// SPDX-License-Identifier: Apache-2.0
// Members in a room, in one thread, whose data are in the memory of GPUs of the tests' own making.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <set>

#include "tests/collectives/gpu/with_gpus.hpp"
#include "tests/collectives/node/node_case.hpp"

namespace lockstep::test {

using node::Gpus;
using Serials = std::vector<std::vector<std::string>>;

class NodeGpus : public WithGpus<2> {
 protected:
  // Which process each member is, all others.
  static std::vector<std::uint64_t> apart(int members) {
    std::vector<std::uint64_t> all(static_cast<std::size_t>(members));
    std::iota(all.begin(), all.end(), 1U);
    return all;
  }

  // `mixed`: the processes number the GPUs in different orders.
  static std::vector<std::unique_ptr<node::Room>> rooms_with_gpus(int members, bool mixed = false,
                                                                  const node::ProcessMemoryReader& reader = {}) {
    auto all = rooms(members, false, reader);
    Serials serials(all.size(), Gpus::serials());
    for (std::size_t m = 1; mixed && m < serials.size(); m += 2) std::ranges::reverse(serials[m]);
    for (int i = 0; i < members; ++i)
      all[static_cast<std::size_t>(i)]->gpus().share(Gpus::find(serials, i, apart(members)));
    return all;
  }

  // Where a member has its input and its output: on which GPU, or the host.
  struct Lies {
    int input = 0;
    int output = 0;
  };
  using Where = std::function<Lies(int member)>;

  // All of them, the next one to get on being drawn; before it does, `meanwhile`.
  static void run_there(std::vector<std::unique_ptr<node::Room>>& all, Case& one, std::mt19937& random,
                        const Where& where, const std::function<void(int)>& meanwhile = {}) {
    const auto members = static_cast<int>(all.size());
    std::vector<Member> crew(all.size());
    std::vector<DeviceVector<std::int32_t>> inputs(all.size());
    std::vector<DeviceVector<std::int32_t>> outputs(all.size());
    for (int i = 0; i < members; ++i) {
      const auto m = static_cast<std::size_t>(i);
      const Lies lies = where(i);
      if (lies.input >= 0 && !one.input[m].empty()) inputs[m] = DeviceVector<std::int32_t>(one.input[m], lies.input);
      if (lies.output >= 0 && !one.output[m].empty())
        outputs[m] = DeviceVector<std::int32_t>(one.output[m], lies.output);
      crew[m].plan = plan_of(one, i, members);
      crew[m].call = {.plan = {std::shared_ptr<void>(), &crew[m].plan},
                      .input = inputs[m].empty() ? one.input[m].data() : inputs[m].data(),
                      .output = outputs[m].empty() ? one.output[m].data() : outputs[m].data(),
                      .kernel = find_kernel(DataType::i32, ReduceOp::sum)};
    }
    std::set<std::size_t> begun;
    std::size_t left = all.size();
    for (std::size_t turns = 0; left > 0; ++turns) {
      ASSERT_LT(turns, 10'000'000U) << "nobody gets on";
      const std::size_t m = random() % all.size();
      Member& member = crew[m];
      if (begun.contains(m) && member.work.is_done()) continue;
      if (meanwhile) meanwhile(static_cast<int>(m));
      if (begun.insert(m).second)
        member.work.begin(*all[m], all[m]->tuning(), member.call, static_cast<const std::byte*>(member.call.input), 77,
                          all[m]->buffers().queries());
      member.work.advance({});
      if (member.work.is_done()) --left;
    }
    for (std::size_t m = 0; m < all.size(); ++m) {
      if (!outputs[m].empty()) outputs[m].copy_to(one.output[m]);
    }
  }
};

}  // namespace lockstep::test
