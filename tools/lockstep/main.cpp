// SPDX-License-Identifier: Apache-2.0
// Holds main(). It finds the subcommand, and turns an exception into one message and an exit code.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <exception>
#include <iostream>
#include <memory>
#include <new>
#include <system_error>
#include <thread>

#include "tools/lockstep/command.hpp"
#include "topology/base/environment.hpp"
#include "topology/base/text.hpp"
#include "topology/machine/device.hpp"
#include "topology/machine/launcher.hpp"
#include "topology/machine/read_machine.hpp"
#include "topology/machine/session.hpp"

namespace lockstep::command {

namespace {

constexpr std::array subcommands = {
    Subcommand{bench_manual, run_bench},       Subcommand{compare_manual, run_compare},
    Subcommand{doctor_manual, run_doctor},     Subcommand{links_manual, run_links},
    Subcommand{plan_manual, run_plan},         Subcommand{report_manual, run_report},
    Subcommand{sim_manual, run_sim},           Subcommand{soak_manual, run_soak},
    Subcommand{stat_manual, run_stat},         Subcommand{topo_manual, run_topo},
    Subcommand{timeline_manual, run_timeline}, Subcommand{train_manual, run_train},
    Subcommand{tune_manual, run_tune},         Subcommand{why_manual, run_why},
};

std::string overview() {
  std::string all =
      "lockstep - tools for collectives of MPI ranks and GPUs, and for replicas\n\n"
      "USE\n  lockstep SUBCOMMAND [OPTIONS]\n  mpirun -n N lockstep SUBCOMMAND [OPTIONS]\n\nSUBCOMMANDS\n";
  for (const Subcommand& each : subcommands) {
    std::string name(each.manual().name);
    name.resize(10, ' ');
    all += text("  ", name, each.manual().one_line, "\n");
  }
  all +=
      "\nOPTIONS\n  -h, --help    Print this page; `lockstep SUBCOMMAND --help` prints the page of a subcommand.\n"
      "  --version     Print the versions of this program and of the libraries that it was built with.\n"
      "  A subcommand with --json [FILE] writes JSON to FILE too; without FILE, or with -, it prints JSON\n"
      "  instead of the text. -o (--output) FILE receives the result of a subcommand; - is standard output.\n\n"
      "EXIT CODES\n  0 success, 1 wrong use, 2 wrong data, 3 performance gate, 4 timeout, 5 a member died,\n"
      "  6 unfit environment, 7 inconclusive\n\n"
      "`lockstep doctor --env` lists the variables LOCKSTEP_*. docs/errors.md explains the errors LOCKSTEP-E...\n";
  return all;
}

std::string version_page() {
  return text("lockstep ", version(), " (", commit(), ")\n", "  MPI    ", mpi_version(), "\n", "  hwloc  ",
              hwloc_version(), "\n", "  CUDA   ", cuda_version(), "\n", "  NCCL   ", nccl_version(), "\n");
}

const Subcommand& find(const std::string& name) {
  std::vector<std::string> names{"--help", "--version"};
  for (const Subcommand& each : subcommands) {
    if (each.manual().name == name) return each;
    names.emplace_back(each.manual().name);
  }
  const auto suggestion = nearest(name, names);
  throw Error(Code::usage, text("there is no subcommand \"", printable(name), "\""),
              text(suggestion ? text("did you mean ", *suggestion, "? ") : "", "`lockstep --help` lists all"));
}

Exit say(std::string_view page) {
  if (speaks()) std::cout << page;
  return Exit::success;
}

Exit dispatch(const std::vector<std::string>& words) {
  if (words.empty() || words[0] == "--help" || words[0] == "-h" || words[0] == "help") return say(overview());
  if (words[0] == "--version") return say(version_page());
  const Subcommand& subcommand = find(words[0]);
  const ParsedOptions parsed = parse(subcommand.manual(), {words.begin() + 1, words.end()});
  if (parsed.has("help")) return say(page(subcommand.manual()));
  return subcommand.run(parsed);
}

// Returns true for errors that all members have alike. One member prints them: rank 0, or the lowest remaining rank if
// rank 0 has not ended the job meanwhile.
bool is_shared(Code code) {
  constexpr std::array shared = {Code::usage,     Code::bad_setting, Code::bad_description, Code::bad_xml,
                                 Code::singleton, Code::mpi_ended,   Code::stall,           Code::peer_failed,
                                 Code::mismatch,  Code::file,        Code::settings_differ, Code::versions_differ};
  return std::find(shared.begin(), shared.end(), code) != shared.end();
}

Exit fail(Code code, std::string_view what) {
  const auto rank = launcher_rank(process_environment).value_or(0);
  if (is_shared(code) && rank > 0) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1000 + 200 * std::min(rank, 20)));
  }
  std::cerr << text("lockstep: ", what, "\n") << std::flush;
  end_job(exit_of(code));
  return exit_of(code);
}

// Reserves memory that is freed when memory is short, so that there is enough to report it.
std::unique_ptr<std::byte[]>& reserve() {
  static std::unique_ptr<std::byte[]> bytes = std::make_unique<std::byte[]>(1 << 20);
  return bytes;
}

// Turns the current exception into one of Lockstep's errors.
Exit fail_now() {
  reserve().reset();
  try {
    throw;
  } catch (const Error& error) {
    return fail(error.code(), error.what());
  } catch (const std::bad_alloc&) {
    const Error error(Code::out_of_memory, "an allocation failed",
                      "raise the limit (ulimit -v, the control group), or ask for less");
    return fail(error.code(), error.what());
  } catch (const std::system_error& error) {
    const Error system(Code::system, error.what(), "raise the limits (ulimit -u, -v, -n) or check the file system");
    return fail(system.code(), system.what());
  } catch (const std::exception& error) {
    const Error internal(Code::internal, error.what(), "report it with the command that led here");
    return fail(internal.code(), internal.what());
  }
}

// Opens placeholders for closed standard streams. Otherwise the next opened files would take their numbers, and receive
// our output. The placeholders refuse output, so that the loss is noticed.
void occupy_standard_streams() {
  for (const auto& [file, mode] : {std::pair(0, O_WRONLY), std::pair(1, O_RDONLY), std::pair(2, O_RDWR)}) {
    if (::fcntl(file, F_GETFD) < 0) static_cast<void>(::open("/dev/null", mode));
  }
}

Exit guarded(const std::vector<std::string>& words) {
  reserve();
  occupy_standard_streams();
  std::signal(SIGXFSZ, SIG_IGN);  // a file that grows too large is an error of its write
  // Libraries allocate in destructors too. An exception cannot leave these.
  std::set_terminate([] { ::_exit(static_cast<int>(std::current_exception() ? fail_now() : Exit::unfit)); });
  try {
    const Exit exit = dispatch(words);
    if (!std::cout.flush()) throw Error(Code::file, "standard output cannot be written", "check the disk or the pipe");
    return exit;
  } catch (...) {
    return fail_now();
  }
}

}  // namespace
}  // namespace lockstep::command

int main(int argc, char** argv) { return static_cast<int>(lockstep::command::guarded({argv + 1, argv + argc})); }
