// SPDX-License-Identifier: Apache-2.0
// Describes recorded calls to other members, and compares them with theirs.
#include "collectives/engine/call_history.hpp"

#include "collectives/engine/stall.hpp"

namespace lockstep {

CallDescription CallHistory::description_of(const CallRecord& record) {
  return {record.number, record.signature, record.plan->choice_number(), record.plan->agreed_algorithm(),
          place(record.origin)};
}

std::vector<CallDescription> CallHistory::describe_last(std::uint64_t most) const {
  std::vector<CallDescription> last;
  for (std::uint64_t back = 0; back < std::min(most, last_started_); ++back)
    last.push_back(describe(last_started_ - back));
  return last;
}

void CallHistory::compare(int peer, const CallDescription& theirs) const {
  const CallRecord* record = find(theirs.number);
  if (record == nullptr) return;
  if (record->signature == theirs.signature && record->plan->choice_number() == theirs.choice_number) return;
  throw different_calls(identity_.name, peer, theirs, identity_.rank, description_of(*record), identity_.members);
}

AnswerMessage CallHistory::answer(const QueryMessage& question, std::uint64_t oldest_in_flight) const {
  AnswerMessage answer{
      .number = question.number, .last_finished = last_finished_, .oldest_in_flight = oldest_in_flight, .call = {}};
  if (const CallRecord* record = find(question.number)) {
    answer.progress = record->finished ? CallProgress::finished : CallProgress::in_progress;
    answer.call.push_back(description_of(*record));
  } else if (question.number <= last_started_) {
    answer.progress = CallProgress::forgotten;
  }
  // The answer also lists the calls before it. If members differed in a call that all have finished, their later calls
  // never match.
  constexpr std::uint64_t told = 16;
  std::uint64_t before = std::min(question.number == 0 ? last_started_ : question.number - 1, last_started_);
  for (std::uint64_t i = 0; i < told && before > 0; ++i, --before) {
    if (const CallRecord* earlier = find(before)) answer.call.push_back(description_of(*earlier));
  }
  return answer;
}

}  // namespace lockstep
