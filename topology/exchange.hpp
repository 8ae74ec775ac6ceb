// SPDX-License-Identifier: Apache-2.0
// An all-gather of bytes among members, and barrier, broadcast and split made of it. It serves set-up only, never
// data. It names missing members, and never waits for ever unless it is told to.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "topology/base/bytes.hpp"
#include "topology/base/log.hpp"
#include "topology/base/time_span.hpp"

namespace lockstep {

// Limits a wait: after `warn` a warning names the missing members, after `limit` the wait is an error. Zero is
// never.
struct WaitLimits {
  TimeSpan warn = TimeSpan::seconds(10);
  TimeSpan limit = TimeSpan::seconds(300);
};

// Connects the members of a communicator while they set it up. One thread uses it at a time. All members make the
// same calls in the same order.
class Exchange {
 public:
  // Sets this member's number among `size` members. Lines about missing members go to `log`.
  Exchange(int rank, int size, WaitLimits wait_limits, Log log)
      : rank_(rank), size_(size), wait_limits_(wait_limits), log_(std::move(log)) {}
  virtual ~Exchange() = default;
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;

  // Return this member's rank, the number of members, the time limits, and the log.
  int rank() const { return rank_; }
  int size() const { return size_; }
  const WaitLimits& wait_limits() const { return wait_limits_; }
  const Log& log() const { return log_; }

  // True after an error in a call, or after fail(). Every later call is then refused with Error already_failed.
  bool failed() const { return !failure_.empty(); }

  // Returns the bytes of all members, by rank; lengths may differ. The first argument names the call for people
  // and must be the same on all members. A member in another call is an Error mismatch on all. Members that do not
  // come are named: in a warning first, then in an Error stall. After an error the exchange refuses every later
  // call.
  std::vector<Bytes> all_gather(std::string_view what, std::span<const std::byte> mine) {
    return all_gather(what, mine, wait_limits_);
  }
  std::vector<Bytes> all_gather(std::string_view what, std::span<const std::byte> mine, WaitLimits wait_limits);

  // Returns when all members have called it. Throws as all_gather() does.
  void barrier(std::string_view what) { all_gather(what, {}); }

  // Returns the root's bytes on every member, and ignores those of others. Returns when all have come. Throws
  // Error usage if there is no such root.
  Bytes broadcast(std::string_view what, std::span<const std::byte> mine, int root);

  // Returns a new exchange among the members with the same colour, ordered by key, then by rank. Returns nothing
  // if this member's colour is negative. All members call it. Several threads of a process may split their
  // exchanges at once.
  std::unique_ptr<Exchange> split(int colour, int key);
  // Returns a new exchange among the same members with the same ranks.
  std::unique_ptr<Exchange> duplicate() { return split(0, rank_); }

  // Returns a sentence about a member that is known to be gone, or nothing. It never waits: waits that do not go
  // through the exchange ask it.
  virtual std::optional<std::string> known_loss() { return std::nullopt; }

  // Tells the others that this member cannot go on. Their waits end at once, instead of at the limit, with an
  // Error peer_failed that quotes `why`.
  void fail(std::string_view why);

 protected:
  // Does the work of all_gather(). An error that it throws makes the exchange fail.
  virtual std::vector<Bytes> gather_all(std::string_view what, std::span<const std::byte> mine,
                                        WaitLimits wait_limits) = 0;
  // Tells all other members that this one failed, in this sentence, without waiting for an answer.
  virtual void tell_failure(std::string_view why) = 0;
  // Makes the exchange of `ranks`, which are ranks of this exchange in the order of the new one. `used` holds the
  // channels that each member has in use. The implementation picks a free one.
  virtual std::unique_ptr<Exchange> make_split(const std::vector<int>& ranks, const std::vector<Bytes>& used) = 0;
  // Returns the channels that this process has in use, in a form that make_split() understands.
  virtual Bytes channels_in_use() = 0;
  // Begins the steps that a new exchange needs before its first use. Returns the bytes that its other members must
  // know for them.
  virtual Bytes opening() { return {}; }
  // Ends these steps. `openings` holds the result of opening() of each member.
  virtual void open(const std::vector<Bytes>& /*openings*/) {}
  // Returns a lock that is held while this process takes part in the choice of a channel. It does not own its
  // mutex if another thread chooses just now. Of members that are threads of one process, one holds it. None of
  // them goes on before all have the choice.
  virtual std::unique_lock<std::mutex> try_choosing() { return {}; }
  // Sleeps before the next attempt to choose, longer with each one. The time is the same for all members of an
  // exchange, and differs between exchanges. Throws Error stall if it has `waited` for longer than the limit.
  void wait_to_choose(unsigned attempt, TimeSpan waited) const;
  // Returns a number that all members of this exchange share, and no other exchange has. The base's 0 is for exchanges
  // that choose no channels.
  virtual std::uint64_t seed() const { return 0; }

 private:
  void refuse_if_failed() const;

  int rank_;
  int size_;
  WaitLimits wait_limits_;
  Log log_;
  std::string failure_;  // the reason for refusing later calls; empty: none
};

}  // namespace lockstep
