// SPDX-License-Identifier: Apache-2.0
// Runs `lockstep bench`: it turns its arguments into BenchOptions, and writes the results to the screen and to files.
#include "bench/bench.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <iostream>

#include "bench/compare.hpp"
#include "bench/mpi/mpi_baseline.hpp"
#include "bench/own_ways.hpp"
#include "bench/run_json.hpp"
#include "bench/run_junit.hpp"
#include "bench/scores.hpp"
#include "bench/sizes.hpp"
#include "bench/table.hpp"
#include "tools/lockstep/begin_session.hpp"
#include "tools/lockstep/bench_gpu.hpp"
#include "tools/lockstep/bench_gradients.hpp"
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
    R"manual(Measures collectives on the ranks of this job, checks their results, and judges the times. Each
time is compared with two things: baselines that take turns with it in the same run (the MPI
library, a plain copy), and a limit that no algorithm can pass on this machine. A sample is the time
of the slowest rank, from the end of a barrier to the end of the operation. The time of a row is the
median; +-% is half of its 95 % interval.

%lim is the share of the limit that is reached. The column bind names the limit that counts: mem is
the time to move the data through memory once, by a copy on all ranks at the same time; lat is a
message to a neighbour or a barrier. A ratio is the baseline's time divided by Lockstep's: above 1
Lockstep is faster, and = means that 1 is within the interval. Sizes count all data of a rank, as in
nccl-tests; the option letters of nccl-tests work too.

`lockstep bench gradients` measures the exchange of a model's gradients in one training step, in
buckets as GradientReducer makes them. It compares Lockstep's own choice with a ring, with an algorithm
by levels, with the reproducible order, and with NCCL if there are GPUs.)manual";

// Names the variants of Lockstep that measure collectives on host buffers.
constexpr std::array<std::string_view, 5> own_ways = {"reproducible", "symmetric", "messages", "checked", "as_is"};

const std::vector<Option>& bench_option_list() {
  static const std::vector<Option> all{
      {"sizes", 's', "LIST", "Sizes in bytes: 8,4K,1M. K, M, G are powers of 1024; KB, MB, GB of 1000."},
      {"begin", 'b', "SIZE", "First size of a sweep (default: 8)."},
      {"end", 'e', "SIZE", "Last size of a sweep (default: 16M)."},
      {"factor", 'f', "N", "Factor between two sizes of the sweep (default: 4)."},
      {"step", 'i', "SIZE", "Difference between two sizes of the sweep, instead of --factor."},
      {"model", 0, "MODEL",
       "With gradients: cnn, mlp, resnet50, or the elements of each gradient in the order of the forward pass: "
       "864,32,256x1000. May be given several times (default: the three models)."},
      {"samples", 'n', "N", "Samples per row (default: until --precision is met)."},
      {"warm-ups", 'w', "N", "Operations before the first sample (default: 5)."},
      {"check", 'c', "0|1", "Check the results: 1 yes, 0 no (default: 1)."},
      {"op", 0, "OP", "Reduction operation, or all (default: sum)."},
      {"type", 'd', "TYPE", "Element type, or all (default: f32)."},
      {"wire", 0, "FORMAT", "Format of messages between nodes, as in LOCKSTEP_WIRE: as_is, bf16 or f16."},
      {"root", 'r', "R", "Root of collectives that have one (default: 0)."},
      {"in-place", 0, "", "Use one buffer as input and output."},
      {"cold", 0, "", "Empty all caches of the buffers before each sample (default: leave them as they are)."},
      {"device", 0, "cpu|gpu",
       "Memory of the buffers (default: cpu). gpu: a GPU that the rank sees. Each row then has a second one: many "
       "operations in a stream, timed by the GPU's clock."},
      {"baseline", 0, "NAME",
       "Competitor that takes turns with Lockstep; may be given several times (default: mpi). mpi, mpi:best, memcpy, "
       "none, or file:EARLIER.json, which is not measured again. Lockstep's own variants: reproducible, symmetric, "
       "messages, checked, as_is (with --wire). With --device gpu (default: nccl): "
       "nccl (NCCL's own operation), host (Lockstep on host buffers), mpi and mpi:best (the MPI library with copies "
       "down and up), none. Gradients (default: all of theirs): ring, hierarchical, reproducible, nccl, none."},
      {"seconds", 0, "S", "Longest time for a row, in seconds (default: 1)."},
      {"precision", 0, "P", "End a row when half of each interval is below P per cent (default: 2)."},
      {"seed", 0, "N", "Seed of the order in which the candidates take turns (default: 1)."},
      {"json", 0, "[FILE]",
       "Write everything as JSON, for `lockstep compare` (docs/bench-json.md). Without FILE, or with -, print it "
       "instead of the text."},
      {"junit", 0, "FILE", "Write the rows as test cases, for continuous integration."},
      {"gate", 0, "FILE", "Exit with 3 if a row is slower than in this earlier JSON, beyond noise and tolerance."},
      {"tolerance", 0, "P", "Tolerance of the gate, in per cent (default: 5)."},
  };
  return all;
}

constexpr std::string_view bench_examples =
    "  mpirun -n 4 lockstep bench all_reduce -b 8 -e 64M -f 4\n"
    "      sweeps the sizes from 8 bytes to 64 MiB, against the MPI library\n"
    "  mpirun -n 4 lockstep bench all_reduce,broadcast --sizes 8,64K,1M --type f64 --json run.json\n"
    "      measures three sizes of two collectives and keeps the result\n"
    "  mpirun -n 4 lockstep bench gradients --model resnet50\n"
    "      compares a ring, levels and Lockstep's own choice for the gradients of a model\n"
    "  mpirun -n 4 lockstep bench all --seconds 0.2 --gate run.json --junit run.xml\n"
    "      measures everything quickly, as a gate of continuous integration\n";

constexpr std::string_view bench_exit_codes =
    "  0  all results are right\n"
    "  1  wrong use: a word, size, type, operation or file is not understood\n"
    "  2  wrong data: a result is wrong, or not the same on all ranks\n"
    "  3  gate: a row is slower than before\n"
    "  4  a rank did not arrive in time\n"
    "  5  a rank ended before the others\n"
    "  6  unfit environment: MPI does not start, or memory is too small\n"
    "  7  inconclusive: ended early, or disturbed by other work on the machine\n";

// Returns Lockstep's values for words; each word may be "all". It refuses an unknown word.
template <class Enum, class Ours, class Allowed>
std::vector<Enum> named(std::string_view what, const std::vector<std::string>& words, int count, const Ours& ours,
                        const Allowed& allowed) {
  std::vector<Enum> all;
  for (const std::string& word : words) {
    if (word.empty()) continue;
    const auto known = ours(word);
    bool found = false;
    for (int i = 0; i < count; ++i) {
      const auto each = static_cast<Enum>(i);
      if (!allowed(each) || (word != "all" && to_string(each) != known.value_or(word))) continue;
      found = true;
      if (std::ranges::find(all, each) == all.end()) all.push_back(each);
    }
    if (!found) refuse_name<Enum>(what, word, count, allowed);
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

std::vector<Subject> subjects(const ParsedOptions& parsed) {
  std::vector<std::string> words;
  for (const std::string& each : parsed.words()) {
    for (std::string& word : split(each, ',')) words.push_back(std::move(word));
  }
  if (words.empty()) throw Error(Code::usage, "no collective is named", "name one: lockstep bench all_reduce; or all");
  const auto listed = [&](std::string_view option, const char* built_in) {
    return split(parsed.value(option).value_or(built_in), ',');
  };
  const auto collectives =
      named<Collective>("collective", words, collective_count, our_collective, [](Collective) { return true; });
  const auto types = named<DataType>("type", listed("type", "f32"), data_type_count, our_type,
                                     [](DataType type) { return type < DataType::boolean; });
  const auto ops = named<ReduceOp>("operation", listed("op", "sum"), reduce_op_count, our_op,
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
  const bool of_gradients = is_of_gradients(parsed);
  BenchOptions bench_options{.subjects = of_gradients ? gradient_subjects(parsed) : subjects(parsed)};
  if (!of_gradients) bench_options.sizes = sizes(parsed);
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
  if (of_gradients)
    refuse_gradient_baselines(baselines, on_gpu);
  else if (on_gpu)
    refuse_what_gpus_have_not(baselines);
  for (const std::string& each : baselines) {
    if ((on_gpu || of_gradients) && !each.starts_with("file:")) continue;
    if (each.starts_with("file:"))
      bench_options.earlier.emplace_back(each, read_run(each.substr(5)));
    else if (each != "mpi" && each != "mpi:best" && each != "memcpy" && each != "none" &&
             std::ranges::find(own_ways, each) == own_ways.end())
      throw Error(Code::usage, text("there is no baseline \"", printable(each), '"'),
                  "choose from mpi, mpi:best, memcpy, none, file:EARLIER.json, reproducible, symmetric, messages, "
                  "checked and as_is");
  }
  return bench_options;
}

// Keeps the rows so far in the file of --json. If a launcher kills the job, its user still finds them.
class PartialRunFile {
 public:
  explicit PartialRunFile(const ParsedOptions& parsed) : path_(parsed.value("json")) {
    if (path_ && !is_replaced(*path_)) path_.reset();  // readers of a pipe expect one document
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

// Refuses a run with another number of ranks, because its times cannot be compared.
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
  if (const auto path = parsed.value("junit")) write_file(*path, to_junit(run, gate.failures));
}

std::string device_of(const ParsedOptions& parsed) {
  std::string device = parsed.value("device").value_or("cpu");
  if (device != "cpu" && device != "gpu")
    throw Error(Code::usage, text("--device ", printable(device)), "choose cpu or gpu");
  return device;
}

// Warns that waiting ranks spin. The launcher counts the ranks of each node by itself.
void warn_of_spinning(const Session& session, const SharedCores& shared) {
  session.log().warn(text("the baseline mpi is measured with mpi_yield_when_idle: ", shared.what(),
                          ", and the launcher did not tell MPI to yield -> "
                          "start programs by mpirun --mca mpi_yield_when_idle 1, or on a core for each rank"));
}

// Returns the object that the MPI baselines of bench_options use; null if none is of MPI.
std::unique_ptr<MpiBaseline> against_mpi(Session& session, const SharedCores& shared,
                                         const std::vector<std::string>& baselines, BenchOptions& bench_options,
                                         BenchRun& run) {
  const bool is_wanted = std::ranges::find(baselines, "mpi") != baselines.end();
  const bool best_is_wanted = std::ranges::find(baselines, "mpi:best") != baselines.end();
  if (!is_wanted && !best_is_wanted) return nullptr;
  auto mpi =
      std::make_unique<MpiBaseline>(session.exchange().wait_limits(), session.exchange().log(), shared.crowded());
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

std::vector<std::string> baselines_of(const ParsedOptions& parsed, bool on_gpu) {
  std::vector<std::string> baselines = parsed.values("baseline");
  if (!baselines.empty()) return baselines;
  if (is_of_gradients(parsed)) return default_gradient_baselines(on_gpu);
  return {on_gpu ? "nccl" : "mpi"};
}

// Adds the candidates that are neither of MPI nor on GPUs.
void add_own_candidates(Communicator& world, const std::vector<std::string>& baselines, BenchOptions& bench_options,
                        BenchRun& run) {
  if (bench_options.subjects.front().gradients) return choose_gradient_ways(world, baselines, bench_options, run);
  const auto has = [&](std::string_view name) { return std::ranges::find(baselines, name) != baselines.end(); };
  if (has("memcpy")) bench_options.baselines.emplace_back("memcpy", copy_candidate);
  for (const std::string_view name : own_ways) {
    if (has(name) && !bench_options.gpu) bench_options.baselines.emplace_back(name, bench::own_way(world, name));
  }
}

// Returns the settings of the environment, changed by the options.
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
      .one_line = "measure collectives, and judge their times",
      .synopsis =
          "mpirun -n N lockstep bench COLLECTIVE[,COLLECTIVE...] [-b SIZE -e SIZE -f N] [--json [FILE]] [...]\n"
          "  mpirun -n N lockstep bench gradients [--model MODEL] [--json [FILE]] [...]",
      .description = bench_description,
      .options = bench_option_list(),
      .examples = bench_examples,
      .exit_codes = bench_exit_codes,
      .positional = true,
  };
  return manual;
}

Exit run_bench(const ParsedOptions& parsed) {
  const bool on_gpu = device_of(parsed) == "gpu";
  const std::vector<std::string> baselines = baselines_of(parsed, on_gpu);
  BenchOptions wanted = bench_options_of(parsed, baselines);
  std::optional<BenchRun> earlier;
  if (const auto path = parsed.value("gate")) earlier = read_run(*path);
  constexpr std::array<std::string_view, 2> files = {"json", "junit"};
  check_writable(parsed, files);
  static_cast<void>(parsed.percent("tolerance", 0, 1000, 5));
  if (parsed.has("tolerance") && !earlier)
    throw Error(Code::usage, "--tolerance without --gate", "name the earlier run: --gate EARLIER.json");
  if (std::ranges::find(baselines, "mpi:best") != baselines.end()) MpiBaseline::prepare_for_best();

  const auto settings = settings_of(parsed);
  Session session = begin_session({.settings = settings, .purpose = "bench"});
  BenchOptions bench_options = std::move(wanted);  // its communicators will end before the session does
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
  if (on_gpu) put_on_gpus(world, baselines, bench_options, run);
  add_own_candidates(world, baselines, bench_options, run);
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
