// SPDX-License-Identifier: Apache-2.0
// Wrong uses of strategies, values and variables, each with what is said of it. A row is one of the errors that the
// reference's documents and sources name.
#include <gtest/gtest.h>

#include "runtime/cluster/resolver.hpp"
#include "runtime/cross_device_ops.hpp"
#include "runtime/default_strategy.hpp"
#include "runtime/extended.hpp"
#include "runtime/rpc/rpc.hpp"
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
    {"run_in_a_replica", "requires being in cross-replica context, and was called in replica",
     in_replicas([](Strategy& strategy, ReplicaContext&) { strategy.run([] {}); })},
    {"reduce_in_a_replica", "reduce requires being in cross-replica context",
     in_replicas([](Strategy& strategy, ReplicaContext&) {
       strategy.reduce("SUM", PerReplica<int>{1, 2});
     })},
    {"gather_in_a_replica", "gather requires being in cross-replica context",
     in_replicas([](Strategy& strategy, ReplicaContext&) {
       static_cast<void>(strategy.gather(Ones{1.F, 2.F}, 0));
     })},
    {"update_in_a_replica", "update requires being in cross-replica context",
     of_in_replicas(written(Aggregation::none),
                    [](auto& v, ReplicaContext& context) { context.strategy().update(v, [](Variable<float>&) {}); })},
    {"values_in_a_replica", "distribute_values_from requires being in cross-replica context",
     in_replicas([](Strategy& strategy, ReplicaContext&) {
       static_cast<void>(strategy.distribute_values_from([](ValueContext) { return 1; }));
     })},
    {"broadcast_in_a_replica", "broadcast requires being in cross-replica context",
     in_replicas([](Strategy& strategy, ReplicaContext&) {
       static_cast<void>(strategy.extended().broadcast_to(Tensor<float>(1.F)));
     })},
    {"scopes_that_mix", "mixing different strategies: MirroredStrategy with 3 replicas is not MirroredStrategy with 2",
     [](Strategy& strategy) {
       MirroredStrategy other(3, quick());
       const Scope scope = strategy.scope();
       const Scope inner = other.scope();
     }},
    {"run_in_the_scope_of_another", "mixing different strategies",
     [](Strategy& strategy) {
       MirroredStrategy other(3, quick());
       const Scope scope = other.scope();
       strategy.run([] {});
     }},
    {"set_strategy_in_a_scope", "set_strategy must not be called inside a strategy's scope",
     [](Strategy& strategy) {
       const Scope scope = strategy.scope();
       set_strategy(&strategy);
     }},
    {"the_context_of_another_replica", "mismatching ReplicaContext",
     in_replicas([](Strategy& strategy, ReplicaContext& context) {
       static_cast<void>(strategy.replica(1 - context.local_id()).all_reduce(1, sum));
     })},
    {"a_context_in_merge_call", "mismatching ReplicaContext", in_replicas([](Strategy&, ReplicaContext& context) {
       context.merge_call([&](Strategy&) { static_cast<void>(context.all_reduce(1, sum)); });
     })},
    {"merge_call_of_one", "has returned while", in_replicas([](Strategy&, ReplicaContext& context) {
       if (context.local_id() == 0) context.merge_call([](Strategy&) {});
     })},
    {"merge_calls_at_two_places", "replicas are in merge_call at", in_replicas([](Strategy&, ReplicaContext& context) {
       if (context.local_id() == 0)
         context.merge_call([](Strategy&) {});
       else
         context.merge_call([](Strategy&) {});
     })},
    {"a_collective_more", "make the same calls in all replicas", in_replicas([](Strategy&, ReplicaContext& context) {
       if (context.local_id() == 0) static_cast<void>(context.all_reduce(1, sum));
     })},
    {"shapes_that_differ_in_a_collective", "3 f32", in_replicas([](Strategy&, ReplicaContext& context) {
       std::vector<float> value(static_cast<std::size_t>(context.local_id() + 2));
       context.all_reduce(value, sum);
     })},
    {"runs_that_nest", "while it runs", in_replicas([](Strategy&, ReplicaContext& context) {
       context.merge_call([](Strategy& strategy) { strategy.run([] {}); });
     })},
    // Values and reductions.
    {"a_sum_of_what_is_no_replicas", "cannot be reduced with the given reduce op SUM over 2 replicas",
     [](Strategy& strategy) { strategy.reduce("SUM", 1.0); }},
    {"an_unknown_reduction", "there is no reduction 'MEDIAN'",
     [](Strategy& strategy) {
       strategy.reduce("MEDIAN", PerReplica<int>{1, 2});
     }},
    {"an_axis_that_is_not_there", "there is no axis 1",
     [](Strategy& strategy) {
       static_cast<void>(strategy.reduce("SUM", Ones{row({1.F}), row({2.F})}, 1));
     }},
    {"a_gather_of_scalars", "gather of a scalar",
     [](Strategy& strategy) {
       static_cast<void>(strategy.gather(Ones{1.F, 2.F}, 0));
     }},
    {"a_gather_of_shapes_that_do_not_fit", "shapes may differ along the axis of the gather alone",
     [](Strategy& strategy) {
       static_cast<void>(
           strategy.gather(Ones{Tensor<float>(TensorShape({2, 2})), Tensor<float>(TensorShape({2, 3}))}, 0));
     }},
    {"values_of_another_strategy", "a PerReplica of 3 values in a strategy with 2 replicas",
     [](Strategy& strategy) {
       strategy.reduce("SUM", PerReplica<int>{1, 2, 3});
     }},
    {"results_of_different_forms", "let all replicas return values of the same structure",
     [](Strategy& strategy) {
       strategy.run([](ReplicaContext& context) {
         return std::vector<std::vector<int>>(static_cast<std::size_t>(context.local_id()));
       });
     }},
    {"a_destination_that_is_not_there", "is on the destination cpu:7",
     [](Strategy& strategy) {
       strategy.extended().reduce_to("SUM", Ones{1.F, 2.F}, {"cpu:7"});
     }},
    // Variables.
    {"a_mean_without_fractions", "the aggregation MEAN of a type without fractions is not supported",
     [](Strategy& strategy) {
       const Scope scope = strategy.scope();
       const Variable<int> v(1, written(Aggregation::mean));
     }},
    {"no_synchronization", "the synchronization mode NONE is not supported",
     of({.name = "v", .synchronization = Synchronization::none}, [](auto&) {})},
    {"an_invalid_synchronization", "invalid variable synchronization mode 9",
     of({.name = "v", .synchronization = static_cast<Synchronization>(9)}, [](auto&) {})},
    {"an_invalid_aggregation", "invalid variable aggregation mode 9",
     of({.name = "v", .aggregation = static_cast<Aggregation>(9)}, [](auto&) {})},
    {"trained_and_read_together", "a variable that is synchronised on read cannot be trained",
     of({.name = "v", .synchronization = Synchronization::on_read, .trainable = true}, [](auto&) {})},
    {"an_assignment_for_all_in_update", "is for all replicas, and was called in one, or in update()",
     of_in_replicas(written(Aggregation::sum), [](auto& v, ReplicaContext&) { v.check_sync(); })},
    {"a_variable_of_no_scope_in_replicas", "was made outside of its scope",
     [](Strategy& strategy) {
       Variable<float> v(1.F, {.name = "v"});
       strategy.run([&] { v.assign(2.F); });
     }},
    {"another_shape", "the value's shape is (3,)",
     of(written(Aggregation::none),
        [](auto& v) {
          v.assign(row({1.F, 2.F, 3.F}));
        })},
    {"a_minimum_of_rows_that_are_summed", "in a replica this needs another aggregation than SUM",
     of_in_replicas(written(Aggregation::sum), [](auto& v, ReplicaContext&) { v.scatter_min(rows({1.F}, {0}, 2)); })},
    {"a_row_that_is_not_there", "there is no row 2",
     of(written(Aggregation::none), [](auto& v) { v.scatter_add(rows({1.F}, {2}, 2)); })},
    {"reading_what_has_no_aggregation", "so for all replicas it has no value",
     of(on_read(Aggregation::none), [](auto& v) { static_cast<void>(v.read()); })},
    {"adding_to_a_sum_for_all", "does not support assign_add for all replicas",
     of(on_read(Aggregation::sum),
        [](auto& v) {
          v.assign_add(row({1.F, 1.F}));
        })},
    {"rows_of_what_is_read_together", "it is synchronised on read",
     of(on_read(Aggregation::mean), [](auto& v) { v.scatter_add(rows({1.F}, {0}, 2)); })},
    // Devices, operations, clusters.
    {"a_device_twice", "no duplicates allowed in the devices of a strategy",
     [](Strategy&) {
       MirroredStrategy(std::vector<std::string>{"cpu:0", "cpu:0"}, quick());
     }},
    {"no_devices", "a strategy with no devices",
     [](Strategy&) { MirroredStrategy(std::vector<std::string>{}, quick()); }},
    {"devices_that_are_not_visible", "some requested devices of the strategy are not visible",
     [](Strategy&) { MirroredStrategy(std::vector<std::string>{"gpu:77"}, quick()); }},
    {"a_negative_number_of_packs", "NcclAllReduce with num_packs -1", [](Strategy&) { NcclAllReduce(-1); }},
    {"a_negative_pack", "bytes_per_pack -1",
     [](Strategy& strategy) {
       strategy.extended().reduce_to("SUM", Ones{1.F, 2.F}, {}, {.bytes_per_pack = -1});
     }},
    {"no_such_job", "'chief'",
     [](Strategy&) {
       static_cast<void>(ClusterSpec({{"worker", {"host:1"}}}).num_tasks("chief"));
     }},
    {"a_task_beyond_the_last", "3",
     [](Strategy&) {
       check_roles({{"worker", {"host:1"}}}, Task{"worker", 3});
     }},
    {"two_chiefs", "chief",
     [](Strategy&) {
       check_roles({{"chief", {"host:1", "host:2"}}}, std::nullopt);
     }},
    {"another_layer", "Only GRPC backend is supported at the moment",
     [](Strategy&) { rpc::RpcServer::create("mpi", "localhost:0"); }},
};

class Refusals : public testing::TestWithParam<Row> {};

TEST_P(Refusals, SayWhatWasWrongAndHowToMendIt) {
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
