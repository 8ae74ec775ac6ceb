// SPDX-License-Identifier: Apache-2.0
// Calls MPI's collectives on a bench's buffers, and finds the fastest algorithm for each subject.
#include "bench/mpi/mpi_baseline.hpp"

#include <mpi.h>

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>
#include <vector>

#include "bench/mpi/call_watchdog.hpp"
#include "bench/mpi/forced.hpp"
#include "bench/statistics.hpp"
#include "topology/base/environment.hpp"
#include "topology/machine/mpi/check.hpp"

namespace lockstep::bench {
namespace {

MPI_Datatype type_of(DataType type) {
  switch (type) {
    case DataType::i8:
      return MPI_INT8_T;
    case DataType::i16:
      return MPI_INT16_T;
    case DataType::i32:
      return MPI_INT32_T;
    case DataType::i64:
      return MPI_INT64_T;
    case DataType::u8:
      return MPI_UINT8_T;
    case DataType::u16:
      return MPI_UINT16_T;
    case DataType::u32:
      return MPI_UINT32_T;
    case DataType::u64:
      return MPI_UINT64_T;
    case DataType::f32:
      return MPI_FLOAT;
    case DataType::f64:
      return MPI_DOUBLE;
    case DataType::c64:
      return MPI_C_FLOAT_COMPLEX;
    case DataType::c128:
      return MPI_C_DOUBLE_COMPLEX;
    default:
      return MPI_DATATYPE_NULL;
  }
}

MPI_Op op_of(ReduceOp op) {
  switch (op) {
    case ReduceOp::sum:
      return MPI_SUM;
    case ReduceOp::prod:
      return MPI_PROD;
    case ReduceOp::min:
      return MPI_MIN;
    case ReduceOp::max:
      return MPI_MAX;
    case ReduceOp::logical_and:
      return MPI_LAND;
    case ReduceOp::logical_or:
      return MPI_LOR;
    case ReduceOp::logical_xor:
      return MPI_LXOR;
    case ReduceOp::bit_and:
      return MPI_BAND;
    case ReduceOp::bit_or:
      return MPI_BOR;
    case ReduceOp::bit_xor:
      return MPI_BXOR;
    default:
      return MPI_OP_NULL;
  }
}

std::vector<int> ints(const std::vector<std::size_t>& counts) { return {counts.begin(), counts.end()}; }

std::vector<int> starts(const std::vector<int>& counts) {
  std::vector<int> all(counts.size());
  std::exclusive_scan(counts.begin(), counts.end(), all.begin(), 0);
  return all;
}

// Holds the arguments of a call.
struct MpiCallArguments {
  Collective collective;
  const void* in;
  void* out;
  int in_count;
  int out_count;
  int count;  // elements of a block
  MPI_Datatype type;
  MPI_Op op;
  int root;
  int rank;
  int size;
  bool in_place;
  // The following are for unequal forms.
  std::vector<int> send_counts;
  std::vector<int> send_offsets;
  std::vector<int> receive_counts;
  std::vector<int> receive_offsets;
};

int call_unequal(const MpiCallArguments& w, MPI_Comm comm) {
  switch (w.collective) {
    case Collective::reduce_scatter_v:
      return MPI_Reduce_scatter(w.in, w.out, w.send_counts.data(), w.type, w.op, comm);
    case Collective::all_gather_v:
      return MPI_Allgatherv(w.in, w.in_count, w.type, w.out, w.receive_counts.data(), w.receive_offsets.data(), w.type,
                            comm);
    case Collective::gather_v:
      return MPI_Gatherv(w.in, w.in_count, w.type, w.out, w.receive_counts.data(), w.receive_offsets.data(), w.type,
                         w.root, comm);
    case Collective::scatter_v:
      return MPI_Scatterv(w.in, w.send_counts.data(), w.send_offsets.data(), w.type, w.out, w.out_count, w.type, w.root,
                          comm);
    default:
      return MPI_Alltoallv(w.in, w.send_counts.data(), w.send_offsets.data(), w.type, w.out, w.receive_counts.data(),
                           w.receive_offsets.data(), w.type, comm);
  }
}

int call(const MpiCallArguments& w, MPI_Comm comm) {
  const void* const in = w.in_place ? MPI_IN_PLACE : w.in;
  const bool at_root = w.in_place && w.rank == w.root;
  const void* const in_at_root = at_root ? MPI_IN_PLACE : w.in;
  switch (w.collective) {
    case Collective::all_reduce:
      return MPI_Allreduce(in, w.out, w.count, w.type, w.op, comm);
    case Collective::reduce:
      return MPI_Reduce(in_at_root, w.out, w.count, w.type, w.op, w.root, comm);
    case Collective::reduce_scatter:
      return MPI_Reduce_scatter_block(in, w.out, w.count, w.type, w.op, comm);
    case Collective::all_gather:
      return MPI_Allgather(in, w.count, w.type, w.out, w.count, w.type, comm);
    case Collective::broadcast:
      return MPI_Bcast(w.out, w.count, w.type, w.root, comm);
    case Collective::gather:
      return MPI_Gather(in_at_root, w.count, w.type, w.out, w.count, w.type, w.root, comm);
    case Collective::scatter:
      return MPI_Scatter(w.in, w.count, w.type, at_root ? MPI_IN_PLACE : w.out, w.count, w.type, w.root, comm);
    case Collective::all_to_all:
      return MPI_Alltoall(in, w.count, w.type, w.out, w.count, w.type, comm);
    case Collective::scan:
      return MPI_Scan(in, w.out, w.count, w.type, w.op, comm);
    case Collective::exscan:
      return MPI_Exscan(in, w.out, w.count, w.type, w.op, comm);
    case Collective::sendrecv:
      return MPI_Sendrecv(w.in, w.count, w.type, (w.rank + 1) % w.size, 0, w.out, w.count, w.type,
                          (w.rank + w.size - 1) % w.size, 0, comm, MPI_STATUS_IGNORE);
    case Collective::barrier:
      return MPI_Barrier(comm);
    default:
      return call_unequal(w, comm);
  }
}

// Returns nothing if MPI has no such type or operation, or no such large count.
std::optional<MpiCallArguments> words_of(const Subject& subject, Buffers& buffers, MPI_Comm comm) {
  const MPI_Datatype type = type_of(subject.type);
  const MPI_Op op = op_of(subject.op);
  const bool moves = subject.collective != Collective::barrier;
  constexpr auto most = static_cast<std::size_t>(std::numeric_limits<int>::max());
  const std::size_t largest =
      is_unequal(subject.collective) ? std::max(buffers.input_count(), buffers.output_count()) : subject.count;
  if (moves && (type == MPI_DATATYPE_NULL || largest > most)) return std::nullopt;
  if (reduces(subject.collective) && op == MPI_OP_NULL) return std::nullopt;
  MpiCallArguments words{.collective = subject.collective,
                         .in = buffers.input_count() > 0 ? buffers.input() : nullptr,
                         .out = buffers.output_count() > 0 ? buffers.output() : nullptr,
                         .in_count = static_cast<int>(std::min(buffers.input_count(), most)),
                         .out_count = static_cast<int>(std::min(buffers.output_count(), most)),
                         .count = static_cast<int>(subject.count),
                         .type = type,
                         .op = op,
                         .root = subject.root,
                         .rank = 0,
                         .size = 1,
                         .in_place = subject.in_place,
                         .send_counts = ints(buffers.send_counts()),
                         .send_offsets = {},
                         .receive_counts = ints(buffers.receive_counts()),
                         .receive_offsets = {}};
  words.send_offsets = starts(words.send_counts);
  words.receive_offsets = starts(words.receive_counts);
  check_mpi(MPI_Comm_rank(comm, &words.rank));
  check_mpi(MPI_Comm_size(comm, &words.size));
  return words;
}

bool agreed(bool mine, MPI_Comm comm) {
  int all = mine ? 1 : 0;
  check_mpi(MPI_Allreduce(MPI_IN_PLACE, &all, 1, MPI_INT, MPI_MIN, comm));
  return all == 1;
}

double slowest(double mine, MPI_Comm comm) {
  check_mpi(MPI_Allreduce(MPI_IN_PLACE, &mine, 1, MPI_DOUBLE, MPI_MAX, comm));
  return mine;
}

// Holds a way to make a call, and its times so far. They are the same on all ranks, because a time is that of the
// slowest rank.
struct MpiCandidate {
  MpiAlgorithm algorithm;
  std::vector<double> medians = {};
  double time() const { return median_of(medians); }
};

// Times one sample, in seconds.
double once(const MpiCallArguments& words, const MpiAlgorithm& algorithm, MPI_Comm comm) {
  const YieldWhenIdle yields(algorithm.yields);
  algorithm.before();
  check_mpi(MPI_Barrier(comm));
  const double begin = MPI_Wtime();
  const int code = call(words, algorithm.comm);
  const double took = MPI_Wtime() - begin;
  algorithm.after();
  check_mpi(code);
  return took;
}

constexpr std::size_t few = 7;

void sample(const MpiCallArguments& words, MpiCandidate& candidate, MPI_Comm comm) {
  std::vector<double> times(few);
  for (double& each : times) each = once(words, candidate.algorithm, comm);
  check_mpi(MPI_Allreduce(MPI_IN_PLACE, times.data(), static_cast<int>(few), MPI_DOUBLE, MPI_MAX, comm));
  candidate.medians.push_back(median_of(times));
}

// Returns false if the algorithm refuses, is wrong, or takes so much longer than `least` that samples would be useless.
bool try_it(const MpiCallArguments& words, MpiCandidate& candidate, Buffers& buffers, std::optional<double> least,
            MPI_Comm comm) {
  constexpr double hopeless = 10;
  buffers.fill();
  int code = MPI_SUCCESS;
  {
    const YieldWhenIdle yields(candidate.algorithm.yields);
    candidate.algorithm.before();
    code = call(words, candidate.algorithm.comm);
    candidate.algorithm.after();
  }
  std::uint64_t bits = 0;
  if (!agreed(code == MPI_SUCCESS && buffers.count_wrong(bits) == 0, comm)) return false;
  if (least && slowest(once(words, candidate.algorithm, comm), comm) > hopeless * *least) return false;
  sample(words, candidate, comm);
  return true;
}

// Returns the fastest algorithm. The first few are measured again in turns, because among many one looks fast by
// chance.
const MpiAlgorithm& fastest(const MpiCallArguments& words, std::vector<MpiCandidate>& all, MPI_Comm comm) {
  constexpr std::size_t finalists = 4;
  constexpr std::size_t most_turns = 6;
  constexpr double enough_s = 0.1;
  const auto by_time = [](const MpiCandidate& a, const MpiCandidate& b) { return a.time() < b.time(); };
  std::ranges::stable_sort(all, by_time);
  all.resize(std::min(all.size(), finalists));
  double turn_s = 0;
  for (const MpiCandidate& each : all) turn_s += static_cast<double>(few) * each.time();
  const auto turns = static_cast<std::size_t>(std::clamp(enough_s / turn_s, 1.0, static_cast<double>(most_turns)));
  for (std::size_t turn = 0; turn < turns && all.size() > 1; ++turn) {
    for (MpiCandidate& each : all) sample(words, each, comm);
  }
  return std::ranges::min_element(all, by_time)->algorithm;
}

// Returns each way twice if the library can be switched: once with yielding, once without.
std::vector<MpiAlgorithm> with_and_without_yielding(std::vector<MpiAlgorithm> ways, bool yields_first) {
  if (!yields_when_idle()) return ways;
  std::vector<MpiAlgorithm> all;
  for (const bool yields : {yields_first, !yields_first}) {
    for (MpiAlgorithm each : ways) {
      each.yields = yields;
      if (yields) each.name += ", yielding";
      all.push_back(std::move(each));
    }
  }
  return all;
}

// Sets yielding for the candidate, until the turn of others comes.
void make_yield(BenchCandidate& candidate, std::optional<bool> yields) {
  if (!yields) return;
  const auto own = std::make_shared<std::optional<YieldWhenIdle>>();
  candidate.before = [before = candidate.before, own, yields] {
    if (!*own) own->emplace(yields);
    if (before) before();
  };
  candidate.after = [after = candidate.after, own] {
    if (after) after();
    own->reset();
  };
}

}  // namespace

struct MpiBaseline::Parts {
  Parts(WaitLimits wait_limits, Log log, bool shares) : watchdog(wait_limits, std::move(log)), shares_cores(shares) {}
  MpiCallWatchdog watchdog;
  bool shares_cores;
  MPI_Comm comm = MPI_COMM_NULL;
  ForcedAlgorithms algorithms;
};

void MpiBaseline::prepare_for_best() { prepare_for_forcing(); }

MpiBaseline::MpiBaseline(WaitLimits wait_limits, Log log, bool shares_cores)
    : parts_(std::make_unique<Parts>(wait_limits, std::move(log), shares_cores)) {
  check_mpi(MPI_Comm_dup(MPI_COMM_WORLD, &parts_->comm));
  check_mpi(MPI_Comm_set_errhandler(parts_->comm, MPI_ERRORS_RETURN));
}

MpiBaseline::~MpiBaseline() {
  int ended = 0;
  MPI_Finalized(&ended);
  if (ended == 0) MPI_Comm_free(&parts_->comm);
}

std::optional<BenchCandidate> MpiBaseline::candidate(const Subject& subject, Buffers& buffers) {
  auto words = words_of(subject, buffers, parts_->comm);
  if (!words) return std::nullopt;
  BenchCandidate candidate{"mpi", [words = std::move(*words), comm = parts_->comm, &watchdog = parts_->watchdog] {
                             watchdog.beat();
                             check_mpi(call(words, comm));
                             watchdog.beat();
                           }};
  if (tells_to_yield()) {
    candidate.algorithm = "yielding";
    make_yield(candidate, true);
  }
  return candidate;
}

bool MpiBaseline::tells_to_yield() const {
  return parts_->shares_cores && yields_when_idle() == false &&
         process_environment("OMPI_MCA_mpi_yield_when_idle") == nullptr;
}

std::optional<BenchCandidate> MpiBaseline::best(const Subject& subject, Buffers& buffers) {
  auto words = words_of(subject, buffers, parts_->comm);
  if (!agreed(words.has_value(), parts_->comm)) return std::nullopt;
  MpiAlgorithm best{.name = "its own choice", .comm = parts_->comm};
  std::vector<MpiAlgorithm> ways = parts_->algorithms.of(subject.collective, parts_->comm);
  ways.insert(ways.begin(), best);
  {
    const YieldWhenIdle between(parts_->shares_cores ? std::optional(true) : std::nullopt);
    std::vector<MpiCandidate> all;
    std::optional<double> least;
    for (MpiAlgorithm& each : with_and_without_yielding(std::move(ways), parts_->shares_cores)) {
      MpiCandidate timed{std::move(each)};
      parts_->watchdog.beat();
      const bool is_well = try_it(*words, timed, buffers, least, parts_->comm);
      parts_->watchdog.beat();
      if (!is_well) continue;
      least = std::min(least.value_or(timed.time()), timed.time());
      all.push_back(std::move(timed));
    }
    parts_->watchdog.beat();
    if (!all.empty()) best = fastest(*words, all, parts_->comm);
    parts_->watchdog.beat();
  }
  buffers.fill();
  BenchCandidate candidate{"mpi:best", [words = std::move(*words), comm = best.comm, &watchdog = parts_->watchdog] {
                             watchdog.beat();
                             check_mpi(call(words, comm));
                             watchdog.beat();
                           }};
  candidate.before = best.before;
  candidate.after = best.after;
  candidate.algorithm = best.name;
  make_yield(candidate, best.yields);
  return candidate;
}

std::string MpiBaseline::what_can_be_forced() const { return parts_->algorithms.what(); }

}  // namespace lockstep::bench
