// SPDX-License-Identifier: Apache-2.0
// All that members need to find each other: an all-gather of bytes. Barrier and broadcast are made
// of it. Not for data: it is built for set-up, for naming who is missing, and for never hanging.
#pragma once

#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "topology/base/bytes.hpp"
#include "topology/base/log.hpp"
#include "topology/base/text.hpp"

namespace lockstep {

// How long a wait may last: a warning naming who is missing, then an error. Zero is never.
struct Patience {
  Duration warn = std::chrono::seconds(10);
  Duration limit = std::chrono::seconds(300);
};

class Exchange {
 public:
  Exchange(int rank, int size, Patience patience, Log log)
      : rank_(rank), size_(size), patience_(patience), log_(std::move(log)) {}
  virtual ~Exchange() = default;
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }
  const Patience& patience() const { return patience_; }
  const Log& log() const { return log_; }

  bool failed() const { return !failure_.empty(); }

  // Everybody's bytes, by rank; lengths may differ. `what` names the call for people and must be the
  // same on all members: a member in another call is an Error mismatch on all. Who does not come is
  // named: a warning first, then an Error stall. After an error the exchange refuses every later call.
  std::vector<Bytes> all_gather(std::string_view what, std::span<const std::byte> mine) {
    return all_gather(what, mine, patience_);
  }
  std::vector<Bytes> all_gather(std::string_view what, std::span<const std::byte> mine, Patience patience);

  void barrier(std::string_view what) { all_gather(what, {}); }

  // The root's bytes on every member; the bytes of others are ignored. Returns when all have come.
  Bytes broadcast(std::string_view what, std::span<const std::byte> mine, int root);

  // A new exchange among the members with the same colour, ordered by key, then by rank; nothing where
  // the colour is negative. All members call it; several threads may split exchanges of theirs at once.
  std::unique_ptr<Exchange> split(int colour, int key);
  std::unique_ptr<Exchange> duplicate() { return split(0, rank_); }

  // Who of the members is known to be gone, in words: for who waits for them in another way. Does not wait.
  virtual std::optional<std::string> known_loss() { return std::nullopt; }

  // Tells the others that this member cannot go on, so that their wait ends with an Error peer_failed
  // that quotes `why`, now instead of at the limit.
  void fail(std::string_view why);

 protected:
  virtual std::vector<Bytes> gather_all(std::string_view what, std::span<const std::byte> mine, Patience patience) = 0;
  virtual void tell_failure(std::string_view why) = 0;
  // Ranks of this exchange that form the new one, in their order. `used` holds, for every member, the
  // channels it has in use, from which the implementation picks a free one.
  virtual std::unique_ptr<Exchange> make_split(const std::vector<int>& ranks, const std::vector<Bytes>& used) = 0;
  virtual Bytes channels_in_use() = 0;
  // Begins what a new exchange does before its first use, and returns what its other members must know for it.
  virtual Bytes opening() { return {}; }
  // Ends it, with what each member's opening() returned.
  virtual void open(const std::vector<Bytes>& /*openings*/) {}
  // Held while this process takes part in choosing: not owned where another thread does so just now. Where several
  // members are threads of one process, one of them holds it, and nobody goes on before all have what was chosen.
  virtual std::unique_lock<std::mutex> try_choosing() { return {}; }
  virtual bool chooses_for_others() const { return false; }
  // Longer and longer, the same for all members of an exchange and for no two exchanges; `seed` is the same for its
  // members alone. Throws Error stall at the limit.
  void wait_to_choose(unsigned attempt, std::chrono::steady_clock::time_point since) const;
  virtual std::uint64_t seed() const { return 0; }

 private:
  void refuse_if_failed() const;

  int rank_;
  int size_;
  Patience patience_;
  Log log_;
  std::string failure_;  // why every later call is refused
};

}  // namespace lockstep
