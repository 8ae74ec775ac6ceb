// SPDX-License-Identifier: Apache-2.0
#include "collectives/engine/stall.hpp"

#include <compare>
#include <map>

#include "topology/base/text.hpp"

namespace lockstep {
namespace {

// A sentence about one rank and about several, which begins after them.
struct Sentence {
  std::string one;
  std::string many;
  auto operator<=>(const Sentence&) const = default;  // NOLINT(modernize-use-nullptr): of the comparison itself
};

Sentence silent() {
  return {"does not answer: it is in no call of Lockstep, or gone",
          "do not answer: they are in no call of Lockstep, or gone"};
}

Sentence where_else(const Answer& answer, std::string_view before) {
  const std::string last =
      answer.last_finished == 0 ? "has finished no call yet" : text("last finished call ", answer.last_finished);
  const std::string lasts =
      answer.last_finished == 0 ? "have finished no call yet" : text("last finished call ", answer.last_finished);
  const std::string now = answer.oldest_in_flight == 0 ? "none" : text("call ", answer.oldest_in_flight);
  return {text(before, last, " and is in ", now), text(before, lasts, " and are in ", now)};
}

template <class Say>
std::string grouped(const Roll& roll, const IndexSet& asked, const Say& say) {
  std::map<Sentence, IndexSet> groups;
  for (const int rank : asked.members()) {
    const auto at = static_cast<std::size_t>(rank);
    if (at < roll.left.size() && roll.left[at]) {
      const std::string left = text("left after call ", *roll.left[at]);
      groups[{left, left}].insert(rank);
    } else if (at < roll.answers.size() && roll.answers[at]) {
      groups[say(*roll.answers[at])].insert(rank);
    } else {
      groups[silent()].insert(rank);
    }
  }
  std::vector<std::string> parts;
  parts.reserve(groups.size());
  for (const auto& [sentence, ranks] : groups)
    parts.push_back(text(ranks_text(ranks), ' ', ranks.size() == 1 ? sentence.one : sentence.many));
  return join(parts, "; ");
}

}  // namespace

std::string ranks_text(const IndexSet& ranks) {
  return text(ranks.size() == 1 ? "rank " : "ranks ", ranks.to_string());
}

std::string standings(const Roll& roll, const IndexSet& asked) {
  return grouped(roll, asked, [](const Answer& answer) -> Sentence {
    if (answer.standing == Answer::Standing::in_it) return {"is waiting in it", "are waiting in it"};
    if (answer.standing != Answer::Standing::not_started) return {"finished it", "finished it"};
    return where_else(answer, "");
  });
}

std::string standings_of_exchange(const Roll& roll, const IndexSet& asked) {
  return grouped(roll, asked, [](const Answer& answer) { return where_else(answer, "did not send or receive it, "); });
}

Error different_calls(std::string_view name, int peer, const CallWord& theirs, int me, const CallWord& mine) {
  const auto at = [](const CallWord& call) { return call.place.empty() ? std::string() : text(" at ", call.place); };
  if (theirs.signature == mine.signature) {
    return {Code::mismatch,
            text("members of \"", name, "\" chose different algorithms for ", to_text(mine.signature), " (call ",
                 mine.number, ")", at(mine), ": rank ", peer, " chose \"", theirs.algorithm, "\", rank ", me,
                 " chose \"", mine.algorithm, "\" or cut it differently"),
            "give all members the same LOCKSTEP_ settings and the same build"};
  }
  return {Code::mismatch,
          text("members of \"", name, "\" made different calls: rank ", peer, " is in ", to_text(theirs.signature),
               " (call ", theirs.number, ")", at(theirs), ", rank ", me, " is in ", to_text(mine.signature), " (call ",
               mine.number, ")", at(mine)),
          "let all members make the same calls with the same counts, types, operations and roots in the same order"};
}

}  // namespace lockstep
