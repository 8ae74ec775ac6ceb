// SPDX-License-Identifier: Apache-2.0
// `lockstep bench`: what was typed becomes a wish, and what was found goes to the screen and to files.
#include "bench/bench.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <iostream>

#include "bench/compare.hpp"
#include "bench/mpi/mpi_baseline.hpp"
#include "bench/run_files.hpp"
#include "bench/run_json.hpp"
#include "bench/sizes.hpp"
#include "bench/table.hpp"
#include "collectives/plan_table.hpp"
#include "tools/lockstep/begin_session.hpp"
#include "tools/lockstep/command.hpp"
#include "tools/lockstep/write_file.hpp"
#include "topology/base/text.hpp"
#include "topology/machine/session.hpp"

namespace lockstep::command {
namespace {

using namespace bench;

constexpr std::string_view description =
    R"manual(Measures collectives on the ranks of this job, checks their results, and says how good the times
are: against what is measured in the same run in turns (the MPI library, a plain copy), and against
a limit that no algorithm can pass here. A sample is the slowest rank's time from its leave of a
barrier until its operation is over; the time of a row is the median, +-% half of its 95 % interval.

%lim is how much of the limit is reached, bind what sets it: mem, the memory that the data must
at least go through, by a copy of all ranks at once; lat, one message to a neighbour. A ratio is
the baseline's time divided by ours, in turns: above 1 ours is faster; = where 1 is within the
interval. Sizes are those of all data of a rank, as in nccl-tests, whose letters are understood.)manual";

const std::vector<Option>& options() {
  static const std::vector<Option> all{
      {"sizes", 's', "LIST", "Bytes: 8,4K,1M. K, M, G are powers of 1024; KB, MB, GB of 1000."},
      {"begin", 'b', "SIZE", "The first of a sweep: 8 unless given."},
      {"end", 'e', "SIZE", "The last of a sweep: 16M unless given."},
      {"factor", 'f', "N", "Each size of the sweep is so many times the one before: 4 unless given."},
      {"step", 'i', "SIZE", "Instead of a factor: so many bytes more."},
      {"samples", 'n', "N", "So many of each row, instead of as many as the precision needs."},
      {"warm-ups", 'w', "N", "Operations before the measuring: 5 unless given."},
      {"check", 'c', "0|1", "Whether results are checked: 1 unless given."},
      {"op", 'o', "OP", "Of reductions, or all: sum unless given."},
      {"type", 'd', "TYPE", "Of the elements, or all: f32 unless given."},
      {"root", 'r', "R", "Of collectives that have one: 0 unless given."},
      {"in-place", 0, "", "Input and output are one memory."},
      {"baseline", 0, "NAME",
       "What to measure against, in turns: mpi (unless given), memcpy, none, or file:EARLIER.json, which is not "
       "measured "
       "again. May be given several times."},
      {"seconds", 0, "S", "At most so long for a row: 1 unless given."},
      {"precision", 0, "P", "Enough when half of each interval is below this, in per cent: 2 unless given."},
      {"seed", 0, "N", "Of the order in which the candidates take turns: 1 unless given."},
      {"json", 0, "FILE", "Write all of it, for `lockstep compare`; docs/bench-json.md."},
      {"csv", 0, "FILE", "Write the rows for a spreadsheet."},
      {"junit", 0, "FILE", "Write the rows as test cases, for continuous integration."},
      {"gate", 0, "FILE", "Exit code 3 if a row is slower than in this earlier JSON, beyond noise and tolerance."},
      {"tolerance", 0, "P", "Of the gate, in per cent: 5 unless given."},
  };
  return all;
}

constexpr std::string_view examples =
    "  mpirun -n 4 lockstep bench all_reduce -b 8 -e 64M -f 4\n"
    "      the sweep that everybody knows, against the MPI library\n"
    "  mpirun -n 4 lockstep bench all_reduce,broadcast --sizes 8,64K,1M --type f64 --json run.json\n"
    "      three sizes of two collectives, kept for later\n"
    "  mpirun -n 4 lockstep bench all --seconds 0.2 --gate run.json --junit run.xml\n"
    "      everything, quickly, as a gate of continuous integration\n";

constexpr std::string_view exit_codes =
    "  0  measured, and all results right\n"
    "  1  wrong use: a word, size, type, operation or file is not understood\n"
    "  2  wrong data: a result was not what it must be, or not the same on all ranks\n"
    "  3  the gate: a row is slower than before\n"
    "  4  a rank did not come in time\n"
    "  5  a rank ended before the others\n"
    "  6  the surroundings are unfit: MPI does not start, too little memory\n"
    "  7  inconclusive: ended early, or disturbed by other work on the machine\n";

std::vector<std::string> words_of(std::string_view list) {
  std::vector<std::string> all;
  while (!list.empty()) {
    const std::size_t comma = std::min(list.find(','), list.size());
    if (comma > 0) all.emplace_back(list.substr(0, comma));
    list.remove_prefix(std::min(comma + 1, list.size()));
  }
  return all;
}

template <class Enum, class Ours, class Allowed>
std::vector<Enum> named(std::string_view what, const std::vector<std::string>& words, int count, const Ours& ours,
                        const Allowed& allowed) {
  std::vector<Enum> all;
  std::vector<std::string> names;
  for (int i = 0; i < count; ++i) {
    if (allowed(static_cast<Enum>(i))) names.emplace_back(to_string(static_cast<Enum>(i)));
  }
  for (const std::string& word : words) {
    const auto name = ours(word);
    bool found = false;
    for (int i = 0; i < count; ++i) {
      const auto each = static_cast<Enum>(i);
      if (!allowed(each) || (word != "all" && to_string(each) != name.value_or(word))) continue;
      found = true;
      if (std::ranges::find(all, each) == all.end()) all.push_back(each);
    }
    if (found) continue;
    const auto near = nearest(word, names);
    throw Error(Code::usage, text("there is no ", what, " \"", printable(word), "\" to measure"),
                text(near ? text("did you mean ", *near, "? ") : "", "there is all, ", join(names, ", ")));
  }
  return all;
}

double decimal(const Parsed& parsed, std::string_view name, double least, double most, double built_in) {
  const auto given = parsed.value(name);
  if (!given) return built_in;
  char* end = nullptr;
  const double value = std::strtod(given->c_str(), &end);
  if (end != given->c_str() && *end == 0 && value >= least && value <= most) return value;
  throw Error(Code::usage, text("--", name, " is \"", printable(*given), '"'),
              text("give a number from ", least, " to ", most));
}

std::vector<std::uint64_t> sizes(const Parsed& parsed) {
  if (const auto list = parsed.value("sizes")) {
    for (const std::string_view other : {"begin", "end", "factor", "step"}) {
      if (parsed.has(other))
        throw Error(Code::usage, text("--sizes and --", other, " are both given"), "give a list or a sweep");
    }
    return parse_size_list(*list);
  }
  Sweep sweep{.begin = parse_size(parsed.value("begin").value_or("8")),
              .end = parse_size(parsed.value("end").value_or("16M"))};
  if (parsed.has("step"))
    sweep.step = parse_size(*parsed.value("step"));
  else
    sweep.factor = 4;
  if (parsed.has("factor")) sweep.factor = static_cast<std::uint64_t>(parsed.integer("factor", 0, 1 << 30, 4));
  return sizes_of(sweep);
}

std::vector<Subject> subjects(const Parsed& parsed) {
  std::vector<std::string> words;
  for (const std::string& each : parsed.words()) {
    for (std::string& word : words_of(each)) words.push_back(std::move(word));
  }
  if (words.empty()) throw Error(Code::usage, "no collective is named", "name one: lockstep bench all_reduce; or all");
  const auto collectives = named<Collective>("collective", words, collective_count, our_collective, can_be_measured);
  const auto types = named<DataType>("type", words_of(parsed.value("type").value_or("f32")), data_type_count, our_type,
                                     [](DataType type) { return type < DataType::boolean; });
  const auto ops = named<ReduceOp>("operation", words_of(parsed.value("op").value_or("sum")), reduce_op_count, our_op,
                                   [](ReduceOp op) { return op < ReduceOp::premul_sum; });
  const auto root = static_cast<int>(parsed.integer("root", 0, 1 << 30, 0));
  std::vector<Subject> all;
  std::string last_refusal;
  for (const Collective collective : collectives) {
    for (const DataType type : types) {
      for (const ReduceOp op : ops) {
        if (!reduces_data(collective) && op != ops.front()) continue;
        if (collective == Collective::barrier && type != types.front()) continue;
        const Subject subject{collective, type, op, root, parsed.has("in-place"), 1};
        const std::string wrong = why_not(subject);
        if (wrong.empty())
          all.push_back(subject);
        else
          last_refusal = wrong;
      }
    }
  }
  if (all.empty())
    throw Error(Code::usage, text("nothing is left to measure: ", last_refusal), "name other types or operations");
  return all;
}

// Said before anything is measured, not after.
void check_writable(const Parsed& parsed) {
  for (const std::string_view name : {"json", "csv", "junit"}) {
    const auto path = parsed.value(name);
    if (!path) continue;
    std::error_code ignored;
    const auto folder = std::filesystem::path(*path).parent_path();
    const bool there = std::filesystem::exists(*path, ignored);
    const bool directory = std::filesystem::is_directory(*path, ignored);
    const std::string place = there ? *path : folder.empty() ? "." : folder.string();
    if (directory || access(place.c_str(), W_OK) != 0) {
      throw Error(Code::file,
                  text("--", name, ' ', printable(*path),
                       " cannot be written: ", directory ? "it is a folder" : std::strerror(errno)),
                  "give a file in a folder that is there and that you may write to");
    }
  }
}

// Of several files, separated by commas, each is a launch.
Run read_run(const std::string& paths) {
  constexpr std::size_t most = std::size_t{256} << 20U;
  std::optional<Run> all;
  for (const std::string& path : words_of(paths)) {
    Run run = parse_run(read_text_file(path, most), path);
    if (!all) {
      all = std::move(run);
      continue;
    }
    if (run.ranks != all->ranks || run.nodes != all->nodes)
      throw Error(Code::file,
                  text(path, " has ", run.ranks, " ranks on ", run.nodes, " nodes, the file before it ", all->ranks,
                       " on ", all->nodes),
                  "name files of the same job only");
    ++all->launches;
    for (Row& row : run.rows) {
      row.launch = all->launches;
      all->rows.push_back(std::move(row));
    }
  }
  if (!all) throw Error(Code::usage, "no file is named", "name a JSON file that `lockstep bench --json` wrote");
  return *all;
}

void want_interrupt(int /*signal*/) { interrupt_wanted = true; }

std::string now_in_words() {
  std::time_t now = std::time(nullptr);
  std::tm utc{};
  gmtime_r(&now, &utc);
  std::array<char, 32> all{};
  static_cast<void>(std::strftime(all.data(), all.size(), "%Y-%m-%dT%H:%M:%SZ", &utc));
  return all.data();
}

Run describe_run(Session& session, const Parsed& parsed, std::uint64_t seed) {
  const Topology& topology = session.topology();
  Run run;
  run.version = version();
  run.commit = commit();
  run.started = now_in_words();
  run.arguments = parsed.words();
  run.seed = seed;
  run.ranks = session.size();
  run.nodes = topology.node_count();
  const double crowd = topology.members_per_core(topology.member(session.rank()).node);
  run.oversubscribed = crowd > 1;
  run.machine.push_back({"mpi", mpi_version()});
  run.machine.push_back({"cpu", topology.machine_of(0).model});
  const Settings& settings = session.settings();
  for (const SettingRow& row : setting_rows()) {
    if (settings.source(row.setting) != Source::built_in)
      run.settings.push_back({std::string(row.name), settings.value(row.setting)});
  }
  return run;
}

struct Gate {
  std::vector<GateFailure> failures;
  std::string text;
};

Gate judge(const Parsed& parsed, const Run& earlier, Run& run) {
  Gate gate;
  const Comparison found =
      compare(earlier, run, {.tolerance = decimal(parsed, "tolerance", 0, 1000, 5) / 100, .force = true});
  gate.text = to_text(found);
  for (const ComparedRow& each : found.rows) {
    if (each.verdict != Verdict::slower) continue;
    for (std::size_t i = 0; i < run.rows.size(); ++i) {
      const Row& row = run.rows[i];
      if (row.collective == each.key.collective && row.bytes == each.key.bytes && row.type == each.key.type &&
          row.op == each.key.op && row.in_place == each.key.in_place)
        gate.failures.push_back({i, text("slower than before: ", each.a_us, " us became ", each.b_us, " us")});
    }
  }
  if (found.verdict == Verdict::slower && run.exit_code == 0) {
    run.exit_code = 3;
    run.verdict = text(gate.failures.size(), gate.failures.size() == 1 ? " row is" : " rows are", " slower than in ",
                       *parsed.value("gate"));
  } else if (found.refusal && run.exit_code == 0) {
    run.exit_code = 7;
    run.verdict = text("the gate cannot tell: ", found.refusal->reason);
  }
  return gate;
}

void write_files(const Parsed& parsed, const Run& run, const Gate& gate) {
  if (const auto path = parsed.value("json")) write_file(*path, to_json(run));
  if (const auto path = parsed.value("csv")) write_file(*path, to_csv(run));
  if (const auto path = parsed.value("junit")) write_file(*path, to_junit(run, gate.failures));
}

}  // namespace

const Manual& bench_manual() {
  static const Manual manual{
      .name = "bench",
      .one_line = "how fast collectives are here, and whether that is good",
      .synopsis = "mpirun -n N lockstep bench COLLECTIVE[,COLLECTIVE...] [-b SIZE -e SIZE -f N] [--json FILE] [...]",
      .description = description,
      .options = options(),
      .examples = examples,
      .exit_codes = exit_codes,
      .positional = true,
  };
  return manual;
}

Exit run_bench(const Parsed& parsed) {
  Wish wish{.subjects = subjects(parsed), .sizes = sizes(parsed)};
  wish.effort.seconds = decimal(parsed, "seconds", 0.001, 86400, 1);
  wish.effort.precision = decimal(parsed, "precision", 0.01, 100, 2) / 100;
  wish.effort.warm_ups = static_cast<std::size_t>(parsed.integer("warm-ups", 0, 1'000'000, 5));
  if (parsed.has("samples"))
    wish.effort.samples = static_cast<std::size_t>(parsed.integer("samples", 1, 100'000'000, 1));
  wish.seed = static_cast<std::uint64_t>(parsed.integer("seed", 0, 1LL << 62, 1));
  wish.check = parsed.integer("check", 0, 1, 1) == 1;
  std::vector<std::string> baselines = parsed.values("baseline");
  if (baselines.empty()) baselines = {"mpi"};
  for (const std::string& each : baselines) {
    if (each.starts_with("file:"))
      wish.earlier.emplace_back(each, read_run(each.substr(5)));
    else if (each != "mpi" && each != "memcpy" && each != "none")
      throw Error(Code::usage, text("there is no baseline \"", printable(each), '"'),
                  "there is mpi, memcpy, none and file:EARLIER.json");
  }
  std::optional<Run> earlier;
  if (const auto path = parsed.value("gate")) earlier = read_run(*path);
  check_writable(parsed);

  Session session = begin_session({.purpose = "bench"});
  for (const Subject& each : wish.subjects) {
    if (each.root >= session.size())
      throw Error(Code::usage, text("root ", each.root, ", but the ranks are 0 to ", session.size() - 1),
                  "give another root");
  }
  Communicator& world = session.world();
  const bool speaking = session.rank() == 0;
  const auto has = [&](std::string_view name) { return std::ranges::find(baselines, name) != baselines.end(); };
  std::optional<MpiBaseline> mpi;
  if (has("mpi")) {
    mpi.emplace();
    wish.baselines.emplace_back(
        "mpi", [&mpi](const Subject& subject, Buffers& buffers) { return mpi->candidate(subject, buffers); });
  }
  if (has("memcpy")) wish.baselines.emplace_back("memcpy", copy_candidate);
  Run run = describe_run(session, parsed, wish.seed);
  std::signal(SIGINT, want_interrupt);
  std::signal(SIGTERM, want_interrupt);
  if (speaking) std::cout << header(run) << std::flush;
  run_bench(world, wish, run, [&](const Run& so_far) {
    if (!speaking) return;
    const std::size_t rows = so_far.rows.size();
    std::cout << line(so_far.rows.back(), rows > 1 ? &so_far.rows[rows - 2] : nullptr) << std::flush;
  });
  conclude(run);
  Gate gate;
  if (earlier) gate = judge(parsed, *earlier, run);
  if (speaking) {
    std::cout << gate.text << footer(run) << std::flush;
    write_files(parsed, run, gate);
  }
  return static_cast<Exit>(world.broadcast(run.exit_code, 0));
}

const Manual& compare_manual() {
  static const Manual manual{
      .name = "compare",
      .one_line = "whether one bench was faster than another",
      .synopsis = "lockstep compare EARLIER.json[,...] LATER.json[,...] [--tolerance P] [--force]",
      .description =
          R"manual(Compares two files of `lockstep bench --json` row by row. A ratio is the earlier time divided by the
later: above 1 the later is faster. Intervals are of 95 %; verdicts are corrected for the number of
rows, so that forty equal rows give no false alarm. Where the data cannot bear a verdict (one launch
only, more ranks than cores, other machines, noise) it says so and gives none. Several files
separated by commas are several launches of the same bench: three each make a verdict possible.)manual",
      .options = {{"tolerance", 0, "P", "A change up to this is none, in per cent: 5 unless given."},
                  {"force", 0, "", "A verdict from one launch each, although launches differ."}},
      .examples =
          "  lockstep compare a1.json,a2.json,a3.json b1.json,b2.json,b3.json\n"
          "      is the interconnect still what it was?\n",
      .exit_codes =
          "  0  the same, or faster\n  1  wrong use, or a file that cannot be read\n  3  slower\n  7  inconclusive\n",
      .positional = true,
  };
  return manual;
}

Exit run_compare(const Parsed& parsed) {
  if (parsed.words().size() != 2)
    throw Error(Code::usage, text(parsed.words().size(), " files are named"),
                "name two: lockstep compare EARLIER.json LATER.json");
  const CompareOptions options{.tolerance = decimal(parsed, "tolerance", 0, 1000, 5) / 100,
                               .force = parsed.has("force")};
  const Comparison found = compare(read_run(parsed.words()[0]), read_run(parsed.words()[1]), options);
  if (speaks()) std::cout << to_text(found);
  if (found.verdict == Verdict::slower) return Exit::gate;
  if (found.verdict == Verdict::inconclusive || found.verdict == Verdict::cannot_tell) return Exit::inconclusive;
  return Exit::well;
}

}  // namespace lockstep::command
