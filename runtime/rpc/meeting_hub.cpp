// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <chrono>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <thread>

#include "runtime/rpc/meeting.hpp"
#include "runtime/rpc/rpc_exchange.hpp"
#include "topology/base/error.hpp"
#include "topology/base/index_set.hpp"
#include "topology/base/process.hpp"

namespace lockstep {
namespace {

using namespace meeting;

// One exchange's place: filled by all, answered to all, and gone.
struct Room {
  std::vector<int> members;
  std::string what;
  int first = -1;  // who came first
  std::map<int, Block> blocks;
  std::map<int, rpc::Server::Finish> waiting;
  std::optional<std::pair<Code, std::string>> failure;

  void answer_all(const rpc::detail::Reply& reply) {
    for (const auto& [rank, finish] : std::exchange(waiting, {})) finish(reply);
    blocks.clear();
  }
  void fail(Code code, const std::string& words) {
    if (!failure) failure = {code, words};
    answer_all(refusal());
  }
  std::string missing() const {
    IndexSet absent;
    for (int rank = 0; rank < static_cast<int>(members.size()); ++rank) {
      if (!blocks.contains(rank)) absent.insert(rank);
    }
    return text('"', what, "\" among ", members.size(), " processes: rank ", absent.to_string(), " did not come");
  }
  rpc::detail::Reply refusal() const {
    return {.bytes = rpc::encode(Answered{static_cast<int>(failure->first), failure->second, {}}), .error = {}};
  }
};

// Exchanges that were split from one are a family, and have its name before a slash.
std::string family_of(const std::string& room) { return room.substr(0, room.find('/')); }

}  // namespace

struct MeetingHub::Parts {
  std::mutex mutex;
  std::map<std::string, Room> rooms;
  using Member = std::pair<std::string, int>;  // of a family
  struct Stay {
    std::string label;
    std::shared_ptr<const Watched> process;  // if it is of this host
    int known = 0;
    rpc::Server::Finish finish;
  };
  struct Loss {
    std::string label;
    std::string how;
  };
  std::map<Member, Stay> staying;
  std::set<Member> gone;
  std::map<Member, Loss> lost;  // of those, who did not say that it was going
  bool closed = false;
  std::set<Member> told;    // of a failure
  bool has_failed = false;  // by more than members that leave in good order

  // Whether everybody who is not gone has heard of each failure.
  bool all_know() {
    const std::lock_guard lock(mutex);
    return !has_failed || std::ranges::all_of(rooms, [&](const auto& each) {
      const Room& here = each.second;
      return !here.failure || std::ranges::all_of(here.members, [&](int number) {
        const Member member{family_of(each.first), number};
        return gone.contains(member) || told.contains(member);
      });
    });
  }
  void fail(const std::string& name, Room& here, Code code, const std::string& words) {
    for (const auto& [rank, finish] : here.waiting)
      told.emplace(family_of(name), here.members[static_cast<std::size_t>(rank)]);
    here.fail(code, words);
  }

  // The room, made by who comes first.
  Room& room(const std::string& name, const std::vector<int>& members) {
    const auto [found, is_new] = rooms.try_emplace(name);
    Room& here = found->second;
    if (!is_new) return here;
    here.members = members;
    if (closed) here.fail(Code::peer_failed, "the process where all meet is ending");
    for (const int member : members) {
      if (gone.contains({family_of(name), member})) fail_for(name, here, {family_of(name), member});
    }
    return here;
  }
  void fail_for(const std::string& name, Room& here, const Member& member) {
    const auto rank = std::ranges::find(here.members, member.second) - here.members.begin();
    const auto found = lost.find(member);
    const auto [label, how] = found == lost.end() ? Loss() : found->second;
    fail(name, here, Code::peer_failed,
         text("rank ", rank, " of ", here.members.size(), label.empty() ? "" : text(" (", printable(label), ')'),
              " is gone", how.empty() ? "" : ": its process ", how));
  }
  rpc::detail::Reply losses_of(const std::string& family, bool is_over = false) const {
    Losses all{closed || is_over, {}};
    for (const auto& [member, loss] : lost) {
      if (member.first == family) all.second.emplace_back(member.second, loss.label, loss.how);
    }
    return {.bytes = rpc::encode(all), .error = {}};
  }
  int losses_in(const std::string& family) const {
    return static_cast<int>(std::ranges::count(lost, family, [](const auto& each) { return each.first.first; }));
  }
  // All that have not heard of it.
  void tell_losses(const std::string& family) {
    const int losses = losses_in(family);
    for (auto each = staying.begin(); each != staying.end();) {
      const bool hears = each->first.first == family && each->second.known < losses;
      if (hears) each->second.finish(losses_of(family));
      each = hears ? staying.erase(each) : std::next(each);
    }
  }

  void gather(const Bytes& arguments, const rpc::Server::Finish& finish) {
    const Asked asked = rpc::decode<Asked>(arguments);
    const auto& [name, members, rank, what, mine] = asked;
    const std::lock_guard lock(mutex);
    Room& here = room(name, members);
    const auto refuse = [&, family = family_of(name), &room_name = name, number = rank](Code code,
                                                                                        const std::string& words) {
      fail(room_name, here, code, words);
      finish(here.refusal());
      if (number >= 0 && number < static_cast<int>(here.members.size()))
        told.emplace(family, here.members[static_cast<std::size_t>(number)]);
    };
    if (here.failure) return refuse(here.failure->first, here.failure->second);
    if (members != here.members || rank < 0 || rank >= static_cast<int>(members.size()))
      return refuse(Code::mismatch,
                    text("rank ", rank, " of ", members.size(), " came to a meeting of ", here.members.size()));
    if (here.blocks.contains(rank)) return refuse(Code::mismatch, text("rank ", rank, " came twice"));
    if (here.blocks.empty()) {
      here.what = what;
      here.first = rank;
    } else if (here.what != what) {
      return refuse(Code::mismatch,
                    text("rank ", here.first, " is in \"", here.what, "\" while rank ", rank, " is in \"", what, '"'));
    }
    here.blocks[rank] = mine;
    here.waiting[rank] = finish;
    if (here.blocks.size() < here.members.size()) return;
    Answered all{0, "", {}};
    for (auto& [each, block] : here.blocks) std::get<2>(all).push_back(std::move(block));
    here.answer_all({.bytes = rpc::encode(all), .error = {}});
    rooms.erase(name);  // who comes next makes it again; most never come
  }

  std::function<void()> stay(const std::shared_ptr<Parts>& self, const Bytes& arguments,
                             const rpc::Server::Finish& finish) {
    const auto [family, number, label, process, known] = rpc::decode<Staying>(arguments);
    const Member member{family, number};
    const Bytes name = bytes_of(process);
    Reader reader(name);
    auto watched = Watched::find(ProcessName::read(reader));
    const std::lock_guard lock(mutex);
    if (closed || gone.contains(member) || known < losses_in(family)) {
      finish(losses_of(family, gone.contains(member)));
      return {};
    }
    staying[member] = {label, std::move(watched), known, finish};
    return [weak = std::weak_ptr<Parts>(self), member] {
      if (const auto parts = weak.lock()) parts->leave(member, true);
    };
  }

  // How a process ended is known a moment after its connections are closed.
  std::string end_of(const Member& member) {
    constexpr int a_moment_ms = 20;
    std::shared_ptr<const Watched> process;
    {
      const std::lock_guard lock(mutex);
      if (const auto found = staying.find(member); found != staying.end()) process = found->second.process;
    }
    return process && process->has_ended(a_moment_ms) ? process->how().value_or("") : "";
  }

  void leave(const Member& member, bool is_loss) {
    const std::string how = is_loss ? end_of(member) : "";
    const std::lock_guard lock(mutex);
    if (const auto found = staying.find(member); found != staying.end()) {
      if (is_loss) lost[member] = {found->second.label, how};
      found->second.finish(losses_of(member.first));
      staying.erase(found);
    }
    gone.insert(member);
    for (auto& [name, each] : rooms) {
      if (family_of(name) == member.first && std::ranges::count(each.members, member.second) > 0)
        fail_for(name, each, member);
    }
    if (!is_loss) return;
    has_failed = true;
    tell_losses(member.first);
  }

  void close() {
    const std::lock_guard lock(mutex);
    closed = true;
    for (auto& [name, each] : rooms) each.fail(Code::peer_failed, "the process where all meet is ending");
    for (auto& [member, each] : std::exchange(staying, {})) each.finish(losses_of(member.first));
  }
};

MeetingHub::MeetingHub(rpc::Server& server) : parts_(std::make_shared<Parts>()) {
  const auto parts = parts_;
  server.add_deferred(gather_name, [parts](const Bytes& arguments, const rpc::Server::Finish& finish) {
    parts->gather(arguments, finish);
    return std::function<void()>();
  });
  server.add_deferred(stay_name, [parts](const Bytes& arguments, const rpc::Server::Finish& finish) {
    return parts->stay(parts, arguments, finish);
  });
  server.add(leave_name, [parts](const std::string& family, int member) { parts->leave({family, member}, false); });
  server.add(fail_name, [parts](const std::string& name, const std::vector<int>& members, const std::string& why) {
    const std::lock_guard lock(parts->mutex);
    parts->has_failed = true;
    parts->fail(name, parts->room(name, members), Code::peer_failed, why);
  });
  server.add(missing_name, [parts](const std::string& name) {
    const std::lock_guard lock(parts->mutex);
    const auto found = parts->rooms.find(name);
    return found == parts->rooms.end() ? std::string("nobody came") : found->second.missing();
  });
  // All that wait there are told who is missing, as it is known here.
  server.add(give_up_name, [parts](const std::string& name, int rank, const std::string& waited) {
    const std::lock_guard lock(parts->mutex);
    const auto found = parts->rooms.find(name);
    if (found == parts->rooms.end() || !found->second.waiting.contains(rank)) return;  // it has its answer
    parts->has_failed = true;
    parts->fail(name, found->second, Code::stall, text("waited ", waited, " in ", found->second.missing()));
  });
}

void MeetingHub::close() { parts_->close(); }

// Whoever comes a moment later should hear who has failed, and not that this process, which has heard it, is gone.
MeetingHub::~MeetingHub() {
  constexpr std::chrono::milliseconds a_moment{500};
  const auto until = std::chrono::steady_clock::now() + a_moment;
  while (!parts_->all_know() && std::chrono::steady_clock::now() < until)
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  close();
}

}  // namespace lockstep
