// SPDX-License-Identifier: Apache-2.0
#include "tests/collectives/damage.hpp"

#include <algorithm>
#include <array>

namespace lockstep::test {

std::string_view to_string(Damage damage) {
  static constexpr std::array<std::string_view, damage_count> names = {
      "drop_send",     "drop_receive",   "drop_message",  "duplicate_send", "duplicate_message", "duplicate_local",
      "drop_local",    "shift_message",  "shift_both",    "shift_operand",  "shrink_message",    "shrink_both",
      "shrink_local",  "swap_peers",     "swap_messages", "swap_rounds",    "merge_rounds",      "change_kind",
      "swap_operands", "change_operand", "change_space",  "advance_local",  "extra_message",     "copy_overlapping",
      "write_input",   "change_near",    "change_laps"};
  return names.at(static_cast<std::size_t>(damage));
}

namespace {

using Schedules = std::vector<Schedule>;

template <class T>
void erase_at(std::vector<T>& all, std::size_t index) {
  all.erase(all.begin() + static_cast<std::ptrdiff_t>(index));
}

// One entry of one of a round's lists.
struct Spot {
  std::size_t member;
  std::size_t round;
  std::size_t index;
};
using List = std::vector<Message> Round::*;

Round& round_at(Schedules& all, const Spot& spot) { return all[spot.member].rounds[spot.round]; }
std::vector<Message>& list_at(Schedules& all, const Spot& spot, List list) { return round_at(all, spot).*list; }
Message& message_at(Schedules& all, const Spot& spot, List list) { return list_at(all, spot, list)[spot.index]; }
LocalStep& local_at(Schedules& all, const Spot& spot) { return round_at(all, spot).locals[spot.index]; }
List list_by_chance(Random& random) { return random.chance(2) ? &Round::sends : &Round::receives; }

// All entries of a list in all rounds of all members, of which one is chosen.
template <class T>
bool choose(Schedules& all, std::vector<T> Round::*list, Random& random, Spot& chosen) {
  std::vector<Spot> spots;
  for (std::size_t member = 0; member < all.size(); ++member) {
    for (std::size_t round = 0; round < all[member].rounds.size(); ++round) {
      const std::size_t entries = (all[member].rounds[round].*list).size();
      for (std::size_t index = 0; index < entries; ++index) spots.push_back({member, round, index});
    }
  }
  if (spots.empty()) return false;
  chosen = spots[random.below(spots.size())];
  return true;
}

// The receive that a send meets: of those between the two members, the one with its number.
Spot partner_of(Schedules& all, const Spot& send) {
  const auto to = static_cast<std::size_t>(message_at(all, send, &Round::sends).peer);
  std::size_t number = 0;
  for (std::size_t round = 0; round <= send.round; ++round) {
    const std::vector<Message>& sends = all[send.member].rounds[round].sends;
    const std::size_t end = round == send.round ? send.index : sends.size();
    for (std::size_t i = 0; i < end; ++i) number += static_cast<std::size_t>(sends[i].peer) == to ? 1U : 0U;
  }
  for (std::size_t round = 0; round < all[to].rounds.size(); ++round) {
    const std::vector<Message>& receives = all[to].rounds[round].receives;
    for (std::size_t i = 0; i < receives.size(); ++i) {
      if (static_cast<std::size_t>(receives[i].peer) == send.member && number-- == 0) return {to, round, i};
    }
  }
  return send;  // never: schedules that are right have one
}

void shift(MovingSlice& moving_slice, Random& random) {
  Slice slice = moving_slice.at(0);
  if (slice.offset > 0 && random.chance(2))
    --slice.offset;
  else
    ++slice.offset;
  moving_slice = slice;
}

void shrink(MovingSlice& moving_slice) {
  Slice slice = moving_slice.at(0);
  --slice.count;
  moving_slice = slice;
}

void change_space_of(MovingSlice& moving_slice, Random& random) {
  Slice slice = moving_slice.at(0);
  const std::size_t further = 1 + random.below(2);
  slice.space = static_cast<Space>((static_cast<std::size_t>(slice.space) + further) % 3);
  moving_slice = slice;
}

MovingSlice& operand(LocalStep& local, Random& random) {
  MovingSlice* const all[] = {&local.target, &local.left, &local.right};
  return *all[random.below(local.kind == LocalStepKind::copy ? 2 : 3)];
}

bool drop(Schedules& all, List list, Random& random) {
  Spot spot{};
  if (!choose(all, list, random, spot)) return false;
  erase_at(list_at(all, spot, list), spot.index);
  return true;
}

// Calls change(message, its list, its index) for one message: on both sides, or on one by chance.
template <class Change>
bool change_message(Schedules& all, bool both, Random& random, const Change& change) {
  Spot send{};
  if (!choose(all, &Round::sends, random, send)) return false;
  const Spot receive = partner_of(all, send);
  const bool sender = both || random.chance(2);
  if (sender) change(list_at(all, send, &Round::sends), send.index);
  if (both || !sender) change(list_at(all, receive, &Round::receives), receive.index);
  return true;
}

template <class Change>
bool change_local(Schedules& all, Random& random, const Change& change) {
  Spot spot{};
  if (!choose(all, &Round::locals, random, spot)) return false;
  return change(local_at(all, spot), spot);
}

bool shift_messages(Schedules& all, bool both, Random& random) {
  return change_message(all, both, random,
                        [&](std::vector<Message>& list, std::size_t index) { shift(list[index].slice, random); });
}

bool shrink_messages(Schedules& all, bool both, Random& random) {
  return change_message(all, both, random,
                        [&](std::vector<Message>& list, std::size_t index) { shrink(list[index].slice); });
}

bool drop_both(Schedules& all, Random& random) {
  return change_message(all, true, random, [](auto& list, std::size_t index) { erase_at(list, index); });
}

bool duplicate_messages(Schedules& all, bool both, Random& random) {
  return change_message(all, both, random, [](auto& list, std::size_t index) { list.push_back(list[index]); });
}

bool duplicate_local(Schedules& all, Random& random) {
  return change_local(all, random, [&](const LocalStep& local, const Spot& spot) {
    round_at(all, spot).locals.push_back(LocalStep(local));
    return true;
  });
}

bool drop_local(Schedules& all, Random& random) {
  return change_local(all, random, [&](const LocalStep&, const Spot& spot) {
    erase_at(round_at(all, spot).locals, spot.index);
    return true;
  });
}

bool shift_operand(Schedules& all, Random& random) {
  return change_local(all, random, [&](LocalStep& local, const Spot&) {
    shift(operand(local, random), random);
    return true;
  });
}

bool shrink_local(Schedules& all, Random& random) {
  return change_local(all, random, [](LocalStep& local, const Spot&) {
    for (MovingSlice* moving_slice : {&local.target, &local.left, &local.right}) shrink(*moving_slice);
    return true;
  });
}

bool change_kind(Schedules& all, Random& random) {
  return change_local(all, random, [](LocalStep& local, const Spot&) {
    const bool copies = local.kind == LocalStepKind::copy;
    local.kind = copies ? LocalStepKind::reduce : LocalStepKind::copy;
    if (copies) local.left = local.target;  // adds to what is there
    return true;
  });
}

bool swap_operands(Schedules& all, Random& random) {
  return change_local(all, random, [](LocalStep& local, const Spot&) {
    std::swap(local.left, local.right);
    return local.kind == LocalStepKind::reduce;
  });
}

bool change_operand(Schedules& all, Random& random) {
  return change_local(all, random, [&](LocalStep& local, const Spot& spot) {
    auto& others = round_at(all, spot).locals;
    const MovingSlice from = operand(others[random.below(others.size())], random);
    MovingSlice& to = operand(local, random);
    if (to == from) return false;
    to = from;
    return true;
  });
}

bool change_space(Schedules& all, Random& random) {
  if (random.chance(2)) {
    return change_local(all, random, [&](LocalStep& local, const Spot&) {
      change_space_of(operand(local, random), random);
      return true;
    });
  }
  return change_message(all, false, random, [&](std::vector<Message>& list, std::size_t index) {
    change_space_of(list[index].slice, random);
  });
}

bool advance_local(Schedules& all, Random& random) {
  return change_local(all, random, [&](const LocalStep& local, const Spot& spot) {
    if (spot.round == 0) return false;
    all[spot.member].rounds[spot.round - 1].locals.push_back(local);
    erase_at(round_at(all, spot).locals, spot.index);
    return true;
  });
}

bool swap_peers(Schedules& all, Random& random) {
  const List list = list_by_chance(random);
  Spot spot{};
  if (!choose(all, list, random, spot)) return false;
  std::vector<Message>& messages = list_at(all, spot, list);
  Message& other = messages[random.below(messages.size())];
  if (messages.size() > 1 && other.peer != messages[spot.index].peer) {
    std::swap(other.peer, messages[spot.index].peer);
    return true;
  }
  const int peer = static_cast<int>(random.below(all.size()));  // a round with one peer: any other
  if (peer == other.peer) return false;
  other.peer = peer;
  return true;
}

bool swap_messages(Schedules& all, Random& random) {
  const List list = list_by_chance(random);
  Spot first{};
  Spot second{};
  if (!choose(all, list, random, first) || !choose(all, list, random, second)) return false;
  Message& one = message_at(all, first, list);
  Message& other = message_at(all, second, list);
  if (first.member != second.member || one == other) return false;
  std::swap(one, other);
  return true;
}

bool swap_rounds(Schedules& all, Random& random) {
  std::vector<Round>& rounds = all[random.below(all.size())].rounds;
  if (rounds.size() < 2) return false;
  const std::size_t first = random.below(rounds.size() - 1);
  const std::size_t second = first + 1 + random.below(rounds.size() - 1 - first);
  if (rounds[first] == rounds[second]) return false;
  std::swap(rounds[first], rounds[second]);
  return true;
}

bool merge_rounds(Schedules& all, Random& random) {
  std::vector<Round>& rounds = all[random.below(all.size())].rounds;
  if (rounds.size() < 2) return false;
  const std::size_t first = random.below(rounds.size() - 1);
  const auto append = [](auto& to, const auto& from) { to.insert(to.end(), from.begin(), from.end()); };
  append(rounds[first].sends, rounds[first + 1].sends);
  append(rounds[first].receives, rounds[first + 1].receives);
  append(rounds[first].locals, rounds[first + 1].locals);
  append(rounds[first].near, rounds[first + 1].near);
  erase_at(rounds, first + 1);
  return true;
}

bool extra_message(Schedules& all, Random& random) {
  Spot send{};
  if (!choose(all, &Round::sends, random, send)) return false;
  const Spot receive = partner_of(all, send);
  Message other = message_at(all, send, &Round::sends);
  shift(other.slice, random);
  const auto insert = [](std::vector<Message>& list, std::size_t index, const Message& message) {
    list.insert(list.begin() + static_cast<std::ptrdiff_t>(index), message);
  };
  insert(list_at(all, send, &Round::sends), send.index, other);
  std::vector<Message>& receives = list_at(all, receive, &Round::receives);
  insert(receives, receive.index, Message(receives[receive.index]));
  return true;
}

bool copy_overlapping(Schedules& all, Random& random) {
  Spot spot{};
  if (!choose(all, &Round::receives, random, spot)) return false;
  const MovingSlice place = message_at(all, spot, &Round::receives).slice;
  MovingSlice aside = place;
  shift(aside, random);
  std::vector<LocalStep>& locals = round_at(all, spot).locals;
  locals.insert(locals.begin(),
                {{LocalStepKind::copy, aside, place, place}, {LocalStepKind::copy, place, aside, aside}});
  return true;
}

// With what the last message has brought.
bool write_input(Schedules& all, Random& random) {
  std::vector<Round>& rounds = all[random.below(all.size())].rounds;
  if (rounds.empty() || rounds.back().receives.empty()) return false;
  const Slice from = rounds.back().receives.back().slice.at(0);
  const Slice target = input(0, from.count);
  rounds.back().locals.push_back({LocalStepKind::copy, target, from, from});
  return true;
}

void shift(Slice& slice, Random& random) {
  MovingSlice moving_slice(slice);
  shift(moving_slice, random);
  slice = moving_slice.at(0);
}

// Of one member alone, or as if all of its node had been told the same wrong root.
bool change_near(Schedules& all, Random& random) {
  Spot spot{};
  if (!choose(all, &Round::near, random, spot)) return false;
  std::vector<IntraNodeStep>& list = round_at(all, spot).near;
  IntraNodeStep& near = list[spot.index];
  switch (random.below(5)) {
    case 0:
      if (list.size() == 1)
        erase_at(all[spot.member].rounds, spot.round);
      else
        erase_at(list, spot.index);
      return true;
    case 1:
      shift(near.from, random);
      return near.from.count > 0;
    case 2:
      shift(near.to, random);
      return near.to.count > 0;
    case 3:
      if (near.to.count == 0) return false;
      --near.to.count;
      return true;
    default:
      if (!is_rooted(near.collective)) return false;
      for (const int member : std::vector<int>(near.members)) {
        std::vector<Round>& rounds = all[static_cast<std::size_t>(member)].rounds;
        for (Round& round : rounds) {
          for (IntraNodeStep& each : round.near) each.root = (each.root + 1) % static_cast<int>(each.members.size());
        }
      }
      return true;
  }
}

bool change_laps(Schedules& all, Random& random) {
  std::vector<Round*> repeated;
  for (Schedule& each : all) {
    for (Round& round : each.rounds) {
      if (round.times > 1) repeated.push_back(&round);
    }
  }
  if (repeated.empty()) return false;
  repeated[random.below(repeated.size())]->times += random.chance(2) ? 1 : -1;
  return true;
}

}  // namespace

bool do_damage(Schedules& schedules, Damage damage, Random& random) {
  switch (damage) {
    case Damage::drop_send:
      return drop(schedules, &Round::sends, random);
    case Damage::drop_receive:
      return drop(schedules, &Round::receives, random);
    case Damage::drop_message:
      return drop_both(schedules, random);
    case Damage::duplicate_send:
      return duplicate_messages(schedules, false, random);
    case Damage::duplicate_message:
      return duplicate_messages(schedules, true, random);
    case Damage::duplicate_local:
      return duplicate_local(schedules, random);
    case Damage::drop_local:
      return drop_local(schedules, random);
    case Damage::shift_message:
      return shift_messages(schedules, false, random);
    case Damage::shift_both:
      return shift_messages(schedules, true, random);
    case Damage::shift_operand:
      return shift_operand(schedules, random);
    case Damage::shrink_message:
      return shrink_messages(schedules, false, random);
    case Damage::shrink_both:
      return shrink_messages(schedules, true, random);
    case Damage::shrink_local:
      return shrink_local(schedules, random);
    case Damage::swap_peers:
      return swap_peers(schedules, random);
    case Damage::swap_messages:
      return swap_messages(schedules, random);
    case Damage::swap_rounds:
      return swap_rounds(schedules, random);
    case Damage::merge_rounds:
      return merge_rounds(schedules, random);
    case Damage::change_kind:
      return change_kind(schedules, random);
    case Damage::swap_operands:
      return swap_operands(schedules, random);
    case Damage::change_operand:
      return change_operand(schedules, random);
    case Damage::change_space:
      return change_space(schedules, random);
    case Damage::advance_local:
      return advance_local(schedules, random);
    case Damage::extra_message:
      return extra_message(schedules, random);
    case Damage::copy_overlapping:
      return copy_overlapping(schedules, random);
    case Damage::write_input:
      return write_input(schedules, random);
    case Damage::change_near:
      return change_near(schedules, random);
    case Damage::change_laps:
      return change_laps(schedules, random);
  }
  return false;
}

}  // namespace lockstep::test
