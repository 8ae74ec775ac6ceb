// SPDX-License-Identifier: Apache-2.0
// `lockstep bench` turns its arguments into BenchOptions, and writes the results to the screen and to files.
#include "bench/bench.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <iostream>

#include "bench/compare.hpp"
#include "bench/mpi/mpi_baseline.hpp"
#include "bench/own_ways.hpp"
#include "bench/run_files.hpp"
#include "bench/run_json.hpp"
#include "bench/scores.hpp"
#include "bench/sizes.hpp"
#include "bench/table.hpp"
#include "tools/lockstep/begin_session.hpp"
#include "tools/lockstep/bench_gpu.hpp"
#include "tools/lockstep/command.hpp"
#include "tools/lockstep/describe_run.hpp"
#include "tools/lockstep/interrupt.hpp"
#include "tools/lockstep/names.hpp"
#include "tools/lockstep/progress.hpp"
#include "tools/lockstep/read_run.hpp"
#include "tools/lockstep/shared_cores.hpp"
#include "tools/lockstep/write_file.hpp"
#include "topology/base/environment.hpp"
#include "topology/base/text.hpp"
#include "topology/machine/session.hpp"

namespace lockstep::command {
namespace {

using namespace bench;

constexpr std::string_view bench_description =
    R"manual(Measures collectives on the ranks of this job, checks their results, and says how good the times
are: against what is measured in the same run in turns (the MPI library, a plain copy), and against
a limit that no algorithm can pass here. A sample is the slowest rank's time from its leave of a
barrier until its operation is over; the time of a row is the median, +-% half of its 95 % interval.

%lim is how much of the limit is reached, bind what sets it: mem, the memory that the data must
at least go through, by a copy of all ranks at once; lat, a message to a neighbour or a barrier. A ratio is
the baseline's time divided by ours, in turns: above 1 ours is faster; = where 1 is within the
interval. Sizes are those of all data of a rank, as in nccl-tests, whose letters are understood.)manual";

const std::vector<Option>& bench_option_list() {
  static const std::vector<Option> all{
      {"sizes", 's', "LIST", "Bytes: 8,4K,1M. K, M, G are powers of 1024; KB, MB, GB of 1000."},
      {"begin", 'b', "SIZE", "The first of a sweep: 8 unless given."},
      {"end", 'e', "SIZE", "The last of a sweep: 16M unless given."},
      {"factor", 'f', "N", "Each size of the sweep is so many times the one before: 4 unless given."},
      {"step", 'i', "SIZE", "Instead of a factor: so many bytes more."},
      {"samples", 'n', "N", "So many of each row, instead of as many as the precision needs."},
      {"warm-ups", 'w', "N", "Operations before the measuring: 5 unless given."},
      {"check", 'c', "0|1", "Whether results are checked: 1 unless given."},
      {"op", 0, "OP", "Of reductions, or all: sum unless given."},
      {"type", 'd', "TYPE", "Of the elements, or all: f32 unless given."},
      {"wire", 0, "FORMAT", "Of messages between nodes, as LOCKSTEP_WIRE would: as_is, bf16 or f16."},
      {"root", 'r', "R", "Of collectives that have one: 0 unless given."},
      {"in-place", 0, "", "Input and output are one memory."},
      {"cold", 0, "", "The buffers are out of all caches before each sample; otherwise they stay where they are."},
      {"device", 0, "cpu|gpu",
       "Where the buffers are: cpu unless given. gpu: one of the GPUs that the rank sees; each row has a second one, "
       "of "
       "many operations in a stream, by the GPU's clock."},
      {"baseline", 0, "NAME",
       "What to measure against, in turns: mpi (unless given), mpi:best, memcpy, none, or file:EARLIER.json, which is "
       "not measured again; and ours in other ways: reproducible, symmetric, messages, checked, unwatched (by "
       "`lockstep "
       "stat`), as_is (with --wire). With "
       "--device gpu: nccl (NCCL's "
       "own "
       "operation; unless given), host (ours on the host's buffers), symmetric (ours in memory of allocate_on_gpu), "
       "mpi "
       "and mpi:best (the MPI library's, with copies down and up), none. May be given several times."},
      {"seconds", 0, "S", "At most so long for a row: 1 unless given."},
      {"precision", 0, "P", "Enough when half of each interval is below this, in per cent: 2 unless given."},
      {"seed", 0, "N", "Of the order in which the candidates take turns: 1 unless given."},
      {"json", 0, "[FILE]",
       "Write all of it, for `lockstep compare`; docs/bench-json.md. Without FILE, or with -, print it instead of the "
       "text."},
      {"csv", 0, "FILE", "Write the rows for a spreadsheet."},
      {"junit", 0, "FILE", "Write the rows as test cases, for continuous integration."},
      {"gate", 0, "FILE", "Exit code 3 if a row is slower than in this earlier JSON, beyond noise and tolerance."},
      {"tolerance", 0, "P", "Of the gate, in per cent: 5 unless given."},
  };
  return all;
}

constexpr std::string_view bench_examples =
    "  mpirun -n 4 lockstep bench all_reduce -b 8 -e 64M -f 4\n"
    "      the sweep that everybody knows, against the MPI library\n"
    "  mpirun -n 4 lockstep bench all_reduce,broadcast --sizes 8,64K,1M --type f64 --json run.json\n"
    "      three sizes of two collectives, kept for later\n"
    "  mpirun -n 4 lockstep bench all --seconds 0.2 --gate run.json --junit run.xml\n"
    "      everything, quickly, as a gate of continuous integration\n";

constexpr std::string_view bench_exit_codes =
    "  0  measured, and all results right\n"
    "  1  wrong use: a word, size, type, operation or file is not understood\n"
    "  2  wrong data: a result was not what it must be, or not the same on all ranks\n"
    "  3  the gate: a row is slower than before\n"
    "  4  a rank did not come in time\n"
    "  5  a rank ended before the others\n"
    "  6  the surroundings are unfit: MPI does not start, too little memory\n"
    "  7  inconclusive: ended early, or disturbed by other work on the machine\n";

// Our values for words, each of which may be "all"; one that is none of ours is refused.
template <class Enum, class Name, class Ours, class Allowed>
std::vector<Enum> named(std::string_view what, const std::vector<std::string>& words, int count, const Name& name,
                        const Ours& ours, const Allowed& allowed) {
  std::vector<Enum> all;
  for (const std::string& word : words) {
    if (word.empty()) continue;
    const auto known = ours(word);
    bool found = false;
    for (int i = 0; i < count; ++i) {
      const auto each = static_cast<Enum>(i);
      if (!allowed(each) || (word != "all" && name(each) != known.value_or(word))) continue;
      found = true;
      if (std::ranges::find(all, each) == all.end()) all.push_back(each);
    }
    if (!found) refuse_name<Enum>(what, word, count, name, allowed);
  }
  return all;
}

std::vector<std::uint64_t> sizes(const ParsedOptions& parsed) {
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

std::optional<std::string_view> typed_collective(std::string_view word) {
  const auto ours = our_collective(word);
  return ours == to_string(Collective::exchange) ? name_of(Collective::exchange) : ours;
}

std::vector<Subject> subjects(const ParsedOptions& parsed) {
  std::vector<std::string> words;
  for (const std::string& each : parsed.words()) {
    for (std::string& word : split(each, ',')) words.push_back(std::move(word));
  }
  if (words.empty()) throw Error(Code::usage, "no collective is named", "name one: lockstep bench all_reduce; or all");
  const auto listed = [&](std::string_view option, const char* built_in) {
    return split(parsed.value(option).value_or(built_in), ',');
  };
  const auto collectives = named<Collective>("collective", words, collective_count, name_of, typed_collective,
                                             [](Collective) { return true; });
  const auto types = named<DataType>(
      "type", listed("type", "f32"), data_type_count, [](DataType type) { return to_string(type); }, our_type,
      [](DataType type) { return type < DataType::boolean; });
  const auto ops = named<ReduceOp>(
      "operation", listed("op", "sum"), reduce_op_count, [](ReduceOp op) { return to_string(op); }, our_op,
      [](ReduceOp op) { return op < ReduceOp::premul_sum; });
  if (collectives.empty() || types.empty() || ops.empty())
    throw Error(Code::usage, "an empty list of collectives, types or operations", "name one, several or all");
  const auto root = static_cast<int>(parsed.integer("root", 0, 1 << 30, 0));
  std::vector<Subject> all;
  std::string last_refusal;
  for (const Collective collective : collectives) {
    for (const DataType type : types) {
      for (const ReduceOp op : ops) {
        if (!reduces(collective) && op != ops.front()) continue;
        if (collective == Collective::barrier && type != types.front()) continue;
        const Subject subject{collective, type, op, root, parsed.has("in-place"), parsed.has("cold"), 1};
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

BenchOptions bench_options_of(const ParsedOptions& parsed, const std::vector<std::string>& baselines) {
  BenchOptions bench_options{.subjects = subjects(parsed), .sizes = sizes(parsed)};
  bench_options.effort.seconds = parsed.decimal("seconds", 0.001, 86400, 1);
  bench_options.effort.precision = parsed.percent("precision", 0.01, 100, 2);
  bench_options.effort.warm_ups = static_cast<std::size_t>(parsed.integer("warm-ups", 0, 1'000'000, 5));
  if (parsed.has("samples"))
    bench_options.effort.samples = static_cast<std::size_t>(parsed.integer("samples", 1, 100'000'000, 1));
  bench_options.seed = static_cast<std::uint64_t>(parsed.integer("seed", 0, 1LL << 62, 1));
  bench_options.check = parsed.integer("check", 0, 1, 1) == 1;
  if (parsed.has("cold") && !can_flush_caches())
    throw Error(Code::usage, "--cold: this kind of processor does not let programs empty its caches", "leave it out");
  const bool on_gpu = parsed.value("device").value_or("cpu") == "gpu";
  if (parsed.has("cold") && on_gpu)
    throw Error(Code::usage, "--cold with --device gpu: a GPU's caches are not emptied", "leave one of them out");
  if (on_gpu) refuse_what_gpus_have_not(baselines);
  for (const std::string& each : baselines) {
    if (on_gpu && !each.starts_with("file:")) continue;
    if (each.starts_with("file:"))
      bench_options.earlier.emplace_back(each, read_run(each.substr(5)));
    else if (each != "mpi" && each != "mpi:best" && each != "memcpy" && each != "none" && !bench::is_own_way(each))
      throw Error(Code::usage, text("there is no baseline \"", printable(each), '"'),
                  "there is mpi, mpi:best, memcpy, none, file:EARLIER.json, reproducible, symmetric, messages, "
                  "checked, unwatched "
                  "and as_is");
  }
  return bench_options;
}

// Whoever ends the job hard, such as a launcher that waits no longer, finds what there was.
class PartialRunFile {
 public:
  explicit PartialRunFile(const ParsedOptions& parsed) : path_(parsed.value("json")) {
    if (path_ && !is_replaced(*path_)) path_.reset();  // a reader wants one account
  }
  void keep(const BenchRun& so_far) {
    const auto now = std::chrono::steady_clock::now();
    if (!path_ || now - last_ < std::chrono::seconds(1)) return;
    last_ = now;
    BenchRun run = so_far;
    run.interrupted = true;
    conclude(run);
    write_file(*path_, to_json(run));
  }

 private:
  std::optional<std::string> path_;
  std::chrono::steady_clock::time_point last_;
};

// Times of other numbers of ranks compare with nothing here.
void refuse_other_job(std::string_view name, const BenchRun& run, const Session& session) {
  if (run.ranks == session.size() && run.nodes == session.topology().node_count()) return;
  throw Error(Code::usage,
              text(name, " is of ", run.ranks, " ranks on ", run.nodes, " nodes, this job has ", session.size(), " on ",
                   session.topology().node_count()),
              "start as many, or name another file");
}

struct GateResult {
  std::vector<GateFailure> failures;
  std::string text;
};

GateResult judge_gate(const ParsedOptions& parsed, const BenchRun& earlier, BenchRun& run) {
  GateResult gate;
  const Comparison found = compare(earlier, run, {.tolerance = parsed.percent("tolerance", 0, 1000, 5), .force = true});
  gate.text = to_text(found);
  for (const ComparedRow& each : found.rows) {
    if (each.verdict != Verdict::slower) continue;
    for (std::size_t i = 0; i < run.rows.size(); ++i) {
      if (key_of(run.rows[i]) == each.key)
        gate.failures.push_back({i, text("slower than before: ", each.a_us, " us became ", each.b_us, " us")});
    }
  }
  if (found.verdict == Verdict::slower && run.exit_code == 0) {
    run.exit_code = static_cast<int>(Exit::gate);
    run.verdict = text(gate.failures.size(), gate.failures.size() == 1 ? " row is" : " rows are", " slower than in ",
                       *parsed.value("gate"));
  } else if (found.refusal && run.exit_code == 0) {
    run.exit_code = static_cast<int>(Exit::inconclusive);
    run.verdict = text("the gate cannot tell: ", found.refusal->reason);
  }
  return gate;
}

void write_files(const ParsedOptions& parsed, const BenchRun& run, const GateResult& gate) {
  if (const auto path = parsed.value("json")) write_file(*path, to_json(run));
  if (const auto path = parsed.value("csv")) write_file(*path, to_csv(run));
  if (const auto path = parsed.value("junit")) write_file(*path, to_junit(run, gate.failures));
}

std::string device_of(const ParsedOptions& parsed) {
  std::string device = parsed.value("device").value_or("cpu");
  if (device != "cpu" && device != "gpu")
    throw Error(Code::usage, text("--device ", printable(device)), "there is cpu and gpu");
  return device;
}

// The launcher counts the ranks of each node by itself.
void warn_of_spinning(const Session& session, const SharedCores& shared) {
  session.log().warn(
      text("the launcher has not told MPI to yield, and there are ", shared.what(),
           ": ranks that wait would keep the cores from the others, so the baseline mpi is measured with "
           "mpi_yield_when_idle -> start programs by mpirun --mca mpi_yield_when_idle 1, or on a core for each rank"));
}

// Returns what the MPI baselines of bench_options use; nothing if MPI is none of them.
std::unique_ptr<MpiBaseline> against_mpi(Session& session, const SharedCores& shared,
                                         const std::vector<std::string>& baselines, BenchOptions& bench_options,
                                         BenchRun& run) {
  const bool is_wanted = std::ranges::find(baselines, "mpi") != baselines.end();
  const bool best_is_wanted = std::ranges::find(baselines, "mpi:best") != baselines.end();
  if (!is_wanted && !best_is_wanted) return nullptr;
  auto mpi = std::make_unique<MpiBaseline>(session.exchange().patience(), session.exchange().log(), shared.crowded());
  if (is_wanted) {
    bench_options.baselines.emplace_back(
        "mpi", [&mpi = *mpi](const Subject& of, Buffers& on) { return mpi.candidate(of, on); });
    if (mpi->tells_to_yield()) {
      run.settings.push_back({"mpi", text("told to yield: ", shared.what())});
      if (session.rank() == 0) warn_of_spinning(session, shared);
    }
  }
  if (best_is_wanted) {
    bench_options.baselines.emplace_back("mpi:best",
                                         [&mpi = *mpi](const Subject& of, Buffers& on) { return mpi.best(of, on); });
    run.settings.push_back({"mpi:best", mpi->what_can_be_forced()});
    for (const char* const name : {"OMPI_MCA_coll_tuned_use_dynamic_rules", "OMPI_MCA_mpi_yield_when_idle"}) {
      if (const char* const value = process_environment(name)) run.settings.push_back({name, value});
    }
  }
  return mpi;
}

// As the environment says, but for what was typed.
std::optional<Settings> settings_of(const ParsedOptions& parsed) {
  const auto wire = parsed.value("wire");
  if (!wire) return std::nullopt;
  Settings settings = Settings::from_environment();
  try {
    settings.set(Setting::wire, *wire);
  } catch (const Error&) {
    throw Error(Code::usage, text("there is no wire format \"", printable(*wire), '"'),
                "give --wire as_is, bf16 or f16");
  }
  return settings;
}

}  // namespace

const Manual& bench_manual() {
  static const Manual manual{
      .name = "bench",
      .one_line = "how fast collectives are here, and whether that is good",
      .synopsis = "mpirun -n N lockstep bench COLLECTIVE[,COLLECTIVE...] [-b SIZE -e SIZE -f N] [--json [FILE]] [...]",
      .description = bench_description,
      .options = bench_option_list(),
      .examples = bench_examples,
      .exit_codes = bench_exit_codes,
      .positional = true,
  };
  return manual;
}

Exit run_bench(const ParsedOptions& parsed) {
  std::vector<std::string> baselines = parsed.values("baseline");
  const std::string device = device_of(parsed);
  if (baselines.empty()) baselines = {device == "gpu" ? "nccl" : "mpi"};
  BenchOptions wanted = bench_options_of(parsed, baselines);
  std::optional<BenchRun> earlier;
  if (const auto path = parsed.value("gate")) earlier = read_run(*path);
  constexpr std::array<std::string_view, 3> files = {"json", "csv", "junit"};
  check_writable(parsed, files);
  static_cast<void>(parsed.percent("tolerance", 0, 1000, 5));
  if (parsed.has("tolerance") && !earlier)
    throw Error(Code::usage, "--tolerance without --gate", "name the earlier run: --gate EARLIER.json");
  const auto has = [&](std::string_view name) { return std::ranges::find(baselines, name) != baselines.end(); };
  if (has("mpi:best")) MpiBaseline::prepare_for_best();

  const auto settings = settings_of(parsed);
  Session session = begin_session({.settings = settings, .purpose = "bench"});
  BenchOptions bench_options = std::move(wanted);  // with communicators to come, which end before the session
  for (const Subject& each : bench_options.subjects) {
    if (each.root >= session.size())
      throw Error(Code::usage, text("root ", each.root, ", but the ranks are 0 to ", session.size() - 1),
                  "give another root");
  }
  for (const auto& [name, run] : bench_options.earlier) refuse_other_job(name, run, session);
  if (earlier) refuse_other_job(text("--gate ", *parsed.value("gate")), *earlier, session);
  Communicator& world = session.world();
  const bool speaking = session.rank() == 0;
  if (world.size() == 1) hint_at_more_ranks("bench", "sends nothing");
  BenchRun run = describe_run(session, "bench", parsed, bench_options.seed);
  const SharedCores shared = most_shared_cores(session);
  run.oversubscribed = run.oversubscribed || shared.crowded();
  const auto mpi = against_mpi(session, shared, baselines, bench_options, run);
  if (device == "gpu") put_on_gpus(world, baselines, bench_options, run);
  if (has("memcpy")) bench_options.baselines.emplace_back("memcpy", copy_candidate);
  for (const std::string_view name : {"reproducible", "symmetric", "messages", "checked", "unwatched", "as_is"}) {
    if (has(name) && !bench_options.gpu) bench_options.baselines.emplace_back(name, bench::own_way(world, name));
  }
  end_early_on_signals();
  ProgressLine progress(speaking);
  bench_options.progress = [&](const BenchProgress& now) {
    progress.show(text("row ", now.done + 1, " of ", now.all, ", about ", std::llround(now.seconds_left), " s left"));
  };
  const bool prints =
      speaking && std::ranges::none_of(files, [&](std::string_view name) { return parsed.prints(name); });
  if (prints) std::cout << header(run) << std::flush;
  PartialRunFile unfinished(parsed);
  bench::run_bench(world, bench_options, run, [&](const BenchRun& so_far) {
    if (!speaking) return;
    progress.clear();
    const std::size_t rows = so_far.rows.size();
    if (prints) std::cout << line(so_far.rows.back(), rows > 1 ? &so_far.rows[rows - 2] : nullptr) << std::flush;
    unfinished.keep(so_far);
  });
  conclude(run);
  GateResult gate;
  if (earlier) gate = judge_gate(parsed, *earlier, run);
  if (speaking) {
    if (prints) std::cout << gate.text << footer(run) << std::flush;
    write_files(parsed, run, gate);
  }
  return static_cast<Exit>(world.broadcast(run.exit_code, 0));
}

}  // namespace lockstep::command
