// SPDX-License-Identifier: Apache-2.0
// Parses timelines, estimates the offsets of clocks, and writes the trace and the summary.
#include "tools/lockstep/merge_timelines.hpp"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <set>
#include <tuple>

#include "collectives/engine/files.hpp"
#include "topology/base/duration.hpp"
#include "topology/base/error.hpp"
#include "topology/base/text.hpp"

namespace lockstep::command {
namespace {

constexpr std::int64_t no_limit = std::int64_t{1} << 57U;  // leaves room for sums of a few

// Returns true if every member waits for every other in this call.
bool joins_all(std::string_view call) {
  constexpr std::array<std::string_view, 5> names = {"all_reduce", "reduce_scatter", "all_gather", "all_to_all",
                                                     "barrier"};
  return std::ranges::any_of(names, [call](std::string_view name) { return call.starts_with(name); });
}

// Holds a call as its members made it.
struct SharedCall {
  struct MemberCall {
    const Timeline* timeline;
    const Timeline::TimelineCall* call;
  };
  std::vector<MemberCall> members;
};

// Returns the calls of which all members are known.
std::vector<SharedCall> shared_calls_of(const std::vector<Timeline>& all) {
  using CommunicatorKey = std::tuple<std::uint64_t, std::string, int>;  // number of the communicator, name and size
  std::map<CommunicatorKey, std::map<std::uint64_t, SharedCall>> found;
  for (const Timeline& each : all) {
    for (const Timeline::TimelineCall& call : each.calls) {
      if (joins_all(each.texts[static_cast<std::size_t>(call.text)]))
        found[{each.id, each.name, each.size}][call.number].members.push_back({&each, &call});
    }
  }
  std::vector<SharedCall> whole;
  for (auto& [key, calls] : found) {
    for (auto& [number, shared_call] : calls) {
      if (static_cast<int>(shared_call.members.size()) == std::get<2>(key) && shared_call.members.size() > 1)
        whole.push_back(std::move(shared_call));
    }
  }
  return whole;
}

// Holds the bounds of the offset of the second host's clock from the first's.
struct Bounds {
  std::int64_t least = -no_limit;
  std::int64_t most = no_limit;
};
using HostPairs = std::map<std::pair<std::string, std::string>, Bounds>;

// Computes the bounds. On each host only the last member to begin and the first to end count.
HostPairs bounds_of(const std::vector<SharedCall>& shared_calls) {
  struct Host {
    std::int64_t last_begin = -no_limit;
    std::int64_t first_end = no_limit;
  };
  HostPairs pairs;
  for (const SharedCall& shared_call : shared_calls) {
    std::map<std::string, Host> hosts;
    for (const auto& [timeline, call] : shared_call.members) {
      Host& host = hosts[timeline->host];
      host.last_begin = std::max(host.last_begin, call->begin_ns);
      host.first_end = std::min(host.first_end, call->end_ns);
    }
    for (const auto& [one, mine] : hosts) {
      for (const auto& [other, theirs] : hosts) {
        if (one == other) continue;
        Bounds& bounds = pairs[{one, other}];
        bounds.least = std::max(bounds.least, mine.last_begin - theirs.first_end);
        bounds.most = std::min(bounds.most, mine.first_end - theirs.last_begin);
      }
    }
  }
  return pairs;
}

std::int64_t corrected(const Clocks& clocks, const Timeline& timeline, std::int64_t ns) {
  return ns + clocks.of_host.at(timeline.host).ns;
}

struct WaitTotal {
  double seconds = 0;
  std::size_t calls = 0;
  std::map<std::string, double> where;  // by call
};

std::string rank_name(const Timeline& timeline) {
  return text("rank ", timeline.rank, " (process ", timeline.process, " on ", timeline.host, ')');
}

std::string made_call_text(const Timeline& timeline, const Timeline::TimelineCall& call) {
  const std::string& place = timeline.texts[static_cast<std::size_t>(call.place)];
  return text(timeline.texts[static_cast<std::size_t>(call.text)], place.empty() ? "" : text(" at ", place));
}

// Adds up the waits. In each call all wait for the last one to begin.
std::map<std::string, WaitTotal> waited_for(const std::vector<SharedCall>& shared_calls, const Clocks& clocks) {
  constexpr double second_ns = 1e9;
  std::map<std::string, WaitTotal> all;
  for (const SharedCall& shared_call : shared_calls) {
    const auto begin = [&](const SharedCall::MemberCall& each) {
      return corrected(clocks, *each.timeline, each.call->begin_ns);
    };
    const auto last = *std::ranges::max_element(shared_call.members, {}, begin);
    double waited = 0;
    for (const auto& each : shared_call.members)
      waited += static_cast<double>(std::max<std::int64_t>(
                    0, std::min(begin(last), corrected(clocks, *each.timeline, each.call->end_ns)) - begin(each))) /
                second_ns;
    WaitTotal& waiting = all[rank_name(*last.timeline)];
    waiting.seconds += waited;
    ++waiting.calls;
    waiting.where[made_call_text(*last.timeline, *last.call)] += waited;
  }
  return all;
}

// Returns microseconds with all digits.
std::string ns_as_us(std::int64_t ns) {
  constexpr std::int64_t us = 1000;
  const std::string part = text(us + std::abs(ns) % us).substr(1);
  return text(ns < 0 ? "-" : "", std::abs(ns) / us, '.', part);
}

std::string time_text(double seconds) { return format_duration(Duration(static_cast<std::int64_t>(seconds * 1e9))); }

[[noreturn]] void refuse_timeline(std::string_view name, std::string_view what) {
  throw Error(Code::file, text(printable(name, name.size()), ": ", what),
              "name files, or a folder of them, that LOCKSTEP_TIMELINE was given");
}

std::int64_t json_number(const nlohmann::json& value, std::string_view name, std::string_view what, std::int64_t least,
                         std::int64_t most) {
  if (!value.is_number_integer()) refuse_timeline(name, text(what, " is not a whole number"));
  if (value.is_number_unsigned() && value.get<std::uint64_t>() > static_cast<std::uint64_t>(no_limit))
    refuse_timeline(name, text(what, " is out of range"));
  const auto number = value.get<std::int64_t>();
  if (number < least || number > most) refuse_timeline(name, text(what, " is out of range"));
  return number;
}

const nlohmann::json& member(const nlohmann::json& object, const char* key, std::string_view name) {
  const auto found = object.find(key);
  if (found == object.end()) refuse_timeline(name, text("there is no \"", key, '"'));
  return *found;
}

std::string text_in(const nlohmann::json& value, std::string_view name) {
  if (!value.is_string()) refuse_timeline(name, "it lacks a text");
  const auto words = value.get<std::string>();
  return printable(words, words.size());
}

}  // namespace

Timeline parse_timeline(std::string_view given, std::string_view name) {
  constexpr std::int64_t most = std::int64_t{1} << 30;
  const nlohmann::json all = nlohmann::json::parse(given, nullptr, false);
  if (all.is_discarded() || !all.is_object()) refuse_timeline(name, "it is not JSON, or cut off");
  const auto number = [&](const char* key, std::int64_t least, std::int64_t limit) {
    return json_number(member(all, key, name), name, key, least, limit);
  };
  if (number("lockstep_timeline", 0, most) != 1) refuse_timeline(name, "it is of another version of Lockstep");
  Timeline timeline{.host = text_in(member(all, "host", name), name),
                    .process = static_cast<int>(number("process", 0, most)),
                    .program = text_in(member(all, "program", name), name),
                    .name = text_in(member(all, "name", name), name),
                    .size = static_cast<int>(number("size", 1, most)),
                    .order = static_cast<int>(number("order", 0, most)),
                    .id = static_cast<std::uint64_t>(number("id", 0, no_limit)),
                    .dropped = static_cast<std::uint64_t>(number("dropped", 0, no_limit))};
  timeline.rank = static_cast<int>(number("rank", 0, timeline.size - 1));
  const nlohmann::json& texts = member(all, "texts", name);
  const nlohmann::json& calls = member(all, "calls", name);
  if (!texts.is_array() || !calls.is_array()) refuse_timeline(name, "it lacks a list");
  for (const nlohmann::json& each : texts) timeline.texts.push_back(text_in(each, name));
  const auto last_text = static_cast<std::int64_t>(timeline.texts.size()) - 1;
  timeline.calls.reserve(calls.size());
  for (const nlohmann::json& each : calls) {
    constexpr std::size_t parts = 5;
    if (!each.is_array() || each.size() != parts) refuse_timeline(name, "a call has five numbers");
    Timeline::TimelineCall call{.number = static_cast<std::uint64_t>(json_number(each[0], name, "a call", 1, no_limit)),
                                .begin_ns = json_number(each[1], name, "a beginning", 0, no_limit),
                                .end_ns = json_number(each[2], name, "an end", 0, no_limit),
                                .text = static_cast<int>(json_number(each[3], name, "a text", 0, last_text)),
                                .place = static_cast<int>(json_number(each[4], name, "a text", 0, last_text))};
    if (call.end_ns < call.begin_ns) refuse_timeline(name, "a call that ends before it begins");
    timeline.calls.push_back(call);
  }
  return timeline;
}

// Aligns the clocks of all hosts to that of the lowest rank. Each call bounds the difference of two clocks from both
// sides.
Clocks clocks_of(const std::vector<Timeline>& all) {
  Clocks clocks;
  if (all.empty()) return clocks;
  const HostPairs pairs = bounds_of(shared_calls_of(all));
  std::set<std::string> others;
  for (const Timeline& each : all) others.insert(each.host);
  const auto first = std::ranges::min_element(all, {}, &Timeline::rank);
  clocks.of_host[first->host] = {};
  others.erase(first->host);
  // Adds one host after the other, each by the pair with the narrowest bounds.
  while (!others.empty()) {
    std::pair<std::string, Clocks::Offset> best{*others.begin(), {.within_ns = no_limit, .is_known = false}};
    for (const auto& [known, offset] : clocks.of_host) {
      if (!offset.is_known) continue;
      for (const std::string& other : others) {
        const auto found = pairs.find({known, other});
        if (found == pairs.end()) continue;
        const Bounds& bounds = found->second;
        const std::int64_t within = (bounds.most - bounds.least) / 2 + offset.within_ns;
        if (within < best.second.within_ns)
          best = {other,
                  {.ns = std::clamp(bounds.least + (bounds.most - bounds.least) / 2 + offset.ns, -no_limit, no_limit),
                   .within_ns = std::max(within, -no_limit)}};
      }
    }
    if (!best.second.is_known) best.second.within_ns = 0;
    clocks.of_host.insert(best);
    others.erase(best.first);
  }
  return clocks;
}

// Writes the calls as trace events: a process for each rank, and a track for each of its communicators.
std::string trace_of(const std::vector<Timeline>& all, const Clocks& clocks) {
  std::int64_t begin = no_limit;
  for (const Timeline& timeline : all) {
    for (const Timeline::TimelineCall& call : timeline.calls)
      begin = std::min(begin, corrected(clocks, timeline, call.begin_ns));
  }
  std::vector<std::string> events;
  std::map<std::pair<std::string, int>, int>
      number_of_process;  // the displayed number: its rank in its first communicator
  std::vector<const Timeline*> in_order;
  in_order.reserve(all.size());
  for (const Timeline& each : all) in_order.push_back(&each);
  std::ranges::stable_sort(in_order, {}, [](const Timeline* each) { return std::pair(each->order, each->rank); });
  for (const Timeline* timeline : in_order) {
    const auto [entry, is_new] = number_of_process.try_emplace({timeline->host, timeline->process}, timeline->rank);
    const int process = entry->second;
    if (is_new) {
      const std::string name = text(timeline->program, " on ", timeline->host, " (", timeline->process, ')');
      events.push_back(text(R"({"ph": "M", "name": "process_name", "pid": )", process, R"(, "args": {"name": )",
                            json_text(name), "}}"));
      events.push_back(text(R"({"ph": "M", "name": "process_sort_index", "pid": )", process,
                            R"(, "args": {"sort_index": )", process, "}}"));
    }
    const std::string track = text('"', timeline->name, "\" rank ", timeline->rank, " of ", timeline->size);
    events.push_back(text(R"({"ph": "M", "name": "thread_name", "pid": )", process, R"(, "tid": )", timeline->order,
                          R"(, "args": {"name": )", json_text(track), "}}"));
    for (const Timeline::TimelineCall& call : timeline->calls)
      events.push_back(text(R"({"ph": "X", "name": )", json_text(timeline->texts[static_cast<std::size_t>(call.text)]),
                            R"(, "pid": )", process, R"(, "tid": )", timeline->order, R"(, "ts": )",
                            ns_as_us(corrected(clocks, *timeline, call.begin_ns) - begin), R"(, "dur": )",
                            ns_as_us(call.end_ns - call.begin_ns), R"(, "args": {"call": )", call.number,
                            R"(, "place": )", json_text(timeline->texts[static_cast<std::size_t>(call.place)]), "}}"));
  }
  return text("{\"displayTimeUnit\": \"ms\", \"traceEvents\": [\n", join(events, ",\n"), "\n]}\n");
}

// Lists the members that others waited for, the longest waits first, with the precision of the clocks.
std::string summary_of(const std::vector<Timeline>& all, const Clocks& clocks) {
  std::size_t calls = 0;
  std::uint64_t dropped = 0;
  for (const Timeline& each : all) {
    calls += each.calls.size();
    dropped += each.dropped;
  }
  const auto shared_calls = shared_calls_of(all);
  std::string words = text(calls, " calls in ", all.size(), all.size() == 1 ? " file" : " files",
                           dropped > 0 ? text("; ", dropped, " earlier ones were not kept") : "", "\n");
  for (const auto& [host, offset] : clocks.of_host) {
    if (!offset.is_known)
      words += text("the clock of ", host, " is not known: no call joins it with the others\n");
    else if (offset.within_ns < 0)
      words += text("the clock of ", host, " does not run like the others': times may be off by ",
                    time_text(static_cast<double>(-offset.within_ns) / 1e9), "\n");
    else if (offset.within_ns > 0)
      words += text("the clock of ", host, " is known within ", time_text(static_cast<double>(offset.within_ns) / 1e9),
                    "\n");
  }
  const auto waited = waited_for(shared_calls, clocks);
  std::vector<std::pair<std::string, WaitTotal>> longest(waited.begin(), waited.end());
  std::ranges::stable_sort(longest, std::greater{}, [](const auto& each) { return each.second.seconds; });
  constexpr std::size_t most = 10;
  if (longest.empty()) words += "no call is in the files of all its members\n";
  for (std::size_t i = 0; i < std::min(most, longest.size()); ++i) {
    const auto& [name, waiting] = longest[i];
    const auto where = std::ranges::max_element(waiting.where, {}, [](const auto& each) { return each.second; });
    words +=
        text(name, " was the last to arrive at ", waiting.calls, " of ", shared_calls.size(),
             " calls, and the others waited ", time_text(waiting.seconds), " for it, most in ", where->first, "\n");
  }
  return words;
}

}  // namespace lockstep::command
