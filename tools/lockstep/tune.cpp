// SPDX-License-Identifier: Apache-2.0
// Runs `lockstep tune`: finds the fastest algorithms for the places of this job, and writes the table.
#include "bench/tune.hpp"

#include <algorithm>
#include <array>
#include <iostream>

#include "bench/sizes.hpp"
#include "bench/subject.hpp"
#include "collectives/communicator/communicator.hpp"
#include "tools/lockstep/begin_session.hpp"
#include "tools/lockstep/command.hpp"
#include "tools/lockstep/describe_run.hpp"
#include "tools/lockstep/interrupt.hpp"
#include "tools/lockstep/names.hpp"
#include "tools/lockstep/progress.hpp"
#include "tools/lockstep/write_file.hpp"
#include "topology/base/text.hpp"
#include "topology/machine/session.hpp"

namespace lockstep::command {
namespace {

using namespace bench;

const std::vector<Option>& tune_option_list() {
  static const std::vector<Option> all{
      {"output", 'o', "FILE", "File of the table (default: standard output)."},
      {"seconds", 0, "S", "About the time for everything, in seconds (default: 60). Sizes without time are left out."},
      {"sizes", 's', "LIST", "Sizes in bytes of all data of a rank, as for `lockstep bench`: 8,4K,1M."},
      {"begin", 'b', "SIZE", "First size of a sweep; each size is four times the one before (default: 8)."},
      {"end", 'e', "SIZE", "Last size of a sweep (default: 16M)."},
      {"most", 0, "N", "Algorithms to try for a size, the best ones by the model (default: 6)."},
      {"seed", 0, "N", "Seed of the order in which they take turns (default: 1)."},
  };
  return all;
}

bool is_tuned(Collective collective) {
  return collective != Collective::sendrecv && collective != Collective::barrier && !is_unequal(collective);
}

// Returns the named collectives, or all with equal counts that have several algorithms.
std::vector<Collective> collectives(const ParsedOptions& parsed) {
  std::vector<Collective> all;
  for (const std::string& words : parsed.words()) {
    for (const std::string& word : split(words, ',')) {
      const auto collective = parse_collective(our_collective(word).value_or(word));
      if (!collective || !is_tuned(*collective))
        refuse_name<Collective>("collective to tune", word, collective_count, is_tuned);
      if (std::ranges::find(all, *collective) == all.end()) all.push_back(*collective);
    }
  }
  if (!all.empty()) return all;
  return {Collective::all_reduce, Collective::reduce, Collective::broadcast, Collective::reduce_scatter,
          Collective::all_gather, Collective::gather, Collective::scatter,   Collective::all_to_all};
}

// Builds the sizes and the time limit. A single size list and a sweep exclude each other.
TuneOptions tune_options_of(const ParsedOptions& parsed) {
  TuneOptions tune_options{.collectives = collectives(parsed)};
  if (const auto list = parsed.value("sizes")) {
    for (const std::string_view other : {"begin", "end"}) {
      if (parsed.has(other))
        throw Error(Code::usage, text("--sizes and --", other, " are both given"), "give a list or a sweep");
    }
    tune_options.sizes = parse_size_list(*list);
    std::ranges::sort(tune_options.sizes);
  } else {
    tune_options.sizes = sizes_of({.begin = parse_size(parsed.value("begin").value_or("8")),
                                   .end = parse_size(parsed.value("end").value_or("16M")),
                                   .factor = 4});
  }
  tune_options.seconds = parsed.decimal("seconds", 0.1, 86400, tune_options.seconds);
  tune_options.most =
      static_cast<std::size_t>(parsed.integer("most", 2, 100, static_cast<long long>(tune_options.most)));
  tune_options.seed = static_cast<std::uint64_t>(parsed.integer("seed", 0, 1LL << 62, 1));
  return tune_options;
}

// Throws on all members alike. Otherwise one would end and the others wait.
void refuse_too_large(Communicator& world, const TuneOptions& tune_options) {
  std::uint64_t most = 0;
  for (const Collective collective : tune_options.collectives) {
    Subject subject{.collective = collective};
    subject.count = count_of(collective, subject.type, tune_options.sizes.back(), world.size());
    most = std::max(most, memory_of(subject, world.size()));
  }
  constexpr std::uint64_t bound = std::uint64_t{8} << 30U;
  if (most > bound)
    throw Error(Code::usage,
                text("sizes up to ", tune_options.sizes.back(), " bytes, for which a rank needs ", most >> 30U, " GiB"),
                "give a smaller end (-e): the fastest algorithm at that size is the fastest beyond it");
}

}  // namespace

const Manual& tune_manual() {
  static const Manual manual{
      .name = "tune",
      .one_line = "find the fastest algorithms here, for LOCKSTEP_TABLE",
      .synopsis = "mpirun -n N lockstep tune [COLLECTIVE[,COLLECTIVE...]] [-o FILE] [--seconds S] [-b SIZE -e SIZE]",
      .description =
          R"manual(Measures, on the ranks of this job and in turns, the algorithms that the cost model finds best for
each collective and size. It writes a table; LOCKSTEP_TABLE lets later jobs choose from it. The
model's choice stays if no other is faster beyond the noise. Comments in the table have the measured
times, with intervals of 95 %, the predictions, and the extra time of the model's choices.

The table is for this kind of machines with ranks at these places, whatever the names of the hosts;
any other job refuses it. Rows are for this number of ranks and nodes. Smaller communicators, such as
those made by a split, use the model; so do orders that a row does not suit. `lockstep plan` prints
the row that was taken.)manual",
      .options = tune_option_list(),
      .examples =
          "  mpirun -n 8 lockstep tune -o here.table\n"
          "  LOCKSTEP_TABLE=here.table mpirun -n 8 lockstep plan all_reduce --count 4096\n"
          "      writes a table, and shows its row for 16 KiB\n"
          "  mpirun -n 8 lockstep tune all_reduce -b 1K -e 64M --seconds 20\n"
          "      measures one collective quickly, and prints the table\n",
      .exit_codes =
          "  0  all sizes are measured\n  1  wrong use\n  4  a rank did not arrive in time\n  5  a rank ended before "
          "the others\n"
          "  6  unfit environment\n  7  one rank only, too little time for any size, or ended early\n",
      .positional = true,
  };
  return manual;
}

Exit run_tune(const ParsedOptions& parsed) {
  TuneOptions tune_options = tune_options_of(parsed);
  constexpr std::array<std::string_view, 1> files = {"output"};
  check_writable(parsed, files);
  Session session = begin_session({.purpose = "tune"});
  Communicator& world = session.world();
  const bool speaking = session.rank() == 0;
  if (world.size() == 1) {
    hint_at_more_ranks("tune", "has nothing to choose");
    return Exit::inconclusive;
  }
  refuse_too_large(world, tune_options);
  end_early_on_signals();
  ProgressLine progress(speaking);
  tune_options.progress = [&](std::size_t done, std::size_t all) {
    progress.show(text("size ", done + 1, " of ", all));
  };
  TuneResult tuning = tune(world, tune_options);
  tuning.when = describe_run(session, "tune", parsed, tune_options.seed).started;
  progress.clear();
  const bool is_whole = !tuning.interrupted && !tuning.sizes.empty();
  if (speaking) {
    const std::string table = table_of(tuning);
    const auto path = parsed.value("output");
    if (path && !tuning.sizes.empty()) write_file(*path, table);
    if (!path) std::cout << table;
    std::cerr << text("# ", tuning.sizes.size(), " of ", tuning.wanted, " sizes measured",
                      tuning.sizes.size() < tuning.wanted ? "; more with a larger --seconds" : "",
                      "; without the table ", cost_text(tuning), '\n');
    if (path && tuning.sizes.empty()) std::cerr << text("# nothing was written to ", printable(*path), '\n');
  }
  return is_whole ? Exit::success : Exit::inconclusive;
}

}  // namespace lockstep::command
