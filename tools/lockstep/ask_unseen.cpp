// SPDX-License-Identifier: Apache-2.0
// Sends questions by the status files of local processes, and polls for the answers.
#include "tools/lockstep/ask_unseen.hpp"

#include <algorithm>
#include <chrono>
#include <optional>
#include <thread>
#include <utility>

#include "collectives/engine/status_request.hpp"
#include "tools/lockstep/verdict_groups.hpp"
#include "topology/base/error.hpp"

namespace lockstep::command {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr milliseconds longest(1000);
constexpr milliseconds pause(10);
// Afterwards another member is tried, because a stopped or computing process serves no request. The engine serves one
// at most every 100 ms.
constexpr milliseconds patience(150);

// Asks the members of one communicator through a member on this host.
class Question {
 public:
  explicit Question(const ObservedGroup& group) : id_(group.members.begin()->second.seen->id) {
    for (const auto& [rank, member] : unseen_members(group)) unseen_.push_back(rank);
    for (const auto& [rank, member] : group.members) {
      if (member.seen->failure.empty()) askers_.push_back(&member);
    }
    std::stable_partition(askers_.begin(), askers_.end(),
                          [](const ObservedMember* each) { return each->seen->is_in_call(); });
  }

  bool is_needed() const { return !unseen_.empty(); }
  std::uint64_t id() const { return id_; }

  // Continues the question. Returns true if there is nothing left to wait for.
  bool look() {
    const auto served = std::ranges::find_if(requests_, [](const auto& each) { return each.requester.is_served(); });
    if (served != requests_.end()) {
      is_served_ = true;
      return are_all_answered(*served->asker);
    }
    const auto now = steady_clock::now();
    while (!askers_.empty() && (requests_.empty() || now - last_request_ >= patience)) {
      const ObservedMember* const asker = askers_.front();
      askers_.erase(askers_.begin());
      status::StatusRequester requester(asker->process->process, asker->seen->order);
      if (!requester.can_request()) continue;
      requester.request();
      requests_.push_back({asker, std::move(requester)});
      last_request_ = now;
    }
    return requests_.empty();
  }

  // Returns the reason why no member asked; an empty string if one did.
  std::string complaint() const {
    if (is_served_) return {};
    return requests_.empty()
               ? "they could not be asked: no file of a member here can be written"
               : "they could not be asked: the members here are in no call of this communicator, or stopped";
  }

 private:
  struct SentRequest {
    const ObservedMember* asker;
    status::StatusRequester requester;
  };

  // Returns true if all have answered. The asker has noted the question, so a member without an unanswered one has
  // answered it.
  bool are_all_answered(const ObservedMember& asker) const {
    const auto members = members_of(asker);
    return std::ranges::all_of(unseen_, [&](int rank) {
      if (static_cast<std::size_t>(rank) >= members.size()) return true;  // the communicator has ended
      const status::MemberSnapshot& member = members[static_cast<std::size_t>(rank)];
      return member.state == status::MemberResponse::left || (member.state == status::MemberResponse::answered &&
                                                              member.unanswered_ms == status::MemberSnapshot::never);
    });
  }

  static std::vector<status::MemberSnapshot> members_of(const ObservedMember& asker) {
    std::optional<status::ProcessSnapshot> seen;
    try {
      seen = status::read_process(asker.process->process);
    } catch (const Error&) {  // the process has just ended
    }
    if (!seen) return {};
    const auto found = std::ranges::find(seen->communicators, asker.seen->order, &status::CommunicatorSnapshot::order);
    return found == seen->communicators.end() ? std::vector<status::MemberSnapshot>{} : std::move(found->members);
  }

  std::uint64_t id_;
  std::vector<int> unseen_;
  std::vector<const ObservedMember*> askers_;  // still to be tried; those in a call first
  std::vector<SentRequest> requests_;
  bool is_served_ = false;
  steady_clock::time_point last_request_;
};

}  // namespace

std::map<std::uint64_t, std::string> ask_unseen(const std::vector<status::ProcessSnapshot>& processes) {
  const std::vector<ObservedGroup> groups = groups_of(processes);
  std::vector<Question> questions;
  for (const ObservedGroup& group : groups) {
    Question question(group);
    if (question.is_needed()) questions.push_back(std::move(question));
  }
  const auto end = steady_clock::now() + longest;
  while (true) {
    bool is_over = true;
    for (Question& each : questions) {
      if (steady_clock::now() >= end) break;  // a status file of many large communicators takes long to read
      is_over = each.look() && is_over;
    }
    if (is_over || steady_clock::now() >= end) break;
    std::this_thread::sleep_for(pause);
  }
  std::map<std::uint64_t, std::string> complaints;
  for (const Question& each : questions) {
    if (std::string complaint = each.complaint(); !complaint.empty()) complaints[each.id()] = std::move(complaint);
  }
  return complaints;
}

}  // namespace lockstep::command
