// SPDX-License-Identifier: Apache-2.0
// Clusters as programs, TF_CONFIG, Slurm and MPI name them, and the duties that follow from a task's type.
#include <gtest/gtest.h>

#include <sstream>

#include "runtime/cluster/cluster_spec.hpp"
#include "runtime/cluster/resolver.hpp"
#include "tests/support/refusal.hpp"
#include "topology/base/text.hpp"
#include "topology/local_exchange.hpp"

namespace lockstep {
namespace {

using test::refusal;
using Names = std::vector<std::string>;

void expect_refused(const std::function<void()>& call, std::string_view words) {
  const std::string said = refusal(call, Code::cluster);
  EXPECT_NE(said.find(words), std::string::npos) << "expected: " << words << "\nsaid: " << said;
}

// An environment of these variables and no others.
Environment variables(std::map<std::string, std::string> all) {
  return [all = std::move(all)](const char* name) {
    const auto found = all.find(name);
    return found == all.end() ? nullptr : found->second.c_str();
  };
}

Environment tf_config(std::string words) { return variables({{"TF_CONFIG", std::move(words)}}); }

const ClusterSpec whole = {{"chief", {"127.0.0.1:1234"}},
                           {"worker", {"127.0.0.1:8964", "127.0.0.1:2333"}},
                           {"ps", {"127.0.0.1:1926", "127.0.0.1:3141"}}};

TEST(ClusterSpec, TellsItsJobsAndTasks) {
  EXPECT_EQ(whole.job_names(), (Names{"chief", "ps", "worker"}));
  EXPECT_EQ(whole.num_tasks("worker"), 2);
  EXPECT_EQ(whole.num_tasks(), 5);
  EXPECT_EQ(whole.task_address("ps", 1), "127.0.0.1:3141");
  EXPECT_EQ(whole.task_indices("ps"), (std::vector<int>{0, 1}));
  EXPECT_TRUE(ClusterSpec().empty());
  EXPECT_EQ(whole, ClusterSpec(whole.jobs()));
  EXPECT_NE(whole, ClusterSpec({{"chief", {"127.0.0.1:1234"}}}));
}

TEST(ClusterSpec, TasksMayHaveGaps) {
  const ClusterSpec sparse(ClusterSpec::Jobs{{"worker", {{1, "worker1:2222"}, {4, "worker4:2222"}}}});
  EXPECT_EQ(sparse.num_tasks("worker"), 2);
  EXPECT_EQ(sparse.task_indices("worker"), (std::vector<int>{1, 4}));
  EXPECT_EQ(sparse.task_address("worker", 4), "worker4:2222");
  expect_refused([&] { sparse.task_address("worker", 0); }, "no task with index 0 in job 'worker'");
  EXPECT_EQ(to_string(sparse), "ClusterSpec({'worker': {1: 'worker1:2222', 4: 'worker4:2222'}})");
}

TEST(ClusterSpec, IsPrintedWithItsJobsInOrder) {
  std::ostringstream out;
  out << ClusterSpec{{"worker", {"worker0:2222", "worker1:2222"}}, {"ps", {"ps0:2222"}}} << ClusterSpec();
  EXPECT_EQ(out.str(), "ClusterSpec({'ps': ['ps0:2222'], 'worker': ['worker0:2222', 'worker1:2222']})ClusterSpec({})");
}

TEST(ClusterSpec, ErrorsListTheExistingJobsAndTasks) {
  expect_refused([] { whole.task_address("evaluator", 0); }, "no such job in the cluster: 'evaluator'");
  expect_refused([] { whole.num_tasks("workers"); }, "it has chief, ps, worker");
  expect_refused([] { whole.task_address("worker", 2); }, "its tasks are 0-1");
  expect_refused([] { ClusterSpec({{"worker", {""}}}); }, "has the address ''");
  expect_refused([] { ClusterSpec({{"worker", {"a b"}}}); }, "give it as host:port");
  expect_refused([] { ClusterSpec({{"", {"a:1"}}}); }, "has no name");
  expect_refused([] { ClusterSpec({{"worker", {"a:1"}}, {"worker", {"b:1"}}}); }, "two jobs of the name 'worker'");
  expect_refused([] { ClusterSpec(ClusterSpec::Jobs{{"ps", {{-1, "a:1"}}}}); }, "a task -1");
}

TEST(Roles, TellTheChief) {
  EXPECT_TRUE(is_chief(whole, {"chief", 0}));
  EXPECT_FALSE(is_chief(whole, {"worker", 0}));
  const ClusterSpec workers = {{"worker", {"127.0.0.1:8964", "127.0.0.1:2333"}}};
  EXPECT_TRUE(is_chief(workers, {"worker", 0}));
  EXPECT_FALSE(is_chief(workers, {"worker", 1}));
  EXPECT_TRUE(is_chief(workers, {"evaluator", 0}));
  EXPECT_FALSE(is_chief(whole, {"ps", 0}));
  expect_refused([&] { is_chief(workers, {"chief", 0}); }, "the task type 'chief' is not in");
  expect_refused(
      [&] {
        is_chief(workers, {"worker", 2});
      },
      "the task id 2 is none of worker, or exceeds its maximum id");
}

TEST(Roles, CountTheWorkersThatTrain) {
  const ClusterSpec spec = {{"chief", {"c:1"}}, {"worker", {"w:1", "w:2"}}, {"ps", {"p:1"}}, {"evaluator", {"e:1"}}};
  EXPECT_EQ(worker_count(spec, "chief"), 3);
  EXPECT_EQ(worker_count(spec, "worker"), 3);
  EXPECT_EQ(worker_count(spec, "evaluator"), 1);
  EXPECT_EQ(id_in_cluster(spec, {"chief", 0}), 0);
  EXPECT_EQ(id_in_cluster(spec, {"worker", 1}), 2);
  EXPECT_EQ(id_in_cluster(spec, {"evaluator", 0}), 0);
  EXPECT_EQ(id_in_cluster({{"worker", {"w:1", "w:2"}}}, {"worker", 1}), 1);
  expect_refused([&] { worker_count(spec, "ps"); }, "does not train with workers");
  expect_refused([&] { id_in_cluster(spec, {"ps", 0}); }, "there is no id for task type 'ps'");
  for (const std::string type : {"worker", "chief"}) {
    expect_refused([&] { worker_count({}, type); }, "the task type '" + type + "' is not in ClusterSpec({})");
    expect_refused([&] { id_in_cluster({{"ps", {"p:1"}}}, {type, 0}); }, "is not in ClusterSpec({'ps': ['p:1']})");
  }
  EXPECT_EQ(worker_count({}, "evaluator"), 1) << "it need not be in the cluster";
}

TEST(Roles, TellTheDutiesOfATask) {
  const ClusterSpec spec = {{"chief", {"c:1"}}, {"worker", {"w:1", "w:2"}}, {"ps", {"p:1"}}, {"evaluator", {"e:1"}}};
  const auto duties = [&](const std::string& type) {
    const Role role = role_of(spec, {type, 0});
    EXPECT_EQ(role.type, type);
    return std::tuple(role.trains, role.saves, role.serves, role.evaluates);
  };
  EXPECT_EQ(duties("chief"), std::tuple(true, true, false, false));
  EXPECT_EQ(duties("worker"), std::tuple(true, false, false, false));
  EXPECT_EQ(duties("ps"), std::tuple(false, false, true, false));
  EXPECT_EQ(duties("evaluator"), std::tuple(false, false, false, true));
  EXPECT_TRUE(role_of({{"worker", {"w:1", "w:2"}}}, {"worker", 0}).saves) << "there is no chief";
  expect_refused([&] { role_of(spec, {"worker", 2}); }, "the task id 2 is none of worker");
}

TEST(ClusterSpec, NeedsPortsThatAreNumbers) {
  check_ports({{"worker", {"host1:12345", "[::1]:1", "10.0.0.1:65535"}}});
  const std::pair<const char*, const char*> wrong[] = {{"host1:port", "whose port 'port' is no number from 1 to 65535"},
                                                       {"host1", "which has no port"},
                                                       {"host1:", "which has no port"},
                                                       {"host1:0", "whose port '0'"},
                                                       {"host1:65536", "whose port '65536'"}};
  for (const auto& [address, fact] : wrong)
    expect_refused(
        [address = address] {
          check_ports({{"ps", {"host0:1", address}}});
        },
        text("ps 1 has the address '", address, "', ", fact));
  EXPECT_EQ(host_of("host1:12345"), "host1");
  EXPECT_EQ(host_of("[::1]:12345"), "::1");
}

TEST(Roles, RefuseClustersThatAStrategyCannotUse) {
  expect_refused([] { check_roles({{"chief", {"a:1", "a:2"}}}, std::nullopt); }, "at most one 'chief' job");
  expect_refused([] { check_roles({{"evaluator", {"a:1", "a:2"}}}, std::nullopt); }, "at most one 'evaluator' job");
  expect_refused([] { check_roles({{"master", {"a:1"}}}, std::nullopt); }, "disallowed task type 'master'");
  expect_refused([] { check_roles({{"worker", {"a:1"}}}, Task{"boss", 0}); }, "unrecognized task type 'boss'");
  expect_refused([] { check_roles({{"worker", {"a:1"}}}, Task{"worker", -1}); }, "the task id -1 is none of worker");
  check_roles(whole, Task{"ps", 1});
  check_roles({}, std::nullopt);
}

TEST(SimpleCluster, ReturnsItsArguments) {
  const ClusterSpec spec = {{"ps", {"ps0:2222", "ps1:2222"}},
                            {"worker", {"worker0:2222", "worker1:2222", "worker2:2222"}}};
  const SimpleResolver ps(spec, Task{"ps", 1}, "grpc", "cloud", {{"GPU", 8}});
  EXPECT_EQ(std::tuple(ps.task_type(), ps.task_id(), ps.rpc_layer(), ps.environment()),
            std::tuple("ps", 1, "grpc", "cloud"));
  EXPECT_EQ(ps.num_accelerators(), (std::map<std::string, int>{{"GPU", 8}}));
  EXPECT_EQ(ps.cluster_spec(), spec);
  EXPECT_EQ(ps.master(), "grpc://ps1:2222");
  const SimpleResolver none(spec);
  EXPECT_EQ(none.master(), "") << "this process is none of them";
  EXPECT_TRUE(none.num_accelerators().empty());
  EXPECT_EQ(none.master(Task{"worker", 0}, "grpc"), "grpc://worker0:2222");
  EXPECT_EQ(none.master(Task{"worker", 2}, "grpc"), "grpc://worker2:2222");
  EXPECT_EQ(SimpleResolver(spec, std::nullopt, "").master(Task{"worker", 2}), "worker2:2222");
  expect_refused([&] { (void)none.master(Task{"worker", 3}); }, "no task with index 3");
}

const std::string two_jobs = R"("cluster": {"ps": ["ps0:2222", "ps1:2222"],
                                "worker": ["worker0:2222", "worker1:2222", "worker2:2222"]})";

TEST(TfConfig, IsRead) {
  const TfConfigResolver found({}, tf_config("{" + two_jobs + R"(, "task": {"type": "ps", "index": 0}})"));
  EXPECT_EQ(found.cluster_spec(), ClusterSpec({{"ps", {"ps0:2222", "ps1:2222"}},
                                               {"worker", {"worker0:2222", "worker1:2222", "worker2:2222"}}}));
  EXPECT_EQ(found.task(), (Task{"ps", 0}));
  EXPECT_EQ(found.master(), "ps0:2222");
  EXPECT_EQ(found.master(Task{"worker", 1}), "worker1:2222");
  EXPECT_EQ(found.rpc_layer(), "");
}

TEST(TfConfig, SaysHowToTalk) {
  const TfConfigResolver found({}, tf_config("{" + two_jobs + R"(, "rpc_layer": "grpc", "environment": "cloud",
                                              "task": {"type": "ps", "index": 0}})"));
  EXPECT_EQ(found.master(), "grpc://ps0:2222");
  EXPECT_EQ(found.master(std::nullopt, "test"), "test://ps0:2222");
  EXPECT_EQ(std::tuple(found.task_type(), found.task_id(), found.rpc_layer(), found.environment()),
            std::tuple("ps", 0, "grpc", "cloud"));
  const TfConfigResolver session({}, tf_config("{" + two_jobs + R"(, "session_master": "sessionmaster:2222"})"));
  EXPECT_EQ(session.master(), "sessionmaster:2222");
}

TEST(TfConfig, ArgumentsOfTheProgramGoFirst) {
  const auto words = tf_config("{" + two_jobs + R"(, "rpc_layer": "grpc", "task": {"type": "ps", "index": 1}})");
  EXPECT_EQ(TfConfigResolver({.type = "ps", .index = 0}, words).master(), "grpc://ps0:2222");
  const TfConfigResolver other({.type = "worker", .index = 1, .rpc_layer = "test"}, words);
  EXPECT_EQ(other.master(), "test://worker1:2222");
  EXPECT_EQ(other.task(), (Task{"worker", 1}));
  EXPECT_EQ(TfConfigResolver({.index = 0}, words).task(), (Task{"ps", 0}));
}

TEST(TfConfig, TakesNumbersAsWords) {
  const TfConfigResolver found({}, tf_config(R"({"cluster": {"123456": ["ps0:2222", "ps1:2222"]},
                                                "task": {"type": 123456, "index": "1"}})"));
  EXPECT_EQ(found.task(), (Task{"123456", 1}));
  const TfConfigResolver sparse(
      {}, tf_config(R"({"cluster": {"worker": {"3": "w3:1"}}, "task": {"type": "worker", "index": 3}})"));
  EXPECT_EQ(sparse.master(Task{"worker", 3}), "w3:1");
}

TEST(TfConfig, NothingOrOneTaskIsNoClusterToTalkTo) {
  EXPECT_EQ(TfConfigResolver({}, tf_config("{}")).master(), "");
  EXPECT_EQ(TfConfigResolver({}, tf_config("")).master(), "");
  EXPECT_TRUE(TfConfigResolver({}, variables({})).cluster_spec().empty());
  EXPECT_EQ(TfConfigResolver({}, variables({})).task(), std::nullopt);
  EXPECT_EQ(TfConfigResolver({}, tf_config(R"({"cluster": {"worker": ["worker0:2222"]}})")).master(), "");
}

// As the guide, the tutorial, and the pages of TPUStrategy and ParameterServerStrategy have it.
TEST(TfConfig, TheDocumentsExamples) {
  const TfConfigResolver guide({}, tf_config(R"({"cluster": {"worker": ["host1:port", "host2:port", "host3:port"],
                                                 "ps": ["host4:port", "host5:port"]}, "task": {"type": "worker", "index": 1}})"));
  EXPECT_EQ(guide.cluster_spec().num_tasks("worker"), 3);
  EXPECT_EQ(guide.cluster_spec().num_tasks("ps"), 2);
  EXPECT_EQ(guide.task(), (Task{"worker", 1}));
  EXPECT_FALSE(is_chief(guide.cluster_spec(), *guide.task()));
  const TfConfigResolver tutorial({}, tf_config(R"({"cluster": {"worker": ["localhost:12345", "localhost:23456"]},
                                                    "task": {"type": "worker", "index": 0}})"));
  EXPECT_TRUE(is_chief(tutorial.cluster_spec(), *tutorial.task()));
  EXPECT_EQ(worker_count(tutorial.cluster_spec(), tutorial.task_type()), 2);
  const TfConfigResolver page({}, tf_config(R"({"cluster": {"worker": ["localhost:12345", "localhost:23456"],
                                                "ps": ["localhost:34567"]}, "task": {"type": "worker", "index": 0}})"));
  EXPECT_EQ(page.task_type(), "worker");
  EXPECT_EQ(page.cluster_spec().task_address("ps", 0), "localhost:34567");
}

TEST(TfConfig, ErrorsNameThePlace) {
  const std::pair<const char*, const char*> bad[] = {
      {"{", "at line 1, column 2"},
      {"[1]", "is not an object"},
      {"[1e9999]", "number overflow"},
      {R"({"cluster": 5})", "cluster: 5 is not an object of jobs"},
      {R"({"cluster": {"worker": "a:1"}})", R"(cluster.worker: "a:1" is not a list of addresses)"},
      {R"({"cluster": {"worker": ["a:1", 5]}})", "cluster.worker[1]: 5 is not an address"},
      {R"({"cluster": {"worker": {"x": "a:1"}}})", R"(cluster.worker: "x" is not an index)"},
      {R"({"cluster": {"worker": [""]}})", "has the address ''"},
      {R"({"task": 1})", "task: 1 is not an object"},
      {R"({"task": {"type": [], "index": 0}})", "task.type: [] is not a word"},
      {R"({"task": {"type": "worker", "index": -1}})", "task.index: -1 is not an index"},
      {R"({"task": {"type": "worker", "index": "one"}})", "is not an index"},
      {R"({"task": {"type": "worker", "index": 1.5}})", "task.index: 1.5 is not an index"},
      {R"({"task": {"index": 1}})", "index 1 without a type"},
      {R"({"cluster": {"worker": ["a:1"]}, "task": {"type": "worker", "index": 1}})", "no task with index 1"},
      {R"({"cluster": {"worker": ["a:1"]}, "task": {"type": "ps", "index": 0}})", "no such job in the cluster: 'ps'"},
      {"{\"cluster\": {\"worker\": [\"a:1\"]}, \"rpc_layer\": {}}", "rpc_layer: {} is not a word"},
      {R"({"cluster": {"worker": {"0": "a:1", "00": "b:1"}}})", "is there twice"},
      {"[[[[[[[[[[[[1]]]]]]]]]]]]", "more than 8 brackets in one another"},
  };
  for (const auto& [words, said] : bad)
    expect_refused([words = words] { TfConfigResolver({}, tf_config(words)); }, said);
  // An evaluator is not one of those who train, and need not be listed.
  EXPECT_EQ(
      TfConfigResolver({}, tf_config(R"({"cluster": {"worker": ["a:1"]}, "task": {"type": "evaluator", "index": 0}})"))
          .task_type(),
      "evaluator");
}

TEST(Slurm, ListsOfHosts) {
  EXPECT_EQ(expand_hosts("n1"), Names{"n1"});
  EXPECT_EQ(expand_hosts("n[1,3]"), (Names{"n1", "n3"}));
  EXPECT_EQ(expand_hosts("n[1-3]"), (Names{"n1", "n2", "n3"}));
  EXPECT_EQ(expand_hosts("n[1-2],m5,o[3-4,6,7-9]"), (Names{"n1", "n2", "m5", "o3", "o4", "o6", "o7", "o8", "o9"}));
  EXPECT_EQ(expand_hosts("n[0001-0003],m5,o[009-011]"),
            (Names{"n0001", "n0002", "n0003", "m5", "o009", "o010", "o011"}));
  EXPECT_EQ(expand_hosts("n[1-2]-ib"), (Names{"n1-ib", "n2-ib"}));
  for (const char* junk : {"", ",", "n[", "n]", "n[[1]]", "n[1", "n[3-1]", "n[a]", "n[]", "n[1-2][3-4]", "n[-1]",
                           "n[0-131071,0-131071]", "n[1-99999999]"})
    expect_refused([junk] { expand_hosts(junk); }, "is not a list of hosts");
}

TEST(Slurm, TasksOfNodes) {
  EXPECT_EQ(expand_tasks_per_node("2"), std::vector<int>{2});
  EXPECT_EQ(expand_tasks_per_node("2,1,3"), (std::vector<int>{2, 1, 3}));
  EXPECT_EQ(expand_tasks_per_node("3(x2),2,1"), (std::vector<int>{3, 3, 2, 1}));
  EXPECT_EQ(expand_tasks_per_node("3(x2),2,11(x4)"), (std::vector<int>{3, 3, 2, 11, 11, 11, 11}));
  EXPECT_EQ(expand_tasks_per_node("13(x10)"), std::vector<int>(10, 13));
  for (const char* junk : {"", "x", "2(x", "2(x)", "2(x0)", "0", "-1", "2(x3", "2,", "99999999999"})
    expect_refused([junk] { expand_tasks_per_node(junk); }, "how many tasks each node has");
}

using Step = std::map<std::string, std::string>;
const Step three_nodes = {{"SLURM_PROCID", "0"},
                          {"SLURM_STEP_NUM_TASKS", "3"},
                          {"SLURM_STEP_TASKS_PER_NODE", "1(x3)"},
                          {"SLURM_STEP_NODELIST", "t02n13,t02n41,t02n43"}};

TEST(Slurm, AStepIsAClusterOfWorkers) {
  const SlurmResolver found({.gpus_per_node = 1}, variables(three_nodes));
  EXPECT_EQ(found.cluster_spec(), ClusterSpec({{"worker", {"t02n13:8888", "t02n41:8888", "t02n43:8888"}}}));
  EXPECT_EQ(found.master(Task{"worker", 0}), "grpc://t02n13:8888");
  EXPECT_EQ(found.task(), (Task{"worker", 0}));
  EXPECT_EQ(found.gpus(), std::vector<int>{0});
}

TEST(Slurm, JobsFillTheStepByName) {
  Step step = three_nodes;
  step["SLURM_PROCID"] = "2";
  const SlurmResolver found({.jobs = {{"worker", 2}, {"ps", 1}}, .tasks_per_node = 1}, variables(step));
  EXPECT_EQ(found.cluster_spec(), ClusterSpec({{"ps", {"t02n13:8888"}}, {"worker", {"t02n41:8888", "t02n43:8888"}}}));
  EXPECT_EQ(found.master(), "grpc://t02n43:8888");
  EXPECT_EQ(found.master(Task{"ps", 0}, "test"), "test://t02n13:8888");
  EXPECT_EQ(SlurmResolver({.jobs = {{"worker", 2}, {"ps", 1}}}, variables(step)).cluster_spec(), found.cluster_spec());
}

TEST(ClusterSpec, HasNoControlCharacters) {
  expect_refused([] { ClusterSpec({{"worker\n\x1b[31m", {"host:1"}}}); }, "control characters: 'worker\\n\\x1b[31m'");
  expect_refused([] { ClusterSpec({{"worker", {"host\x7f:1"}}}); }, "an address of the cluster has control");
}

TEST(Slurm, SeveralTasksOfANodeHavePortsAndGpusOfTheirOwn) {
  const Step step = {{"SLURM_PROCID", "1"},
                     {"SLURM_STEP_NUM_TASKS", "5"},
                     {"SLURM_STEP_TASKS_PER_NODE", "2(x2),1"},
                     {"SLURM_STEP_NODELIST", "t02n13,t02n41,t02n43"}};
  const std::map<std::string, int> jobs = {{"ps", 1}, {"worker", 4}};
  const SlurmResolver found({.jobs = jobs, .gpus_per_node = 2, .gpus_per_task = 1}, variables(step));
  EXPECT_EQ(
      found.cluster_spec(),
      ClusterSpec({{"ps", {"t02n13:8888"}}, {"worker", {"t02n13:8889", "t02n41:8888", "t02n41:8889", "t02n43:8888"}}}));
  EXPECT_EQ(found.gpus(), std::vector<int>{1});
  const SlurmResolver more({.jobs = jobs, .gpus_per_node = 4, .gpus_per_task = 2}, variables(step));
  EXPECT_EQ(more.gpus(), (std::vector<int>{2, 3}));
  EXPECT_EQ(more.num_accelerators(), (std::map<std::string, int>{{"GPU", 2}}));
  EXPECT_TRUE(SlurmResolver({.jobs = jobs}, variables(step)).num_accelerators().empty());
  expect_refused([&] { SlurmResolver({.gpus_per_node = 1, .gpus_per_task = 1}, variables(step)); },
                 "requested more GPUs per node than available");
}

TEST(Slurm, RefusesInconsistentVariables) {
  const auto with = [](const std::string& name, const char* value) {
    Step step = three_nodes;
    if (value == nullptr)
      step.erase(name);
    else
      step[name] = value;
    return variables(step);
  };
  expect_refused(
      [&] {
        SlurmResolver({.jobs = {{"worker", 4}}}, variables(three_nodes));
      },
      "jobs of 4 tasks were asked for");
  expect_refused(
      [&] {
        SlurmResolver({.jobs = {{"worker", 3}, {"ps", 0}}}, variables(three_nodes));
      },
      "job 'ps' of 0 tasks");
  expect_refused([&] { SlurmResolver({.tasks_per_node = 0}, variables(three_nodes)); }, "0 tasks per node");
  expect_refused([&] { SlurmResolver({}, with("SLURM_STEP_NODELIST", nullptr)); }, "SLURM_STEP_NODELIST is not set");
  expect_refused([&] { SlurmResolver({}, with("SLURM_PROCID", "x")); }, "PROCID is 'x'");
  expect_refused([&] { SlurmResolver({}, with("SLURM_PROCID", "3")); }, "this is number 3");
  expect_refused([&] { SlurmResolver({}, with("SLURM_STEP_TASKS_PER_NODE", "1(x2)")); },
                 "names 3 hosts, and how many tasks run on 2");
  expect_refused([&] { SlurmResolver({}, with("SLURM_STEP_NUM_TASKS", "2")); }, "step has 2 tasks, 3 by its nodes");
}

TEST(Resolvers, TheProgramAndTheRanksCanNameACluster) {
  const SimpleResolver simple({{"worker", {"a:1", "b:1"}}}, Task{"worker", 1});
  EXPECT_EQ(simple.master(), "grpc://b:1");
  EXPECT_EQ(SimpleResolver({{"worker", {"a:1"}}}).master(), "");
  expect_refused([] { SimpleResolver({{"worker", {"a:1"}}}, Task{"worker", 1}); }, "no task with index 1");
  run_local(3, [](Exchange& exchange) {
    const MpiResolver ranks(exchange);
    EXPECT_EQ(ranks.cluster_spec().num_tasks("worker"), 3);
    EXPECT_EQ(ranks.task(), (Task{"worker", exchange.rank()}));
    EXPECT_EQ(ranks.master(), ranks.cluster_spec().task_address("worker", 0)) << "all are on this host";
  });
}

TEST(Resolvers, TheChoiceIsExplained) {
  std::vector<std::string> lines;
  const Log log(LogLevel::info, [&](LogLevel, std::string_view line) { lines.emplace_back(line); });
  const auto chosen = [&](const Environment& environment) {
    const auto found = find_resolver(nullptr, log, environment);
    return found ? found->describe() : "nothing";
  };
  Step both = three_nodes;
  both["TF_CONFIG"] = R"({"cluster": {"worker": ["a:1", "b:1"]}, "task": {"type": "worker", "index": 0}})";
  EXPECT_EQ(chosen(variables(both)), "TF_CONFIG");
  EXPECT_EQ(chosen(variables(three_nodes)), "Slurm");
  EXPECT_EQ(chosen(variables({{"SLURM_STEP_NUM_TASKS", "1"}, {"SLURM_STEP_NODELIST", "a"}})), "nothing");
  EXPECT_EQ(chosen(variables({})), "nothing");
  ASSERT_EQ(lines.size(), 4U);
  EXPECT_NE(
      lines[0].find("the cluster is that of TF_CONFIG (names a cluster): ClusterSpec({'worker': ['a:1', 'b:1']})"),
      std::string::npos)
      << lines[0];
  EXPECT_NE(lines[1].find("Slurm (a step of 3 tasks)"), std::string::npos) << lines[1];
  EXPECT_NE(lines[3].find("there is no cluster"), std::string::npos) << lines[3];
  for (const char* words :
       {R"({"cluster": {"worker": ["a:1", "b:1"]}, "task": {"type": "worker", "index": 0}})", "{"}) {
    run_local(3, [&](Exchange& exchange) {
      const auto some = variables(exchange.rank() == 1 ? Step{{"TF_CONFIG", words}} : Step{});
      const std::string said = refusal([&] { find_resolver(&exchange, Log(LogLevel::off), some); }, Code::cluster);
      EXPECT_NE(said.find(words[1] == 0 ? "TF_CONFIG is not JSON" : "names a cluster on rank 1 and none on rank 0,2"),
                std::string::npos)
          << said;
    });
  }
  run_local(2, [](Exchange& exchange) {
    const auto found = find_resolver(&exchange, Log(LogLevel::off), variables(three_nodes));
    EXPECT_EQ(found->describe(), "MPI") << "ranks have found each other already";
  });
}

}  // namespace
}  // namespace lockstep
