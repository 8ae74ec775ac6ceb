// SPDX-License-Identifier: Apache-2.0
// Runs `lockstep soak`: random, verified work for a given time.
#include "bench/soak.hpp"

#include <iostream>

#include "bench/sizes.hpp"
#include "tools/lockstep/begin_session.hpp"
#include "tools/lockstep/command.hpp"
#include "tools/lockstep/interrupt.hpp"
#include "tools/lockstep/progress.hpp"
#include "topology/base/duration.hpp"
#include "topology/base/text.hpp"
#include "topology/machine/session.hpp"

namespace lockstep::command {
namespace {

bench::SoakOptions soak_options_of(const ParsedOptions& parsed) {
  bench::SoakOptions soak_options;
  if (parsed.has("for") && parsed.has("rounds"))
    throw Error(Code::usage, "--for and --rounds are both given", "give a time or a number of rounds");
  if (const auto words = parsed.value("for")) {
    const auto time = parse_duration(*words);
    if (!time || *time <= Duration::zero())
      throw Error(Code::usage, text("--for is \"", printable(*words), '"'), "give a time: 60s, 10m or 8h");
    soak_options.seconds = std::chrono::duration<double>(*time).count();
  }
  soak_options.seed = static_cast<std::uint64_t>(parsed.integer("seed", 0, 1LL << 62, 1));
  soak_options.first_round = static_cast<std::uint64_t>(parsed.integer("from", 0, 1LL << 62, 0));
  if (parsed.has("rounds")) soak_options.rounds = static_cast<std::uint64_t>(parsed.integer("rounds", 1, 1LL << 62, 1));
  if (const auto most = parsed.value("most")) soak_options.most_bytes = bench::parse_size(*most);
  constexpr std::uint64_t sane = std::uint64_t{1} << 32U;
  if (soak_options.most_bytes < 1 || soak_options.most_bytes > sane)
    throw Error(Code::usage, text("--most is \"", printable(*parsed.value("most")), '"'), "give a size from 1 to 4G");
  return soak_options;
}

}  // namespace

const Manual& soak_manual() {
  static const Manual manual{
      .name = "soak",
      .one_line = "run random collectives, and check every result",
      .synopsis = "mpirun -n N lockstep soak [--for TIME] [--seed N] [...]",
      .description =
          R"manual(Draws collectives, sizes, types, operations, roots and groups at random. It keeps up to six calls in
flight, waits for them in a different order on every rank, and checks every element of every result.
It creates and frees communicators all the while. A wrong result is printed with the command that
repeats it, by seed and round.)manual",
      .options = {{"for", 0, "TIME", "Duration (default: 60s)."},
                  {"rounds", 0, "N", "Number of rounds, instead of a duration."},
                  {"seed", 0, "N", "Seed of everything that is drawn (default: 1)."},
                  {"from", 0, "N", "First round (default: 0)."},
                  {"most", 0, "SIZE", "Largest size of an operation, in bytes (default: 1M)."}},
      .examples =
          "  mpirun -n 8 lockstep soak --for 10m --seed 7\n"
          "      tests the machine, the network and the library for ten minutes\n",
      .exit_codes =
          "  0  all results are right\n  1  wrong use\n  2  a wrong result, with the command that repeats it\n"
          "  4  a rank did not arrive in time\n  5  a rank ended before the others\n  6  unfit environment\n"
          "  7  ended early\n",
  };
  return manual;
}

Exit run_soak(const ParsedOptions& parsed) {
  const bench::SoakOptions soak_options = soak_options_of(parsed);
  Session session = begin_session({.purpose = "soak"});
  Communicator& world = session.world();
  end_early_on_signals();
  const bool speaking = session.rank() == 0;
  if (speaking)
    std::cout << text("# lockstep soak  ", version(), "  ", mpi_version(), "  ", world.size(),
                      world.size() == 1 ? " rank" : " ranks", "  seed ", soak_options.seed, '\n')
              << std::flush;
  if (world.size() == 1) hint_at_more_ranks("soak", "sends nothing");
  ProgressLine progress(speaking);
  const bench::SoakResult result = bench::soak(world, soak_options, [&](const bench::SoakResult& now) {
    progress.show(text(now.rounds, " rounds, ", now.operations, " operations, ", format_bytes(now.bytes)));
  });
  progress.clear();
  if (speaking) {
    std::cout << text("# ", result.rounds, " rounds, ", result.operations, " operations, ", format_bytes(result.bytes),
                      " a rank\n");
    if (!result.wrong.empty()) {
      const std::uint64_t round = soak_options.first_round + result.rounds - 1;
      std::cout << text("WRONG  ", result.wrong, "\n# verdict: wrong data\n# next: mpirun -n ", world.size(),
                        " lockstep soak --seed ", soak_options.seed, " --from ", round, " --rounds 1 --most ",
                        soak_options.most_bytes, "  repeats that round\n");
    } else {
      std::cout << (result.interrupted ? "# verdict: ended early, and all results right until then\n"
                                       : "# verdict: all results right\n");
    }
    std::cout << std::flush;
  }
  if (!result.wrong.empty()) return Exit::wrong_data;
  return result.interrupted ? Exit::inconclusive : Exit::success;
}

}  // namespace lockstep::command
