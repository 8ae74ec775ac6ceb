// SPDX-License-Identifier: Apache-2.0
// Implements a member of an exchange over RPC.
#include "runtime/rpc/rpc_exchange.hpp"

#include <algorithm>
#include <map>
#include <mutex>
#include <numeric>
#include <optional>

#include "runtime/rpc/exchange_protocol.hpp"
#include "topology/base/error.hpp"
#include "topology/base/progress_hooks.hpp"
#include "topology/exchange_rules.hpp"

namespace lockstep {
namespace {

using namespace exchange_protocol;

// Keeps a member's place in its family while it lives: the exchange server knows that the member is there. All
// exchanges split from one share it.
class PresenceLease {
 public:
  PresenceLease(std::shared_ptr<rpc::Client> client, std::string family, int member, std::string label)
      : client_(std::move(client)), family_(std::move(family)), member_(member), label_(std::move(label)) {
    stay();
  }
  // Says farewell, unless an exception is in flight: then the others should hear that this member is lost.
  ~PresenceLease() {
    if (std::uncaught_exceptions() > exceptions_) return;
    try {
      leave();
    } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch): it is going either way
    }
  }
  PresenceLease(const PresenceLease&) = delete;
  PresenceLease& operator=(const PresenceLease&) = delete;

  std::optional<std::string> server_gone() {
    const auto lost = lost_among({});
    return lost ? std::optional(lost->words) : std::nullopt;
  }
  std::optional<LostMember> lost_among(const std::vector<int>& members) {
    const std::lock_guard lock(mutex_);
    if (!server_is_gone_ && !is_over_ && call_->wait_for({})) hear();
    if (server_is_gone_) {
      const auto first = std::ranges::find(members, 0);
      return LostMember{first == members.end() ? -1 : static_cast<int>(first - members.begin()), *server_is_gone_};
    }
    for (std::size_t rank = 0; rank < members.size(); ++rank) {
      const auto found = lost_.find(members[rank]);
      if (found == lost_.end() || members[rank] == member_) continue;
      const auto& [label, how] = found->second;
      return LostMember{
          static_cast<int>(rank),
          text("rank ", rank, label.empty() ? "" : text(" (", printable(label), ')'), " is gone: its process ",
               how.empty() ? "exited, or ended its session with an error, and gave no reason" : printable(how)),
          !how.empty()};
    }
    return std::nullopt;
  }

 private:
  // Waits until the exchange server knows it, or is gone itself.
  void leave() const {
    constexpr std::chrono::milliseconds turn{2};
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(1);
    if (is_over_ || server_is_gone_ || call_->wait_for({})) return;
    const auto told = client_->call<void>(leave_name, family_, member_);
    while (!told.wait_for(turn) && std::chrono::steady_clock::now() < end) {
      if (call_->wait_for({}) && call_->get_error()) return;
    }
  }
  void stay() {
    Writer process;
    own_process().write(process);
    call_ = client_->call<LossReply>(stay_name, family_, member_, label_, block_of(process.take()),
                                     static_cast<int>(lost_.size()));
  }
  void hear() {
    if (const auto wrong = call_->get_error()) {
      server_is_gone_ = text(client_->address(), ", which runs the exchange, is gone: ", wrong->detail());
      return;
    }
    const auto [is_over, all] = call_->get_value();
    is_over_ = is_over;
    for (const auto& [member, label, how] : all) lost_[member] = {label, how};
    if (!is_over_) stay();
  }

  std::shared_ptr<rpc::Client> client_;
  std::string family_;
  int member_;
  std::string label_;
  int exceptions_ = std::uncaught_exceptions();
  std::mutex mutex_;
  std::optional<rpc::StatusOrResult<LossReply>> call_;
  bool is_over_ = false;                                     // True if the exchange server has ended in good order.
  std::map<int, std::pair<std::string, std::string>> lost_;  // Holds a member's label and how it ended.
  std::optional<std::string> server_is_gone_;
};

class RpcExchange final : public Exchange {
 public:
  using LossProbe = std::function<std::optional<std::string>()>;

  RpcExchange(std::shared_ptr<rpc::Client> client, std::shared_ptr<PresenceLease> lease, std::string name,
              std::vector<int> members, int rank, WaitLimits wait_limits, Log log, LossProbe look)
      : Exchange(rank, static_cast<int>(members.size()), wait_limits, std::move(log)),
        client_(std::move(client)),
        lease_(std::move(lease)),
        name_(std::move(name)),
        members_(std::move(members)),
        look_(std::move(look)) {}

  std::optional<LostMember> lost() const { return lease_->lost_among(members_); }
  std::optional<std::string> known_loss() override {
    const auto who = lost();
    return who ? std::optional(who->words) : std::nullopt;
  }

 private:
  std::vector<Bytes> gather_all(std::string_view what, std::span<const std::byte> mine,
                                WaitLimits wait_limits) override {
    ++gathers_;
    const auto answer =
        client_->call<GatherReply>(gather_name, name_, members_, rank(), std::string(what), block_of(mine));
    wait(answer, what, wait_limits);
    const auto [number, words, blocks] = value_of(answer);
    if (number != 0) throw Error(static_cast<Code>(number), words, remedy_of(static_cast<Code>(number)));
    std::vector<Bytes> all;
    all.reserve(blocks.size());
    for (const Block& each : blocks) all.push_back(bytes_of(each));
    return all;
  }

  static GatherReply value_of(const rpc::StatusOrResult<GatherReply>& answer) {
    try {
      return answer.get_value();
    } catch (const Error& error) {
      const std::string_view why = error.detail();
      throw Error(Code::peer_failed,
                  text("the process that runs the exchange has exited: ", why.substr(0, why.find(" -> "))),
                  "see its own error");
    }
  }
  static std::string_view remedy_of(Code code) {
    if (code == Code::mismatch) return exchange_rules::mismatch_remedy;
    if (code == Code::stall) return exchange_rules::stall_remedy;
    return exchange_rules::member_remedy;
  }

  // Waits for the answer. The exchange server knows the missing members, and tells all at once.
  void wait(const rpc::StatusOrResult<GatherReply>& answer, std::string_view what, WaitLimits wait_limits) {
    const bool warns = exchange_rules::warns_first(wait_limits);
    if (warns && !arrives_within(answer, wait_limits.warn))
      log().warn(exchange_rules::stall_warning(wait_limits.warn, missing(what)));
    if (wait_limits.limit == Duration{}) {
      while (!arrives_within(answer, std::chrono::hours(1))) continue;
    }
    if (arrives_within(answer, wait_limits.limit - (warns ? wait_limits.warn : TimeSpan{}))) return;
    static_cast<void>(client_->call<void>(give_up_name, name_, rank(), format_duration(wait_limits.limit)));
    if (answer.wait_for(enough)) return;
    throw Error(Code::stall,
                text("waited ", format_duration(wait_limits.limit), " in \"", what, "\" for ", client_->address(),
                     ", which runs the exchange and does not answer"),
                "check that process; LOCKSTEP_TIMEOUT sets the limit");
  }

  // Runs this thread's other operations meanwhile.
  template <class Answer>
  bool arrives_within(const Answer& answer, Duration time) {
    const auto begin = std::chrono::steady_clock::now();
    constexpr std::chrono::milliseconds turn{1};
    constexpr std::chrono::milliseconds long_turn{50};
    constexpr std::chrono::seconds between_looks{1};
    auto last_look = begin;
    for (auto now = begin; now - begin < time; now = std::chrono::steady_clock::now()) {
      const Duration left = time - (now - begin);
      if (answer.wait_for(std::min<Duration>(left, has_busy_hooks() ? turn : long_turn))) return true;
      run_progress_hooks(0);
      if (const auto who = lease_->server_gone()) refuse(*who);
      if (look_ && now - last_look > between_looks) {
        const auto who = look_();
        if (who && !answer.wait_for(enough)) refuse(*who);  // A member that has its own answer may have ended.
        last_look = std::chrono::steady_clock::now();
      }
    }
    return answer.wait_for({});
  }
  [[noreturn]] static void refuse(const std::string& who) {
    throw Error(Code::peer_failed, who, exchange_rules::process_remedy);
  }

  std::string missing(std::string_view what) const {
    const auto answer = client_->call<std::string>(missing_name, name_);
    if (answer.wait_for(enough) && answer.is_ok()) return answer.get_value();
    return text('"', what, "\": ", client_->address(), ", which runs the exchange, does not answer");
  }

  void tell_failure(std::string_view why) override {
    const auto told = client_->call<void>(fail_name, name_, members_, std::string(why));
    static_cast<void>(told.wait_for(enough));
  }
  Bytes channels_in_use() override { return {}; }
  // Makes a split. All members have made equally many gathers, so that the name is new, and equal for them.
  std::unique_ptr<Exchange> make_split(const std::vector<int>& ranks, const std::vector<Bytes>& /*used*/) override {
    std::vector<int> members;
    members.reserve(ranks.size());
    for (const int each : ranks) members.push_back(members_.at(static_cast<std::size_t>(each)));
    const auto me = static_cast<int>(std::ranges::find(ranks, rank()) - ranks.begin());
    return std::make_unique<RpcExchange>(client_, lease_, text(name_, '/', gathers_, '.', ranks.front()),
                                         std::move(members), me, wait_limits(), log(), look_);
  }

  // Limits the wait for an answer that the exchange server gives by itself. A guess.
  static constexpr std::chrono::seconds enough{2};

  std::shared_ptr<rpc::Client> client_;
  std::shared_ptr<PresenceLease> lease_;
  std::string name_;
  std::vector<int> members_;
  LossProbe look_;
  std::uint64_t gathers_ = 0;
};

}  // namespace

std::unique_ptr<Exchange> rpc_exchange(const std::string& server, const std::string& name, int rank, int size,
                                       WaitLimits wait_limits, const Log& log, const RpcExchangeOptions& options) {
  if (size < 1 || rank < 0 || rank >= size || name.find('/') != std::string::npos)
    throw Error(Code::usage, text("member ", rank, " of ", size, " of '", printable(name), '\''),
                "ranks count from 0 to the size less one, and names have no slash");
  const std::shared_ptr<rpc::Client> client = rpc::Client::create(
      "grpc", server, {.timeout = {}, .waits_for_server = true, .waits_again = false, .key = options.key});
  auto lease = std::make_shared<PresenceLease>(client, name, rank, options.label);
  std::vector<int> members(static_cast<std::size_t>(size));
  std::iota(members.begin(), members.end(), 0);
  return std::make_unique<RpcExchange>(client, std::move(lease), name, std::move(members), rank, wait_limits,
                                       log.speaking_as(text("rank ", rank, " of ", size)), options.look);
}

std::optional<LostMember> lost_member(const Exchange& exchange) {
  const auto* const over_rpc = dynamic_cast<const RpcExchange*>(&exchange);
  return over_rpc == nullptr ? std::nullopt : over_rpc->lost();
}

bool is_rpc_exchange(const Exchange& exchange) { return dynamic_cast<const RpcExchange*>(&exchange) != nullptr; }

}  // namespace lockstep
