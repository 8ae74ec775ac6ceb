// SPDX-License-Identifier: Apache-2.0
// Collects the knowledge of members on this host about members that `lockstep stat` cannot read.
#include <algorithm>
#include <tuple>

#include "tools/lockstep/verdict_groups.hpp"
#include "topology/base/duration.hpp"
#include "topology/base/text.hpp"
#include "topology/members.hpp"

namespace lockstep::command {
namespace {

using status::MemberResponse;
using status::MemberSnapshot;

std::string ago(std::int64_t ms) { return format_duration(std::chrono::milliseconds(ms)); }

bool is_fresher(const MemberSnapshot& one, const MemberSnapshot& other) {
  if (other.heard_ms == MemberSnapshot::never) return one.heard_ms != MemberSnapshot::never;
  return one.heard_ms != MemberSnapshot::never && one.heard_ms < other.heard_ms;
}

// A question counts only if it was asked after the last control message that any process heard.
MemberSnapshot merged(const MemberSnapshot& one, const MemberSnapshot& other) {
  MemberSnapshot best = is_fresher(other, one) ? other : one;
  best.unanswered_ms = std::max(one.unanswered_ms, other.unanswered_ms);
  if (best.heard_ms != MemberSnapshot::never && best.unanswered_ms >= best.heard_ms)
    best.unanswered_ms = MemberSnapshot::never;
  return best;
}

// Describes the last message or answer of a member, and its age.
std::string heard_text(const MemberSnapshot& member) {
  const std::string now = member.in_flight == 0 ? "in no call" : text("in call ", member.in_flight);
  switch (member.state) {
    case MemberResponse::left:
      return text("left after call ", member.finished, ", ", ago(member.heard_ms), " ago");
    case MemberResponse::answered:
      return text("answered ", ago(member.heard_ms), " ago: ", now, ", finished ",
                  member.finished == 0 ? "none" : text("call ", member.finished));
    case MemberResponse::heard:
      return text("was last heard ", ago(member.heard_ms), " ago");
    default:
      return {};
  }
}

std::string words_of(const MemberSnapshot& member) {
  const std::string heard = heard_text(member);
  if (member.unanswered_ms != MemberSnapshot::never)
    return text("has not answered for ", ago(member.unanswered_ms),
                " (in no call of this communicator, stopped, or ended)", heard.empty() ? "" : "; ", heard);
  return heard.empty() ? "not seen from here, and no member here has asked it" : heard;
}

}  // namespace

// Returns the members whose process was not read, as the members here know them. The knowledge of several members is
// merged.
std::map<int, MemberSnapshot> unseen_members(const ObservedGroup& group) {
  std::map<int, MemberSnapshot> all;
  for (const auto& [rank, member] : group.members) {
    for (const MemberSnapshot& each : member.seen->members) {
      if (group.members.contains(each.rank)) continue;
      const auto [found, is_first] = all.emplace(each.rank, each);
      if (!is_first) found->second = merged(found->second, each);
    }
  }
  return all;
}

// Joins members with equal knowledge in one line.
std::vector<std::string> unseen_text(const std::map<int, MemberSnapshot>& members, std::size_t most_processes) {
  using MemberSnapshotKey = std::tuple<std::string, MemberResponse, std::uint64_t, std::uint64_t, bool>;
  std::map<MemberSnapshotKey, std::vector<const MemberSnapshot*>> alike;
  for (const auto& [rank, each] : members)
    alike[{each.host, each.state, each.finished, each.in_flight, each.unanswered_ms != MemberSnapshot::never}]
        .push_back(&each);
  std::vector<std::pair<int, std::string>> lines;  // by the first rank
  for (const auto& [key, all] : alike) {
    IndexSet ranks;
    std::vector<MemberPlace> places;
    MemberSnapshot one = *all.front();
    for (const MemberSnapshot* const each : all) {
      ranks.insert(each->rank);
      places.push_back({each->host, each->process});
      one = merged(one, *each);
    }
    lines.emplace_back(ranks.first(), text(member_names(ranks, places, most_processes), ": ", words_of(one)));
  }
  std::ranges::sort(lines);
  std::vector<std::string> words;
  for (auto& [rank, line] : lines) words.push_back(std::move(line));
  return words;
}

}  // namespace lockstep::command
