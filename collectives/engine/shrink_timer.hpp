// SPDX-License-Identifier: Apache-2.0
// Measures how long a turn of a ShrinkConsensus lasts, and how long a doubt does. The caller passes the time.
#pragma once

#include <algorithm>
#include <chrono>
#include <optional>

#include "topology/base/duration.hpp"
#include "topology/exchange.hpp"
#include "topology/exchange_rules.hpp"

namespace lockstep::shrinking {

// A doubt is a state in which a member can neither go on nor be sure that it must fail, such as an unreachable host.
class TurnTimer {
 public:
  // `wait_limits` bounds the time of a turn; a zero limit means none.
  explicit TurnTimer(WaitLimits wait_limits) : wait_limits_(wait_limits) {}

  // Begins a turn.
  void begin(Duration now) {
    now_ = since_ = now;
    doubt_since_.reset();
    warned_ = false;
  }
  // Advances the time. Time in which this member did not look (it was stopped) does not count against the others.
  void advance(Duration now) {
    const Duration unseen = now - now_ - std::chrono::seconds(1);
    if (unseen > Duration{}) since_ += unseen;
    if (unseen > Duration{} && doubt_since_) *doubt_since_ += unseen;
    now_ = now;
  }

  Duration now() const { return now_; }
  // Returns the length of the turn so far.
  Duration waited() const { return now_ - since_; }
  const WaitLimits& wait_limits() const { return wait_limits_; }
  // Returns true if the turn has reached its limit.
  bool is_late() const { return has_limit() && waited() > wait_limits_.limit; }
  // Returns true if it has exceeded its limit by that many times the grace period. Each rank waits one such period
  // longer than the rank before it until it leads. It is a tenth of the limit, but at least 20 ms and at most 1 s.
  bool is_late_by(std::ptrdiff_t times) const {
    const Duration grace =
        std::clamp<Duration>(wait_limits_.limit / 10, std::chrono::milliseconds(20), std::chrono::seconds(1));
    return has_limit() && waited() > wait_limits_.limit + grace * times;
  }
  // Returns true once in a turn: when it is time for the warning.
  bool is_time_to_warn() {
    if (warned_ || !exchange_rules::warns_first(wait_limits_) || waited() < wait_limits_.warn) return false;
    warned_ = true;
    return true;
  }

  // Returns true if a doubt has lasted for 20 s (a guess), or for the limit if that is shorter. The doubt begins now if
  // there was none.
  bool is_doubt_over() {
    constexpr std::chrono::seconds longest{20};
    if (!doubt_since_) doubt_since_ = now_;
    return now_ - *doubt_since_ > (has_limit() ? std::min<Duration>(wait_limits_.limit, longest) : longest);
  }
  // Ends the doubt, because something was heard or lost.
  void end_doubt() { doubt_since_.reset(); }

 private:
  bool has_limit() const { return wait_limits_.limit > Duration{}; }

  WaitLimits wait_limits_;
  Duration now_{};
  Duration since_{};
  std::optional<Duration> doubt_since_;
  bool warned_ = false;
};

}  // namespace lockstep::shrinking
