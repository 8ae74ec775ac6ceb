// SPDX-License-Identifier: Apache-2.0
// Wrong uses of strategies, values and variables, each with what is said of it, where no other test has them. A row is
// one of the errors that the reference's documents and sources name.
#include <gtest/gtest.h>

#include "runtime/cluster/resolver.hpp"
#include "runtime/cross_device_ops.hpp"
#include "runtime/default_strategy.hpp"
#include "runtime/extended.hpp"
#include "tests/runtime/quick.hpp"
#include "tests/runtime/variable_case.hpp"
#include "tests/support/refusal.hpp"

namespace lockstep::test {
namespace {

using Ones = PerReplica<Tensor<float>>;

struct Row {
  std::string_view name;
  std::string_view words;
  // Of two replicas; the scope is that of the strategy.
  std::function<void(Strategy&)> use;
};
void PrintTo(const Row& row, std::ostream* out) { *out << row.name; }

// In both replicas.
template <class F>
std::function<void(Strategy&)> in_replicas(F use) {
  return [use](Strategy& strategy) { strategy.run([&](ReplicaContext& context) { use(strategy, context); }); };
}
// Of a variable in the strategy's scope; outside of replicas, and in them.
template <class F>
std::function<void(Strategy&)> of(VariableOptions options, F use) {
  return [=](Strategy& strategy) {
    const Scope scope = strategy.scope();
    Variable<float> v(row({1.F, 2.F}), options);
    use(v);
  };
}
template <class F>
std::function<void(Strategy&)> of_in_replicas(VariableOptions options, F use) {
  return [=](Strategy& strategy) {
    const Scope scope = strategy.scope();
    Variable<float> v(row({1.F, 2.F}), options);
    strategy.run([&](ReplicaContext& context) { use(v, context); });
  };
}

const Row table[] = {
    // Contexts.
    {"gather_in_a_replica", "use the context's all_gather()", in_replicas([](Strategy& strategy, ReplicaContext&) {
       static_cast<void>(strategy.gather(Ones{1.F, 2.F}, 0));
     })},
    {"update_in_a_replica", "update requires being in cross-replica context",
     of_in_replicas(written(Aggregation::none),
                    [](auto& v, ReplicaContext& context) { context.strategy().update(v, [](Variable<float>&) {}); })},
    {"broadcast_in_a_replica", "broadcast requires being in cross-replica context",
     in_replicas([](Strategy& strategy, ReplicaContext&) {
       static_cast<void>(strategy.extended().broadcast_to(Tensor<float>(1.F)));
     })},
    {"set_strategy_in_a_scope", "set_strategy must not be called inside a strategy's scope",
     [](Strategy& strategy) {
       const Scope scope = strategy.scope();
       set_strategy(&strategy);
     }},
    {"the_context_of_another_replica", "mismatching ReplicaContext",
     in_replicas([](Strategy& strategy, ReplicaContext& context) {
       static_cast<void>(strategy.replica(1 - context.local_id()).all_reduce(1, sum));
     })},
    {"merge_call_of_one", "has returned while", in_replicas([](Strategy&, ReplicaContext& context) {
       if (context.local_id() == 0) context.merge_call([](Strategy&) {});
     })},
    {"a_collective_more", "make the same calls in all replicas", in_replicas([](Strategy&, ReplicaContext& context) {
       if (context.local_id() == 0) static_cast<void>(context.all_reduce(1, sum));
     })},
    {"shapes_that_differ_in_a_collective", "3 f32", in_replicas([](Strategy&, ReplicaContext& context) {
       std::vector<float> value(static_cast<std::size_t>(context.local_id() + 2));
       context.all_reduce(value, sum);
     })},
    // Values and reductions.
    {"a_value_of_all_replicas_in_one", "takes a Mirrored value in a replica",
     of_in_replicas(written(Aggregation::sum),
                    [](auto& v, ReplicaContext&) {
                      v.assign_add(Mirrored<Tensor<float>>{row({1.F, 2.F})});
                    })},
    {"a_view_of_parts_that_are_combined", "view() of variable",
     of({.synchronization = Synchronization::on_read}, [](auto& v) { static_cast<void>(v.view()); })},
    {"a_change_of_another_shape", "would change the shape of a from (2,) to (3, 2)",
     of(written(Aggregation::none),
        [](auto& v) {
          v += Tensor<float>(TensorShape{3, 2});
        })},
    {"an_axis_that_is_not_there", "there is no axis 1",
     [](Strategy& strategy) {
       static_cast<void>(strategy.reduce("SUM", Ones{row({1.F}), row({2.F})}, 1));
     }},
    {"results_of_different_forms", "let all replicas return values of the same structure",
     [](Strategy& strategy) {
       strategy.run([](ReplicaContext& context) {
         return std::vector<std::vector<int>>(static_cast<std::size_t>(context.local_id()));
       });
     }},
    // Variables.
    {"an_assignment_for_all_in_update", "is for all replicas, and was called in one, or in update()",
     of_in_replicas(written(Aggregation::sum), [](auto& v, ReplicaContext&) { v.check_sync(); })},
    {"a_row_that_is_not_there", "there is no row 2",
     of(written(Aggregation::none), [](auto& v) { v.scatter_add(rows({1.F}, {2}, 2)); })},
    // Devices, operations, clusters.
    {"a_negative_number_of_packs", "NcclAllReduce with num_packs -1", [](Strategy&) { NcclAllReduce(-1); }},
    {"no_such_job", "'chief'",
     [](Strategy&) {
       static_cast<void>(ClusterSpec({{"worker", {"host:1"}}}).num_tasks("chief"));
     }},
    {"a_task_beyond_the_last", "3",
     [](Strategy&) {
       check_roles({{"worker", {"host:1"}}}, Task{"worker", 3});
     }},
};

class Refusals : public testing::TestWithParam<Row> {};

TEST_P(Refusals, NameTheMistakeAndTheRemedy) {
  MirroredStrategy strategy(2, quick());
  const std::string words = refusal([&] { GetParam().use(strategy); }, {Code::usage, Code::mismatch, Code::cluster,
                                                                        Code::replica_failed, Code::peer_failed});
  EXPECT_NE(words.find(GetParam().words), std::string::npos) << words;
  EXPECT_NE(words.find(" -> "), std::string::npos) << "no remedy: " << words;
  // And nothing is left of it: neither a scope nor a broken strategy.
  EXPECT_FALSE(has_strategy());
  EXPECT_EQ(strategy.run([](ReplicaContext& context) { return context.all_reduce(1, sum); })[1], 2);
}

INSTANTIATE_TEST_SUITE_P(, Refusals, testing::ValuesIn(table),
                         [](const auto& each) { return std::string(each.param.name); });

static_assert(!std::is_copy_constructible_v<MirroredStrategy> && !std::is_copy_assignable_v<MirroredStrategy>);

}  // namespace
}  // namespace lockstep::test
