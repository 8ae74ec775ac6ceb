// SPDX-License-Identifier: Apache-2.0
// The mission's rows that no other test runs under every strategy and layout.
#include <set>
#include <sstream>
#include <thread>

#include "runtime/cluster/resolver.hpp"
#include "runtime/default_strategy.hpp"
#include "runtime/extended.hpp"
#include "runtime/variable.hpp"
#include "tests/runtime/layouts.hpp"
#include "tests/runtime/quick.hpp"
#include "tests/support/holds.hpp"
#include "tests/support/lacks.hpp"
#include "tests/support/refusal.hpp"

namespace lockstep::test {
namespace {

class Rows : public EveryLayout {
 protected:
  void expect_works(Strategy& one) const {
    EXPECT_EQ(one.reduce("SUM", one.run([](ReplicaContext& context) { return context.all_reduce(1, sum); })),
              size() * size());
  }
  // The error of a call that every replica makes.
  std::string refused_in_replicas(const std::function<void(ReplicaContext&)>& call) {
    end_calls();
    return refusal([&] { strategy->run(call); }, Code::replica_failed);
  }
  template <class V>
  static std::string printed(const V& value) {
    std::ostringstream out;
    out << value;
    return out.str();
  }
};

TEST_P(Rows, DevicesHaveNamesOfTheirOwn) {
  const std::vector<std::string> devices = strategy->devices();
  EXPECT_EQ(devices.size(), static_cast<std::size_t>(strategy->num_local_replicas()));
  EXPECT_EQ(std::set(devices.begin(), devices.end()).size(), devices.size());
  EXPECT_EQ(strategy->extended().worker_devices(), devices);
  for (const std::string& each : devices) {
    EXPECT_EQ(to_string(parse_device(each)), each);
    EXPECT_PRED2(holds, strategy->explain(), each);
  }
  EXPECT_TRUE(is_meant(first_device(), parse_device(devices.front())));
}

TEST_P(Rows, StrategiesAreMadeBesideOthersAtAnyTime) {
  for (int round = 0; round < 2; ++round) {
    const std::unique_ptr<Strategy> another = GetParam().make();
    expect_works(*another);
    expect_works(*strategy);
  }
  expect_works(*strategy);
}

TEST_P(Rows, AnyStrategyStandsInForTheDefault) {
  set_strategy(strategy.get());
  EXPECT_EQ(&get_strategy(), strategy.get());
  EXPECT_TRUE(has_strategy());
  EXPECT_TRUE(in_cross_replica_context());
  expect_works(get_strategy());
  {
    const Scope inside(*strategy);
    EXPECT_PRED2(holds, refusal([] { set_strategy(nullptr); }, Code::usage), "inside a strategy's scope");
  }
  set_strategy(nullptr);
  EXPECT_EQ(&get_strategy(), &default_strategy());
  EXPECT_FALSE(has_strategy());
}

TEST_P(Rows, ScopesKeepOtherStrategiesOut) {
  OneDeviceStrategy other(quick());
  const Scope inside(*strategy);
  const Scope again(*strategy);
  const std::string words = refusal([&] { const Scope mixed(other); }, Code::usage);
  EXPECT_PRED2(holds, words, text("mixing different strategies: ", other.describe(), " is not ", strategy->describe()));
  strategy->run([&] {
    EXPECT_EQ(&get_strategy(), strategy.get());
    EXPECT_FALSE(in_cross_replica_context());
  });
  expect_works(*strategy);
}

TEST_P(Rows, VariablesArePrintedWithEachPart) {
  const Scope inside(*strategy);
  const Variable v(row({1.F, 2.F}), {.name = "w"});
  const std::string words = printed(v);
  const VariableLayout layout = strategy->variable_layout({});
  EXPECT_TRUE(words.starts_with(layout.is_plain() ? "<tf.Variable 'w:0'" : layout.kind + ":{\n  0: <tf.Variable 'w:0'"))
      << words;
  for (std::size_t part = 0; part < v.parts().size(); ++part) {
    const std::string name = part == 0 ? "w" : text("w/replica_", part);
    EXPECT_PRED2(holds, words,
                 text("<tf.Variable '", name, ":0' shape=(2,) dtype=float32, numpy=array([1., 2.], dtype=float32)>"));
  }
}

TEST_P(Rows, ResolversTellThisTask) {
  const Communicator& processes = strategy->channel(Channel::health);
  const Resolver* const cluster = strategy->cluster_resolver();
  EXPECT_EQ(cluster == nullptr, processes.size() == 1 && is_in_one_process());
  if (cluster == nullptr) GTEST_SKIP() << lacks("a cluster: strategies of one process have none");
  EXPECT_EQ(cluster->task_type(), "worker");
  EXPECT_EQ(cluster->task_id(), processes.rank());
  EXPECT_EQ(cluster->cluster_spec().num_tasks("worker"), processes.size());
}

TEST_P(Rows, OneProcessIsTheChief) {
  const bool is_chief = strategy->extended().should_checkpoint();
  EXPECT_EQ(is_chief, first() == 0);
  EXPECT_EQ(strategy->extended().should_save_summary(), is_chief);
  EXPECT_EQ(strategy->channel(Channel::checkpoints).all_reduce(is_chief ? 1 : 0, sum), 1);
}

TEST_P(Rows, TheOlderNameOfRunIsRun) {
  const auto ids = strategy->extended().call_for_each_replica(
      [](ReplicaContext& context, int add) { return context.replica_id_in_sync_group() + add; }, 10);
  EXPECT_EQ(strategy->reduce("SUM", ids), sum_of_ids() + 10 * size());
}

TEST_P(Rows, ExplanationsNeverChange) {
  const std::string before = strategy->explain();
  EXPECT_TRUE(before.starts_with(strategy->describe())) << before;
  EXPECT_PRED2(holds, before, "communication AUTO: ");
  for (int i = 0; i < 20; ++i) expect_works(*strategy);
  EXPECT_EQ(strategy->explain(), before);
}

TEST_P(Rows, OptionsOutOfRangeAreRefused) {
  const CommunicationOptions wrong{.bytes_per_pack = -5};
  const PerReplica<Tensor<float>> ones = strategy->distribute_values_from([](ValueContext) { return row({1.F}); });
  EXPECT_PRED2(holds, refusal([&] { strategy->extended().reduce_to("SUM", ones, {}, wrong); }, Code::usage),
               "bytes_per_pack -5");
  const auto call = [&](ReplicaContext& context) {
    std::vector<float> data(3);
    context.all_reduce(data, sum, wrong);
  };
  EXPECT_PRED2(holds, refused_in_replicas(call), "bytes_per_pack -5");
  expect_works(*strategy);
}

TEST_P(Rows, AReplicaThatComesLateIsNamed) {
  if (size() == 1) GTEST_SKIP() << lacks("needs two replicas");
  expect_works(*strategy);
  const int last = size() - 1;
  const std::string words = refused_in_replicas([&](ReplicaContext& context) {
    if (context.replica_id_in_sync_group() == last) std::this_thread::sleep_for(std::chrono::seconds(1));
    std::vector<float> data(10);
    context.all_reduce(data, sum, {.timeout = std::chrono::milliseconds(300)});
  });
  EXPECT_PRED2(holds, words, "the program has set this call's limit");
  EXPECT_PRED2(holds, words, text("replica ", last));
  EXPECT_FALSE(holds(words, "rank")) << words;
  if (is_in_one_process())
    expect_works(*strategy);
  else
    EXPECT_PRED2(holds, words, "make a new strategy") << "since a process may be gone";
}

TEST_P(Rows, VariablesThatDifferAreNamed) {
  const Scope inside(*strategy);
  Variable v(Tensor<float>(TensorShape{100}, 1.F), {.name = "weights"});
  v.check_sync();
  if (size() == 1 || strategy->variable_layout({}).is_shared || is_on_gpus())
    GTEST_SKIP() << lacks("two parts in the host's memory, which may differ");
  const int last = size() - 1;
  strategy->run([&](ReplicaContext& context) {
    if (context.replica_id_in_sync_group() == last) v.local()[42] = -1;
  });
  // Of two, nobody knows which is right; the first one counts.
  const std::string words = refusal([&] { v.check_sync(); }, Code::out_of_sync);
  EXPECT_PRED2(holds, words, text("replica ", last, ", element 42"));
  v.assign(Tensor<float>(TensorShape{100}, 2.F));
  v.check_sync();
}

TEST_P(Rows, VariablesAreKeptBesideOthers) {
  const Scope inside(*strategy);
  Extended extended = strategy->extended();
  const Variable plain(0.F);
  const Variable metric(0.F, {.name = "metric", .synchronization = Synchronization::on_read});
  EXPECT_EQ(extended.devices_of(plain), extended.parameter_devices());
  EXPECT_EQ(extended.devices_of(metric), strategy->devices());
  for (const AnyVariable& each : {AnyVariable(plain), AnyVariable(metric)}) {
    const auto beside = extended.colocate_vars_with(each);
    EXPECT_EQ(extended.devices_of(Variable(0.F)), extended.devices_of(each));
  }
  EXPECT_EQ(extended.devices_of(Variable(0.F)), extended.parameter_devices());
}

TEST_P(Rows, StateOfNoVariableIsUpdatedWhereVariablesAre) {
  Extended extended = strategy->extended();
  std::size_t calls = 0;
  extended.update_non_slot(
      extended.non_slot_devices(std::vector<Variable<float>>()),
      [&](float by) {
        EXPECT_TRUE(in_cross_replica_context());
        EXPECT_EQ(by, 2.F);
        ++calls;
      },
      2.F);
  EXPECT_EQ(calls, extended.parameter_devices().size());
}

TEST_P(Rows, PointersAndEmptyOptionalsComeBackAsOne) {
  const auto model = std::make_shared<std::string>("model");
  const auto [same, none, own] = strategy->run([&](ReplicaContext& context) {
    return std::tuple(model, std::optional<int>(), context.replica_id_in_sync_group());
  });
  EXPECT_EQ(std::shared_ptr<std::string>(same), model);
  EXPECT_FALSE(none.has_value());
  EXPECT_EQ(strategy->reduce("SUM", own), sum_of_ids());
}

TEST_P(Rows, CommonValuesAreRefusedInReplicas) {
  const Scope inside(*strategy);
  Variable v(row({1.F}), {.aggregation = Aggregation::sum});
  const Mirrored<Tensor<float>> common = strategy->extended().broadcast_to(row({2.F}));
  EXPECT_PRED2(holds, refused_in_replicas([&](ReplicaContext&) { v.assign_add(common); }),
               "takes a Mirrored value in a replica");
  v.assign_add(common);
  EXPECT_EQ(v.read(), row({3.F}));
}

TEST_P(Rows, GatherInAReplicaNamesAllGather) {
  const PerReplica<Tensor<float>> ones = strategy->distribute_values_from([](ValueContext) { return row({1.F}); });
  EXPECT_PRED2(holds, refused_in_replicas([&](ReplicaContext&) { (void)strategy->gather(ones, 0); }),
               "use the context's all_gather()");
  EXPECT_EQ(strategy->gather(ones, 0), Tensor<float>(TensorShape{size()}, 1.F));
}

INSTANTIATE_TEST_SUITE_P(All, Rows, testing::ValuesIn(layouts()), [](const auto& each) { return each.param.name; });

}  // namespace
}  // namespace lockstep::test
