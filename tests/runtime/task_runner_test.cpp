// SPDX-License-Identifier: Apache-2.0
// The harness for users: tasks of this program, started, ended and restarted, with their output. The strategies that
// run in them are tested elsewhere.
#include <lockstep/testing.hpp>

#include <gtest/gtest.h>

#include <csignal>
#include <cstdlib>
#include <iostream>
#include <thread>

#include "runtime/rpc/rpc.hpp"
#include "runtime/start.hpp"
#include "runtime/strategy.hpp"
#include "tests/support/lacks.hpp"
#include "tests/support/refusal.hpp"
#include "tests/support/watchdog.hpp"

namespace lockstep {
namespace {

using std::chrono::seconds;
using test::refusal;

const TaskFunction speaks("speaks", [](const Task& task) {
  const char* const config = std::getenv("TF_CONFIG");
  std::cout << task.type << ' ' << task.index << " speaks, " << std::getenv("FLAVOUR")
            << (std::getenv("OMPI_COMM_WORLD_SIZE") == nullptr ? ", " : " as a rank, ") << config << std::endl;
  std::cerr << "of " << TfConfigResolver().cluster_spec().num_tasks() << " tasks" << std::endl;
});

const TaskFunction ends_variously("ends variously", [](const Task& task) {
  if (task.index == 1) throw Error(Code::stall, "nobody came");
  if (task.index == 2) throw std::runtime_error("no numbers");
  if (task.index == 3) std::raise(SIGKILL);
  if (task.index == 4) std::exit(77);
});

const TaskFunction sleeps("sleeps", [](const Task& task) {
  std::cout << "process " << ::getpid() << " of " << task.type << ' ' << task.index << std::endl;
  if (task.index == 1) std::this_thread::sleep_for(seconds(100));
});

const TaskFunction trains("trains", [](const Task&) {
  Session session = start();
  MultiWorkerMirroredStrategy strategy(session);
  const int total = strategy.reduce(
      sum, strategy.run([](ReplicaContext& replica) { return replica.replica_id_in_sync_group() + 1; }));
  std::cout << "the sum is " << total << std::endl;
});

TEST(TaskRunners, GiveEachTaskItsConfigurationAndKeepItsOutput) {
  ::setenv("OMPI_COMM_WORLD_SIZE", "2", 1);  // as under mpirun, whose rank the tasks are not
  TaskRunner runner("speaks", local_cluster({{"worker", 2}, {"ps", 1}}), {.environment = {{"FLAVOUR", "sweet"}}});
  runner.start();
  runner.start("evaluator", 0);
  const TaskResults results = runner.join();
  ::unsetenv("OMPI_COMM_WORLD_SIZE");
  EXPECT_TRUE(results.all_succeeded()) << results;
  ASSERT_EQ(results.tasks.size(), 4U);
  for (const TaskResult& each : results.tasks) {
    EXPECT_EQ(each.output, text(each.task.type, ' ', each.task.index, " speaks, sweet, ",
                                to_tf_config(runner.cluster(), each.task), '\n'));
    EXPECT_EQ(each.errors, "of 3 tasks\n");
  }
  EXPECT_NE(text(results.of("ps", 0).output).find(runner.cluster().task_address("ps", 0)), std::string::npos);
  refusal([&] { results.of("ps", 1); }, Code::cluster);
}

TEST(TaskRunners, TellHowEachTaskEnded) {
  TaskRunner runner("ends variously", local_cluster({{"worker", 5}}));
  runner.start();
  const TaskResults results = runner.join();
  EXPECT_FALSE(results.all_succeeded());
  EXPECT_EQ(results.of("worker", 0).exit_code, 0);
  EXPECT_EQ(results.of("worker", 1).exit_code, static_cast<int>(exit_of(Code::stall)));
  EXPECT_NE(results.of("worker", 1).errors.find("nobody came"), std::string::npos);
  EXPECT_EQ(results.of("worker", 2).exit_code, 1);
  EXPECT_EQ(results.of("worker", 2).errors, "no numbers\n");
  EXPECT_EQ(results.of("worker", 3).exit_code, std::nullopt);
  EXPECT_EQ(results.of("worker", 3).signal, SIGKILL);
  EXPECT_EQ(results.of("worker", 4).exit_code, 77);
  std::ostringstream shown;
  shown << results.of("worker", 2) << results.of("worker", 3);
  EXPECT_EQ(shown.str(),
            "worker 2: ended with exit status 1\nworker 2| no numbers\nworker 3: was ended by signal 9 (Killed)\n");
}

TEST(TaskRunners, StartATaskAgain) {
  TaskRunner runner("sleeps", local_cluster({{"worker", 2}}));
  refusal([&] { runner.terminate("worker", 1); }, Code::usage);
  runner.start("worker", 1);
  runner.wait_for_output("worker", 1, "of worker 1\n");
  EXPECT_NE(refusal([&] { runner.start("worker", 1); }, Code::usage).find("worker 1 runs already"), std::string::npos);
  runner.restart("worker", 1);
  runner.wait_for_output("worker", 1, "of worker 1\n");  // of its second start
  runner.start();                                        // the other one
  EXPECT_NE(refusal([&] { runner.wait_for_output("worker", 0, "never"); }, Code::peer_failed)
                .find("worker 0 ended with exit status 0"),
            std::string::npos);
  runner.send_signal("worker", 1, SIGTERM);
  const TaskResults results = runner.join();
  EXPECT_EQ(results.of("worker", 1).starts, 2);
  EXPECT_EQ(results.of("worker", 1).signal, SIGTERM);
  EXPECT_EQ(std::ranges::count(results.of("worker", 1).output, '\n'), 2);
}

TEST(TaskRunners, EndTasksThatTakeTooLongAndNameThem) {
  TaskRunner runner("sleeps", local_cluster({{"worker", 2}}), {.timeout = std::chrono::milliseconds(1500)});
  runner.start();
  std::string said = refusal([&] { runner.join(); }, Code::stall);
  EXPECT_NE(said.find("tasks did not end within 1500 ms: worker 1 still ran, its last output: process "),
            std::string::npos)
      << said;
  EXPECT_EQ(said.find("worker 0 still"), std::string::npos) << said;
  EXPECT_EQ(runner.join().of("worker", 1).signal, SIGKILL);
  runner.start("worker", 1);
  said = refusal([&] { runner.wait_for_output("worker", 1, "never"); }, Code::stall);
  EXPECT_NE(said.find("worker 1 has not written \"never\" within"), std::string::npos) << said;
}

TEST(TaskRunners, LeaveNoTaskBehind) {
  int process = 0;
  {
    TaskRunner runner("sleeps", local_cluster({{"worker", 2}}));
    runner.start("worker", 1);
    runner.wait_for_output("worker", 1, "\n");
    process = runner.process("worker", 1);
    EXPECT_EQ(::kill(process, 0), 0);
  }
  EXPECT_EQ(::kill(process, 0), -1);
}

TEST(TaskRunners, RunStrategiesAndRestartThem) {
  if (!rpc::is_available()) GTEST_SKIP() << test::lacks("needs gRPC");
  TaskRunner runner("trains", local_cluster({{"worker", 2}}));
  runner.start("worker", 0);
  runner.restart("worker", 0);
  runner.start();
  TaskResults results = runner.join();
  EXPECT_TRUE(results.all_succeeded()) << results;
  for (const TaskResult& each : results.tasks) EXPECT_EQ(each.output, "the sum is 3\n");
}

TEST(TaskRunners, RefuseFunctionsThatDoNotExist) {
  EXPECT_NE(refusal(
                [] {
                  TaskRunner("dances", local_cluster({{"worker", 1}}));
                },
                Code::usage)
                .find("no TaskFunction has the name dances"),
            std::string::npos);
  EXPECT_THROW(TaskFunction("trains", nullptr), std::logic_error);
  TaskRunner runner("speaks", local_cluster({{"worker", 1}}));
  refusal([&] { runner.start("worker", 1); }, Code::cluster);
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  if (const auto code = lockstep::run_as_task()) return *code;
  testing::InitGoogleTest(&argc, argv);
  lockstep::test::start_watchdog("one process", lockstep::test::take_deadline(argc, argv, std::chrono::seconds(120)));
  return RUN_ALL_TESTS();
}
