// SPDX-License-Identifier: Apache-2.0
// Ranks that a resolver names: the strategy knows its cluster, and ranks that do not fit it are told so, all alike.
#include <cmath>
#include <cstdlib>

#include "runtime/cluster/resolver.hpp"
#include "runtime/extended.hpp"
#include "runtime/strategy.hpp"
#include "tests/runtime/quick.hpp"
#include "tests/support/lacks.hpp"
#include "tests/support/mpi_test.hpp"
#include "tests/support/refusal.hpp"

namespace lockstep::test {
namespace {

std::vector<std::string> addresses(int number) {
  std::vector<std::string> all;
  for (int i = 0; i < number; ++i) all.push_back(text("host", i, ":12345"));
  return all;
}

StrategyOptions named(ClusterSpec spec, std::optional<Task> task) {
  StrategyOptions options = quick();
  options.cluster_resolver = std::make_shared<SimpleResolver>(std::move(spec), std::move(task));
  return options;
}

std::string said(const StrategyOptions& options) {
  return refusal([&] { MultiWorkerMirroredStrategy(session(), options); }, Code::cluster);
}

TEST(ClusterOfRanks, IsKnownToTheStrategy) {
  const int n = world().size();
  const ClusterSpec spec{{"worker", addresses(n)}, {"ps", {"host9:1"}}};
  const StrategyOptions options = named(spec, Task{"worker", world().rank()});
  MultiWorkerMirroredStrategy strategy(session(), options);
  ASSERT_NE(strategy.cluster_resolver(), nullptr);
  EXPECT_EQ(strategy.cluster_resolver()->task_type(), "worker");
  EXPECT_EQ(strategy.cluster_resolver()->task_id(), world().rank());
  EXPECT_EQ(strategy.cluster_resolver()->cluster_spec(), spec);
  EXPECT_EQ(strategy.num_replicas_in_sync(), n) << "ps have no part in it";
  EXPECT_EQ(strategy.cluster_resolver(), options.cluster_resolver.get()) << "the very one that was given";
  const Scope scope = strategy.scope();
  EXPECT_EQ(get_strategy().cluster_resolver(), options.cluster_resolver.get());
}

TEST(ClusterOfRanks, MayHaveAChief) {
  if (world().size() < 2) GTEST_SKIP() << lacks("needs 2 ranks");
  const ClusterSpec spec{{"chief", {"host8:1"}}, {"worker", addresses(world().size() - 1)}};
  const Task me = world().rank() == 0 ? Task{"chief", 0} : Task{"worker", world().rank() - 1};
  MultiWorkerMirroredStrategy strategy(session(), named(spec, me));
  EXPECT_EQ(strategy.cluster_resolver()->task_type(), me.type);
  EXPECT_EQ(strategy.cluster_resolver()->task_id(), me.index);
  const Scope scope = strategy.scope();
  const float own = static_cast<float>(world().rank());  // instead of what is random
  const Variable<float> begin(Tensor<float>(TensorShape({2, 3}), 1 + own));
  EXPECT_EQ(begin.read(), Tensor<float>(TensorShape({2, 3}), 1.F)) << "on all, what the chief began with";
  EXPECT_EQ(strategy.reduce("MEAN", PerReplica<Tensor<float>>{begin.read()}), begin.read());
  Variable w(own + 2);
  const float away = w.read().item() - 1;
  const float rate = 0.2F / static_cast<float>(world().size());
  for (int step = 0; step < 10; ++step) {
    const auto gradient = strategy.run([&] { return Tensor<float>(2 * (w.read().item() - 1)); });
    const float total = strategy.extended().reduce_to("SUM", gradient).value().item();
    strategy.extended().update(
        w, [&](Variable<float>& part, float by) { part.assign_sub(rate * by); }, total);
  }
  EXPECT_EQ(away, 1);
  EXPECT_LT(std::abs(w.read().item() - 1), 0.01F * away);
  w.check_sync();
}

TEST(ClusterOfRanks, IsMadeOfTheRanksByDefault) {
  const MultiWorkerMirroredStrategy strategy(session(), quick());
  if (world().size() == 1) {
    EXPECT_EQ(strategy.cluster_resolver(), nullptr);
  } else {
    ASSERT_NE(strategy.cluster_resolver(), nullptr);
    EXPECT_EQ(strategy.cluster_resolver()->task_id(), world().rank());
    EXPECT_EQ(strategy.cluster_resolver()->cluster_spec().num_tasks("worker"), world().size());
  }
}

TEST(ClusterOfRanks, ComesFromTfConfig) {
  const auto set = [](int workers) {
    std::string hosts;
    for (const std::string& each : addresses(workers)) hosts += text(hosts.empty() ? "" : ", ", '"', each, '"');
    ::setenv("TF_CONFIG",
             text("{\"cluster\": {\"worker\": [", hosts,
                  "]}, \"task\": {\"type\": \"worker\", \"index\": ", world().rank(), "}}")
                 .c_str(),
             1);
  };
  set(world().size());
  if (world().size() > 1) {
    const MultiWorkerMirroredStrategy strategy(session(), quick());
    ASSERT_NE(strategy.cluster_resolver(), nullptr);
    EXPECT_EQ(strategy.cluster_resolver()->describe(), "TF_CONFIG");
  }
  set(world().size() + 1);
  EXPECT_NE(said(quick()).find(text(world().size() + 1, " tasks of ClusterSpec(")), std::string::npos);
  ::unsetenv("TF_CONFIG");
}

class Broken : public Resolver {
 public:
  ClusterSpec cluster_spec() const override { throw std::runtime_error("no such file"); }
  std::optional<Task> task() const override { return std::nullopt; }
  std::string describe() const override { return "a broken source"; }
};

TEST(ClusterOfRanks, IsRefusedOnAllWhereOneCannotTellIt) {
  const int last = world().size() - 1;
  StrategyOptions options = named({{"worker", addresses(world().size())}}, Task{"worker", world().rank()});
  if (world().rank() == last) options.cluster_resolver = std::make_shared<Broken>();
  const std::string words = said(options);
  EXPECT_NE(words.find(text("rank ", last, " (its cluster is from ")), std::string::npos) << words;
  EXPECT_NE(words.find("no such file"), std::string::npos) << words;
}

TEST(ClusterOfRanks, ThatDoesNotFitIsRefusedOnAllRanks) {
  const int n = world().size();
  const int me = world().rank();
  const auto has = [](const std::string& words, std::string_view part) {
    EXPECT_NE(words.find(part), std::string::npos) << words;
  };
  has(said(named({{"worker", addresses(n + 1)}}, Task{"worker", me})), text(n + 1, " tasks of ClusterSpec("));
  has(said(named({{"worker", addresses(n)}}, std::nullopt)), "rank 0 (its cluster is from the program)");
  const bool last = me == n - 1;
  has(said(named({{"worker", addresses(n)}, {"ps", {"host9:1"}}}, last ? Task{"ps", 0} : Task{"worker", me})),
      text("rank ", n - 1, " (its cluster is from the program): this is ps 0, and only chief and workers train"));
  if (n == 1) return;
  has(said(named({{"worker", addresses(last ? n + 1 : n)}}, Task{"worker", me})), text("rank ", n - 1));
  has(said(named({{"worker", addresses(n)}}, Task{"worker", (me + 1) % n})),
      "rank 0 (its cluster is from the program): it is worker 1");
  StrategyOptions some = quick();
  if (last) some = named({{"worker", addresses(n)}}, Task{"worker", me});
  has(refusal([&] { MultiWorkerMirroredStrategy(session(), some); }, Code::usage), "some ranks give");
}

}  // namespace
}  // namespace lockstep::test
