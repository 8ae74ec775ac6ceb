// SPDX-License-Identifier: Apache-2.0
#include "runtime/rpc/rpc_exchange.hpp"

#include <algorithm>
#include <map>
#include <mutex>
#include <numeric>
#include <optional>
#include <set>

#include "topology/base/error.hpp"
#include "topology/base/index_set.hpp"

namespace lockstep {
namespace {

constexpr const char* gather_name = "lockstep.gather";
constexpr const char* fail_name = "lockstep.fail";
constexpr const char* missing_name = "lockstep.missing";
constexpr const char* give_up_name = "lockstep.give_up";
constexpr const char* stay_name = "lockstep.stay";

using Block = std::vector<std::uint8_t>;
// The room, the members' numbers in the whole family, which of them this is, what is done, and its bytes.
using Asked = std::tuple<std::string, std::vector<int>, int, std::string, Block>;
// The number of an error and its words; or 0, and everybody's bytes.
using Answered = std::tuple<int, std::string, std::vector<Block>>;

Block block_of(std::span<const std::byte> bytes) {
  const auto* const begin = reinterpret_cast<const std::uint8_t*>(bytes.data());
  return {begin, begin + bytes.size()};
}
Bytes bytes_of(const Block& block) {
  const auto* const begin = reinterpret_cast<const std::byte*>(block.data());
  return {begin, begin + block.size()};
}

// One exchange's place: filled by all, answered to all, and empty again.
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
  std::map<std::pair<std::string, int>, rpc::Server::Finish> staying;  // family, member
  std::set<std::pair<std::string, int>> gone;
  bool closed = false;

  // The room, made by who comes first.
  Room& room(const std::string& name, const std::vector<int>& members) {
    const auto [found, is_new] = rooms.try_emplace(name);
    Room& here = found->second;
    if (!is_new) return here;
    here.members = members;
    if (closed) here.fail(Code::peer_failed, "the process where all meet is ending");
    for (const int member : members) {
      if (gone.contains({family_of(name), member})) fail_for(here, member);
    }
    return here;
  }
  static void fail_for(Room& here, int member) {
    const auto rank = std::ranges::find(here.members, member) - here.members.begin();
    here.fail(Code::peer_failed, text("rank ", rank, " of ", here.members.size(), " is gone"));
  }

  void gather(const Bytes& arguments, const rpc::Server::Finish& finish) {
    const auto [name, members, rank, what, mine] = rpc::decode<Asked>(arguments);
    const std::lock_guard lock(mutex);
    Room& here = room(name, members);
    const auto refuse = [&](Code code, const std::string& words) {
      here.fail(code, words);
      finish(here.refusal());
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
  }

  std::function<void()> stay(const std::shared_ptr<Parts>& self, const Bytes& arguments,
                             const rpc::Server::Finish& finish) {
    const auto member = rpc::decode<std::pair<std::string, int>>(arguments);
    const std::lock_guard lock(mutex);
    if (closed || gone.contains(member)) {
      finish({.bytes = rpc::encode(std::tuple<>()), .error = {}});
      return {};
    }
    staying[member] = finish;
    return [weak = std::weak_ptr<Parts>(self), member] {
      if (const auto parts = weak.lock()) parts->leave(member);
    };
  }

  void leave(const std::pair<std::string, int>& member) {
    const std::lock_guard lock(mutex);
    if (const auto found = staying.find(member); found != staying.end()) {
      found->second({.bytes = rpc::encode(std::tuple<>()), .error = {}});
      staying.erase(found);
    }
    gone.insert(member);
    for (auto& [name, each] : rooms) {
      if (family_of(name) == member.first && std::ranges::count(each.members, member.second) > 0)
        fail_for(each, member.second);
    }
  }

  void close() {
    const std::lock_guard lock(mutex);
    closed = true;
    for (auto& [name, each] : rooms) each.fail(Code::peer_failed, "the process where all meet is ending");
    for (auto& [member, finish] : std::exchange(staying, {}))
      finish({.bytes = rpc::encode(std::tuple<>()), .error = {}});
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
  server.add(fail_name, [parts](const std::string& name, const std::vector<int>& members, const std::string& why) {
    const std::lock_guard lock(parts->mutex);
    parts->room(name, members).fail(Code::peer_failed, why);
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
    found->second.fail(Code::stall, text("waited ", waited, " in ", found->second.missing()));
  });
}

void MeetingHub::close() { parts_->close(); }
MeetingHub::~MeetingHub() { close(); }

namespace {

class RpcExchange final : public Exchange {
 public:
  RpcExchange(std::shared_ptr<rpc::Client> client, std::string name, std::vector<int> members, int rank,
              Patience patience, Log log)
      : Exchange(rank, static_cast<int>(members.size()), patience, std::move(log)),
        client_(std::move(client)),
        name_(std::move(name)),
        members_(std::move(members)) {}

 private:
  std::vector<Bytes> gather_all(std::string_view what, std::span<const std::byte> mine, Patience patience) override {
    ++gathers_;
    const auto answer =
        client_->call<Answered>(gather_name, name_, members_, rank(), std::string(what), block_of(mine));
    wait(answer, what, patience);
    const auto [number, words, blocks] = value_of(answer);
    if (number != 0) throw Error(static_cast<Code>(number), words, remedy_of(static_cast<Code>(number)));
    std::vector<Bytes> all;
    all.reserve(blocks.size());
    for (const Block& each : blocks) all.push_back(bytes_of(each));
    return all;
  }

  static Answered value_of(const rpc::StatusOrResult<Answered>& answer) {
    try {
      return answer.get_value();
    } catch (const Error& error) {
      throw Error(Code::peer_failed, text("the process where all meet is gone: ", error.detail()),
                  "look at what it says itself");
    }
  }
  static std::string_view remedy_of(Code code) {
    if (code == Code::mismatch) return "make the same calls in the same order on all members";
    if (code == Code::stall) return "look what those members do; LOCKSTEP_TIMEOUT sets the limit";
    return "look at what that member says itself";
  }

  // What is missing is known at the hub, which tells it to all at once.
  void wait(const rpc::StatusOrResult<Answered>& answer, std::string_view what, Patience patience) {
    const bool warns = patience.warn > Duration{} && (patience.limit == Duration{} || patience.warn < patience.limit);
    if (warns && !answer.wait_for(patience.warn))
      log().warn(text(id(Code::stall), " waiting for ", format_duration(patience.warn), " in ", missing(what)));
    if (patience.limit == Duration{} || answer.wait_for(patience.limit - (warns ? patience.warn : Duration{}))) return;
    static_cast<void>(client_->call<void>(give_up_name, name_, rank(), format_duration(patience.limit)));
    if (answer.wait_for(enough)) return;
    throw Error(Code::stall,
                text("waited ", format_duration(patience.limit), " in \"", what, "\" for ", client_->address(),
                     ", where all meet, and which does not answer"),
                "look what that process does; LOCKSTEP_TIMEOUT sets the limit");
  }

  std::string missing(std::string_view what) const {
    const auto answer = client_->call<std::string>(missing_name, name_);
    if (answer.wait_for(enough) && answer.is_ok()) return answer.get_value();
    return text('"', what, "\": ", client_->address(), ", where all meet, does not answer");
  }

  void tell_failure(std::string_view why) override {
    const auto told = client_->call<void>(fail_name, name_, members_, text("rank ", rank(), " failed: ", why));
    static_cast<void>(told.wait_for(enough));
  }
  Bytes channels_in_use() override { return {}; }
  // All members have gathered as often, so that the name is the same for them, and new.
  std::unique_ptr<Exchange> make_split(const std::vector<int>& ranks, const std::vector<Bytes>& /*used*/) override {
    std::vector<int> members;
    members.reserve(ranks.size());
    for (const int each : ranks) members.push_back(members_.at(static_cast<std::size_t>(each)));
    const auto me = static_cast<int>(std::ranges::find(ranks, rank()) - ranks.begin());
    return std::make_unique<RpcExchange>(client_, text(name_, '/', gathers_, '.', ranks.front()), std::move(members),
                                         me, patience(), log());
  }

  static constexpr std::chrono::seconds enough{2};  // for the hub to answer by itself

  std::shared_ptr<rpc::Client> client_;
  std::string name_;
  std::vector<int> members_;
  std::uint64_t gathers_ = 0;
};

}  // namespace

std::unique_ptr<Exchange> rpc_exchange(const std::string& hub, const std::string& name, int rank, int size,
                                       Patience patience, const Log& log) {
  if (size < 1 || rank < 0 || rank >= size || name.find('/') != std::string::npos)
    throw Error(Code::usage, text("member ", rank, " of ", size, " of '", printable(name), '\''),
                "ranks count from 0 to the size less one, and names have no slash");
  const std::shared_ptr<rpc::Client> client =
      rpc::Client::create("grpc", hub, {.timeout = {}, .waits_for_server = true});
  // Under way as long as the client lives: when it ends, the hub knows that this member is gone.
  static_cast<void>(client->call<void>(stay_name, name, rank));
  std::vector<int> members(static_cast<std::size_t>(size));
  std::iota(members.begin(), members.end(), 0);
  return std::make_unique<RpcExchange>(client, name, std::move(members), rank, patience,
                                       log.speaking_as(text("rank ", rank, " of ", size)));
}

}  // namespace lockstep
