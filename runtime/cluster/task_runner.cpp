// SPDX-License-Identifier: Apache-2.0
// A task executes the program of this process again, with TF_CONFIG and the name of its function in the environment.
// fork() alone would copy locks that other threads hold, and MPI and CUDA do not work in such a copy.
#include "runtime/cluster/task_runner.hpp"

#include <fcntl.h>
#include <netinet/in.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <iostream>
#include <stdexcept>
#include <thread>

#include <nlohmann/json.hpp>

#include "runtime/cluster/resolver.hpp"
#include "topology/base/descriptor.hpp"
#include "topology/base/error.hpp"
#include "topology/base/process.hpp"
#include "topology/base/text.hpp"

namespace lockstep {
namespace {

using Clock = std::chrono::steady_clock;

constexpr const char* function_variable =
    "_LOCKSTEP_TASK_FUNCTION";  // is no setting, so it does not begin with LOCKSTEP_
constexpr std::chrono::milliseconds between_looks{5};

std::map<std::string, std::function<void(const Task&)>, std::less<>>& functions() {
  static std::map<std::string, std::function<void(const Task&)>, std::less<>> all;
  return all;
}

std::string name_of(std::string_view type, int index) { return text(type, ' ', index); }

// Returns a nameless file in memory.
OwnedDescriptor make_file() {
  OwnedDescriptor file(::memfd_create("lockstep-task", MFD_CLOEXEC));
  if (!file || ::fcntl(file.get(), F_SETFL, O_APPEND) != 0)
    throw system_error("no file for the output of a task", errno);
  return file;
}

// Returns the file's bytes from byte `first` on.
std::string content(const OwnedDescriptor& file, std::size_t first = 0) {
  std::string all;
  std::array<char, 4096> piece;
  for (ssize_t bytes = 0;
       (bytes = ::pread(file.get(), piece.data(), piece.size(), static_cast<off_t>(first + all.size()))) > 0;)
    all.append(piece.data(), static_cast<std::size_t>(bytes));
  return all;
}

// Returns the last lines, at most 400 bytes.
std::string last_lines(const std::string& all) {
  constexpr std::size_t max_bytes = 400;
  if (all.empty()) return "nothing";
  return printable(trim(std::string_view(all).substr(all.size() > max_bytes ? all.size() - max_bytes : 0)), max_bytes);
}

std::vector<std::string> environment_of(const std::map<std::string, std::string>& set) {
  std::vector<std::string> all;
  for (char** each = environ; *each != nullptr; ++each) {
    const std::string_view variable = *each;
    const std::string_view name = variable.substr(0, variable.find('='));
    const bool is_of_a_launcher =
        name.starts_with("OMPI_COMM_WORLD_") || name.starts_with("PMI_") || name.starts_with("PMIX_");
    if (!is_of_a_launcher && !set.contains(std::string(name))) all.emplace_back(variable);
  }
  for (const auto& [name, value] : set) all.push_back(text(name, '=', value));
  return all;
}

// Returns a socket that holds this port, or nothing if the port is taken. The system does not choose such ports.
OwnedDescriptor hold_port(int port) {
  OwnedDescriptor held(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const auto* const any = reinterpret_cast<const sockaddr*>(&address);
  return held && ::bind(held.get(), any, sizeof address) == 0 ? std::move(held) : OwnedDescriptor();
}

struct RunningTask {
  OwnedDescriptor output, errors;
  pid_t process = 0;  // 0: it has ended, or was never started
  int status = 0;     // that of wait()
  int starts = 0;
  std::size_t written_before = 0;  // bytes of output of earlier starts

  // True if the task runs. Takes note of its end.
  bool runs() {
    if (process != 0 && ::waitpid(process, &status, WNOHANG) == process) process = 0;
    return process != 0;
  }
  void end() {
    if (!runs()) return;
    ::kill(process, SIGKILL);
    while (::waitpid(process, &status, 0) < 0 && errno == EINTR) {
    }
    process = 0;
  }
};

// Runs in the child: calls only functions that are safe while other threads of the parent hold locks.
[[noreturn]] void become_task(pid_t parent, int output, int errors, char* const* words, char* const* environment) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  const int input = ::open("/dev/null", O_RDONLY);
  const bool is_ready = ::getppid() == parent && input >= 0 && ::dup2(input, STDIN_FILENO) >= 0 &&
                        ::dup2(output, STDOUT_FILENO) >= 0 && ::dup2(errors, STDERR_FILENO) >= 0;
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  if (is_ready) ::execve("/proc/self/exe", words, environment);
  ::_exit(127);
}

std::vector<char*> pointers(std::vector<std::string>& words) {
  std::vector<char*> all;
  all.reserve(words.size() + 1);
  for (std::string& each : words) all.push_back(each.data());
  all.push_back(nullptr);
  return all;
}

}  // namespace

TaskFunction::TaskFunction(std::string name, std::function<void(const Task&)> function) {
  if (!functions().emplace(name, std::move(function)).second)
    throw std::logic_error(text("two functions of tasks have the name ", name));
}

std::optional<int> run_as_task() {
  const char* const name = process_environment(function_variable);
  if (name == nullptr) return std::nullopt;
  try {
    const auto found = functions().find(name);
    if (found == functions().end())
      throw Error(Code::usage, text("no TaskFunction has the name ", printable(name)),
                  "make it before main(), as an object of the namespace");
    ::unsetenv(function_variable);  // the task may have a TaskRunner of its own
    found->second(TfConfigResolver().task().value());
    return 0;
  } catch (const Error& error) {
    std::cerr << error.what() << std::endl;
    return static_cast<int>(error.exit());
  } catch (const std::exception& error) {
    std::cerr << error.what() << std::endl;
    return 1;
  }
}

ClusterSpec local_cluster(const std::map<std::string, int>& jobs) {
  constexpr int first = 12'000, ports = 20'000;  // below those that Linux gives to clients (32768 and more)
  static int next = ::getpid() % 500 * 40;
  std::vector<OwnedDescriptor> held;  // keeps two tasks from one port
  ClusterSpec::Jobs all;
  for (const auto& [job, number] : jobs) {
    for (int index = 0, tries = 0; index < number; ++tries) {
      if (tries == ports)
        throw Error(Code::system, "no port from 12000 to 31999 is free", "end programs that listen there");
      const int port = first + next++ % ports;
      if (OwnedDescriptor socket = hold_port(port)) {
        held.push_back(std::move(socket));
        all[job][index++] = text("localhost:", port);
      }
    }
  }
  return ClusterSpec(std::move(all));
}

std::string to_tf_config(const ClusterSpec& cluster, const Task& task) {
  nlohmann::json jobs = nlohmann::json::object();
  for (const auto& [job, tasks] : cluster.jobs()) {
    for (const auto& [index, address] : tasks) jobs[job][std::to_string(index)] = address;  // indices may have gaps
  }
  return nlohmann::json{{"cluster", std::move(jobs)}, {"task", {{"type", task.type}, {"index", task.index}}}}.dump();
}

std::ostream& operator<<(std::ostream& out, const TaskResult& result) {
  const std::string name = name_of(result.task.type, result.task.index);
  const int status = result.exit_code ? *result.exit_code << 8 : result.signal;
  out << name << ": " << how_it_ended(status) << '\n';
  for (const std::string* said : {&result.output, &result.errors}) {
    for (const std::string& line : split(*said, '\n')) {
      if (!line.empty()) out << name << "| " << line << '\n';
    }
  }
  return out;
}

bool TaskResults::all_succeeded() const { return std::ranges::all_of(tasks, &TaskResult::succeeded); }

const TaskResult& TaskResults::of(std::string_view type, int index) const {
  const auto found = std::ranges::find(tasks, Task{std::string(type), index}, &TaskResult::task);
  if (found == tasks.end())
    throw Error(Code::cluster, text(name_of(type, index), " was not started"), "start it, or name another task");
  return *found;
}

std::ostream& operator<<(std::ostream& out, const TaskResults& results) {
  for (const TaskResult& each : results.tasks) out << each;
  return out;
}

struct TaskRunner::Parts {
  std::string function;
  ClusterSpec cluster;
  TaskRunnerOptions options;
  std::map<std::pair<std::string, int>, RunningTask, std::less<>> tasks;
  std::optional<Clock::time_point> end;

  RunningTask& task(std::string_view type, int index) {
    const auto found = tasks.find({std::string(type), index});
    if (found == tasks.end())
      throw Error(Code::usage, text(name_of(type, index), " has not been started"), "call start() before");
    return found->second;
  }

  // Ends the tasks that still run and throws.
  [[noreturn]] void give_up(std::string_view what) {
    std::string all;
    for (auto& [name, task] : tasks) {
      if (!task.runs()) continue;
      task.end();
      all += text(all.empty() ? "" : "; ", name_of(name.first, name.second),
                  " still ran, its last output: ", last_lines(content(task.output) + content(task.errors)));
    }
    throw Error(Code::stall, text(what, " within ", options.timeout.count(), " ms: ", all),
                "look at the last lines, or raise TaskRunnerOptions::timeout");
  }
};

TaskRunner::TaskRunner(std::string_view function, ClusterSpec cluster, TaskRunnerOptions options)
    : parts_(std::make_unique<Parts>(Parts{std::string(function), std::move(cluster), std::move(options), {}, {}})) {
  if (!functions().contains(function))
    throw Error(Code::usage, text("no TaskFunction has the name ", printable(function)),
                "make it before main(), as an object of the namespace");
  if (process_environment(function_variable) != nullptr)
    throw Error(Code::usage, "this process is a task itself, and has not run as one",
                "call lockstep::run_as_task() first in main()");
}

TaskRunner::~TaskRunner() {
  for (auto& [name, task] : parts_->tasks) task.end();
}

const ClusterSpec& TaskRunner::cluster() const { return parts_->cluster; }

void TaskRunner::start() {
  for (const auto& [type, tasks] : parts_->cluster.jobs()) {
    for (const auto& [index, address] : tasks) {
      if (!parts_->tasks.contains(std::pair(type, index))) start(type, index);
    }
  }
}

void TaskRunner::start(std::string_view type, int index) {
  if (type != "evaluator" || index != 0) parts_->cluster.task_address(type, index);  // throws if it is not there
  RunningTask& task = parts_->tasks[{std::string(type), index}];
  if (task.runs()) throw Error(Code::usage, text(name_of(type, index), " runs already"), "call restart()");
  if (task.starts == 0) {
    task.output = make_file();
    task.errors = make_file();
  }
  task.written_before = content(task.output).size();
  auto variables = parts_->options.environment;
  variables["TF_CONFIG"] = to_tf_config(parts_->cluster, {std::string(type), index});
  variables[function_variable] = parts_->function;
  std::vector<std::string> environment = environment_of(variables);
  std::vector<std::string> words{text("task ", type, ' ', index)};
  const std::vector<char*> environment_pointers = pointers(environment), word_pointers = pointers(words);
  const pid_t parent = ::getpid();
  const pid_t child = ::fork();
  if (child == 0)
    become_task(parent, task.output.get(), task.errors.get(), word_pointers.data(), environment_pointers.data());
  if (child < 0) throw system_error(text("no process for ", name_of(type, index)), errno);
  task.process = child;
  ++task.starts;
  if (!parts_->end) parts_->end = Clock::now() + parts_->options.timeout;
}

void TaskRunner::send_signal(std::string_view type, int index, int signal) {
  if (const int running = process(type, index); running != 0) ::kill(running, signal);
}

int TaskRunner::process(std::string_view type, int index) {
  RunningTask& task = parts_->task(type, index);
  return task.runs() ? task.process : 0;
}

void TaskRunner::terminate(std::string_view type, int index) { parts_->task(type, index).end(); }

void TaskRunner::restart(std::string_view type, int index) {
  terminate(type, index);
  start(type, index);
}

void TaskRunner::wait_for_output(std::string_view type, int index, std::string_view words) {
  RunningTask& task = parts_->task(type, index);
  for (;;) {
    const bool runs = task.runs();  // asked first, so that the last words of a task that ends are seen
    if (content(task.output, task.written_before).find(words) != std::string::npos) return;
    if (!runs)
      throw Error(
          Code::peer_failed,
          text(name_of(type, index), ' ', how_it_ended(task.status), " and has not written \"", printable(words),
               "\"; its last output: ", last_lines(content(task.output) + content(task.errors))),
          "see the task's own error");
    if (Clock::now() > *parts_->end)
      parts_->give_up(text(name_of(type, index), " has not written \"", printable(words), "\""));
    std::this_thread::sleep_for(between_looks);
  }
}

TaskResults TaskRunner::join() {
  const auto run = [&] { return std::ranges::any_of(parts_->tasks, [](auto& each) { return each.second.runs(); }); };
  while (run()) {
    if (Clock::now() > *parts_->end) parts_->give_up("tasks did not end");
    std::this_thread::sleep_for(between_looks);
  }
  TaskResults results;
  results.tasks.reserve(parts_->tasks.size());
  for (auto& [name, task] : parts_->tasks) {
    const bool exited = WIFEXITED(task.status);
    results.tasks.push_back({.task = {name.first, name.second},
                             .starts = task.starts,
                             .exit_code = exited ? std::optional(WEXITSTATUS(task.status)) : std::nullopt,
                             .signal = exited ? 0 : WTERMSIG(task.status),
                             .output = content(task.output),
                             .errors = content(task.errors)});
  }
  return results;
}

}  // namespace lockstep
