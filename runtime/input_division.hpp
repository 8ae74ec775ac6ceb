// SPDX-License-Identifier: Apache-2.0
// Decides which part of a data set each replica gets, from the options, the strategy and the pipeline.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/data/pieces.hpp"
#include "runtime/data/sharding.hpp"
#include "runtime/data/stage.hpp"
#include "runtime/input_options.hpp"
#include "runtime/strategy.hpp"

namespace lockstep::detail {

// Describes the pipeline that is divided.
struct DividedPipeline {
  std::string text;
  std::int64_t batch_size = data::unknown_length;
  std::int64_t files = 0;  // Counts the files that it reads.
  data::Sharding sharding = data::Sharding::automatic;
};

// Belongs to one distributed data set. All processes make it alike.
class InputDivision {
 public:
  // Throws Error usage for options that the pipeline or the strategy does not allow.
  InputDivision(Strategy& strategy, const DividedPipeline& pipeline, const InputOptions& options);

  // True if all processes read one sequence of batches, and keep their pieces. Otherwise each reads its own rows.
  bool has_one_sequence() const { return sharding_ == data::Sharding::data; }
  // Returns the pieces of this process's replicas in each batch of the common sequence.
  data::BatchPieces pieces() const;
  // Return the sizes of pieces of own rows, which follow one another in a cycle, and the place of the first one.
  std::vector<std::int64_t> size_cycle() const;
  std::size_t first_in_cycle() const { return static_cast<std::size_t>(first_); }
  // Returns the stage with this process's part of the input.
  template <class C>
  data::SharedStage<C> part_of(const data::SharedStage<C>& stage) const {
    if (sharding_ != data::Sharding::file && sharding_ != data::Sharding::hint) return stage;
    data::SharedStage<C> part =
        stage->with_input({.shards = processes_, .index = process_, .is_by_files = sharding_ == data::Sharding::file});
    if (!part) refuse_without_input();
    return part;
  }
  // Returns the text that the options add to the pipeline's: ", divided evenly".
  std::string describe() const;

 private:
  void choose_sharding(const Strategy& strategy, const InputOptions& options);
  void deal_pieces(Strategy& strategy);
  [[noreturn]] void refuse_without_input() const;

  DividedPipeline pipeline_;
  data::Sharding sharding_ = data::Sharding::data;
  BatchDivision division_;
  std::optional<ReplicaWeights> weights_;
  PieceOrder order_;
  int replicas_;
  int processes_;
  int process_;
  int first_;                // Is the number of this process's first replica.
  std::vector<int> pieces_;  // Holds the number of each local replica's piece.
};

// Describes this process to the program's function. Throws Error usage for options that distribute_from() refuses.
InputContext input_context_of(Strategy& strategy, const InputOptions& options);
// Returns the number of steps that a thread of this process reads ahead.
int prefetch_of(Strategy& strategy, const InputOptions& options);

}  // namespace lockstep::detail
