// SPDX-License-Identifier: Apache-2.0
// When the members of a job were in which call: their own accounts, brought to one clock, as one picture and in words.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::command {

// What one member left of one communicator.
struct Timeline {
  struct TimelineCall {
    std::uint64_t number = 0;
    std::int64_t begin_ns = 0;  // by the clock of its host
    std::int64_t end_ns = 0;
    int text = 0;  // in `texts`
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
  std::uint64_t id = 0;       // that all its members have
  std::uint64_t dropped = 0;  // of the first calls
  std::vector<std::string> texts;
  std::vector<TimelineCall> calls;
};

// Throws Error file, with the name, where it is none.
Timeline parse_timeline(std::string_view text, std::string_view name);

// What has to be added to the clocks of hosts so that they are that of the first one (of the first member), as far as
// it is known: no member is through a call, in which all wait for all, before the last one has come to it.
struct Clocks {
  struct Offset {
    std::int64_t ns = 0;
    std::int64_t within_ns = 0;  // to either side; negative: the accounts contradict each other
    bool is_known = true;        // false: no such call joins it with a host that is known
  };
  std::map<std::string, Offset> of_host;
};
Clocks clocks_of(const std::vector<Timeline>& all);

// In the trace events' format, which Perfetto and chrome://tracing show: a process for each rank, a track for each of
// its communicators.
std::string trace_of(const std::vector<Timeline>& all, const Clocks& clocks);

// Who was waited for, the longest first, and what is known of the clocks.
std::string summary_of(const std::vector<Timeline>& all, const Clocks& clocks);

}  // namespace lockstep::command
