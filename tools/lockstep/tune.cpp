// SPDX-License-Identifier: Apache-2.0
// `lockstep tune`: the table of what is fastest where this job runs.
#include "bench/tune.hpp"

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
      {"output", 'o', "FILE", "Write the table there; on standard output unless given."},
      {"seconds", 0, "S", "About so long for all of it: 60 unless given. What there is no time for is left out."},
      {"sizes", 's', "LIST", "Bytes of all data of a rank, as in a bench: 8,4K,1M."},
      {"begin", 'b', "SIZE", "The first of a sweep, each four times the one before: 8 unless given."},
      {"end", 'e', "SIZE", "The last of a sweep: 16M unless given."},
      {"most", 0, "N", "Algorithms that are tried for a size, the model's favourites: 6 unless given."},
      {"seed", 0, "N", "Of the order in which they take turns: 1 unless given."},
  };
  return all;
}

bool is_tuned(Collective collective) {
  return collective != Collective::exchange && collective != Collective::barrier && !is_unequal(collective);
}

std::string_view name_of_one(Collective collective) { return to_string(collective); }

std::vector<Collective> collectives(const ParsedOptions& parsed) {
  std::vector<Collective> all;
  for (const std::string& words : parsed.words()) {
    for (const std::string& word : split(words, ',')) {
      const auto collective = parse_collective(our_collective(word).value_or(word));
      if (!collective || !is_tuned(*collective))
        refuse_name<Collective>("collective to tune", word, collective_count, name_of_one, is_tuned);
      if (std::ranges::find(all, *collective) == all.end()) all.push_back(*collective);
    }
  }
  if (!all.empty()) return all;
  return {Collective::all_reduce, Collective::reduce, Collective::broadcast, Collective::reduce_scatter,
          Collective::all_gather, Collective::gather, Collective::scatter,   Collective::all_to_all};
}

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

// All members alike, or one would end and the others wait.
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
                "give a smaller end (-e): what is fastest there is so beyond, too");
}

}  // namespace

const Manual& tune_manual() {
  static const Manual manual{
      .name = "tune",
      .one_line = "measure which algorithms are fastest here, for LOCKSTEP_TABLE",
      .synopsis = "mpirun -n N lockstep tune [COLLECTIVE[,COLLECTIVE...]] [-o FILE] [--seconds S] [-b SIZE -e SIZE]",
      .description =
          R"manual(Measures, on the ranks of this job and in turns, the algorithms that the cost model finds best for each
collective and size, and writes the table from which LOCKSTEP_TABLE lets later jobs choose. What the
model would take is kept where no other is faster beyond the noise. Comments in the table say what was
measured, with intervals of 95 %, what was predicted, and how much longer the model's choices take.

The table is for this kind of machines with ranks at these places, whatever the hosts are called; any
other job refuses it. Rows count for this number of ranks and nodes: communicators of fewer, such as
those that are split off, go by the model, as do other orders where a row does not suit them.
`lockstep plan` says which row was taken.)manual",
      .options = tune_option_list(),
      .examples =
          "  mpirun -n 8 lockstep tune -o here.table\n"
          "  LOCKSTEP_TABLE=here.table mpirun -n 8 lockstep plan all_reduce --count 4096\n"
          "      what is fastest here, and which row of the table counts for 16 KiB\n"
          "  mpirun -n 8 lockstep tune all_reduce -b 1K -e 64M --seconds 20\n"
          "      one collective, quickly, on standard output\n",
      .exit_codes =
          "  0  measured\n  1  wrong use\n  4  a rank did not come in time\n  5  a rank ended before the others\n"
          "  6  the surroundings are unfit\n  7  one rank only, too little time for any size, or ended early\n",
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
  return is_whole ? Exit::well : Exit::inconclusive;
}

}  // namespace lockstep::command
