// SPDX-License-Identifier: Apache-2.0
// Runs the tasks of a cluster as processes of this machine, for tests: starts, ends and restarts them, limits their
// time, and keeps the output of each.
//
//   const lockstep::TaskFunction train("train", [](const lockstep::Task& task) { ... lockstep::start() ... });
//   int main(int argc, char** argv) {
//     if (const auto code = lockstep::run_as_task()) return *code;
//     lockstep::TaskRunner runner("train", lockstep::local_cluster({{"worker", 2}}));
//     runner.start();
//     std::cout << runner.join();
//   }
#pragma once

#include <chrono>
#include <functional>
#include <iosfwd>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/cluster/cluster_spec.hpp"

namespace lockstep {

// Names a function that tasks run. Make these before main(): a task is a new process of this program, so that it
// needs nothing of the process that starts it, which may have threads, MPI and GPUs. It therefore captures nothing
// that main() makes.
class TaskFunction {
 public:
  // Throws std::logic_error if another function has this name.
  TaskFunction(std::string name, std::function<void(const Task&)> function);
};

// Returns nothing in a process that is no task of a TaskRunner. Otherwise it runs the function of the task and returns
// the exit code: 0, or that of an Error, or 1 for another exception, whose text goes to standard error. Call it first
// in main().
std::optional<int> run_as_task();

// Returns a cluster on this machine with ports that are free now: local_cluster({{"worker", 2}, {"ps", 1}}).
ClusterSpec local_cluster(const std::map<std::string, int>& jobs);

// Returns the value of TF_CONFIG for a task of this cluster.
std::string to_tf_config(const ClusterSpec& cluster, const Task& task);

// Holds the end of one task.
struct TaskResult {
  Task task;
  int starts = 0;                // Counts how often it was started.
  std::optional<int> exit_code;  // Is empty if a signal ended it.
  int signal = 0;                // Is 0 if it exited.
  std::string output, errors;    // Hold standard output and standard error of all its starts.

  bool succeeded() const { return exit_code == 0; }
};
// Writes "worker 1: was ended by signal 9 (Killed)" and the output, each line behind the task's name.
std::ostream& operator<<(std::ostream& out, const TaskResult& result);

// Holds the end of all tasks that were started.
struct TaskResults {
  std::vector<TaskResult> tasks;

  bool all_succeeded() const;
  // Throws Error cluster if this task was not started.
  const TaskResult& of(std::string_view type, int index) const;
};
std::ostream& operator<<(std::ostream& out, const TaskResults& results);

// Holds the options of a TaskRunner.
struct TaskRunnerOptions {
  std::chrono::milliseconds timeout = std::chrono::minutes(1);  // Counts from the first start.
  // Are set in every task, besides the variables of this process. Those of an MPI launcher are left out.
  std::map<std::string, std::string> environment = {};
};

// Owns the processes of the tasks and ends those that still run at its end. The system also ends them with the thread
// that started them.
class TaskRunner {
 public:
  // Throws Error usage if no TaskFunction has this name.
  TaskRunner(std::string_view function, ClusterSpec cluster, TaskRunnerOptions options = {});
  ~TaskRunner();
  TaskRunner(const TaskRunner&) = delete;
  TaskRunner& operator=(const TaskRunner&) = delete;

  const ClusterSpec& cluster() const;
  // Starts all tasks that have not been started.
  void start();
  // Starts this task, also again after its end. An evaluator need not be in the cluster. Throws Error usage while the
  // task runs.
  void start(std::string_view type, int index);
  // Sends a signal such as SIGSTOP to the task if it runs, and does not wait.
  void send_signal(std::string_view type, int index, int signal);
  // Ends the task at once (SIGKILL) if it runs.
  void terminate(std::string_view type, int index);
  // Terminates the task and starts it again.
  void restart(std::string_view type, int index);
  // Returns the id of the task's process, or 0 if it does not run.
  int process(std::string_view type, int index);
  // Waits until the task has written these words to standard output since its last start. Throws Error stall at the
  // time limit, and Error peer_failed if the task ends first.
  void wait_for_output(std::string_view type, int index, std::string_view words);
  // Waits for the end of all tasks. At the time limit it ends those that still run and throws Error stall with their
  // names and last lines.
  TaskResults join();

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace lockstep
