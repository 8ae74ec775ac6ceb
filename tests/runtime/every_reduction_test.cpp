// SPDX-License-Identifier: Apache-2.0
// Values of all replicas combined, under every strategy and layout: means, slices, and structures of both; reduced by
// the replicas, by the strategy, and by the verbs of extended(); and structures told by replica.
#include <complex>

#include "runtime/any_tensor.hpp"
#include "runtime/extended.hpp"
#include "tests/runtime/layouts.hpp"
#include "tests/support/holds.hpp"
#include "tests/support/refusal.hpp"
#include "topology/base/text.hpp"

namespace lockstep::test {
namespace {

using Slices = IndexedSlices<float>;
using Words = std::map<std::string, float>;

Slices slices(std::vector<float> values, std::vector<std::int64_t> indices, std::int64_t rows) {
  const auto number = static_cast<std::int64_t>(values.size());
  return {Tensor<float>({number, 1}, std::move(values)), std::move(indices), TensorShape({rows, 1})};
}
Tensor<float> dense(const Slices& some) {
  Tensor<float> whole(some.dense_shape());
  some.scatter(whole, [](float& element, float by) { element += by; });
  return whole;
}
// One column, of zeros but for one row.
Tensor<float> one_row(std::int64_t rows, std::size_t which, float value) {
  Tensor<float> whole(TensorShape({rows, 1}), 0.F);
  whole[which] = value;
  return whole;
}

class Combined : public EveryLayout {
 protected:
  const float n = static_cast<float>(size());
  template <class F>
  auto by_number(F&& function) {
    return strategy->distribute_values_from([&](ValueContext at) { return function(at.replica_id_in_sync_group); });
  }
  // Of what each replica has, one after the other.
  template <class F>
  Slices all_of(F&& function) const {
    std::vector<float> values;
    std::vector<std::int64_t> indices;
    for (int i = 0; i < size(); ++i) {
      const Slices each = function(i);
      values.insert(values.end(), each.values().begin(), each.values().end());
      indices.insert(indices.end(), each.indices().begin(), each.indices().end());
    }
    return slices(values, indices, function(0).dense_shape()[0]);
  }
};

TEST_P(Combined, MeansAndSumsInReplicasUseTheirOwnValues) {
  const auto mine = [](int i) {
    const auto id = static_cast<float>(i);
    return std::pair(1 + 2 * id, std::vector{39 - 36 * id, 2 + 39 * id});
  };
  const auto all = strategy->run([&](ReplicaContext& context) {
    auto mean = mine(context.replica_id_in_sync_group());
    auto total = mean;
    context.all_reduce(mean, avg);
    context.all_reduce(total, sum);
    return std::tuple(mean.first, mean.second, total.first, total.second);
  });
  const auto& [mean, means, total, totals] = all;
  const auto ids = static_cast<float>(sum_of_ids());
  for (int i = 0; i < mean.size(); ++i) {
    EXPECT_EQ(total[i], n + 2 * ids);
    EXPECT_EQ(totals[i], (std::vector{39 * n - 36 * ids, 2 * n + 39 * ids}));
    EXPECT_FLOAT_EQ(mean[i], (n + 2 * ids) / n);
    EXPECT_FLOAT_EQ(means[i][0], (39 * n - 36 * ids) / n);
    EXPECT_FLOAT_EQ(means[i][1], (2 * n + 39 * ids) / n);
    if (size() != 2) continue;
    EXPECT_EQ(std::tuple(mean[i], means[i]), std::tuple(2.F, std::vector{21.F, 21.5F}));
    EXPECT_EQ(std::tuple(total[i], totals[i]), std::tuple(4.F, std::vector{42.F, 43.F}));
  }
}

TEST_P(Combined, NumbersThatAreAllAlikeAreSummedAndAveraged) {
  const auto all = strategy->run([](ReplicaContext& context) {
    std::tuple both(1.0, 2.0);
    std::tuple means(1.0, 2.0);
    context.all_reduce(both, sum);
    context.all_reduce(means, avg);
    return std::tuple(context.all_reduce(1.0, sum), context.all_reduce(1.0, avg), both, means);
  });
  for (int i = 0; i < strategy->num_local_replicas(); ++i)
    EXPECT_EQ(select_replica(i, all),
              std::tuple(size(), 1.0, std::tuple(1.0 * size(), 2.0 * size()), std::tuple(1.0, 2.0)));
}

TEST_P(Combined, ReductionsReturnTheirData) {
  const auto all = strategy->run([&](ReplicaContext& context) {
    std::vector<float> mine{1.F, 2.F};
    std::vector<float>& same = context.all_reduce(mine, sum);
    EXPECT_EQ(&same, &mine);
    const auto [a, b] = context.all_reduce(std::pair(1.0, row({2, 3})), "sum");
    EXPECT_EQ(context.all_reduce(f16(1.F), "MAX"), f16(1.F));
    EXPECT_EQ(context.all_reduce(std::optional(2.0), NamedOp("MEAN")), 2.0);
    EXPECT_EQ(dense(context.all_reduce(slices({1}, {0}, 5), "SUM")), one_row(5, 0, n));
    std::complex<float> turned(0, 1);
    context.all_reduce(std::span(&turned, 1), "PROD");
    const std::complex<float> turns[] = {{1, 0}, {0, 1}, {-1, 0}, {0, -1}};
    EXPECT_EQ(turned, turns[size() % 4]);
    return std::tuple(context.all_reduce(std::vector{1.F}, "SUM")[0], same, a, b);
  });
  for (int i = 0; i < strategy->num_local_replicas(); ++i) {
    EXPECT_EQ(select_replica(i, all),
              std::tuple(n, std::vector({n, 2 * n}), 1.0 * size(), row({2 * size(), 3 * size()})));
  }
  end_calls();
  const std::string words = refusal(
      [&] {
        strategy->run([](ReplicaContext& context) {
          std::vector<std::complex<float>> pairs(2);
          context.all_reduce(pairs, "MAX");
        });
      },
      {Code::usage, Code::replica_failed, Code::peer_failed});
  EXPECT_PRED2(holds, words, "no max");
  EXPECT_EQ(strategy->run([](ReplicaContext& context) { return context.all_reduce(1, sum); })[0], size());
}

TEST_P(Combined, TensorsWhoseTypeIsKnownAtRunTimeAreToo) {
  const auto all = strategy->run([&](ReplicaContext& context) {
    const int id = context.replica_id_in_sync_group();
    AnyTensor number = Tensor<float>({2, 1}, {1.F, 2.F});
    const AnyTensor before = number.copy_at(number.location());
    std::vector<AnyTensor> both{number, Tensor<std::int64_t>(std::int64_t{id})};
    context.all_reduce(both, sum);
    EXPECT_EQ(number.to<float>(), Tensor<float>({2, 1}, {n, 2 * n}));  // which shares the memory
    AnyTensor flags = row({id == 0, false});
    context.broadcast(flags, 0);
    EXPECT_EQ(flags.to<bool>(), row({true, false}));
    context.broadcast(both[1], size() - 1);
    return std::pair(context.all_reduce(before, max), both[1]);
  });
  const auto& [first, second] = all;
  EXPECT_EQ(strategy->reduce("SUM", first).template to<float>(), Tensor<float>({2, 1}, {n, 2 * n}));
  EXPECT_EQ(first[0].template to<float>(), Tensor<float>({2, 1}, {1.F, 2.F}));  // as they were
  EXPECT_EQ(second[0].template span<std::int64_t>()[0], sum_of_ids());
  EXPECT_PRED2(holds, refusal([&, &whole = second] { strategy->reduce("MEAN", whole); }, Code::usage),
               "the mean of integers");
}

TEST_P(Combined, PlainAndCommonValuesHaveAMeanButNoSum) {
  const Tensor<double> plain = row({0.1, 0.7});
  EXPECT_EQ(strategy->reduce("MEAN", plain), plain);
  EXPECT_EQ(strategy->reduce(max, plain), plain);
  const auto summed = [&](auto value) { return refusal([&] { strategy->reduce("SUM", value); }, Code::usage); };
  if (size() == 1) {
    EXPECT_EQ(strategy->reduce("SUM", plain), plain);
  } else {
    EXPECT_PRED2(holds, summed(plain), "cannot be reduced with the given reduce op SUM");
  }
  // Three times 0.1, divided by three, is another number.
  const Mirrored<Tensor<double>> common = strategy->extended().broadcast_to(plain);
  EXPECT_EQ(strategy->reduce("MEAN", common), plain);
  EXPECT_DOUBLE_EQ(strategy->reduce("SUM", common)[0], 0.1 * size());
  for (const auto& [op, value] : {std::pair("MEAN", 1), {"mean", 3}}) {
    const PerReplica<int> whole = by_number([v = value](int) { return v; });
    EXPECT_PRED2(holds, refusal([&, name = op] { strategy->reduce(name, whole); }, Code::usage),
                 "the mean of integers");
  }
  const auto rows = by_number([](int) { return row({1, 2}); });
  EXPECT_PRED2(holds, refusal([&] { strategy->reduce("MEAN", rows, 0); }, Code::usage), "cast<double>(tensor)");
}

TEST_P(Combined, PartsOfVariablesAreReduced) {
  const Scope scope = strategy->scope();
  const Variable<float> mirrored(row({2.F, 3.F}));
  EXPECT_EQ(strategy->reduce("MEAN", mirrored), row({2.F, 3.F}));
  if (size() > 1 && strategy->variable_layout({}).is_shared)
    EXPECT_PRED2(holds, refusal([&] { strategy->reduce("SUM", mirrored); }, Code::usage), "cannot be reduced");
  else
    EXPECT_EQ(strategy->reduce("SUM", mirrored), row({2 * n, 3 * n}));
  Variable<double> seen(0.0, {.synchronization = Synchronization::on_read});
  strategy->run([&](ReplicaContext& context) { seen.assign(1.0 + context.replica_id_in_sync_group()); });
  EXPECT_EQ(strategy->reduce("SUM", seen).item(), size() + sum_of_ids());
  EXPECT_EQ(strategy->reduce("MAX", seen).item(), size());
  EXPECT_DOUBLE_EQ(strategy->reduce("MEAN", seen).item(), 1.0 + 1.0 * sum_of_ids() / size());
}

TEST_P(Combined, SlicesInReplicasStaySlices) {
  const auto all = strategy->run([](ReplicaContext& context) {
    return std::pair(context.all_reduce(slices({1}, {0}, 5), avg), context.all_reduce(slices({1}, {0}, 5), sum));
  });
  for (int i = 0; i < strategy->num_local_replicas(); ++i) {
    EXPECT_EQ(std::get<0>(all)[i].indices().size(), static_cast<std::size_t>(size()));
    EXPECT_FLOAT_EQ(dense(std::get<0>(all)[i])[0], 1);
    EXPECT_EQ(dense(std::get<1>(all)[i]), one_row(5, 0, n));
  }
}

TEST_P(Combined, StructuresMayHaveSlicesInThem) {
  const auto all = strategy->run([](ReplicaContext& context) {
    std::tuple mixed(1.F, slices({1}, {0}, 5), 2.F, std::vector{slices({2}, {1}, 5)});
    std::tuple means(slices({1}, {0}, 5), 1.F, slices({3}, {2}, 5), 2.F);
    std::vector sparse{slices({1}, {0}, 5), slices({2}, {0}, 5)};
    context.all_reduce(mixed, sum);
    context.all_reduce(means, avg);
    context.all_reduce(sparse, sum);
    std::get<3>(mixed).push_back(sparse[0]);
    std::get<3>(mixed).push_back(sparse[1]);
    return std::tuple(mixed, means);
  });
  for (int i = 0; i < strategy->num_local_replicas(); ++i) {
    const auto [mixed, means] = select_replica(i, all);
    EXPECT_EQ(std::tuple(std::get<0>(mixed), std::get<2>(mixed)), std::tuple(n, 2 * n));
    EXPECT_EQ(dense(std::get<1>(mixed)), one_row(5, 0, n));
    EXPECT_EQ(dense(std::get<3>(mixed)[0]), one_row(5, 1, 2 * n));
    EXPECT_EQ(dense(std::get<3>(mixed)[1]), one_row(5, 0, n));
    EXPECT_EQ(dense(std::get<3>(mixed)[2]), one_row(5, 0, 2 * n));
    EXPECT_FLOAT_EQ(dense(std::get<0>(means))[0], 1);
    EXPECT_EQ(std::tuple(std::get<1>(means), std::get<3>(means)), std::tuple(1.F, 2.F));
    EXPECT_FLOAT_EQ(dense(std::get<2>(means))[2], 3);
  }
}

TEST_P(Combined, SlicesAreReducedToDevicesOneAfterTheOther) {
  const auto mine = [](int i) {
    const auto id = static_cast<float>(i);
    const std::int64_t rows[][2] = {{0, 1}, {1, 2}, {7, 8}, {3, 2}};
    return slices({2 * id + 1, 2 * id + 2}, {rows[i % 4][0], rows[i % 4][1]}, 10);
  };
  const auto longer = [](int i) { return i == 0 ? slices({1}, {0}, 30) : slices({2, 3, 4}, {0, 1, 2}, 30); };
  const auto found = strategy->extended().reduce_to("SUM", by_number(mine));
  ASSERT_EQ(found.size(), strategy->num_local_replicas());
  for (const Slices& each : found.local()) EXPECT_EQ(each, all_of(mine));
  EXPECT_EQ(strategy->extended().reduce_to("sum", by_number(longer), {strategy->devices()[0]}).local(),
            std::deque{all_of(longer)});
  Tensor<float> averaged = dense(all_of(mine));
  const Tensor<float> means = dense(strategy->extended().reduce_to("MEAN", by_number(mine)).value());
  for (std::size_t i = 0; i < averaged.size(); ++i) EXPECT_FLOAT_EQ(means[i], averaged[i] / n);
}

// A batch is of one kind: numbers and slices are two batches.
TEST_P(Combined, BatchesOfSlicesAreReducedEachByItself) {
  const auto one = [](int i) { return i % 2 == 0 ? slices({1, 2}, {0, 1}, 10) : slices({5, 6}, {1, 2}, 10); };
  const auto other = [](int i) { return i % 2 == 0 ? slices({3, 4}, {1, 2}, 20) : slices({7, 8}, {0, 1}, 20); };
  const auto found = strategy->extended().batch_reduce_to<float>(
      "SUM", {{by_number(one), {}}, {by_number(other), {strategy->devices()[0]}}});
  ASSERT_EQ(found.size(), 2U);
  EXPECT_EQ(found[0].size(), strategy->num_local_replicas());
  EXPECT_EQ(found[0].value(), all_of(one));
  EXPECT_EQ(found[1].local(), std::deque{all_of(other)});
  const auto number = [&](float of_first) {
    return by_number([=](int i) { return Tensor<float>(i % 2 == 0 ? of_first : of_first + 2); });
  };
  const auto dense_ones = strategy->extended().batch_reduce_to<float>("SUM", {{number(1), {}}, {number(2), {}}});
  const auto odd = static_cast<float>(size() / 2);
  EXPECT_EQ(dense_ones[0].value().item(), n + 2 * odd);
  EXPECT_EQ(dense_ones[1].value().item(), 2 * n + 2 * odd);
}

TEST_P(Combined, SlicesThatDoNotFitAreRefusedAtAll) {
  const auto alike = by_number([](int) { return slices({1}, {0}, 5); });
  EXPECT_PRED2(holds, refusal([&] { strategy->extended().reduce_to("MAX", alike); }, Code::usage),
               "slices are reduced by");
  if (size() == 1) return;
  const auto unlike = by_number([](int i) { return slices({1}, {0}, i == 0 ? 5 : 6); });
  EXPECT_PRED2(holds, refusal([&] { strategy->extended().reduce_to("SUM", unlike); }, Code::usage),
               "slices of tensors of the shapes ");
  EXPECT_EQ(dense(strategy->extended().reduce_to("SUM", alike).value()), one_row(5, 0, n)) << "and all go on";
}

TEST_P(Combined, ResultsOfRunAreReducedLeafByLeaf) {
  const auto all = strategy->run([](ReplicaContext& context) {
    const Words words{{"id", static_cast<float>(context.replica_id_in_sync_group())}};
    return std::tuple(3.F + 1.F, 3.F - 1.F, words, std::vector{row({1.F, 2.F})});
  });
  EXPECT_EQ(strategy->reduce("SUM", all),
            std::tuple(4 * n, 2 * n, Words{{"id", static_cast<float>(sum_of_ids())}}, std::vector{row({n, 2 * n})}));
  const auto means = strategy->reduce("MEAN", std::pair(std::get<0>(all), std::get<1>(all)));
  EXPECT_EQ(means, std::pair(4.F, 2.F));
  const auto unlike = strategy->run([](ReplicaContext& context) {
    return std::tuple(Tensor<int>(context.local_id() == 0 ? TensorShape{2, 3} : TensorShape{3, 2}));
  });
  if (strategy->num_local_replicas() == 1) return;
  EXPECT_PRED2(holds, refusal([&] { strategy->reduce("SUM", unlike); }, Code::usage), "tensors of the shapes");
}

TEST_P(Combined, LocalResultsAreEachReplicasOwnStructure) {
  const auto one = [](int i) {
    const auto id = static_cast<float>(i);
    return std::tuple(Words{{"a", id + 1}, {"b", id + 2}}, std::vector{Tensor<float>(1.F), Tensor<float>(id)}, 3.F);
  };
  const auto all = strategy->run([&](ReplicaContext& context) { return one(context.replica_id_in_sync_group()); });
  const auto found = strategy->local_results(all);
  ASSERT_EQ(static_cast<int>(found.size()), strategy->num_local_replicas());
  for (int i = 0; i < strategy->num_local_replicas(); ++i)
    EXPECT_EQ(found[static_cast<std::size_t>(i)], one(first() + i));
  const Words ab[] = {{{"a", 1}, {"b", 2}}, {{"a", 4}, {"b", 6}}};
  const auto pairs = strategy->local_results(strategy->run([&] { return std::pair(ab[0], ab[1]); }));
  EXPECT_EQ(pairs, std::vector(pairs.size(), std::tuple(ab[0], ab[1])));
  EXPECT_EQ(pairs.size(), found.size());
  const auto tensors = strategy->local_results(strategy->run([] { return row({2.F, 3.F}); }));
  EXPECT_EQ(tensors, std::vector(found.size(), row({2.F, 3.F})));
  EXPECT_EQ(strategy->local_results(std::pair(1, 2.F)), std::vector(1, std::pair(1, 2.F))) << "no replica's own";
}

TEST_P(Combined, ValuesByNumberMayBeTensorsAndTuples) {
  const auto same = by_number([](int) { return row({1.F, 2.F, 3.F}); });
  EXPECT_EQ(same, PerReplica(std::deque(static_cast<std::size_t>(same.size()), row({1.F, 2.F, 3.F}))));
  EXPECT_EQ(strategy->gather(same, 0).shape(), TensorShape{3 * size()});
  const auto tuples = by_number([](int) { return std::tuple(1.F, 2.F, 3.F); });
  EXPECT_EQ(strategy->local_results(tuples),
            std::vector(static_cast<std::size_t>(strategy->num_local_replicas()), std::tuple(1.F, 2.F, 3.F)));
  const auto own = by_number([](int i) { return std::tuple(1 * i, 2 * i, 3 * i); });
  const auto sums =
      strategy->run([](const std::tuple<int, int, int>& mine) { return std::get<2>(mine) - std::get<0>(mine); }, own);
  for (int i = 0; i < own.size(); ++i) {
    const int id = first() + i;
    EXPECT_EQ(own[i], std::tuple(id, 2 * id, 3 * id));
    EXPECT_EQ(sums[i], 2 * id);
  }
}

INSTANTIATE_TEST_SUITE_P(, Combined, testing::ValuesIn(layouts()), [](const auto& one) { return one.param.name; });

}  // namespace
}  // namespace lockstep::test
