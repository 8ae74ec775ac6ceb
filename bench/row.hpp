// SPDX-License-Identifier: Apache-2.0
// What a bench has found out: values only, which tables, files and comparisons are made of. All times are in
// microseconds, all bandwidths in 10^9 bytes a second.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace lockstep::bench {

// Of 95 %, unless said otherwise.
struct Interval {
  double low = 0;
  double high = 0;
  bool holds(double value) const { return low <= value && value <= high; }
  bool operator==(const Interval&) const = default;
};

// Of samples, each the slowest rank's time from a common start.
struct Summary {
  std::size_t n = 0;
  double median = 0;
  Interval ci;  // of the median
  double mean = 0;
  double min = 0;
  double p95 = 0;
  double p99 = 0;
  double max = 0;
  double mad = 0;  // median of the distances from the median
  bool operator==(const Summary&) const = default;
};

// Of two things measured in turns: theirs divided by ours, so above 1 ours is the faster.
struct Ratio {
  double value = 1;
  Interval ci;
  std::size_t blocks = 0;
  bool operator==(const Ratio&) const = default;
};

struct Limit {
  double us = 0;        // no algorithm can be faster here, by what this run has measured
  std::string binding;  // "mem", "read", "reduce", "link", "lat"
  bool operator==(const Limit&) const = default;
};

struct Baseline {
  std::string name;       // "mpi", "mpi:best", "memcpy", "file:earlier.json"
  std::string algorithm;  // "tuned:ring"; empty: its own choice
  Summary time;           // of a file: its median and interval only
  Ratio ratio;
  bool operator==(const Baseline&) const = default;
};

struct ResultCheck {
  std::uint64_t wrong = 0;   // elements
  bool ranks_equal = true;   // the same bits on all ranks, where the collective promises it
  std::string hash;          // of the result's bits; empty: not looked at
  std::optional<bool> same;  // as in the file compared with
  bool looked_at() const { return !hash.empty() || wrong > 0 || !ranks_equal; }
  bool operator==(const ResultCheck&) const = default;
};

struct Noise {
  double steal_percent = 0;  // of the cores' time taken by other virtual machines
  std::uint64_t involuntary_switches = 0;
  double throttled_us = 0;  // by a quota of the control group
  bool noisy = false;       // so much of it that the row is in doubt
  bool operator==(const Noise&) const = default;
};

// By a GPU's own clock: many put into a stream one after the other, with nothing waited for between them.
struct StreamTiming {
  std::uint64_t operations = 0;  // of a sample, between its two marks
  Summary time;                  // of one: a sample is the slowest rank's time divided by how many they were
  double algbw = 0;
  double busbw = 0;
  double moved = 0;   // what the rank that has most reads and writes of its own buffers
  double copied = 0;  // what a copy of as many bytes reads and writes, by all ranks at once; 0: not measured
  std::vector<Baseline> baselines;  // "plan", "nccl", "copy"
  bool operator==(const StreamTiming&) const = default;
};

struct Row {
  std::string collective;  // "all_reduce"
  std::uint64_t bytes = 0;
  std::uint64_t count = 0;
  std::string type;  // "f32"
  std::string op;    // "sum"; empty where nothing is reduced
  std::optional<int> root;
  bool in_place = false;
  bool cold = false;      // buffers not in cache
  std::string algorithm;  // "ring"
  // By its schedule: messages that follow each other, and what the member that sends most sends.
  std::uint64_t rounds = 0;
  std::uint64_t sent_bytes = 0;
  Summary time;
  double algbw = 0;
  double busbw = 0;
  std::optional<Limit> limit;
  std::vector<Baseline> baselines;
  std::optional<StreamTiming> in_stream;  // of buffers on GPUs
  ResultCheck check;
  Noise noise;
  std::optional<int> slowest_rank;  // whose median is the largest, when that tells
  double slowest_percent = 0;       // above the median rank's
  int launch = 1;
  bool operator==(const Row&) const = default;
};

// Two members and what their link does. Bandwidths in 10^9 bytes a second.
struct PairLink {
  int a = 0;  // members, a < b
  int b = 0;
  std::string kind;       // how near they are, from "same_core" to "same_node", and "network"
  double latency_us = 0;  // of a message of 8 bytes, one way
  double there = 0;       // from a to b, while nothing goes back
  double back = 0;
  double both = 0;      // there and back at once, in all
  double together = 0;  // the same while the other pairs are at work too
  bool slow = false;    // against others of its kind
  std::string why;      // of a slow one: a clause
  bool operator==(const PairLink&) const = default;
};

// A setting and its value, in the order in which they are told.
struct Fact {
  std::string name;
  std::string value;
  bool operator==(const Fact&) const = default;
};

struct BenchRun {
  std::string version;  // of Lockstep
  std::string commit;
  std::string started;  // ISO 8601, UTC
  std::vector<std::string> arguments;
  std::uint64_t seed = 0;
  int ranks = 1;
  int nodes = 1;
  int launches = 1;
  bool oversubscribed = false;  // more ranks than cores: not comparable with other runs
  std::vector<Fact> machine;    // "cpu", "kernel", "mpi", "topology", ...
  std::vector<Fact> settings;   // what was set for ours and for each baseline
  std::vector<Fact> limits;     // "copy GB/s" and what else was measured
  std::string topology;         // Topology::to_bytes, in hexadecimal; empty: not known
  std::vector<Row> rows;
  std::vector<std::string> hosts;  // by rank, where links were measured
  std::vector<PairLink> links;
  bool interrupted = false;
  std::string verdict;  // one sentence
  int exit_code = 0;
  bool operator==(const BenchRun&) const = default;
};

}  // namespace lockstep::bench
