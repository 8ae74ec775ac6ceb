// SPDX-License-Identifier: Apache-2.0
// Operations that a program chooses, and slices that are many, under every strategy and layout.
#include <algorithm>
#include <cmath>

#include "runtime/extended.hpp"
#include "tests/runtime/layouts.hpp"
#include "tests/support/refusal.hpp"

namespace lockstep::test {
namespace {

using LevelTraffic = HierarchicalCopyAllReduce::LevelTraffic;

class Operations : public EveryLayout {
 protected:
  const int local = strategy->num_local_replicas();

  // Of each replica 1, 2, 3, ... times its number and one.
  PerReplica<Tensor<float>> values(std::int64_t count) {
    return strategy->distribute_values_from([=](ValueContext at) {
      Tensor<float> all(TensorShape{count});
      for (std::size_t i = 0; i < all.size(); ++i)
        all[i] = static_cast<float>(i + 1) * static_cast<float>(at.replica_id_in_sync_group + 1);
      return all;
    });
  }
  // Told to all by the process that has it.
  std::string device_of(int replica) {
    std::vector<std::int32_t> letters;
    strategy->run([&](ReplicaContext& context) {
      std::vector<std::int32_t> told(200, ' ');
      const std::string mine = strategy->devices()[static_cast<std::size_t>(context.local_id())];
      if (context.replica_id_in_sync_group() == replica) std::ranges::copy(mine, told.begin());
      context.broadcast(told, replica);
      if (context.local_id() == 0) letters = told;
    });
    std::string name;
    for (const int letter : letters) name += static_cast<char>(letter);
    return name.erase(name.find_last_not_of(' ') + 1);
  }
  void expect_sums(const Mirrored<Tensor<float>>& sums, std::size_t count, float over = 1) const {
    ASSERT_EQ(sums.size(), local);
    const auto all = static_cast<float>(size() * (size() + 1) / 2) / over;
    for (const Tensor<float>& each : sums.local()) {
      ASSERT_EQ(each.size(), count);
      for (std::size_t i = 0; i < count; ++i) EXPECT_FLOAT_EQ(each[i], static_cast<float>(i + 1) * all);
    }
  }
};

TEST_P(Operations, GoLevelByLevel) {
  const auto ops = std::make_shared<HierarchicalCopyAllReduce>(0);
  HierarchicalCopyAllReduce another(0);
  if (local < size()) {  // made without them, and several replicas in some process: all as one
    expect_sums(another.reduce(*strategy, "SUM", values(100), {}), 100);
  }
  strategy.reset();
  strategy = GetParam().with(ops);
  expect_sums(strategy->extended().reduce_to("SUM", values(100)), 100);
  std::uint64_t within = 0;
  std::uint64_t beyond = 0;
  for (const LevelTraffic& each : ops->traffic()) (each.level == "processes" ? beyond : within) += each.bytes;
  // Each replica but one of this process once up, once down; of this process one value, whatever its replicas.
  EXPECT_EQ(within, size() == 1 ? 0U : static_cast<unsigned>(local - 1) * 2 * 400);
  EXPECT_EQ(beyond, is_in_one_process() ? 0U : 2 * 400U);
  std::vector<std::pair<PerReplica<Tensor<float>>, Destinations>> many;
  for (const std::int64_t count : {5, 0, 33, 1}) many.emplace_back(values(count), Destinations());
  const auto means = strategy->extended().batch_reduce_to("MEAN", many);
  ASSERT_EQ(means.size(), 4U);
  for (std::size_t i = 0; i < means.size(); ++i)
    expect_sums(means[i], many[i].first[0].size(), static_cast<float>(size()));
  const Tensor<float> most = strategy->extended().reduce_to("MAX", values(3)).value();
  EXPECT_EQ(most[2], 3 * static_cast<float>(size()));
  const auto in_replicas = strategy->run([](ReplicaContext& context) { return context.all_reduce(1.F, sum); });
  EXPECT_EQ(in_replicas[0], static_cast<float>(size()));
}

TEST_P(Operations, ComeTogetherOnADeviceOfOnesChoice) {
  const int last = size() - 1;
  const std::string name = device_of(last);
  int calls = 0;
  ReductionToOneDevice there(name, [&](ReduceOp, const TensorViews& parts) {
    ++calls;
    for (std::size_t i = 1; i < parts.size(); ++i) {
      for (std::size_t j = 0; j < parts[0].count; ++j)
        static_cast<float*>(parts[0].data)[j] += static_cast<const float*>(parts[i].data)[j];
    }
  });
  expect_sums(there.reduce(*strategy, "SUM", values(9), {}), 9);
  EXPECT_EQ(calls, first() + local - 1 == last && size() > 1 ? 1 : 0) << name;
  ReductionToOneDevice first_one(first_device());
  expect_sums(first_one.reduce(*strategy, "SUM", values(9), {}), 9);
  if (size() == 1) return;
  ReductionToOneDevice nowhere("cpu:99");
  const std::string words = refusal([&] { nowhere.reduce(*strategy, "SUM", values(9), {}); }, Code::usage);
  EXPECT_NE(words.find("is on the device cpu:99"), std::string::npos) << words;
  expect_sums(there.reduce(*strategy, "SUM", values(9), {}), 9);
}

// On a process that does not have it the result has no part, and no process waits for another.
TEST_P(Operations, ResultsAreWhereOneReplicaIs) {
  const std::string name = device_of(size() - 1);
  const auto found = strategy->extended().reduce_to("SUM", values(2), {name});
  EXPECT_EQ(found.size(), first() + local == size() ? 1 : 0);
  const auto slices = strategy->distribute_values_from(
      [](ValueContext /*at*/) { return IndexedSlices<float>(Tensor<float>({1}, {1.F}), {0}, TensorShape({1})); });
  EXPECT_EQ(strategy->extended().reduce_to("SUM", slices, {name}).size(), found.size());
  if (first() == 0 && local > 0) {  // one process alone is wrong: the others have their result
    refusal([&] { strategy->extended().reduce_to("SUM", values(2), {"cpu:99"}); }, Code::usage);
    refusal([&] { strategy->extended().reduce_to("SUM", values(2), {"/task:99/cpu:0"}); }, Code::usage);
  } else {
    strategy->extended().reduce_to("SUM", values(2));
    strategy->extended().reduce_to("SUM", values(2));
  }
  EXPECT_EQ(strategy->extended().reduce_to("SUM", values(2)).size(), local);
}

TEST_P(Operations, TakeShortAndFullNamesOfDevices) {
  const auto short_name = strategy->extended().reduce_to("SUM", values(2), {first_device()});
  const auto whole_name = strategy->extended().reduce_to("SUM", values(2), {strategy->devices().front()});
  EXPECT_EQ(short_name.size(), 1);
  EXPECT_EQ(short_name.value(), whole_name.value());
}

// Of so many rows that the sums of whole tensors are less to move; each row that anybody had is there once.
TEST_P(Operations, ManySlicesAreAddedUp) {
  const auto mine = [](int id) {
    const auto value = static_cast<float>(id + 1);
    std::vector<float> values;
    std::vector<std::int64_t> indices;
    for (int i = 0; i < 9; ++i) {
      values.insert(values.end(), {value, static_cast<float>(i)});
      indices.push_back(i % 2 == 0 ? 3 : 1);
    }
    return IndexedSlices<float>(Tensor<float>({9, 2}, std::move(values)), std::move(indices), TensorShape({4, 2}));
  };
  const auto all = static_cast<float>(size() * (size() + 1) / 2);
  const auto n = static_cast<float>(size());
  // 5 times row 3 with 0 + 2 + 4 + 6 + 8, 4 times row 1 with 1 + 3 + 5 + 7.
  const IndexedSlices<float> sums(Tensor<float>({2, 2}, {4 * all, 16 * n, 5 * all, 20 * n}), {1, 3},
                                  TensorShape({4, 2}));
  const auto check = [&](const IndexedSlices<float>& found, float over) {
    if (size() > 1) {
      EXPECT_EQ(found.indices(), sums.indices());
    }
    const Tensor<float> whole = found.dense();
    const Tensor<float> wanted = sums.dense();
    for (std::size_t i = 0; i < whole.size(); ++i) EXPECT_FLOAT_EQ(whole[i], wanted[i] / over) << i;
  };
  const auto found = strategy->run([&](ReplicaContext& context) {
    const auto own = mine(context.replica_id_in_sync_group());
    return std::pair(context.all_reduce(own, sum), context.all_reduce(own, avg));
  });
  for (int i = 0; i < local; ++i) {
    check(std::get<0>(found)[i], 1);
    check(std::get<1>(found)[i], n);
  }
  const auto each =
      strategy->distribute_values_from([&](ValueContext at) { return mine(at.replica_id_in_sync_group); });
  check(strategy->extended().reduce_to("SUM", each).value(), 1);
  check(strategy->extended().reduce_to("MEAN", each).value(), n);
}

// What a variable is scattered by is never added up before: a row that comes twice is changed twice.
TEST_P(Operations, ManyRowsChangeAVariableOneByOne) {
  const Scope scope = strategy->scope();
  Variable<float> v(Tensor<float>({2}, {1.F, 1.F}), {.aggregation = Aggregation::sum});
  strategy->run([&] {
    v.scatter_mul(
        IndexedSlices<float>(Tensor<float>({5}, {2.F, 2.F, 2.F, 2.F, 2.F}), {1, 1, 1, 1, 1}, TensorShape({2})));
  });
  EXPECT_EQ(v.read()[0], 1);
  EXPECT_EQ(v.read()[1], std::ldexp(1.F, 5 * size()));
}

TEST_P(Operations, OptionsOfARunChangeNothing) {
  const auto ids = strategy->run(
      RunOptions{.experimental_xla_options = true},
      [](ReplicaContext& context, int by) { return by * context.local_id(); }, 3);
  for (int i = 0; i < local; ++i) EXPECT_EQ(ids[i], 3 * i);
}

INSTANTIATE_TEST_SUITE_P(, Operations, testing::ValuesIn(layouts()), [](const auto& one) { return one.param.name; });

}  // namespace
}  // namespace lockstep::test
