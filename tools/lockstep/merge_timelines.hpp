// SPDX-License-Identifier: Apache-2.0
// Merges the timelines that members of a job have left: brings them to one clock, and makes a trace and a summary.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::command {

// Holds the calls of one member on one communicator.
struct Timeline {
  struct TimelineCall {
    std::uint64_t number = 0;
    std::int64_t begin_ns = 0;  // by the clock of its host
    std::int64_t end_ns = 0;
    int text = 0;  // index in `texts`; `place` too
    int place = 0;
    bool operator==(const TimelineCall&) const = default;
  };
  std::string host;
  int process = 0;
  std::string program;
  std::string name;
  int rank = 0;
  int size = 1;
  int order = 0;
  std::uint64_t id = 0;       // equal on all its members
  std::uint64_t dropped = 0;  // number of first calls that were dropped
  std::vector<std::string> texts;
  std::vector<TimelineCall> calls;
};

// Parses a file. Throws Error file, with `name` in its text, if it is no timeline.
Timeline parse_timeline(std::string_view text, std::string_view name);

// Holds the offsets that bring the clocks of hosts to that of the first member's host. They follow from calls in which
// all wait for all: no member completes one before the last has begun it.
struct Clocks {
  struct Offset {
    std::int64_t ns = 0;
    std::int64_t within_ns = 0;  // to either side; negative: the timelines contradict each other
    bool is_known = true;        // false: no such call joins this host with a known one
  };
  std::map<std::string, Offset> of_host;
};
// Estimates the offsets.
Clocks clocks_of(const std::vector<Timeline>& all);

// Returns a trace in the format of trace events, for Perfetto and chrome://tracing. Each rank is a process, each of its
// communicators a track.
std::string trace_of(const std::vector<Timeline>& all, const Clocks& clocks);

// Returns text: the members for which others waited, the longest first, and the precision of the clocks.
std::string summary_of(const std::vector<Timeline>& all, const Clocks& clocks);

}  // namespace lockstep::command
