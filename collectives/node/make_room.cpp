// SPDX-License-Identifier: Apache-2.0
// Exchanges the facts by which members find the shared memory, each other's processes and GPUs, and the thresholds.
#include "collectives/node/make_room.hpp"

#include <algorithm>
#include <chrono>
#include <map>
#include <mutex>
#include <optional>

#include "collectives/node/process_memory_reader.hpp"
#include "collectives/node/tuning_record.hpp"
#include "topology/base/error.hpp"
#include "topology/base/shared_memory.hpp"
#include "topology/base/text.hpp"

namespace lockstep::node {
namespace {

struct SegmentOffer {
  SharedMemory memory;
  std::string wrong;
};

SegmentOffer offer(std::size_t bytes) {
  try {
    return {SharedMemory::make(bytes, false), {}};
  } catch (const Error& error) {
    return {{}, std::string(error.detail())};
  }
}

// Holds the thresholds of a room: their value, and the place in the file that a member may change.
struct KnownTuning {
  Tuning tuning;
  TuningConfidence confidence;
  std::string key;
};

// Keeps what this process uses, once it has measured or read enough.
struct TuningCache {
  std::mutex mutex;
  std::map<std::string, TuningOffer> by_key;
  std::map<std::uint64_t, KnownTuning> by_members;  // by the hash of the members' processes
};
TuningCache& tuning_cache() {
  static TuningCache* const one = new TuningCache;  // communicators may be made while exit() destroys statics
  return *one;
}

std::optional<TuningOffer> find_offer(const std::string& key) {
  const std::lock_guard lock(tuning_cache().mutex);
  const auto found = tuning_cache().by_key.find(key);
  return found == tuning_cache().by_key.end() ? std::nullopt : std::optional(found->second);
}

// Keeps the offer for later rooms of this process, which do not measure.
void keep_offer(const std::string& key, TuningOffer offer) {
  offer.measures = false;
  const std::lock_guard lock(tuning_cache().mutex);
  tuning_cache().by_key[key] = offer;
}

std::uint64_t hash_of(const Tuning& tuning) { return hash(std::as_bytes(std::span(&tuning, 1))); }

// Returns the thresholds that this process has used among the same members.
std::optional<KnownTuning> tuning_among(std::uint64_t members) {
  const std::lock_guard lock(tuning_cache().mutex);
  const auto found = tuning_cache().by_members.find(members);
  return found == tuning_cache().by_members.end() ? std::nullopt : std::optional(found->second);
}
void keep_tuning_among(std::uint64_t members, const KnownTuning& known) {
  const std::lock_guard lock(tuning_cache().mutex);
  tuning_cache().by_members[members] = known;
}

std::shared_ptr<std::byte> copy_at(std::uintptr_t address) {
  // NOLINTNEXTLINE(performance-no-int-to-ptr): an address of this process, told as a number
  return *reinterpret_cast<std::shared_ptr<std::byte>*>(address);
}

// Agrees on thresholds: the first member's count for all. If it has too few measurements, all measure together, and
// judge alike whether that counts.
KnownTuning tune(Exchange& exchange, Room& room, bool crowded) {
  constexpr int few = 16;  // more members would take too long for the gain
  const int members = room.size();
  const bool first = exchange.rank() == 0;
  const double timeout = std::chrono::duration<double>(exchange.wait_limits().limit).count();
  const WaitLimit waiting{timeout > 0 ? timeout : 1e9, [&exchange] { return exchange.known_loss(); }};
  const bool has_distance = !crowded && members > 1 && members <= few;
  const double apart = has_distance ? step_nanoseconds(room, waiting) : 0;
  std::string key;
  TuningRecord record;
  TuningOffer offer;
  if (first) {
    key = tuning_key(members, room.buffers().is_one_process(), crowded, apart);
    const std::optional<TuningOffer> known = find_offer(key);
    if (!known) record = read_record(key);
    offer = known ? *known : record.offer(members);
    if (members > few && !known) offer.measures = false;
  }
  offer = broadcast_offer(room, offer, waiting);
  if (offer.measures) {
    const TuningMeasurement measured = measured_tuning(room, crowded, waiting);
    if (first) {
      const Doubt doubt = judge(measured.conditions);
      exchange.log().info(text("thresholds of the node's memory were measured: ", to_text(measured.conditions),
                               doubt == Doubt::none ? "" : text("; not believed ", reason_of(doubt))));
      record.add(measured, doubt);
      store_record(record, key);
      offer = record.offer(members);
    }
    offer = broadcast_offer(room, offer, waiting);
  }
  if (first) keep_offer(key, offer);
  return {offer.tuning, offer.confidence, key};
}

// Is the first message of a member: its process, regardless of its number in any namespace, and the first member's
// memory.
struct RoomGreeting {
  ProcessIdentity process;
  ProcessName name;
  std::uintptr_t memory = 0;  // of the first member: an address for threads of its process
  std::string ticket;         // of the first member: for other processes
  std::string wrong;
};

Bytes to_bytes(const RoomGreeting& hello) {
  Writer writer;
  hello.name.write(writer);
  return writer.put(hello.process.token)
      .put(hello.process.address)
      .put(static_cast<std::int64_t>(hello.process.process))
      .put(hello.memory)
      .put(std::string_view(hello.ticket))
      .put(std::string_view(hello.wrong))
      .take();
}

RoomGreeting read_hello(const Bytes& bytes) {
  Reader reader(bytes);
  RoomGreeting hello;
  hello.name = ProcessName::read(reader);
  hello.process.token = reader.get<std::uint64_t>();
  hello.process.address = reader.get<std::uintptr_t>();
  hello.process.process = static_cast<pid_t>(reader.get<std::int64_t>());
  hello.memory = reader.get<std::uintptr_t>();
  hello.ticket = reader.get_string();
  hello.wrong = reader.get_string();
  return hello;
}

// Is the second message of a member, after it has seen all greetings.
struct RoomReply {
  std::string wrong;
  bool reads_all = false;    // it can read the memory of the other processes, wherever it lies
  std::uint64_t tuning = 0;  // the hash of the thresholds that it has used among these members; 0: of none
  bool has_gpus = false;     // its process can use GPUs
  std::vector<std::string> gpus;
};

Bytes to_bytes(const RoomReply& answer) {
  Writer writer;
  writer.put(std::string_view(answer.wrong))
      .put(static_cast<std::uint8_t>(answer.reads_all ? 1 : 0))
      .put(answer.tuning)
      .put(static_cast<std::uint8_t>(answer.has_gpus ? 1 : 0));
  writer.put(static_cast<std::uint64_t>(answer.gpus.size()));
  for (const std::string& serial : answer.gpus) writer.put(std::string_view(serial));
  return writer.take();
}

RoomReply read_answer(const Bytes& bytes) {
  Reader reader(bytes);
  RoomReply answer;
  answer.wrong = reader.get_string();
  answer.reads_all = reader.get<std::uint8_t>() != 0;
  answer.tuning = reader.get<std::uint64_t>();
  answer.has_gpus = reader.get<std::uint8_t>() != 0;
  for (auto left = reader.get<std::uint64_t>(); left > 0; --left) answer.gpus.push_back(reader.get_string());
  return answer;
}

// Returns a hash of the members' processes in their order, and of whether members share cores.
std::uint64_t hash_of_members(const std::vector<RoomGreeting>& all, bool crowded) {
  Writer writer;
  for (const RoomGreeting& each : all) writer.put(each.process.token);
  return hash(writer.put(static_cast<std::uint8_t>(crowded ? 1 : 0)).take());
}

// Returns the room's memory: the first member's own, or that of its process mapped here. Returns null and says why in
// `wrong` if that fails.
std::shared_ptr<std::byte> attach(const RoomGreeting& first, bool is_here, std::size_t bytes, std::string& wrong) {
  try {
    return is_here ? copy_at(first.memory) : SharedMemory::open(first.ticket, bytes).memory();
  } catch (const Error& error) {
    wrong = error.detail();
    return nullptr;
  }
}

}  // namespace

// The first member offers memory, all try to map it, and one failure makes all of them use messages.
std::unique_ptr<Room> make_room(Exchange& exchange, bool crowded) {
  const std::size_t bytes = RoomMemory::bytes_for(exchange.size());
  const bool first = exchange.rank() == 0;
  SegmentOffer mine;
  // Is for threads of this process. It is held until all have it, and longer if one of them failed before.
  std::shared_ptr<std::byte>* kept = nullptr;
  if (first) {
    mine = offer(bytes);
    kept = new std::shared_ptr<std::byte>(mine.memory.memory());
  }
  const RoomGreeting said{process_identity(), own_process(), reinterpret_cast<std::uintptr_t>(kept),
                          mine.memory.ticket(), mine.wrong};
  std::vector<RoomGreeting> all;
  for (const Bytes& each : exchange.all_gather("shared memory of a node", to_bytes(said)))
    all.push_back(read_hello(each));
  const auto is_here = [&](const RoomGreeting& each) { return each.process.token == said.process.token; };
  const bool one_process = std::ranges::all_of(all, is_here);
  std::shared_ptr<std::byte> memory;
  RoomReply answer{.wrong = all.front().wrong};
  if (answer.wrong.empty()) memory = attach(all.front(), is_here(all.front()), bytes, answer.wrong);
  answer.reads_all =
      !one_process && std::ranges::all_of(all, [](const RoomGreeting& each) { return is_readable(each.process); });
  const std::uint64_t members = hash_of_members(all, crowded);
  const std::optional<KnownTuning> known = tuning_among(members);
  if (known) answer.tuning = hash_of(known->tuning);
  answer.has_gpus = gpu::backend() != nullptr;
  if (answer.has_gpus) gpu::backend()->prepare();
  if (!one_process) answer.gpus = Gpus::serials();
  const auto answers = exchange.all_gather("shared memory of a node is open", to_bytes(answer));
  delete kept;
  bool reads_processes = true;
  bool all_know = known.has_value();
  bool any_has_gpus = false;
  std::vector<pid_t> processes;
  std::vector<std::shared_ptr<const WatchedProcess>> watched;
  std::vector<std::uint64_t> tokens;
  std::vector<std::vector<std::string>> gpus;
  for (std::size_t member = 0; member < answers.size(); ++member) {
    const RoomReply theirs = read_answer(answers[member]);
    reads_processes &= theirs.reads_all;
    all_know = all_know && theirs.tuning == answer.tuning;
    any_has_gpus |= theirs.has_gpus;
    processes.push_back(all[member].process.process);
    watched.push_back(one_process || is_here(all[member]) ? nullptr : WatchedProcess::find(all[member].name));
    tokens.push_back(all[member].process.token);
    gpus.push_back(theirs.gpus);
    if (theirs.wrong.empty()) continue;
    if (first)
      exchange.log().warn(text("the members of this node do not share memory, so their data goes by messages: rank ",
                               member, ": ", theirs.wrong));
    return nullptr;
  }
  ProcessMemoryReader reader;
  if (reads_processes) reader = ProcessMemoryReader(std::move(processes), std::move(watched));
  auto room =
      std::make_unique<Room>(std::move(memory), exchange.rank(), exchange.size(), one_process, std::move(reader));
  if (any_has_gpus) room->gpus().note_that_one_has();
  room->buffers().set_crowded(crowded);
  const KnownTuning tuning = all_know ? *known : tune(exchange, *room, crowded);
  room->thresholds().set(tuning.tuning, tuning.confidence, tuning.key);
  keep_tuning_among(members, tuning);
  if (!one_process) room->gpus().share(Gpus::find(gpus, exchange.rank(), std::move(tokens)));
  return room;
}

}  // namespace lockstep::node
