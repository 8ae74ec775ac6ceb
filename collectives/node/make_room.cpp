// SPDX-License-Identifier: Apache-2.0
#include "collectives/node/make_room.hpp"

#include <chrono>
#include <map>
#include <mutex>
#include <random>

#include "collectives/node/shared_memory.hpp"
#include "topology/base/error.hpp"
#include "topology/base/text.hpp"

namespace lockstep::node {
namespace {

// Says which process this is, whatever its number in whatever namespace.
std::uint64_t this_process() {
  static const std::uint64_t token = [] {
    std::random_device random;
    return std::uint64_t{random()} << 32U | random();
  }();
  return token;
}

struct Offer {
  SharedMemory memory;
  std::string wrong;
};

Offer offer(std::size_t bytes) {
  try {
    return {SharedMemory::make(bytes, false), {}};
  } catch (const Error& error) {
    return {{}, std::string(error.detail())};
  }
}

// Measurements that this process knows already.
struct Known {
  std::mutex mutex;
  std::map<std::string, Tuning> by_key;
};
Known& known() {
  static Known one;
  return one;
}

std::optional<Tuning> find_tuning(const std::string& key) {
  const std::lock_guard lock(known().mutex);
  if (const auto found = known().by_key.find(key); found != known().by_key.end()) return found->second;
  auto read = read_tuning(key);
  if (read) known().by_key[key] = *read;
  return read;
}

std::shared_ptr<std::byte> copy_at(std::uintptr_t address) {
  // NOLINTNEXTLINE(performance-no-int-to-ptr): an address of this process, told as a number
  return *reinterpret_cast<std::shared_ptr<std::byte>*>(address);
}

// What the first member knows to suit this node, for all; nothing where it has to be measured.
std::string known_tuning(int members, const std::string& key) {
  const auto found = find_tuning(key);
  constexpr int few = 16;  // more take too long for what they gain
  if (!found && members <= few) return {};
  return to_text(found.value_or(guessed_tuning(members)), key);
}

void measure(const Exchange& exchange, Room& room, bool crowded, const std::string& key) {
  const double limit = std::chrono::duration<double>(exchange.patience().limit).count();
  room.set_tuning(measured_tuning(room, crowded, limit > 0 ? limit : 1e9));
  if (exchange.rank() != 0) return;
  keep_tuning(room.tuning(), key);
  const std::lock_guard lock(known().mutex);
  known().by_key[key] = room.tuning();
}

}  // namespace

std::unique_ptr<Room> make_room(Exchange& exchange, bool crowded) {
  const std::size_t bytes = Room::bytes_for(exchange.size());
  const bool first = exchange.rank() == 0;
  Offer mine;
  // For threads of this process; held until all have it, and longer where one of them failed before.
  std::shared_ptr<std::byte>* kept = nullptr;
  if (first) {
    mine = offer(bytes);
    kept = new std::shared_ptr<std::byte>(mine.memory.memory());
  }
  const auto all = exchange.all_gather("shared memory of a node", Writer()
                                                                      .put(this_process())
                                                                      .put(reinterpret_cast<std::uintptr_t>(kept))
                                                                      .put(std::string_view(mine.memory.ticket()))
                                                                      .put(std::string_view(mine.wrong))
                                                                      .take());
  std::shared_ptr<std::byte> memory;
  std::string wrong;
  bool one_process = true;
  for (const Bytes& each : all) one_process &= Reader(each).get<std::uint64_t>() == this_process();
  Reader theirs(all.front());
  const bool same = theirs.get<std::uint64_t>() == this_process();
  const auto address = theirs.get<std::uintptr_t>();
  const std::string ticket = theirs.get_string();
  wrong = theirs.get_string();
  if (wrong.empty()) {
    try {
      memory = same ? copy_at(address) : SharedMemory::open(ticket, bytes).memory();
    } catch (const Error& error) {
      wrong = error.detail();
    }
  }
  std::string key;
  std::string tuning;
  if (first) {
    key = tuning_key(exchange.size(), one_process, crowded);
    tuning = known_tuning(exchange.size(), key);
  }
  const auto answers = exchange.all_gather("shared memory of a node is open",
                                           Writer().put(std::string_view(wrong)).put(std::string_view(tuning)).take());
  delete kept;
  for (std::size_t member = 0; member < answers.size(); ++member) {
    const std::string answer = Reader(answers[member]).get_string();
    if (answer.empty()) continue;
    if (first)
      exchange.log().warn(text("the members of this node do not share memory, so their data goes by messages: rank ",
                               member, ": ", answer));
    return nullptr;
  }
  auto room = std::make_unique<Room>(std::move(memory), exchange.rank(), exchange.size(), one_process);
  Reader answer(answers.front());
  answer.get_string();
  if (const auto told = parse_tuning(answer.get_string()))
    room->set_tuning(*told);
  else
    measure(exchange, *room, crowded, key);
  return room;
}

}  // namespace lockstep::node
