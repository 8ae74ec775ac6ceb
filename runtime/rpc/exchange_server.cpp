// SPDX-License-Identifier: Apache-2.0
// Implements the server of an exchange: rounds of gathers, and the presence of members.
#include <algorithm>
#include <chrono>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <thread>

#include "runtime/rpc/exchange_protocol.hpp"
#include "runtime/rpc/rpc_exchange.hpp"
#include "topology/base/error.hpp"
#include "topology/base/index_set.hpp"
#include "topology/base/process.hpp"
#include "topology/exchange_rules.hpp"

namespace lockstep {
namespace {

using namespace exchange_protocol;

// Is one gather of an exchange: it collects the blocks of all members, answers all, and is removed.
struct GatherRound {
  std::vector<int> members;
  std::string what;
  int first = -1;  // Is the rank that came first.
  std::map<int, Block> blocks;
  std::map<int, rpc::RpcServer::Finish> waiting;
  std::optional<std::pair<Code, std::string>> failure;

  // Answers all waiting members at once, and forgets their blocks.
  void answer_all(const rpc::detail::Reply& reply) {
    for (const auto& [rank, finish] : std::exchange(waiting, {})) finish(reply);
    blocks.clear();
  }
  void fail(Code code, const std::string& words) {
    if (!failure) failure = {code, words};
    answer_all(refusal());
  }
  // Returns the sentence that names the members that have not come.
  std::string missing() const {
    const auto has_come = [this](int rank) { return blocks.contains(rank); };
    return exchange_rules::absence(what, members.size(), "processes",
                                   exchange_rules::missing_ranks(static_cast<int>(members.size()), has_come));
  }
  rpc::detail::Reply refusal() const {
    return {.bytes = rpc::encode(GatherReply{static_cast<int>(failure->first), failure->second, {}}), .error = {}};
  }
};

// Returns the common name of an exchange and those split from it: the part before a slash.
std::string family_of(const std::string& round) { return round.substr(0, round.find('/')); }

}  // namespace

struct ExchangeServer::Parts {
  std::mutex mutex;
  std::map<std::string, GatherRound> rounds;
  using FamilyMember = std::pair<std::string, int>;  // Pairs a family with a member's number.
  // Holds the open call by which a member shows that it lives. gRPC ends that call when the member's process ends.
  struct PresenceEntry {
    std::string label;
    std::shared_ptr<const WatchedProcess> process;  // Is set if the process runs on this host.
    int known = 0;
    rpc::RpcServer::Finish finish;
  };
  // Holds the name of a member that was lost, and the way in which its process ended.
  struct LossReport {
    std::string label;
    std::string how;
  };
  std::map<FamilyMember, PresenceEntry> presences;
  std::set<FamilyMember> gone;
  std::map<FamilyMember, LossReport> lost;  // Holds members that left without a farewell.
  bool closed = false;
  std::set<FamilyMember> told;  // Have been told of a failure.
  bool has_failed = false;      // True after a failure other than members leaving in good order.

  // True if every member that is still there has heard of each failure.
  bool all_know() {
    const std::lock_guard lock(mutex);
    return !has_failed || std::ranges::all_of(rounds, [&](const auto& each) {
      const GatherRound& here = each.second;
      return !here.failure || std::ranges::all_of(here.members, [&](int number) {
        const FamilyMember member{family_of(each.first), number};
        return gone.contains(member) || told.contains(member);
      });
    });
  }
  // Fails a round, and remembers the members that hear of it now.
  void fail(const std::string& name, GatherRound& here, Code code, const std::string& words) {
    for (const auto& [rank, finish] : here.waiting)
      told.emplace(family_of(name), here.members[static_cast<std::size_t>(rank)]);
    here.fail(code, words);
  }

  // Returns the round. The first member to come makes it.
  GatherRound& round_of(const std::string& name, const std::vector<int>& members) {
    const auto [found, is_new] = rounds.try_emplace(name);
    GatherRound& here = found->second;
    if (!is_new) return here;
    here.members = members;
    if (closed) here.fail(Code::peer_failed, "the process that runs the exchange is ending");
    for (const int member : members) {
      if (gone.contains({family_of(name), member})) fail_for(name, here, {family_of(name), member});
    }
    return here;
  }
  // Fails a round because a member of it is gone.
  void fail_for(const std::string& name, GatherRound& here, const FamilyMember& member) {
    const auto rank = std::ranges::find(here.members, member.second) - here.members.begin();
    const auto found = lost.find(member);
    const auto [label, how] = found == lost.end() ? LossReport() : found->second;
    fail(name, here, Code::peer_failed,
         text("rank ", rank, " of ", here.members.size(), label.empty() ? "" : text(" (", printable(label), ')'),
              " is gone", how.empty() ? "" : ": its process ", how));
  }
  // Returns all losses of a family of exchanges. Members use the number of losses that they know to ask for the next.
  rpc::detail::Reply losses_of(const std::string& family, bool is_over = false) const {
    LossReply all{closed || is_over, {}};
    for (const auto& [member, loss] : lost) {
      if (member.first == family) all.second.emplace_back(member.second, loss.label, loss.how);
    }
    return {.bytes = rpc::encode(all), .error = {}};
  }
  int losses_in(const std::string& family) const {
    return static_cast<int>(std::ranges::count(lost, family, [](const auto& each) { return each.first.first; }));
  }
  // Tells the losses to all members that have not heard of them.
  void tell_losses(const std::string& family) {
    const int losses = losses_in(family);
    for (auto each = presences.begin(); each != presences.end();) {
      const bool hears = each->first.first == family && each->second.known < losses;
      if (hears) each->second.finish(losses_of(family));
      each = hears ? presences.erase(each) : std::next(each);
    }
  }

  // Adds a member's block, and answers when the last one has come. Wrong calls fail the round for all, so that nobody
  // waits.
  void gather(const Bytes& arguments, const rpc::RpcServer::Finish& finish) {
    const GatherRequest asked = rpc::decode<GatherRequest>(arguments);
    const auto& [name, members, rank, what, mine] = asked;
    const std::lock_guard lock(mutex);
    GatherRound& here = round_of(name, members);
    const auto refuse = [&, family = family_of(name), &round_name = name, number = rank](Code code,
                                                                                         const std::string& words) {
      fail(round_name, here, code, words);
      finish(here.refusal());
      if (number >= 0 && number < static_cast<int>(here.members.size()))
        told.emplace(family, here.members[static_cast<std::size_t>(number)]);
    };
    if (here.failure) return refuse(here.failure->first, here.failure->second);
    if (members != here.members || rank < 0 || rank >= static_cast<int>(members.size()))
      return refuse(Code::mismatch,
                    text("rank ", rank, " of ", members.size(), " joined an exchange of ", here.members.size()));
    if (here.blocks.contains(rank)) return refuse(Code::mismatch, text("rank ", rank, " arrived twice"));
    if (here.blocks.empty()) {
      here.what = what;
      here.first = rank;
    } else if (here.what != what) {
      return refuse(Code::mismatch, exchange_rules::mismatch_sentence(here.first, here.what, rank, what));
    }
    here.blocks[rank] = mine;
    here.waiting[rank] = finish;
    if (here.blocks.size() < here.members.size()) return;
    GatherReply all{0, "", {}};
    for (auto& [each, block] : here.blocks) std::get<2>(all).push_back(std::move(block));
    here.answer_all({.bytes = rpc::encode(all), .error = {}});
    rounds.erase(name);  // The next member makes it again; most rounds are not repeated.
  }

  // Keeps the call open until there is a loss to tell. The returned function is called if the member's process ends.
  std::function<void()> watch(const std::shared_ptr<Parts>& self, const Bytes& arguments,
                              const rpc::RpcServer::Finish& finish) {
    const auto [family, number, label, process, known] = rpc::decode<PresenceRequest>(arguments);
    const FamilyMember member{family, number};
    const Bytes name = bytes_of(process);
    Reader reader(name);
    auto watched = WatchedProcess::find(ProcessName::read(reader));
    const std::lock_guard lock(mutex);
    if (closed || gone.contains(member) || known < losses_in(family)) {
      finish(losses_of(family, gone.contains(member)));
      return {};
    }
    presences[member] = {label, std::move(watched), known, finish};
    return [weak = std::weak_ptr<Parts>(self), member] {
      if (const auto parts = weak.lock()) parts->leave(member, true);
    };
  }

  // Returns how a member's process ended. That is known a moment after its connections close.
  std::string end_of(const FamilyMember& member) {
    constexpr int a_moment_ms = 20;
    std::shared_ptr<const WatchedProcess> process;
    {
      const std::lock_guard lock(mutex);
      if (const auto found = presences.find(member); found != presences.end()) process = found->second.process;
    }
    return process && process->has_ended(a_moment_ms) ? process->how().value_or("") : "";
  }

  // Ends a member's presence. Rounds that it belongs to can never complete, so they fail.
  void leave(const FamilyMember& member, bool is_loss) {
    const std::string how = is_loss ? end_of(member) : "";
    const std::lock_guard lock(mutex);
    if (const auto found = presences.find(member); found != presences.end()) {
      if (is_loss) lost[member] = {found->second.label, how};
      found->second.finish(losses_of(member.first));
      presences.erase(found);
    }
    gone.insert(member);
    for (auto& [name, each] : rounds) {
      if (family_of(name) == member.first && std::ranges::count(each.members, member.second) > 0)
        fail_for(name, each, member);
    }
    if (!is_loss) return;
    has_failed = true;
    tell_losses(member.first);
  }

  // Fails all rounds, because the process that answers them is ending.
  void close() {
    const std::lock_guard lock(mutex);
    closed = true;
    for (auto& [name, each] : rounds) each.fail(Code::peer_failed, "the process that runs the exchange is ending");
    for (auto& [member, each] : std::exchange(presences, {})) each.finish(losses_of(member.first));
  }
};

// Adds the functions of the exchange to the server. They share the parts, which may outlive this object.
ExchangeServer::ExchangeServer(rpc::RpcServer& server) : parts_(std::make_shared<Parts>()) {
  const auto parts = parts_;
  server.add_deferred(gather_name, [parts](const Bytes& arguments, const rpc::RpcServer::Finish& finish) {
    parts->gather(arguments, finish);
    return std::function<void()>();
  });
  server.add_deferred(stay_name, [parts](const Bytes& arguments, const rpc::RpcServer::Finish& finish) {
    return parts->watch(parts, arguments, finish);
  });
  server.add(leave_name, [parts](const std::string& family, int member) { parts->leave({family, member}, false); });
  server.add(fail_name, [parts](const std::string& name, const std::vector<int>& members, const std::string& why) {
    const std::lock_guard lock(parts->mutex);
    parts->has_failed = true;
    parts->fail(name, parts->round_of(name, members), Code::peer_failed, why);
  });
  server.add(missing_name, [parts](const std::string& name) {
    const std::lock_guard lock(parts->mutex);
    const auto found = parts->rounds.find(name);
    return found == parts->rounds.end() ? std::string("no member arrived") : found->second.missing();
  });
  // Fails the round for all waiting members, with the missing ones known here.
  server.add(give_up_name, [parts](const std::string& name, int rank, const std::string& waited) {
    const std::lock_guard lock(parts->mutex);
    const auto found = parts->rounds.find(name);
    if (found == parts->rounds.end() || !found->second.waiting.contains(rank)) return;  // This rank has its answer.
    parts->has_failed = true;
    parts->fail(name, found->second, Code::stall, text("waited ", waited, " in ", found->second.missing()));
  });
}

void ExchangeServer::close() { parts_->close(); }

// Waits a moment, so that late members hear which member failed, instead of hearing that this process is gone.
ExchangeServer::~ExchangeServer() {
  constexpr std::chrono::milliseconds a_moment{500};
  const auto until = std::chrono::steady_clock::now() + a_moment;
  while (!parts_->all_know() && std::chrono::steady_clock::now() < until)
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  close();
}

}  // namespace lockstep
