// SPDX-License-Identifier: Apache-2.0
// Implements an all-gather over control messages: every member sends its bytes to rank 0, which sends all of them to
// every member.
#include "collectives/engine/transport_exchange.hpp"

#include <deque>
#include <thread>
#include <utility>

#include "topology/base/error_report.hpp"
#include "topology/base/progress_hooks.hpp"
#include "topology/base/text.hpp"
#include "topology/exchange_rules.hpp"

namespace lockstep {
namespace {

using Clock = std::chrono::steady_clock;
using PeerState = Transport::PeerState;

constexpr std::int64_t nap_ns = 1'000'000;
// Names the rank that collects all blocks and sends them to all.
constexpr int gatherer = 0;

class TransportExchange final : public Exchange {
 public:
  TransportExchange(std::unique_ptr<Transport> transport, WaitLimits wait_limits, Log log, FutilityCheck futility_check)
      : Exchange(transport->rank(), transport->size(), wait_limits, std::move(log)),
        transport_(std::move(transport)),
        futility_check_(std::move(futility_check)) {}

  std::optional<std::string> known_loss() override;

 private:
  enum class ExchangeMessageKind : std::uint8_t { block, all, verdict };
  // Holds the state of a call under way.
  struct ExchangeCall {
    std::string_view what;
    WaitLimits wait_limits;
    Clock::time_point begin = Clock::now();
    bool warned = false;
    IndexSet came = {};
    std::vector<Bytes> blocks = {};
    bool is_over = false;
    // True if another member has reported the failure.
    bool was_told = false;
  };

  std::vector<Bytes> gather_all(std::string_view what, std::span<const std::byte> mine,
                                WaitLimits wait_limits) override;
  void tell_failure(std::string_view why) override { tell_verdict({Code::peer_failed, std::string(why)}); }
  std::unique_ptr<Exchange> make_split(const std::vector<int>& ranks, const std::vector<Bytes>& /*used*/) override;
  Bytes channels_in_use() override { return {}; }

  void give(ExchangeCall& call, std::span<const std::byte> mine);
  void wait(ExchangeCall& call);
  void give_all(const ExchangeCall& call);
  void hear_early();
  void receive_control(ExchangeCall& call);
  void take(ExchangeCall& call, int peer, std::span<const std::byte> bytes);
  void take_block(ExchangeCall& call, int peer, Reader& reader);
  void look_at_time(ExchangeCall& call);
  bool is_missing(const ExchangeCall& call, int peer) const;
  std::string missing(const ExchangeCall& call) const;
  void tell_verdict(const ErrorReport& report);

  std::unique_ptr<Transport> transport_;
  FutilityCheck futility_check_;
  // Holds messages that came outside of a call.
  std::deque<Transport::ReceivedControl> early_;
  std::uint64_t calls_ = 0;
};

// Sends the blocks to one member, which sends all of them to everybody. If this member fails, it tells the others its
// reason.
std::vector<Bytes> TransportExchange::gather_all(std::string_view what, std::span<const std::byte> mine,
                                                 WaitLimits wait_limits) {
  ++calls_;
  ExchangeCall call{.what = what, .wait_limits = wait_limits};
  call.blocks.resize(static_cast<std::size_t>(size()));
  try {
    give(call, mine);
    wait(call);
  } catch (const Error& error) {
    if (!call.was_told) tell_verdict(report_of(error));
    throw;
  }
  return std::move(call.blocks);
}

// Sends this member's block to the gatherer, or keeps it there.
void TransportExchange::give(ExchangeCall& call, std::span<const std::byte> mine) {
  if (rank() != gatherer) {
    Writer writer;
    writer.put(ExchangeMessageKind::block).put(calls_).put(call.what).put(mine);
    return transport_->send_control(gatherer, writer.take());
  }
  call.blocks[gatherer].assign(mine.begin(), mine.end());
  call.came.insert(gatherer);
}

// True if this member waits for that peer: the gatherer for all, the others for the gatherer.
bool TransportExchange::is_missing(const ExchangeCall& call, int peer) const {
  if (peer == rank()) return false;
  return rank() == gatherer ? !call.came.contains(peer) : peer == gatherer;
}

// Waits for the blocks, and looks after members that are gone and after the time.
void TransportExchange::wait(ExchangeCall& call) {
  constexpr int spins = 1000;
  std::vector<PeerState> peer_states(static_cast<std::size_t>(size()));
  for (int turns = 0;; ++turns) {
    // Fates are read before messages: a lost member's last message may still be there.
    for (int peer = 0; peer < size(); ++peer)
      peer_states[static_cast<std::size_t>(peer)] =
          is_missing(call, peer) ? transport_->peer_state(peer) : PeerState::reachable;
    receive_control(call);
    if (rank() == gatherer && call.came.size() == static_cast<std::size_t>(size())) return give_all(call);
    if (call.is_over) return;
    for (int peer = 0; peer < size(); ++peer) {
      if (peer_states[static_cast<std::size_t>(peer)] == PeerState::reachable) continue;
      throw Error(Code::peer_failed, text("rank ", peer, " is gone, in \"", call.what, '"'),
                  exchange_rules::process_remedy);
    }
    if (const auto why = futility_check_ ? futility_check_() : std::nullopt)
      throw Error(Code::peer_failed, *why, exchange_rules::process_remedy);
    look_at_time(call);
    run_progress_hooks(0);
    if (turns < spins)
      std::this_thread::yield();
    else
      transport_->sleep(nap_ns);
  }
}

// Sends all blocks to every member, and waits until they are on their way: this member may do something else then.
void TransportExchange::give_all(const ExchangeCall& call) {
  Writer writer;
  writer.put(ExchangeMessageKind::all).put(calls_).put(static_cast<std::uint64_t>(call.blocks.size()));
  for (const Bytes& each : call.blocks) writer.put(std::span<const std::byte>(each));
  const Bytes all = writer.take();
  for (int peer = 0; peer < size(); ++peer) {
    if (peer != rank()) transport_->send_control(peer, all);
  }
  const auto is_under_way = [&] {
    for (int peer = 0; peer < size(); ++peer) {
      if (!transport_->is_control_sent(peer) && transport_->peer_state(peer) == PeerState::reachable) return true;
    }
    return false;
  };
  while (is_under_way() &&
         (call.wait_limits.limit == Duration{} || Clock::now() - call.begin < call.wait_limits.limit)) {
    hear_early();
    run_progress_hooks(0);
    transport_->sleep(nap_ns);
  }
}

// Keeps messages of the next call, which may come before this member has begun it.
void TransportExchange::hear_early() {
  while (auto heard = transport_->receive_control()) early_.push_back(std::move(*heard));
}

// Looks for reasons to stop without waiting: a verdict that has come, or a member that is gone.
std::optional<std::string> TransportExchange::known_loss() {
  if (auto why = futility_check_ ? futility_check_() : std::nullopt) return why;
  try {
    hear_early();
    for (const auto& [peer, bytes] : early_) {
      Reader reader(bytes);
      if (reader.get_enum(ExchangeMessageKind::verdict) != ExchangeMessageKind::verdict) continue;
      return get_error_report(reader).text;
    }
  } catch (const Error& error) {
    return std::string(error.detail());
  }
  for (int peer = 0; peer < size(); ++peer) {
    if (peer != rank() && transport_->peer_state(peer) != PeerState::reachable) return text("rank ", peer, " is gone");
  }
  return std::nullopt;
}

void TransportExchange::receive_control(ExchangeCall& call) {
  while (!call.is_over) {
    std::optional<Transport::ReceivedControl> heard;
    if (early_.empty()) {
      heard = transport_->receive_control();
    } else {
      heard = std::move(early_.front());
      early_.pop_front();
    }
    if (!heard) return;
    take(call, heard->peer, heard->bytes);
  }
}

// Handles one message. A verdict is an error of another member, which this one throws too.
void TransportExchange::take(ExchangeCall& call, int peer, std::span<const std::byte> bytes) {
  Reader reader(bytes);
  const ExchangeMessageKind kind = reader.get_enum(ExchangeMessageKind::verdict);
  if (kind == ExchangeMessageKind::verdict) {
    call.was_told = true;
    const ErrorReport report = get_error_report(reader);
    throw Error(report.code, report.text);
  }
  if (reader.get<std::uint64_t>() != calls_) throw Error(Code::internal, "set-up messages are out of step");
  if (kind == ExchangeMessageKind::block) return take_block(call, peer, reader);
  const std::size_t count = reader.get_count(sizeof(std::uint64_t));
  if (count != call.blocks.size()) throw Error(Code::bad_message, "the blocks of another number of members");
  for (Bytes& each : call.blocks) each = reader.get_bytes();
  call.is_over = true;
}

void TransportExchange::take_block(ExchangeCall& call, int peer, Reader& reader) {
  const std::string what = reader.get_string();
  if (what != call.what) throw exchange_rules::mismatch(rank(), call.what, peer, printable(what));
  call.blocks.at(static_cast<std::size_t>(peer)) = reader.get_bytes();
  call.came.insert(peer);
}

std::string TransportExchange::missing(const ExchangeCall& call) const {
  const IndexSet absent = exchange_rules::missing_ranks(size(), [&](int peer) { return !is_missing(call, peer); });
  return exchange_rules::absence(call.what, call.blocks.size(), "survivors", absent);
}

// Warns, or throws Error stall at the limit. The gatherer speaks for all members. The others report a missing gatherer
// a quarter of the limit later.
void TransportExchange::look_at_time(ExchangeCall& call) {
  const auto [warn, limit] = call.wait_limits;
  const Duration lasted = Clock::now() - call.begin;
  if (rank() == gatherer && warn > Duration{} && lasted > warn && !std::exchange(call.warned, true))
    log().warn(exchange_rules::stall_warning(warn, missing(call)));
  if (limit == Duration{} || lasted < (rank() == gatherer ? limit : limit + limit / 4)) return;
  throw exchange_rules::stall(lasted, missing(call));
}

void TransportExchange::tell_verdict(const ErrorReport& report) {
  Writer verdict;
  put(verdict.put(ExchangeMessageKind::verdict), report);
  transport_->send_control_to_all(verdict.take());
}

// All members have made the same number of calls, so this number is the same on all of them, and new.
std::unique_ptr<Exchange> TransportExchange::make_split(const std::vector<int>& ranks,
                                                        const std::vector<Bytes>& /*used*/) {
  return transport_exchange(transport_->regroup(ranks, calls_), wait_limits(), log(), futility_check_);
}

}  // namespace

std::unique_ptr<Exchange> transport_exchange(std::unique_ptr<Transport> transport, WaitLimits wait_limits,
                                             const Log& log, FutilityCheck futility_check) {
  return std::make_unique<TransportExchange>(std::move(transport), wait_limits, log, std::move(futility_check));
}

}  // namespace lockstep
