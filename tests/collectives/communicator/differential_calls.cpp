// SPDX-License-Identifier: Apache-2.0
// Holds drawn collectives and messages against MPI's own, byte by byte.
//
//   mpirun -n 3 differential_calls --seed 7 --operations 2000
//   mpirun -n 3 differential_calls --seed 7 --first 41 --steps 1       that step alone
//   mpirun -n 3 differential_calls --spoil 1                           must fail: each step changes a byte behind a
//   result
//
// A step that differs is printed with both commands that repeat it. The exit code is then 1.
#include <mpi.h>

#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <lockstep.hpp>
#include <string>
#include <string_view>

#include "tests/collectives/communicator/drawn_step.hpp"
#include "topology/base/text.hpp"

namespace {

using lockstep::text;

struct Options {
  std::uint64_t seed = 1;
  std::uint64_t first = 0;
  std::uint64_t steps = ~std::uint64_t{0};
  std::uint64_t operations = 2000;
  bool spoils = false;
};

constexpr std::uint64_t steps_between_votes = 64;
constexpr unsigned seconds_without_vote = 120;
constexpr std::size_t symmetric_bytes = std::size_t{4} << 20;

Options options_of(int argc, char** argv) {
  Options options;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string_view name = argv[i];
    const std::uint64_t value = std::strtoull(argv[i + 1], nullptr, 10);
    if (name == "--seed")
      options.seed = value;
    else if (name == "--first")
      options.first = value;
    else if (name == "--steps")
      options.steps = value;
    else if (name == "--operations")
      options.operations = value;
    else if (name == "--spoil")
      options.spoils = value > 0;
    else
      throw lockstep::Error(lockstep::Code::usage, text("there is no option ", name),
                            "give --seed, --operations, --first, --steps");
  }
  return options;
}

std::string settings() {
  std::string all;
  for (char** each = environ; *each != nullptr; ++each)
    if (std::string_view(*each).starts_with("LOCKSTEP_")) all += text(*each, ' ');
  return all;
}

std::string command(const Options& options, int ranks, std::uint64_t first, std::uint64_t steps, const char* program) {
  return text(settings(), "mpirun --oversubscribe -n ", ranks, ' ', program, " --seed ", options.seed, " --first ",
              first, " --steps ", steps);
}

// Returns the number of ranks that have found a difference.
int vote(bool is_wrong) {
  const int mine = is_wrong ? 1 : 0;
  int all = 0;
  MPI_Allreduce(&mine, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  alarm(seconds_without_vote);  // ends a rank that hangs
  return all;
}

int run(const Options& options, lockstep::Communicator& world, const char* program) {
  auto symmetric = world.allocate<std::byte>(symmetric_bytes);
  const lockstep::test::StepWorld step_world{world, symmetric};
  std::uint64_t done = 0;
  std::uint64_t steps = 0;
  bool is_wrong = false;
  alarm(seconds_without_vote);
  for (std::uint64_t step = options.first; steps < options.steps && done < options.operations; ++step, ++steps) {
    const auto repeat = [&] {
      return text("  repeat it:   ", command(options, world.size(), step, 1, program),
                  "\n  all before it: ", command(options, world.size(), 0, step + 1, program), '\n');
    };
    try {
      const auto result =
          lockstep::test::run_step(step_world, options.seed * 0x9E3779B97F4A7C15ULL + step, options.spoils);
      done += result.operations;
      if (!result.wrong.empty())
        std::cerr << text("rank ", world.rank(), ", step ", step, ": ", result.wrong, '\n', repeat()) << std::flush;
      is_wrong = is_wrong || !result.wrong.empty();
    } catch (const lockstep::Error& error) {
      std::cerr << text("rank ", world.rank(), ", step ", step, ": ", error.what(), '\n', repeat()) << std::flush;
      MPI_Abort(MPI_COMM_WORLD, 1);
    }
    if (steps % steps_between_votes == 0 && vote(is_wrong) > 0) return 1;
  }
  const bool failed = vote(is_wrong) > 0;
  alarm(0);
  if (world.rank() == 0)
    std::cout << text(done, " operations in ", steps, " steps, seed ", options.seed, failed ? ": DIFFERENT" : ": equal",
                      '\n');
  return failed ? 1 : 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    lockstep::Session session(argc, argv);
    return run(options_of(argc, argv), session.world(), argv[0]);
  } catch (const lockstep::Error& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
}
