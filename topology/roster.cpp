// SPDX-License-Identifier: Apache-2.0
// Reads and writes the roster of a communicator.
#include "topology/roster.hpp"

#include <algorithm>

#include "topology/base/text.hpp"

namespace lockstep {

void Roster::introduce(Writer& writer, std::string_view label) {
  own_process().write(writer);
  writer.put(label);
}

void Roster::add(Reader& reader) {
  RosterEntry one;
  one.name = ProcessName::read(reader);
  one.label = printable(reader.get_string(), 300);
  if (one.name.space == own_.space && one.name != own_) one.process = WatchedProcess::find(one.name);
  all_.push_back(std::move(one));
}

std::string Roster::name_of(int rank) const {
  const RosterEntry& one = at(rank);
  return text("rank ", rank, " (", one.label, one.label.empty() ? "" : ", ", "process ", one.name.number, ')');
}

Roster Roster::among(std::span<const int> ranks) const {
  Roster some;
  for (const int rank : ranks) some.all_.push_back(at(rank));
  return some;
}

std::optional<std::string> Roster::end_of(int rank) const {
  const auto& process = at(rank).process;
  const auto how = process ? process->how() : std::nullopt;
  return how ? std::optional(text(name_of(rank), " is gone: its process ", *how)) : std::nullopt;
}

bool Roster::has_neighbour(int rank) const {
  const ProcessName& its = at(rank).name;
  return its.space != 0 && std::ranges::any_of(all_, [&](const RosterEntry& each) {
           return each.name.space == its.space && each.name.number != its.number;
         });
}

}  // namespace lockstep
