// SPDX-License-Identifier: Apache-2.0
// Holds the results of a bench as plain values, from which tables, files and comparisons are made. All times are in
// microseconds, all bandwidths in 10^9 bytes a second.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace lockstep::bench {

// Holds an interval of 95 % confidence, if nothing else is said.
struct Interval {
  double low = 0;
  double high = 0;
  bool holds(double value) const { return low <= value && value <= high; }
  bool operator==(const Interval&) const = default;
};

// Summarizes samples. Each sample is the time of the slowest rank from a common start.
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

// Compares two times that were measured in turns: the competitor's divided by Lockstep's. Above 1 Lockstep is faster.
struct Ratio {
  double value = 1;
  Interval ci;
  std::size_t blocks = 0;
  bool operator==(const Ratio&) const = default;
};

// Holds a lower bound of the time.
struct Limit {
  double us = 0;        // no algorithm can be faster here, according to this run's measurements
  std::string binding;  // "mem", "read", "reduce", "link", "lat"
  bool operator==(const Limit&) const = default;
};

// Holds the measurement of a competitor.
struct Baseline {
  std::string name;       // "mpi", "mpi:best", "memcpy", "file:earlier.json"
  std::string algorithm;  // "tuned:ring"; empty: the competitor's own choice
  Summary time;           // if read from a file: only the median and the interval
  Ratio ratio;
  bool operator==(const Baseline&) const = default;
};

// Holds the outcome of the check of a row's results.
struct ResultCheck {
  std::uint64_t wrong = 0;   // elements
  bool ranks_equal = true;   // the same bits on all ranks, if the collective promises it
  std::string hash;          // of the result's bits; empty: not checked
  std::optional<bool> same;  // equal to that in the file compared with
  bool looked_at() const { return !hash.empty() || wrong > 0 || !ranks_equal; }
  bool operator==(const ResultCheck&) const = default;
};

// Holds the disturbance by others during a measurement.
struct Noise {
  double steal_percent = 0;  // share of the cores' time that other virtual machines took
  std::uint64_t involuntary_switches = 0;
  double throttled_us = 0;  // by a CPU quota of the control group
  bool noisy = false;       // enough to put the row in doubt
  bool operator==(const Noise&) const = default;
};

// Holds times by a GPU's own clock. Many operations are put into a stream, without waiting between them.
struct StreamTiming {
  std::uint64_t operations = 0;  // in a sample, between its two marks
  Summary time;  // of one operation: a sample is the slowest rank's time divided by the number of operations
  double algbw = 0;
  double busbw = 0;
  double moved = 0;                 // by the busiest rank: reads and writes of its own buffers
  double copied = 0;                // by a copy of as many bytes, on all ranks at once; 0: not measured
  std::vector<Baseline> baselines;  // "plan", "nccl", "copy"
  bool operator==(const StreamTiming&) const = default;
};

// Holds the measurement of one collective, type, operation and size.
struct Row {
  std::string collective;  // "all_reduce"
  std::uint64_t bytes = 0;
  std::uint64_t count = 0;
  std::string type;  // "f32"
  std::string op;    // "sum"; empty if nothing is reduced
  std::optional<int> root;
  bool in_place = false;
  bool cold = false;      // buffers are not in cache
  std::string algorithm;  // "ring"
  // By the schedule: the messages that follow each other, and the bytes that the busiest member sends.
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
  std::optional<int> slowest_rank;  // the rank with the largest median, if it stands out
  double slowest_percent = 0;       // above the median rank's
  int launch = 1;
  bool operator==(const Row&) const = default;
};

// Holds the figures of the link between two members. Bandwidths are in 10^9 bytes a second.
struct PairLink {
  int a = 0;  // members, a < b
  int b = 0;
  std::string kind;       // their distance: from "same_core" to "same_node", and "network"
  double latency_us = 0;  // of a message of 8 bytes, one way
  double there = 0;       // from a to b, while nothing goes back
  double back = 0;
  double both = 0;      // both directions at once, in sum
  double together = 0;  // the same while the other pairs are busy too
  bool slow = false;    // compared with others of its kind
  std::string why;      // of a slow link: a clause
  bool operator==(const PairLink&) const = default;
};

// Holds a property or a setting, and its value. Facts are shown in the order of their list.
struct Fact {
  std::string name;
  std::string value;
  bool operator==(const Fact&) const = default;
};

// Holds a whole run: its configuration and all results.
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
  std::vector<Fact> settings;   // of Lockstep and of each baseline
  std::vector<Fact> limits;     // "copy GB/s" and other measured limits
  std::string topology;         // Topology::to_bytes, in hexadecimal; empty: not known
  std::vector<Row> rows;
  std::vector<std::string> hosts;  // by rank; set if links were measured
  std::vector<PairLink> links;
  bool interrupted = false;
  std::string verdict;  // one sentence
  int exit_code = 0;
  bool operator==(const BenchRun&) const = default;
};

}  // namespace lockstep::bench
