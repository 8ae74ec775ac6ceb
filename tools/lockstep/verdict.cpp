// SPDX-License-Identifier: Apache-2.0
// Finds the cause of each communicator's trouble, and parses the files that processes have left.
#include "tools/lockstep/verdict.hpp"

#include <algorithm>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <tuple>

#include "tools/lockstep/verdict_groups.hpp"
#include "topology/base/error.hpp"
#include "topology/base/index_set.hpp"
#include "topology/base/text.hpp"

namespace lockstep::command {
namespace {

std::string ranks_words(const IndexSet& ranks) {
  return text(ranks.size() == 1 ? "rank " : "ranks ", ranks.to_string());
}

// Returns the next command for a process in that state.
std::string advice_for(const ObservedMember& member) {
  const std::string& state = member.process->state;
  const int process = member.process->process;
  if (state == "stopped") return text("kill -CONT ", process, " resumes it");
  if (state == "traced") return "a debugger holds it";
  if (state == "waiting for the system") return "check the disk, the file system or the driver that it waits for";
  return text("gdb -p ", process, " shows its stack");
}

std::string place_text(const ObservedMember& member) {
  return text("process ", member.process->process, " on ", member.process->host, ", ", member.process->state);
}

// Describes the call that the member is in, or its last one.
std::string last_words(const ObservedMember& member) {
  const status::CommunicatorSnapshot& seen = *member.seen;
  if (seen.started == 0) return "no call before";
  return text(seen.is_in_call() ? "is in " : "last was ", call_text(seen, seen.current()),
              seen.waits.empty() ? "" : ", and waits: ", seen.waits);
}

// Describes the members that have not begun the call in which others wait. If some are held, it describes only these.
// Equal members share a sentence, with one of them as an example.
std::string missing_text(const ObservedGroup& group, std::uint64_t call, bool some_are_held) {
  std::map<std::pair<std::string, std::uint64_t>, IndexSet> alike;
  for (const auto& [rank, member] : group.members) {
    if (some_are_held ? is_held(*member.process) : member.seen->started < call)
      alike[{member.process->state, member.seen->started}].insert(rank);
  }
  std::vector<std::string> parts;
  for (const auto& [key, ranks] : alike) {
    const ObservedMember& first = group.members.at(ranks.members().front());
    const bool is_one = ranks.size() == 1;
    const std::string what =
        some_are_held ? text(is_one ? " is " : " are ", key.first) : text(is_one ? " has" : " have", " not reached it");
    parts.push_back(text(ranks_words(ranks), what, " (", is_one ? "" : "such as ", place_text(first), "; ",
                         last_words(first), ") -> ", advice_for(first)));
  }
  return join(parts, "; ");
}

// Returns the ranks whose process was not read.
IndexSet unknown_ranks(const ObservedGroup& group) {
  IndexSet all;
  int next = 0;
  for (const auto& [rank, member] : group.members) {  // by rank
    if (rank > next) all.insert(IndexSet::range(next, rank - 1));
    next = rank + 1;
  }
  if (next < group.size) all.insert(IndexSet::range(next, group.size - 1));
  return all;
}

// Describes these ranks by the answers that other members had from them.
std::string unknown_text(const ObservedGroup& group) {
  constexpr std::size_t most_processes = 8;
  const IndexSet unknown = unknown_ranks(group);
  if (unknown.empty()) return {};
  const auto unseen = unseen_members(group);
  if (!unseen.empty()) return text("; ", join(unseen_text(unseen, most_processes), "; "));
  return text("; nothing is known of ", ranks_words(unknown), ": on another host, exited, or not named");
}

// Returns the member with the original failure. A failure that quotes another is no cause.
const ObservedMember* cause_of(const ObservedGroup& group) {
  const ObservedMember* best = nullptr;
  const auto weight = [](const std::string& failure) {
    if (failure.starts_with(id(Code::peer_failed)) || failure.starts_with(id(Code::already_failed))) return 2;
    return failure.starts_with(id(Code::stall)) ? 1 : 0;
  };
  for (const auto& [rank, member] : group.members) {
    const std::string& failure = member.seen->failure;
    if (failure.empty()) continue;
    if (best == nullptr || weight(failure) < weight(best->seen->failure)) best = &member;
  }
  return best;
}

const ObservedMember& longest_waiting(const std::vector<const ObservedMember*>& all) {
  return **std::ranges::max_element(all, {}, [](const ObservedMember* each) { return each->seen->waited_ms; });
}

// Returns the ranks of "..., for ranks 1,3"; nothing if the text names none.
std::optional<IndexSet> awaited_by(const status::CommunicatorSnapshot& seen) {
  constexpr std::string_view before = "for rank";
  const std::size_t at = seen.waits.rfind(before);
  if (at == std::string::npos) return std::nullopt;
  const std::string_view behind = std::string_view(seen.waits).substr(at + before.size());
  return IndexSet::parse(trim(behind.starts_with('s') ? behind.substr(1) : behind), seen.size);
}

// Describes awaited members that are in no call of all and do not wait themselves. If some are held, it describes only
// these.
std::string idle_text(const ObservedGroup& group, const IndexSet& awaited, bool some_are_held) {
  if (some_are_held) return missing_text(group, 0, true);
  std::vector<std::string> parts;
  for (const auto& [rank, member] : group.members) {
    constexpr std::size_t most = 3;
    const status::CommunicatorSnapshot& seen = *member.seen;
    const bool is_idle = !seen.is_in_call() && seen.waits.empty() && seen.failure.empty();
    if (!is_idle || !awaited.contains(rank) || parts.size() == most) continue;
    parts.push_back(text("rank ", rank, " waits for nothing (", place_text(member), "; ", last_words(member), ") -> ",
                         advice_for(member)));
  }
  return join(parts, "; ");
}

// Describes the longest wait for a message, if no member waits in a call of all.
std::string waiting_for_messages(const ObservedGroup& group) {
  constexpr std::int64_t long_ms = 1000;
  constexpr std::size_t most = 3;
  std::vector<const ObservedMember*> waiting;
  IndexSet awaited;
  for (const auto& [rank, member] : group.members) {
    if (is_held(*member.process) || member.seen->is_in_call() || member.seen->waits.empty()) continue;
    waiting.push_back(&member);
    if (const auto whom = awaited_by(*member.seen)) awaited.insert(*whom);
  }
  std::ranges::stable_sort(waiting, std::greater<>(), [](const ObservedMember* each) { return each->seen->waited_ms; });
  if (waiting.empty() || (waiting.front()->seen->waited_ms < long_ms && waiting.front()->seen->failure.empty()))
    return {};
  std::vector<std::string> waits;
  for (const ObservedMember* const each : waiting) {
    if (waits.size() < most) waits.push_back(text("rank ", each->seen->rank, " waits in ", each->seen->waits));
  }
  if (waiting.size() > most) waits.push_back(text(waiting.size() - most, " more wait"));
  const bool some_are_held =
      std::ranges::any_of(group.members, [](const auto& each) { return is_held(*each.second.process); });
  const std::string idle = idle_text(group, awaited, some_are_held);
  return text(join(waits, "; "), idle.empty() ? "" : "; and ", idle, unknown_text(group));
}

// Describes the waits in the last call that any member has begun. If some are held, it describes the waits of all
// others.
std::string waiting_text(const ObservedGroup& group) {
  constexpr std::int64_t long_ms = 1000;
  std::uint64_t last = 0;
  for (const auto& [rank, member] : group.members) last = std::max(last, member.seen->started);
  const auto is_late = [&](const auto& each) { return each.second.seen->started < last; };
  const bool some_are_held =
      std::ranges::any_of(group.members, [](const auto& each) { return is_held(*each.second.process); });
  std::vector<const ObservedMember*> waiting;
  IndexSet ranks;
  std::set<std::string> calls;
  for (const auto& each : group.members) {
    const ObservedMember& member = each.second;
    if (!member.seen->is_in_call() || (some_are_held ? is_held(*member.process) : is_late(each))) continue;
    waiting.push_back(&member);
    ranks.insert(each.first);
    if (const auto* const call = member.seen->call(member.seen->current())) calls.insert(call->call);
  }
  if (waiting.empty()) return waiting_for_messages(group);
  const ObservedMember& longest = longest_waiting(waiting);
  if (longest.seen->failure.empty() && longest.seen->waited_ms < long_ms) return {};
  const std::string in = text(ranks_words(ranks), ranks.size() == 1 ? " waits in " : " wait in ",
                              call_text(*longest.seen, longest.seen->current()));
  const std::string unknown = unknown_text(group);
  if (some_are_held) return text(in, ", and ", missing_text(group, last, true), unknown);
  if (calls.size() > 1)
    return text("members are in different calls of the same number: ",
                join(std::vector<std::string>(calls.begin(), calls.end()), "; "));
  if (std::ranges::any_of(group.members, is_late)) return text(in, ", and ", missing_text(group, last, false), unknown);
  const std::string what = longest.seen->waits.empty() ? "" : text(" (", longest.seen->waits, ")");
  if (!unknown.empty()) return text(in, what, unknown);
  return text(in, what, ", and no member is missing: check the network between their hosts");
}

// Joins the first failure and the waits of a communicator; empty if there is neither.
std::string verdict_of(const ObservedGroup& group) {
  const ObservedMember* const cause = cause_of(group);
  const std::string waiting = waiting_text(group);
  if (cause == nullptr && waiting.empty()) return {};
  std::string all = text('"', group.name, "\" of ", group.size, group.size == 1 ? " member: " : " members: ");
  if (cause != nullptr) {
    all += text("rank ", cause->seen->rank, " ended with ", cause->seen->failure);
    if (!waiting.empty()) all += ". ";
  }
  return all + waiting;
}

[[noreturn]] void refuse_status(std::string_view name, std::string_view what) {
  throw Error(Code::file, text(printable(name, name.size()), ": ", what),
              "name files, or a folder of them, that LOCKSTEP_DUMP was given");
}

// Accepts numbers from other programs, as long as they fit.
template <class T>
T number_in(const nlohmann::json& object, const char* key, std::string_view name) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_number_integer() || (!std::is_signed_v<T> && !found->is_number_unsigned()))
    refuse_status(name, text("\"", key, "\" is not a whole number"));
  if constexpr (std::is_signed_v<T>) {
    constexpr std::int64_t most = sizeof(T) < sizeof(std::int64_t) ? std::int64_t{1} << 30U : std::int64_t{1} << 50U;
    const auto value = found->get<std::int64_t>();
    if (value < 0 || value > most ||
        (found->is_number_unsigned() && found->get<std::uint64_t>() > static_cast<std::uint64_t>(most)))
      refuse_status(name, text("\"", key, "\" is out of range"));
    return static_cast<T>(value);
  } else {
    return found->get<T>();
  }
}

std::string words_in(const nlohmann::json& object, const char* key, std::string_view name) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_string()) refuse_status(name, text("\"", key, "\" is not a text"));
  const auto words = found->get<std::string>();
  return printable(words, words.size());
}

const nlohmann::json& list_in(const nlohmann::json& object, const char* key, std::string_view name) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_array()) refuse_status(name, text("\"", key, "\" is not a list"));
  return *found;
}

const nlohmann::json& object_of(const nlohmann::json& value, std::string_view name) {
  if (!value.is_object()) refuse_status(name, "it lacks an object");
  return value;
}

// Reads a member's entry in a file of LOCKSTEP_DUMP. The file may come from anywhere, so every field is checked.
status::MemberSnapshot member_in(const nlohmann::json& value, std::string_view name) {
  const nlohmann::json& object = object_of(value, name);
  const auto ago = [&](const char* key) {
    return object.contains(key) ? number_in<std::int64_t>(object, key, name) : status::MemberSnapshot::never;
  };
  const std::string state = words_in(object, "state", name);
  status::MemberSnapshot seen{.rank = number_in<int>(object, "rank", name),
                              .host = words_in(object, "host", name),
                              .process = number_in<int>(object, "process", name),
                              .finished = number_in<std::uint64_t>(object, "finished", name),
                              .in_flight = number_in<std::uint64_t>(object, "in_flight", name),
                              .unanswered_ms = ago("unanswered_ms"),
                              .heard_ms = ago("heard_ms")};
  for (const status::MemberResponse each : {status::MemberResponse::silent, status::MemberResponse::heard,
                                            status::MemberResponse::answered, status::MemberResponse::left}) {
    if (state != to_string(each)) continue;
    seen.state = each;
    return seen;
  }
  refuse_status(name, text("no member has the state \"", state, '"'));
}

// Reads a communicator's entry, with its last calls and its members.
status::CommunicatorSnapshot communicator_in(const nlohmann::json& value, std::string_view name) {
  const nlohmann::json& object = object_of(value, name);
  status::CommunicatorSnapshot seen{.name = words_in(object, "name", name),
                                    .rank = number_in<int>(object, "rank", name),
                                    .size = number_in<int>(object, "size", name),
                                    .order = number_in<int>(object, "order", name),
                                    .id = number_in<std::uint64_t>(object, "id", name),
                                    .started = number_in<std::uint64_t>(object, "started", name),
                                    .finished = number_in<std::uint64_t>(object, "finished", name),
                                    .messages = number_in<std::uint64_t>(object, "messages", name),
                                    .waits = words_in(object, "waits", name),
                                    .waited_ms = number_in<std::int64_t>(object, "waited_ms", name),
                                    .failure = words_in(object, "failure", name)};
  constexpr int most_members = 1 << 20;
  if (seen.size < 1 || seen.size > most_members || seen.rank < 0 || seen.rank >= seen.size)
    refuse_status(name, "a rank outside of its communicator");
  for (const nlohmann::json& each : list_in(object, "calls", name)) {
    const nlohmann::json& call = object_of(each, name);
    seen.calls.push_back(
        {number_in<std::uint64_t>(call, "number", name), words_in(call, "call", name), words_in(call, "place", name)});
  }
  for (const nlohmann::json& each : list_in(object, "members", name)) {
    seen.members.push_back(member_in(each, name));
    if (seen.members.back().rank >= seen.size) refuse_status(name, "a rank outside of its communicator");
  }
  return seen;
}

}  // namespace

// Groups the entries of one communicator: those with equal id, name and size.
std::vector<ObservedGroup> groups_of(const std::vector<status::ProcessSnapshot>& processes) {
  using CommunicatorKey = std::tuple<std::uint64_t, std::string, int>;
  std::map<CommunicatorKey, ObservedGroup> found;
  for (const status::ProcessSnapshot& process : processes) {
    for (const status::CommunicatorSnapshot& seen : process.communicators) {
      ObservedGroup& group = found[{seen.id, seen.name, seen.size}];
      group.name = seen.name;
      group.size = seen.size;
      group.members.emplace(seen.rank, ObservedMember{&process, &seen});
    }
  }
  std::vector<ObservedGroup> all;
  all.reserve(found.size());
  for (auto& [key, group] : found) all.push_back(std::move(group));
  return all;
}

// Adds the end of the id to names that several communicators share, with as many digits as needed.
void tell_apart(std::vector<status::ProcessSnapshot>& processes) {
  std::map<std::string, std::set<std::string>> ids;  // by name
  for (const status::ProcessSnapshot& process : processes) {
    for (const status::CommunicatorSnapshot& seen : process.communicators)
      if (seen.id != 0) ids[seen.name].insert(hexadecimal(seen.id));
  }
  const auto shortest = [](const std::set<std::string>& all) {
    std::size_t digits = 4;
    const auto are_different = [&] {
      std::set<std::string> ends;
      for (const std::string& each : all) ends.insert(each.substr(each.size() - digits));
      return ends.size() == all.size();
    };
    while (digits < all.begin()->size() && !are_different()) ++digits;
    return digits;
  };
  for (status::ProcessSnapshot& process : processes) {
    for (status::CommunicatorSnapshot& seen : process.communicators) {
      const auto found = ids.find(seen.name);
      if (seen.id == 0 || found == ids.end() || found->second.size() < 2) continue;
      const std::string id = hexadecimal(seen.id);
      seen.name += text(" (", id.substr(id.size() - shortest(found->second)), ')');
    }
  }
}

// True if the process cannot continue by itself.
bool is_held(const status::ProcessSnapshot& process) {
  return process.state == "stopped" || process.state == "traced" || process.state == "ended";
}

// A circle of waits comes first, because it explains all other waits.
std::vector<std::string> verdicts(const std::vector<status::ProcessSnapshot>& processes) {
  std::vector<std::string> all;
  const std::vector<ObservedGroup> groups = groups_of(processes);
  if (std::string words = deadlock_text(groups); !words.empty()) all.push_back(std::move(words));
  for (const ObservedGroup& group : groups) {
    if (std::string words = verdict_of(group); !words.empty()) all.push_back(std::move(words));
  }
  return all;
}

status::ProcessSnapshot parse_status_file(std::string_view text, std::string_view name) {
  const nlohmann::json all = nlohmann::json::parse(text, nullptr, false);
  if (all.is_discarded()) refuse_status(name, "it is not JSON");
  object_of(all, name);
  if (number_in<int>(all, "lockstep_book", name) != 1) refuse_status(name, "it is of another version of Lockstep");
  status::ProcessSnapshot seen{.host = words_in(all, "host", name),
                               .process = number_in<int>(all, "process", name),
                               .program = words_in(all, "program", name),
                               .state = words_in(all, "state", name)};
  for (const nlohmann::json& each : list_in(all, "communicators", name))
    seen.communicators.push_back(communicator_in(each, name));
  return seen;
}

}  // namespace lockstep::command
