// SPDX-License-Identifier: Apache-2.0
// Writes the names of ranks and their processes for people.
#include "topology/members.hpp"

#include <algorithm>

#include "topology/base/text.hpp"

namespace lockstep {
namespace {

constexpr std::size_t max_hosts = 4;  // hosts named in one sentence

std::string rank_numbers(const IndexSet& ranks, std::string_view noun) {
  return text(noun, ranks.size() == 1 ? " " : "s ", ranks.to_string());
}

// Returns the processes on each host, in the order of the ranks. Threads of one process count once.
std::vector<std::pair<std::string_view, std::vector<std::string>>> by_host(const std::vector<MemberPlace>& places) {
  std::vector<std::pair<std::string_view, std::vector<std::string>>> hosts;
  for (const MemberPlace& place : places) {
    auto found = std::ranges::find(hosts, place.host, [](const auto& each) { return each.first; });
    if (found == hosts.end()) found = hosts.insert(hosts.end(), {place.host, {}});
    const std::string process = text(place.process);
    if (std::ranges::find(found->second, process) == found->second.end()) found->second.push_back(process);
  }
  return hosts;
}

}  // namespace

std::string member_names(const IndexSet& ranks, const std::vector<MemberPlace>& places, std::size_t most,
                         std::string_view noun) {
  const bool are_known = std::ranges::all_of(places, [](const MemberPlace& each) { return each.process != 0; });
  if (!are_known || places.empty()) return rank_numbers(ranks, noun);
  const auto hosts = by_host(places);
  std::size_t processes = 0;
  for (const auto& [host, numbers] : hosts) processes += numbers.size();
  std::vector<std::string> parts;
  if (processes <= most) {
    for (const auto& [host, numbers] : hosts) parts.push_back(text(join(numbers, ","), " on ", host));
    return text(rank_numbers(ranks, noun), processes == 1 ? " (process " : " (processes ", join(parts, " and "), ')');
  }
  for (std::size_t i = 0; i < std::min(max_hosts, hosts.size()); ++i) parts.emplace_back(hosts[i].first);
  const std::string more = hosts.size() > max_hosts ? text(" and ", hosts.size() - max_hosts, " more hosts") : "";
  return text(rank_numbers(ranks, noun), " (on ", join(parts, ","), more, ')');
}

MemberPlace Members::place_of(int rank) const {
  if (!are_known() || rank < 0 || static_cast<std::size_t>(rank) >= ranks_.size()) return {};
  const Member& member = topology_->member(ranks_[static_cast<std::size_t>(rank)]);
  return {topology_->node(member.node).host, member.process};
}

std::string Members::name_of(const IndexSet& ranks) const {
  std::vector<MemberPlace> places;
  for (const int rank : ranks.members()) places.push_back(place_of(rank));
  return member_names(ranks, places, default_processes, noun_);
}

std::string Members::number_of(const IndexSet& ranks) const { return rank_numbers(ranks, noun_); }

}  // namespace lockstep
