// SPDX-License-Identifier: Apache-2.0
// Divides batches by the rules of TensorFlow, or by weights.
#include "runtime/input_division.hpp"

#include <algorithm>
#include <numeric>
#include <thread>
#include <tuple>

#include "runtime/default_strategy.hpp"
#include "runtime/input_agreement.hpp"

namespace lockstep::detail {
namespace {

using data::Sharding;

std::string_view name_of(Sharding sharding) {
  switch (sharding) {
    case Sharding::automatic:
      return "AUTO";
    case Sharding::off:
      return "OFF";
    case Sharding::file:
      return "FILE";
    case Sharding::data:
      return "DATA";
    case Sharding::hint:
      return "HINT";
  }
  return "";
}

// Returns the rows of some pieces of a batch that is divided by weights.
std::vector<data::RowRange> weighted_pieces(const ReplicaWeights& weights, const std::vector<int>& pieces,
                                            std::int64_t rows) {
  const std::vector<std::int64_t> sizes = weights.batch_sizes(rows);
  std::vector<data::RowRange> all;
  for (const int piece : pieces) {
    const auto begin = sizes.begin() + piece;
    all.push_back({std::accumulate(sizes.begin(), begin, std::int64_t{0}), *begin});
  }
  return all;
}

}  // namespace

InputDivision::InputDivision(Strategy& strategy, const DividedPipeline& pipeline, const InputOptions& options)
    : pipeline_(pipeline),
      division_(options.division),
      weights_(options.weights),
      order_(options.order),
      replicas_(strategy.num_replicas_in_sync()),
      processes_(strategy.channel(Channel::input).size()),
      process_(strategy.channel(Channel::input).rank()),
      first_(strategy.replica(0).replica_id_in_sync_group()),
      pieces_(static_cast<std::size_t>(strategy.num_local_replicas())) {
  if (options.replication == ReplicationMode::per_replica)
    throw Error(Code::usage, "distribute() with ReplicationMode::per_replica", "use it with distribute_from()");
  if (weights_) check_weights(*weights_, replicas_);
  choose_sharding(strategy, options);
  if (has_one_sequence()) {
    deal_pieces(strategy);
    return;
  }
  if (weights_)
    throw Error(Code::usage, text(name_of(sharding_), " sharding with weights"), "use weights with DATA sharding");
  if (pipeline_.batch_size < replicas_)
    throw Error(Code::usage,
                text(name_of(sharding_), " sharding of ", pipeline_.text, " for ", replicas_,
                     " replicas needs batches of at least as many rows"),
                "call batch(size of the global batch) last, before distribute()");
}

void InputDivision::choose_sharding(const Strategy& strategy, const InputOptions& options) {
  const Sharding wanted = options.sharding.value_or(pipeline_.sharding);
  const bool has_files = pipeline_.files >= processes_;
  if (processes_ == 1) return;  // It reads all in any case.
  sharding_ = wanted != Sharding::automatic                          ? wanted
              : options.order == PieceOrder::tensorflow && has_files ? Sharding::file
                                                                     : Sharding::data;
  if (sharding_ == Sharding::file && pipeline_.files > 0 && !has_files)
    throw Error(Code::usage,
                text("FILE sharding of ", pipeline_.text, " has not enough files: # elems = ", pipeline_.files,
                     ", # shards = ", processes_),
                "write more files, or use DATA sharding");
  if (wanted != Sharding::automatic || first_ != 0) return;
  const char* const effect = sharding_ == Sharding::file
                                 ? "each process reads files of its own"
                                 : "each process reads the whole sequence, and keeps the pieces of its replicas";
  strategy.log().notice(text("AUTO sharding policy will apply ", name_of(sharding_), " sharding policy to ",
                             pipeline_.text, ": ", effect));
}

// Numbers the pieces of the local replicas. TensorFlow deals them to the processes in turns.
void InputDivision::deal_pieces(Strategy& strategy) {
  std::iota(pieces_.begin(), pieces_.end(), first_);
  if (order_ == PieceOrder::replicas || processes_ == 1) return;
  const std::vector<int> of_processes = replicas_of_processes(strategy);
  std::vector<std::tuple<int, int>> turns;
  for (int process = 0; process < processes_; ++process) {
    for (int local = 0; local < of_processes[static_cast<std::size_t>(process)]; ++local)
      turns.emplace_back(local, process);
  }
  std::ranges::sort(turns);
  for (std::size_t local = 0; local < pieces_.size(); ++local) {
    const auto turn = std::ranges::find(turns, std::tuple(static_cast<int>(local), process_));
    pieces_[local] = static_cast<int>(turn - turns.begin());
  }
}

data::BatchPieces InputDivision::pieces() const {
  const auto of = [weights = weights_, pieces = pieces_, size = pipeline_.batch_size, replicas = replicas_,
                   division = division_](std::int64_t rows) {
    if (weights) return weighted_pieces(*weights, pieces, rows);
    std::vector<data::RowRange> all;
    all.reserve(pieces.size());
    for (const int piece : pieces) all.push_back(data::rows_of_piece(rows, size, piece, replicas, division));
    return all;
  };
  return {.of = of, .is_cut_at_end = !weights_ && division_ == BatchDivision::fixed_size, .pipeline = pipeline_.text};
}

// The first piece is as large as any. Each process begins where its first replica is in the cycle, so that a step of
// all processes has the rows of one batch.
std::vector<std::int64_t> InputDivision::size_cycle() const {
  std::vector<std::int64_t> sizes;
  sizes.reserve(static_cast<std::size_t>(replicas_));
  for (int piece = 0; piece < replicas_; ++piece)
    sizes.push_back(
        data::rows_of_piece(pipeline_.batch_size, pipeline_.batch_size, piece, replicas_, BatchDivision::even).count);
  return sizes;
}

std::string InputDivision::describe() const {
  std::string all;
  if (division_ == BatchDivision::even) all += ", divided evenly";
  if (weights_) all += text(", divided by the weights ", weights_->to_string());
  if (order_ == PieceOrder::tensorflow) all += ", in TensorFlow's order";
  if (!has_one_sequence()) all += text(", ", name_of(sharding_), " sharding");
  return all;
}

InputContext input_context_of(Strategy& strategy, const InputOptions& options) {
  const bool is_per_replica = options.replication == ReplicationMode::per_replica;
  if (options.place_dataset_on_device && !is_per_replica)
    throw Error(Code::usage, "place_dataset_on_device with ReplicationMode::per_worker",
                "use ReplicationMode::per_replica, or leave it false");
  if (options.place_dataset_on_device && options.fetch_to_device)
    throw Error(Code::usage, "place_dataset_on_device with fetch_to_device", "set one of them only");
  const Communicator& processes = strategy.channel(Channel::input);
  return {.num_input_pipelines = processes.size(),
          .input_pipeline_id = processes.rank(),
          .num_replicas_in_sync = strategy.num_replicas_in_sync()};
}

int prefetch_of(Strategy& strategy, const InputOptions& options) {
  if (options.prefetch) {
    if (*options.prefetch < 0)
      throw Error(Code::usage, text("a prefetch of ", *options.prefetch, " steps"), "give 0 or more");
    return *options.prefetch;
  }
  const int replicas_here = std::min(strategy.num_replicas_in_sync(),
                                     strategy.num_local_replicas() * strategy.channel(Channel::input).size());
  return &strategy != &default_strategy() && static_cast<int>(std::thread::hardware_concurrency()) > replicas_here ? 1
                                                                                                                   : 0;
}

void InputDivision::refuse_without_input() const {
  throw Error(Code::usage,
              text(name_of(sharding_), " sharding of ", pipeline_.text,
                   sharding_ == Sharding::file ? ", whose elements are not all from files"
                                               : ", which has no shard(data::shard_hint)"),
              "use DATA sharding");
}

}  // namespace lockstep::detail
