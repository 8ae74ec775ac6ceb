// SPDX-License-Identifier: Apache-2.0
// Builds the sentences about members that differ or do not come.
#include "collectives/engine/stall.hpp"

#include <compare>
#include <map>

#include "topology/base/text.hpp"

namespace lockstep {
namespace {

// Holds the end of a sentence about one rank, and about several.
struct RankStatement {
  std::string one;
  std::string many;
  // True if the rank is in the call, or has finished it.
  bool is_here = false;
  auto operator<=>(const RankStatement&) const = default;  // NOLINT(modernize-use-nullptr): of the comparison itself
};

RankStatement silent() {
  return {"does not answer: it is in no call of Lockstep, or gone",
          "do not answer: they are in no call of Lockstep, or gone"};
}

// Says where a member is that is not in the call.
RankStatement where_else(const AnswerMessage& answer, std::string_view before) {
  const std::string last =
      answer.last_finished == 0 ? "has finished no call yet" : text("last finished call ", answer.last_finished);
  const std::string lasts =
      answer.last_finished == 0 ? "have finished no call yet" : text("last finished call ", answer.last_finished);
  const std::string now = answer.oldest_in_flight == 0 ? "none" : text("call ", answer.oldest_in_flight);
  return {text(before, last, " and is in ", now), text(before, lasts, " and are in ", now)};
}

// Groups ranks with equal sentences, and joins the groups.
template <class Say>
std::string grouped(const MemberReports& reports, const IndexSet& asked, const Members& members, const Say& say) {
  std::map<RankStatement, IndexSet> groups;
  for (const int rank : asked.members()) {
    const auto at = static_cast<std::size_t>(rank);
    if (at < reports.left.size() && reports.left[at]) {
      const std::string left = text("left after call ", *reports.left[at]);
      groups[{left, left}].insert(rank);
    } else if (at < reports.answers.size() && reports.answers[at]) {
      groups[say(*reports.answers[at])].insert(rank);
    } else {
      groups[silent()].insert(rank);
    }
  }
  std::vector<std::string> parts;
  parts.reserve(groups.size());
  for (const auto& [sentence, ranks] : groups)
    parts.push_back(text(sentence.is_here ? members.number_of(ranks) : members.name_of(ranks), ' ',
                         ranks.size() == 1 ? sentence.one : sentence.many));
  return join(parts, "; ");
}

// Describes a difference that the texts of two calls do not show, and its remedy.
struct CallDifference {
  std::string_view what;
  std::string_view remedy;
};

CallDifference difference(const Signature& theirs, const Signature& mine) {
  const Fingerprints& a = theirs.fingerprints;
  const Fingerprints& b = mine.fingerprints;
  const bool are_of_variables = a.variable != 0 && b.variable != 0;
  if (are_of_variables && variable_in(a.variable) != variable_in(b.variable))
    return {"", "let all replicas change the same variables in the same order"};
  if (a.tag != b.tag) return {"", "let all members make the calls of each tag in the same order"};
  if (to_text(theirs) != to_text(mine))
    return {"",
            "let all members make the same calls with the same counts, types, operations and roots in the same order"};
  if (are_of_variables && a.variable != b.variable) return {"; they change it in different ways", same_change_remedy};
  if (a.layout != b.layout)
    return {"; their tensors differ in order, shape, type or key",
            "let all members give the same tensors, of the same shapes and keys, in the same order"};
  if (a.function != b.function)
    return {"; their functions differ",
            "give the same function on all members; where programs differ, name it: commutative(f, \"name\")"};
  if (a.merges != b.merges)
    return {"; before it they were in different merge_calls",
            "let all replicas reach the same merge_calls in the same order"};
  if (a.place != b.place)
    return {"; LOCKSTEP_STRICT=1 compares their lines",
            "call it at the same line on all members, or set LOCKSTEP_STRICT=0"};
  return {"; their counts differ", "let all members make the same calls with the same counts in the same order"};
}

}  // namespace

std::string ranks_text(const IndexSet& ranks) {
  return text(ranks.size() == 1 ? "rank " : "ranks ", ranks.to_string());
}

std::string progress_report(const MemberReports& reports, const IndexSet& asked, const Members& members) {
  return grouped(reports, asked, members, [](const AnswerMessage& answer) -> RankStatement {
    if (answer.progress == CallProgress::in_progress) return {"is waiting in it", "are waiting in it", true};
    if (answer.progress != CallProgress::not_started) return {"finished it", "finished it", true};
    return where_else(answer, "");
  });
}

std::string progress_report_of_message(const MemberReports& reports, const IndexSet& asked, const Members& members) {
  return grouped(reports, asked, members,
                 [](const AnswerMessage& answer) { return where_else(answer, "did not send or receive it, "); });
}

Error different_calls(std::string_view name, int peer, const CallDescription& theirs, int me,
                      const CallDescription& mine, const Members& members) {
  const std::string them = members.name_of(peer);
  const std::string us = members.name_of(me);
  const auto at = [](const CallDescription& call) {
    return call.place.empty() ? std::string() : text(" at ", call.place);
  };
  if (theirs.signature == mine.signature) {
    return {Code::mismatch,
            text("members of \"", name, "\" chose different algorithms for ", to_text(mine.signature), " (call ",
                 mine.number, ")", at(mine), ": ", them, " chose \"", theirs.algorithm, "\", ", us, " chose \"",
                 mine.algorithm, "\" or cut it differently"),
            "give all members the same LOCKSTEP_ settings and the same build"};
  }
  const CallDifference differ = difference(theirs.signature, mine.signature);
  return {Code::mismatch,
          text("members of \"", name, "\" made different calls: ", them, " is in ", to_text(theirs.signature),
               " (call ", theirs.number, ")", at(theirs), ", ", us, " is in ", to_text(mine.signature), " (call ",
               mine.number, ")", at(mine), differ.what),
          differ.remedy};
}

}  // namespace lockstep
