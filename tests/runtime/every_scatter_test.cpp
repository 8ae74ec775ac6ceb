// SPDX-License-Identifier: Apache-2.0
// Rows of variables changed in replicas, under every strategy and layout: each kind of change, by each replica's own
// rows, as the variable's aggregation says. What all of them give together is worked out here, element by element.
#include <algorithm>
#include <functional>

#include "tests/runtime/layouts.hpp"
#include "tests/runtime/variable_case.hpp"
#include "tests/support/refusal.hpp"

namespace lockstep::test {
namespace {

template <class T>
using Scatter = void (Variable<T>::*)(const IndexedSlices<T>&, Origin);
template <class T>
using List = std::vector<T>;
using Rows = List<std::int64_t>;

// What every replica changes, and one element changed by one of its values.
template <class T>
struct Change {
  Scatter<T> scatter;
  T (*changed)(T element, T by);
  Aggregation aggregation;
  List<T> begin;
  List<T> (*values)(int replica);
  Rows (*rows)(int replica);
  List<T> of_two;  // what two replicas make of it
};

Rows of_this(int replica) { return {replica}; }
Rows two_from(int replica) { return {replica, replica + 1}; }
Rows row_0(int /*replica*/) { return {0}; }
Rows row_1(int /*replica*/) { return {1}; }
// A replica's number, and so many more or less.
template <class T, int more>
List<T> number(int replica) {
  return {static_cast<T>(replica + more)};
}
List<float> two_numbers(int replica) { return {static_cast<float>(replica), static_cast<float>(replica + 1)}; }
List<int> one_less(int replica) { return {1 - replica}; }

constexpr Aggregation mean_of = Aggregation::mean;
constexpr Aggregation sum_of = Aggregation::sum;
constexpr Aggregation first_of = Aggregation::only_first_replica;

using V = Variable<float>;
const Change<float> of_floats[] = {
    {&V::scatter_sub, [](float a, float b) { return a - b; }, mean_of, {0, 0, 0}, two_numbers, two_from, {0, -1, -1}},
    {&V::scatter_mul,
     [](float a, float b) { return a * b; },
     mean_of,
     {2, 1, 1},
     number<float, 2>,
     of_this,
     {2, 1.5, 1}},
    {&V::scatter_add, [](float a, float b) { return a + b; }, sum_of, {1, 1, 1}, number<float, 2>, row_1, {1, 6, 1}},
};
using W = Variable<int>;
const Change<int> of_integers[] = {
    {&W::scatter_div, [](int a, int b) { return a / b; }, sum_of, {1, 6, 1}, number<int, 2>, of_this, {0, 2, 1}},
};
const Change<int> of_the_first[] = {
    {&W::scatter_min, [](int a, int b) { return std::min(a, b); }, first_of, {0, 2, 0}, one_less, row_1, {0, 1, 0}},
    {&W::scatter_max,
     [](int a, int b) { return std::max(a, b); },
     first_of,
     {0, 0, 0},
     number<int, 1>,
     row_0,
     {1, 0, 0}},
    {&W::scatter_update, [](int, int b) { return b; }, first_of, {0, 0, 0}, number<int, 3>, row_1, {0, 3, 0}},
};

// Of two rows each: the first two by replica 0, the last two by the others.
struct TwoRows {
  Scatter<float> scatter;
  List<float> begin;
  List<float> values_of_0;
  List<float> values_of_others;
  List<float> by_0;  // what replica 0 alone makes of it
};
const TwoRows of_all_kinds[] = {
    {&V::scatter_sub, {1, 1, 1}, {0, 1}, {1, 2}, {1, 0, 1}},    {&V::scatter_add, {1, 1, 1}, {0, 1}, {1, 2}, {1, 2, 1}},
    {&V::scatter_div, {2, 6, 1}, {2, 2}, {3, 3}, {1, 3, 1}},    {&V::scatter_mul, {2, 1, 1}, {2, 3}, {4, 5}, {4, 3, 1}},
    {&V::scatter_min, {3, 4, 5}, {1, 8}, {9, 2}, {1, 4, 5}},    {&V::scatter_max, {3, 4, 5}, {1, 8}, {9, 2}, {3, 8, 5}},
    {&V::scatter_update, {0, 0, 0}, {1, 2}, {3, 4}, {1, 2, 0}},
};

class Scatters : public EveryLayout {
 protected:
  Scope scope = strategy->scope();

  bool is_plain() const { return strategy->variable_layout({}).is_plain(); }
  bool is_central() const { return strategy->variable_layout({}).is_shared; }

  template <class T>
  void each_part_is(const Variable<T>& v, const List<T>& expected) const {
    for (const Tensor<T>& part : v.parts()) EXPECT_EQ(part, row(expected));
  }
  // As many rows as all replicas need.
  template <class T>
  List<T> begin_of(const Change<T>& change) const {
    List<T> all = change.begin;
    all.resize(static_cast<std::size_t>(std::max(3, size() + 1)), change.begin.back());
    return all;
  }
  // One replica's after the other.
  template <class T>
  List<T> expected_of(const Change<T>& change) const {
    List<T> all = begin_of(change);
    const bool of_first = change.aggregation == Aggregation::only_first_replica;
    for (int id = 0; id < (of_first ? 1 : size()); ++id) {
      const List<T> values = change.values(id);
      const Rows where = change.rows(id);
      for (std::size_t i = 0; i < values.size(); ++i) {
        T& element = all[static_cast<std::size_t>(where[i])];
        const T by = change.aggregation == Aggregation::mean ? values[i] / static_cast<T>(size()) : values[i];
        element = change.changed(element, by);
      }
    }
    return all;
  }
  template <class T>
  void scatter(Variable<T>& v, const Change<T>& change, int replica) const {
    (v.*change.scatter)({row(change.values(replica)), change.rows(replica), v.shape()}, Origin::here());
  }
  template <class T>
  void follow(const Change<T>& change) {
    Variable<T> v(row(begin_of(change)), {.name = "v", .aggregation = change.aggregation});
    strategy->run([&](ReplicaContext& context) { scatter(v, change, context.replica_id_in_sync_group()); });
    each_part_is(v, expected_of(change));
    if (size() == 2) each_part_is(v, change.of_two);
    v.check_sync();
  }
  // In every replica, before anything is begun together: none of them has failed.
  void are_refused(const std::function<void(int replica)>& call, std::string_view words) {
    const auto said = strategy->run([&](ReplicaContext& context) {
      return refusal([&] { call(context.replica_id_in_sync_group()); }, Code::usage);
    });
    for (const std::string& each : said.local()) EXPECT_NE(each.find(words), std::string::npos) << each;
  }
};

TEST_P(Scatters, InReplicasFollowTheAggregation) {
  for (const auto& change : of_floats) follow(change);
  for (const auto& change : of_integers) follow(change);
  for (const auto& change : of_the_first) follow(change);
}

TEST_P(Scatters, RefuseSumsForAssignments) {
  for (Change<int> change : of_the_first) {
    change.aggregation = Aggregation::sum;
    if (size() == 1) {
      follow(change);
      continue;
    }
    Variable<int> v(row(begin_of(change)), {.name = "v", .aggregation = change.aggregation});
    are_refused([&](int replica) { scatter(v, change, replica); },
                "in a replica this needs another aggregation than SUM");
    each_part_is(v, begin_of(change));
  }
}

TEST_P(Scatters, WithoutAnAggregationChangeTheirOwnPart) {
  V v(row({4.F}), written(Aggregation::none));
  if (is_central()) return are_refused([&](int) { v.scatter_add(rows({2}, {0}, 1)); }, "has no aggregation");
  const std::pair<Scatter<float>, float> steps[] = {
      {&V::scatter_sub, 2.F}, {&V::scatter_add, 4.F}, {&V::scatter_max, 4.F},   {&V::scatter_min, 2.F},
      {&V::scatter_mul, 4.F}, {&V::scatter_div, 2.F}, {&V::scatter_update, 2.F}};
  for (const auto& step : steps) {
    strategy->run([&] { (v.*step.first)(rows({2.F}, {0}, 1), Origin::here()); });
    each_part_is(v, {step.second});
  }
  strategy->run([&](ReplicaContext& context) {
    v.scatter_add(rows({static_cast<float>(context.replica_id_in_sync_group())}, {0}, 1));
  });
  for (std::size_t i = 0; i < v.parts().size(); ++i)
    EXPECT_EQ(v.parts()[i].item(), 2.F + static_cast<float>(first()) + static_cast<float>(i)) << "each its own";
}

// A plain variable has one part, which is written as any other.
TEST_P(Scatters, OfVariablesSynchronisedOnReadAreRefused) {
  for (const TwoRows& each : of_all_kinds) {
    for (const Aggregation aggregation : {Aggregation::mean, Aggregation::sum, Aggregation::only_first_replica}) {
      V v(row(each.begin), on_read(aggregation));
      const auto change = [&](int replica) {
        const bool is_0 = replica == 0;
        (v.*each.scatter)(rows(is_0 ? each.values_of_0 : each.values_of_others, is_0 ? Rows{0, 1} : Rows{1, 2}, 3),
                          Origin::here());
      };
      if (is_plain()) {
        strategy->run([&] { change(0); });
        each_part_is(v, each.by_0);
      } else {
        are_refused(change, "it is synchronised on read");
        each_part_is(v, each.begin);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(, Scatters, testing::ValuesIn(layouts()), [](const auto& one) { return one.param.name; });

}  // namespace
}  // namespace lockstep::test
