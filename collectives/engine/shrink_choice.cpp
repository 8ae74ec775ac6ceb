// SPDX-License-Identifier: Apache-2.0
// Decides which member leads a ShrinkConsensus, when it leads, and its proposal. Also handles timeouts.
#include <algorithm>

#include "collectives/engine/shrink_consensus.hpp"
#include "topology/base/text.hpp"

namespace lockstep::shrinking {

template <class Predicate>
IndexSet ShrinkConsensus::those(const Predicate& predicate) const {
  IndexSet all;
  for (int peer = 0; peer < size_; ++peer) {
    if (predicate(peer)) all.insert(peer);
  }
  return all;
}

IndexSet ShrinkConsensus::lost() const {
  return those([this](int peer) { return is_lost(peer); });
}
IndexSet ShrinkConsensus::ended() const {
  return those([this](int peer) { return has_ended(peer); });
}
IndexSet ShrinkConsensus::here() const {
  return those([this](int peer) { return !is_lost(peer); });
}
IndexSet ShrinkConsensus::missing() {
  const ConsensusRound& turn = current();
  return those([&](int peer) { return !is_lost(peer) && !turn.joined.contains(peer); });
}

std::string ShrinkConsensus::what() const { return text("shrink of \"", name_, '"'); }

void ShrinkConsensus::move(Duration now) {
  // Time in which this member did not look (it was stopped) does not count against the others.
  const Duration unseen = now - now_ - std::chrono::seconds(1);
  if (unseen > Duration{}) since_ += unseen;
  if (unseen > Duration{} && doubt_since_) *doubt_since_ += unseen;
  now_ = now;
  if (turn_ == 0 || verdict_) return;
  warn(now);
  if (!ballot_ && leads(now)) {
    if (auto value = choose(now)) begin_ballot(std::move(*value));
  }
  if (ballot_) advance_ballot();
  if (!verdict_) look_whether_stuck(now);
}

namespace {

// Returns the time that each rank waits longer than the rank before it until it leads. It is a tenth of the limit, but
// at least 20 ms and at most 1 s.
Duration grace_of(const Patience& patience) {
  return std::clamp<Duration>(patience.limit / 10, std::chrono::milliseconds(20), std::chrono::seconds(1));
}

}  // namespace

// Returns true if this member leads: it has the lowest rank that is not lost. If that one does nothing for too long,
// another one leads, to report it.
bool ShrinkConsensus::leads(Duration now) const {
  if (now < next_ballot_) return false;
  const IndexSet all = here();
  if (all.first() == rank_) return true;
  const auto before = std::ranges::count_if(all.members(), [this](int peer) { return peer < rank_; });
  return has_limit() && now - since_ > patience_.limit + grace_of(patience_) * before;
}

std::optional<ShrinkDecision> ShrinkConsensus::choose(Duration now) {
  if (auto wrong = trouble()) return wrong;
  const IndexSet absent = missing();
  const IndexSet all = here();
  const auto stalled = [&](std::string_view who) {
    return ShrinkDecision{.code = Code::stall,
                          .why = text("waited ", format_duration(patience_.limit), " in ", what(), ": ", who,
                                      " -> check those members; LOCKSTEP_TIMEOUT sets the limit")};
  };
  if (!absent.empty()) {
    if (!is_late(now)) return std::nullopt;
    return stalled(text("rank ", absent.to_string(), " did not come"));
  }
  if (all.first() != rank_) return stalled(text("rank ", all.first(), ", which leads the others, does not answer"));
  return choose_of_all(all, now);
}

// Chooses after all members that are not lost have joined.
std::optional<ShrinkDecision> ShrinkConsensus::choose_of_all(const IndexSet& all, Duration now) {
  if (auto wrong = out_of_reach(all)) return is_doubt_over(now) ? wrong : std::nullopt;
  if (!may_go_on(all)) return std::nullopt;
  const auto& joined = current().joined;
  const bool is_built = turn_ > 1 && all == members_;
  const std::vector<int> members = all.members();
  const auto first =
      std::ranges::find_if(members, [&](int peer) { return joined.at(peer).part.state != BuildState::built; });
  if (is_built && first == members.end()) return ShrinkDecision{.stage = ShrinkStage::done, .members = all};
  if (is_built) {
    if (!is_doubt_over(now)) return std::nullopt;
    const BuildResult& part = joined.at(*first).part;
    return ShrinkDecision{.code = part.code, .why = text(what(), ": rank ", *first, ": ", part.why)};
  }
  return ShrinkDecision{.stage = ShrinkStage::build, .members = all};
}

// Returns the failure of a member that cannot build its part at all, no matter which members are lost.
std::optional<ShrinkDecision> ShrinkConsensus::trouble() const {
  if (failed_.empty()) return std::nullopt;
  const auto& [peer, part] = *failed_.begin();
  return ShrinkDecision{.code = part.code, .why = text("rank ", peer, ": ", part.why)};
}

// Returns a failure if a member that is here has lost another one that is here. The other one may just be ending.
std::optional<ShrinkDecision> ShrinkConsensus::out_of_reach(const IndexSet& all) {
  for (const int peer : all.members()) {
    const IndexSet others = current().joined.at(peer).lost.intersect(all);
    if (others.empty()) continue;
    return ShrinkDecision{.code = Code::peer_failed,
                          .why = text(what(), ": rank ", peer, " does not reach rank ", others.to_string(),
                                      ", though others do -> check the link between those hosts")};
  }
  return std::nullopt;
}

// Returns true if a doubt has lasted for 20 s (a guess), or for the limit if that is shorter.
bool ShrinkConsensus::is_doubt_over(Duration now) {
  constexpr std::chrono::seconds longest{20};
  if (!doubt_since_) doubt_since_ = now;
  const Duration limit = has_limit() ? std::min<Duration>(patience_.limit, longest) : longest;
  return now - *doubt_since_ > limit;
}

void ShrinkConsensus::warn(Duration now) {
  const bool warns = patience_.warn > Duration{} && (!has_limit() || patience_.warn < patience_.limit);
  if (warned_ || !warns || now - since_ < patience_.warn) return;
  warned_ = true;
  const IndexSet absent = missing();
  warning_ =
      text(id(Code::stall), " waiting for ", format_duration(patience_.warn), " in ", what(), ": ",
           absent.empty() ? "all have come, and do not agree yet" : text("rank ", absent.to_string(), " did not come"));
}

// Gives up if this member's side cannot decide any more, or if no member decides.
void ShrinkConsensus::look_whether_stuck(Duration now) {
  const IndexSet all = here();
  if (!may_go_on(all)) {
    if (const auto wrong = trouble()) return give_up(wrong->code, wrong->why);
    if (missing().empty() && is_doubt_over(now)) {
      const IndexSet away = those([this](int peer) { return is_lost(peer) && !has_ended(peer); });
      return give_up(Code::peer_failed, text(what(), ": rank ", away.to_string(),
                                             " are not reached, may live, and may go on without rank ", all.to_string(),
                                             ", which are not more than half of ", size_,
                                             " -> start anew, or check the link between the hosts"));
    }
  }
  const auto turns = static_cast<int>(all.size()) + 4;
  if (has_limit() && now - since_ > patience_.limit + grace_of(patience_) * turns) {
    const IndexSet absent = missing();
    give_up(Code::stall, text("waited ", format_duration(now - since_), " in ", what(), ": ",
                              absent.empty() ? text("rank ", all.to_string(), " came, and too few of them answer")
                                             : text("rank ", absent.to_string(), " did not come"),
                              " -> check those members; LOCKSTEP_TIMEOUT sets the limit"));
  }
}

}  // namespace lockstep::shrinking
