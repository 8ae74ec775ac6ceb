// SPDX-License-Identifier: Apache-2.0
// Names the ways in which processes share the reading of a data set. Pure.
#pragma once

#include <cstdint>

namespace lockstep::data {

// `off`: each process reads all elements and uses all of them. `file`: each reads files of its own. `data`: each reads
// the whole sequence and uses its pieces of each batch. `hint`: each reads the rows that shard(data::shard_hint) leaves
// to it. `automatic` is `data`; with PieceOrder::tensorflow it is `file` for pipelines with enough files.
enum class Sharding : std::uint8_t { automatic, off, file, data, hint };

// Is the argument of shard() that distribute() replaces by the number of processes and the number of this one.
struct ShardHint {};
inline constexpr ShardHint shard_hint{};

// Holds the options of a pipeline for distribute().
struct DatasetOptions {
  Sharding sharding = Sharding::automatic;
};

// Tells the stages of a pipeline which part of its input a process has.
struct InputPart {
  std::int64_t shards = 1;
  std::int64_t index = 0;
  bool is_by_files = false;  // Gives file number i to shard i modulo `shards`.
};

}  // namespace lockstep::data
