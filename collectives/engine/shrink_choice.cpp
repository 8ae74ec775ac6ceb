// SPDX-License-Identifier: Apache-2.0
// Decides which member leads a ShrinkConsensus, when it leads, and its proposal. Also handles timeouts.
#include <algorithm>

#include "collectives/engine/shrink_consensus.hpp"

namespace lockstep::shrinking {

// Returns the members that are not lost, and have not joined this turn.
IndexSet ShrinkConsensus::missing() {
  IndexSet absent;
  for (const int peer : member_states_.reachable().members()) {
    if (!current().joined.contains(peer)) absent.insert(peer);
  }
  return absent;
}

void ShrinkConsensus::move(Duration now) {
  timer_.advance(now);
  if (turn_ == 0 || decision_) return;
  if (timer_.is_time_to_warn()) {
    const IndexSet absent = missing();
    warning_ = text(
        id(Code::stall), " waiting for ", format_duration(timer_.wait_limits().warn), " in ", title(), ": ",
        absent.empty() ? "all have come, and do not agree yet" : text("rank ", absent.to_string(), " did not come"));
  }
  if (!ballot_ && leads()) {
    if (auto value = choose()) begin_ballot(std::move(*value));
  }
  if (ballot_) advance_ballot();
  if (!decision_) give_up_if_stuck();
}

// Returns true if this member leads: it has the lowest rank that is not lost. If that one does nothing for too long,
// another one leads, to report it.
bool ShrinkConsensus::leads() const {
  if (timer_.now() < next_ballot_) return false;
  const IndexSet all = member_states_.reachable();
  if (all.first() == member_states_.rank()) return true;
  return timer_.is_late_by(
      std::ranges::count_if(all.members(), [this](int peer) { return peer < member_states_.rank(); }));
}

std::optional<ShrinkDecision> ShrinkConsensus::choose() {
  if (auto failure = build_failure()) return failure;
  const IndexSet absent = missing();
  const IndexSet all = member_states_.reachable();
  const auto stalled = [&](std::string_view reason) {
    return ShrinkDecision{
        .code = Code::stall,
        .why = text("waited ", format_duration(timer_.wait_limits().limit), " in ", title(), ": ", reason,
                    " -> run `lockstep stat` on their hosts; LOCKSTEP_TIMEOUT sets the limit")};
  };
  if (!absent.empty()) {
    if (!timer_.is_late()) return std::nullopt;
    return stalled(text("rank ", absent.to_string(), " did not come"));
  }
  if (all.first() != member_states_.rank())
    return stalled(text("rank ", all.first(), ", which leads the others, does not answer"));
  return choose_of_all(all);
}

// Chooses after all members that are not lost have joined.
std::optional<ShrinkDecision> ShrinkConsensus::choose_of_all(const IndexSet& all) {
  if (auto failure = unreachable_pair(all)) return timer_.is_doubt_over() ? failure : std::nullopt;
  if (!member_states_.may_go_on(all)) return std::nullopt;
  const auto& joined = current().joined;
  const bool is_built = turn_ > 1 && all == members_;
  const std::vector<int> members = all.members();
  const auto first =
      std::ranges::find_if(members, [&](int peer) { return joined.at(peer).part.state != BuildState::built; });
  if (is_built && first == members.end()) return ShrinkDecision{.stage = ShrinkStage::done, .members = all};
  if (is_built) {
    if (!timer_.is_doubt_over()) return std::nullopt;
    const BuildResult& part = joined.at(*first).part;
    return ShrinkDecision{.code = part.code, .why = text(title(), ": rank ", *first, ": ", part.why)};
  }
  return ShrinkDecision{.stage = ShrinkStage::build, .members = all};
}

// Returns the failure of a member that cannot build its part at all, no matter which members are lost.
std::optional<ShrinkDecision> ShrinkConsensus::build_failure() const {
  if (failed_.empty()) return std::nullopt;
  const auto& [peer, part] = *failed_.begin();
  return ShrinkDecision{.code = part.code, .why = text("rank ", peer, ": ", part.why)};
}

// Returns a failure if a member that is here has lost another one that is here. The other one may just be ending.
std::optional<ShrinkDecision> ShrinkConsensus::unreachable_pair(const IndexSet& all) {
  for (const int peer : all.members()) {
    const IndexSet others = current().joined.at(peer).lost.intersect(all);
    if (others.empty()) continue;
    return ShrinkDecision{.code = Code::peer_failed,
                          .why = text(title(), ": rank ", peer, " does not reach rank ", others.to_string(),
                                      ", though others do -> check the link between those hosts")};
  }
  return std::nullopt;
}

// Gives up if this member's side cannot decide any more, or if no member decides.
void ShrinkConsensus::give_up_if_stuck() {
  const IndexSet all = member_states_.reachable();
  if (!member_states_.may_go_on(all)) {
    if (const auto failure = build_failure()) return give_up(failure->code, failure->why);
    if (missing().empty() && timer_.is_doubt_over()) {
      IndexSet silent;
      for (const int peer : member_states_.lost().members()) {
        if (!member_states_.has_ended(peer)) silent.insert(peer);
      }
      return give_up(Code::peer_failed, text(title(), ": rank ", silent.to_string(),
                                             " cannot be reached, may live, and may continue without rank ",
                                             all.to_string(), ", not more than half of ", member_states_.size(),
                                             " -> restart the job, or check the link between the hosts"));
    }
  }
  if (timer_.is_late_by(static_cast<std::ptrdiff_t>(all.size()) + 4)) {
    const IndexSet absent = missing();
    give_up(Code::stall, text("waited ", format_duration(timer_.waited()), " in ", title(), ": ",
                              absent.empty() ? text("rank ", all.to_string(), " came, and too few of them answer")
                                             : text("rank ", absent.to_string(), " did not come"),
                              " -> run `lockstep stat` on their hosts; LOCKSTEP_TIMEOUT sets the limit"));
  }
}

}  // namespace lockstep::shrinking
