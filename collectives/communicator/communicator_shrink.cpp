// SPDX-License-Identifier: Apache-2.0
// Makes a smaller communicator of the members that survive a failure. They use control messages of the old transport,
// which has failed for data only. They don't use the old exchange.
#include "collectives/communicator/communicator_factory.hpp"

#include <numeric>
#include <utility>

#include "collectives/communicator/communicator_core.hpp"
#include "collectives/communicator/exclusive_use.hpp"
#include "collectives/engine/control_message.hpp"
#include "collectives/engine/shrink_consensus.hpp"
#include "collectives/engine/transport_exchange.hpp"
#include "collectives/planner.hpp"
#include "topology/base/error.hpp"
#include "topology/base/progress_hooks.hpp"

namespace lockstep::detail {
namespace {

using shrinking::BuildResult;
using shrinking::BuildState;
using shrinking::ShrinkConsensus;
using shrinking::ShrinkDecision;
using shrinking::ShrinkStage;

Duration now() { return std::chrono::steady_clock::now().time_since_epoch(); }

// Runs a ShrinkConsensus by the control messages of a transport.
class ShrinkAttempt {
 public:
  ShrinkAttempt(Transport& transport, ShrinkConsensus survivors, std::string why, const Log& log)
      : transport_(transport), survivors_(std::move(survivors)), why_(std::move(why)), log_(log) {
    peer_states_.resize(static_cast<std::size_t>(transport.size()));
  }

  // Runs the consensus to its end. `build` makes this member's part with the survivors, and is repeated if more
  // members are lost.
  template <class Build>
  ShrinkDecision agree(const std::vector<Transport::ReceivedControl>& said, const Build& build) {
    try {
      survivors_.begin(now());
      for (const Transport::ReceivedControl& each : said) survivors_.handle(each.peer, each.bytes);
      ShrinkDecision verdict = agree();
      for (; verdict.stage == ShrinkStage::build; verdict = agree())
        survivors_.report_build(part_of(build, verdict.members.members()), now());
      see_off(verdict);
      return verdict;
    } catch (const Error& error) {
      survivors_.give_up(error.code(), std::string(error.detail()));
      say();
      throw;
    }
  }

  // Returns the reason why a build under way is in vain, if it is. The build calls it while it waits.
  std::optional<std::string> why_build_fails() {
    turn();
    say();
    return survivors_.why_build_fails();
  }

 private:
  // Returns the decision of all members in this turn.
  ShrinkDecision agree() {
    for (unsigned turns = 0; !survivors_.verdict(); ++turns) {
      turn();
      survivors_.move(now());
      say();
      if (auto warning = survivors_.take_warning()) log_.warn(*warning);
      if (survivors_.verdict()) break;
      run_progress_hooks(0);
      constexpr std::int64_t nap_ns = 500'000;
      if (turns > 100) transport_.sleep(nap_ns);
    }
    say();
    return *survivors_.verdict();
  }

  // Builds this member's part. An error that lost members may have caused does not end the attempt.
  template <class Build>
  BuildResult part_of(const Build& build, const std::vector<int>& members) const {
    try {
      build(members, survivors_.turn());
      return {.state = BuildState::built};
    } catch (const Error& error) {
      const bool is_unlucky = error.code() == Code::peer_failed || error.code() == Code::stall;
      return {is_unlucky ? BuildState::unlucky : BuildState::failed, error.code(), std::string(error.detail())};
    } catch (const std::bad_alloc&) {
      return {BuildState::failed, Code::out_of_memory, "there was not enough memory"};
    }
  }

  // Sends the remaining messages before this member continues. It also waits until excluded members are seen to be
  // gone, even if other members found that first. Otherwise the end of the session would wait for them.
  void see_off(const ShrinkDecision& verdict) {
    constexpr std::chrono::milliseconds longest{200};
    constexpr std::chrono::seconds longest_look{3};
    const auto begun = now();
    const auto waits_for = [&](int peer) {
      if (peer == transport_.rank() || transport_.peer_state(peer) != Transport::PeerState::reachable) return false;
      const auto since = now() - begun;
      if (verdict.stage == ShrinkStage::done && !verdict.members.contains(peer)) return since < longest_look;
      return since < longest && !transport_.is_control_sent(peer);
    };
    const auto is_over = [&] {
      for (int peer = 0; peer < transport_.size(); ++peer) {
        if (waits_for(peer)) return false;
      }
      return true;
    };
    while (!is_over()) {
      receive_control();
      transport_.sleep(1'000'000);
    }
  }

  void turn() {
    // Reads states before messages, since a message may be a member's last.
    for (int peer = 0; peer < transport_.size(); ++peer) {
      if (peer != transport_.rank()) peer_states_[static_cast<std::size_t>(peer)] = transport_.peer_state(peer);
    }
    receive_control();
    for (int peer = 0; peer < transport_.size(); ++peer)
      survivors_.report_state(peer, peer_states_[static_cast<std::size_t>(peer)]);
  }

  // Reads the messages. Lost members are known by their states, and errors concern calls that have failed already.
  void receive_control() {
    for (;;) {
      std::optional<Transport::ReceivedControl> heard;
      try {
        heard = transport_.receive_control();
      } catch (const Error& error) {
        if (error.code() != Code::peer_failed) throw;
        continue;
      }
      if (!heard) return;
      const ControlMessage word = parse_control_message(heard->bytes);
      if (const auto* const survive = std::get_if<SurviveMessage>(&word))
        survivors_.handle(heard->peer, survive->bytes);
    }
  }

  void say() {
    for (auto& [peer, bytes] : survivors_.take_outgoing())
      transport_.send_control(peer, to_bytes(SurviveMessage{why_, std::move(bytes)}));
  }

  Transport& transport_;
  ShrinkConsensus survivors_;
  std::string why_;
  Log log_;
  std::vector<Transport::PeerState> peer_states_;
};

}  // namespace

std::shared_ptr<CommunicatorCore> CommunicatorFactory::smaller(
    const std::vector<int>& members, std::uint64_t number, const CommunicatorOptions& options,
    const std::function<std::optional<std::string>()>& futility_check) {
  std::vector<int> old_ranks;
  old_ranks.reserve(members.size());
  for (const int each : members) old_ranks.push_back(member_.planner().group().rank(each));
  std::vector<int> ranks(members.size());
  std::iota(ranks.begin(), ranks.end(), 0);
  const Log& log = member_.engine().log();
  auto exchange = transport_exchange(member_.engine().platform().transport().regroup(members, number),
                                     member_.exchange().wait_limits(), log, futility_check);
  return std::make_shared<CommunicatorCore>(std::move(exchange),
                                            std::make_shared<const Topology>(member_.topology()->among(old_ranks)),
                                            std::move(ranks), maker_, options);
}

std::shared_ptr<CommunicatorCore> CommunicatorFactory::shrink(CommunicatorOptions options) {
  const Origin origin{"shrink", 0};
  const ExclusiveUse use(member_, origin);
  member_.refuse_if_closed();
  Transport& transport = member_.engine().platform().transport();
  if (!transport.can_regroup())
    throw Error(
        Code::usage,
        text("shrink of \"", member_.options().name, "\", whose transport does not survive the death of a member"),
        "start with LOCKSTEP_TRANSPORT=tcp, the default under mpirun --enable-recovery");
  if (std::exchange(has_shrunk_, true))
    throw Error(Code::usage, text('"', member_.options().name, "\" was shrunk before"),
                "use the communicator that shrink() returned, and shrink that one");
  const auto said = member_.engine().begin_shrinking();
  transport.begin_regrouping();
  const auto shrinking = std::make_shared<ShrinkAttempt>(
      transport,
      ShrinkConsensus(member_.rank(), member_.size(), member_.exchange().wait_limits(), member_.options().name),
      member_.engine().failure()->text, member_.engine().log());
  // The new communicator's exchanges outlive this attempt.
  const auto futility_check = [weak = std::weak_ptr(shrinking)]() -> std::optional<std::string> {
    const auto strong = weak.lock();
    return strong ? strong->why_build_fails() : std::nullopt;
  };
  std::shared_ptr<CommunicatorCore> made;
  const ShrinkDecision verdict = shrinking->agree(said, [&](const std::vector<int>& members, std::uint64_t number) {
    made.reset();
    made = smaller(members, number, options, futility_check);
  });
  if (verdict.stage == ShrinkStage::failed) throw Error(verdict.code, verdict.why);
  return made;
}

}  // namespace lockstep::detail
