// SPDX-License-Identifier: Apache-2.0
// Builds broadcast and split on the all-gather of an exchange.
#include "topology/exchange.hpp"

#include <algorithm>
#include <random>
#include <thread>

#include "topology/base/error.hpp"
#include "topology/base/text.hpp"
#include "topology/exchange_rules.hpp"

namespace lockstep {

// Pauses without a lock. A thread that waited for it alone would keep the others of its exchange from choosing, and
// hold the locks that they need.
void Exchange::wait_to_choose(unsigned attempt, TimeSpan waited) const {
  if (wait_limits_.limit > Duration{} && waited > wait_limits_.limit)
    throw Error(Code::stall,
                text("waited ", format_duration(wait_limits_.limit), " for other threads that split exchanges"),
                "check those threads; LOCKSTEP_TIMEOUT sets the limit");
  std::mt19937_64 random(seed() + attempt);
  constexpr unsigned longest = 5000;  // microseconds of a pause; a guess
  const unsigned most = std::min(longest, 50U << std::min(attempt, 8U));
  std::this_thread::sleep_for(std::chrono::microseconds(random() % most));
}

std::vector<Bytes> Exchange::all_gather(std::string_view what, std::span<const std::byte> mine,
                                        WaitLimits wait_limits) {
  refuse_if_failed();
  try {
    return gather_all(what, mine, wait_limits);
  } catch (const std::exception& error) {
    failure_ = error.what();
    throw;
  }
}

Bytes Exchange::broadcast(std::string_view what, std::span<const std::byte> mine, int root) {
  if (root < 0 || root >= size_) {
    throw Error(Code::usage, text("broadcast \"", what, "\" from root ", root, " among ", size_, " members"),
                text("give a root from 0 to ", size_ - 1));
  }
  auto all = all_gather(text(what, " from root ", root), rank_ == root ? mine : std::span<const std::byte>{});
  return std::move(all.at(static_cast<std::size_t>(root)));
}

// Lets one thread of a process choose at a time, since two could choose the same channel. If a member finds another
// thread choosing, all members come again, after a pause that differs between exchanges.
std::unique_ptr<Exchange> Exchange::split(int colour, int key) {
  const auto begin = std::chrono::steady_clock::now();
  // Gives the rest the remaining time of one call. Nobody comes late any more, unless something is wrong.
  const auto rest = [&] {
    WaitLimits wait_limits = wait_limits_;
    const auto gone = std::chrono::duration_cast<Duration>(std::chrono::steady_clock::now() - begin);
    if (wait_limits.limit > Duration{}) wait_limits.limit = std::max(wait_limits.limit / 4, wait_limits.limit - gone);
    return wait_limits;
  };
  barrier("split");  // all come before any takes the lock, so that no holder waits for a late member
  for (unsigned attempt = 0;; ++attempt) {
    auto choosing = try_choosing();
    const bool mine_to_choose = choosing.mutex() == nullptr || choosing.owns_lock();
    Writer mine;
    mine.put(colour).put(key).put(mine_to_choose).put(std::span<const std::byte>(channels_in_use()));
    const auto all = all_gather("split: free channels", mine.take(), rest());
    std::vector<std::pair<int, int>> chosen;  // key, rank
    std::vector<Bytes> used;
    used.reserve(static_cast<std::size_t>(size_));
    bool all_choose = true;
    for (int rank = 0; rank < size_; ++rank) {
      Reader reader(all.at(static_cast<std::size_t>(rank)));
      const int their_colour = reader.get<int>();
      const int their_key = reader.get<int>();
      all_choose = reader.get<bool>() && all_choose;
      used.push_back(reader.get_bytes());
      if (their_colour == colour) chosen.emplace_back(their_key, rank);
    }
    if (!all_choose) {
      choosing = {};
      wait_to_choose(attempt, std::chrono::steady_clock::now() - begin);
      continue;
    }
    std::ranges::sort(chosen);
    std::vector<int> ranks;
    ranks.reserve(chosen.size());
    for (const auto& [their_key, rank] : chosen) ranks.push_back(rank);
    std::unique_ptr<Exchange> made;
    std::exception_ptr thrown;
    std::string wrong;
    Bytes opening;
    try {
      if (colour >= 0) made = make_split(ranks, used);
      if (made) opening = made->opening();
    } catch (const std::exception& error) {
      thrown = std::current_exception();
      wrong = error.what();
    }
    const Bytes told = Writer().put(std::string_view(wrong)).put(std::span<const std::byte>(opening)).take();
    const auto taken = all_gather("split: all have taken their channels", told, rest());
    if (thrown) std::rethrow_exception(thrown);
    std::vector<Bytes> openings;
    openings.reserve(taken.size());
    for (int rank = 0; rank < size_; ++rank) {
      Reader reader(taken[static_cast<std::size_t>(rank)]);
      if (const std::string theirs = reader.get_string(); !theirs.empty())
        throw Error(Code::peer_failed, text("rank ", rank, " could not split: ", printable(theirs, 500)),
                    exchange_rules::member_remedy);
      openings.push_back(reader.get_bytes());
    }
    std::vector<Bytes> of_members;
    of_members.reserve(ranks.size());
    for (const int rank : ranks) of_members.push_back(std::move(openings[static_cast<std::size_t>(rank)]));
    if (made) made->open(of_members);
    return made;
  }
}

void Exchange::fail(std::string_view why) {
  if (!failure_.empty()) return;
  constexpr std::size_t longest = 1024;  // bytes: short messages leave at once
  failure_ = why.substr(0, longest);
  tell_failure(text("rank ", rank_, " failed: ", failure_));
}

void Exchange::refuse_if_failed() const {
  if (failure_.empty()) return;
  throw Error(Code::already_failed, text("this exchange failed earlier: ", failure_),
              "make a new session, or end the program");
}

}  // namespace lockstep
