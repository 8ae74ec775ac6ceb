// SPDX-License-Identifier: Apache-2.0
// Is the memory in which the members of a node meet. Every member has a few lines and slots in a ring, which only it
// writes. A collective is a sequence of steps, numbered through all calls. In a step a member writes its data into its
// line or slot, and publishes the step's number there together with the call's tag. The others find both when they look
// for that step. Nothing here waits: a caller that must wait asks again.
//
// The rule that frees a line or slot: a member that has published step j reads no step before j - 1 any more. There are
// four slots, so step k may be written when all others have published k - 2. Lines and pages are more, so that a member
// that needs no other may be many steps ahead with small data.
//
// The rule for a ring of chunks in a slot (PairwiseForm), which is written while its step is read: the sender counts
// the chunks that it has written, and the receiver those that it has taken. The sender writes a chunk if less than a
// ring was not taken.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "collectives/node/access_gate.hpp"
#include "collectives/node/buffer_finder.hpp"
#include "collectives/node/member_gpus.hpp"
#include "collectives/node/room_memory.hpp"
#include "collectives/node/slot_streams.hpp"
#include "collectives/node/tuning.hpp"
#include "collectives/node/write_strategy.hpp"

namespace lockstep::node {

// Counts the steps that are in use: the one that is written, and the one before it, which may still be read.
inline constexpr StepNumber in_use = 2;

// Pauses the core briefly between two looks at memory that another core writes.
inline void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Names the places for a step's data.
enum class StepStorage : std::uint8_t { line, page, slot };

// Publishes one member's steps, and finds those of the others.
class StepRing {
 public:
  explicit StepRing(const RoomMemory& memory) : memory_(memory) {}

  StepNumber last() const { return last_; }  // the last step that this member has published
  // Serves tests: continues as if this many steps had been made. All members call it before any of them begins.
  void begin_at(StepNumber step);

  // True if the next step may be written to this kind of place.
  bool is_free(StepStorage holder) {
    return reaches(reached_by_all_, needed(holder)) || have_all_reached(needed(holder));
  }
  // True if the member is one that keeps the place from being free.
  bool is_behind(int member, StepStorage holder) const { return !has_published(member, needed(holder)); }
  // Return the places of my next step. Write to one only after is_free(); publish() then makes it visible.
  Line& my_next_line() { return memory_.line(memory_.index(), last_ + 1); }
  std::byte* my_next_page() { return memory_.page(memory_.index(), last_ + 1); }
  std::byte* my_next_slot(std::size_t span) { return memory_.slot(memory_.index(), last_ + 1, span); }
  // Publishes my next step under the call's tag. A member that sees the step also sees everything written before.
  void publish(std::uint32_t call_tag) {
    ++last_;
    memory_.line(memory_.index(), last_).stamp.store(std::uint64_t{last_} << 32U | call_tag, std::memory_order_release);
    memory_.header().wake_all();
  }

  // True if the member has published the step in the same call.
  bool has_published_in(int member, StepNumber step, std::uint32_t call_tag) const {
    return line(member, step).stamp.load(std::memory_order_acquire) == (std::uint64_t{step} << 32U | call_tag);
  }
  // True if the member has published the step in another call.
  bool has_published_in_other_call(int member, StepNumber step, std::uint32_t call_tag) const {
    const std::uint64_t word = line(member, step).stamp.load(std::memory_order_acquire);
    return word >> 32U == step && static_cast<std::uint32_t>(word) != call_tag;
  }
  // Records that all others were seen in this step, so that is_free() need not look.
  void note_reached_by_all(StepNumber step) { reached_by_all_ = step; }
  // Return the places of a member's step. Read one only after has_published_in(). The span is that of
  // RoomMemory::slot().
  const Line& line(int member, StepNumber step) const { return memory_.line(member, step); }
  const std::byte* page(int member, StepNumber step) const { return memory_.page(member, step); }
  const std::byte* slot(int member, StepNumber step, std::size_t span) const {
    return memory_.slot(member, step, span);
  }

 private:
  // Returns the step that all others must have published before the next step is written.
  StepNumber needed(StepStorage holder) const {
    return last_ + 1 - ((holder == StepStorage::slot ? slot_ring : line_ring) - in_use);
  }
  bool has_published(int member, StepNumber step) const {
    const auto word = line(member, step).stamp.load(std::memory_order_acquire);
    return reaches(static_cast<StepNumber>(word >> 32U), step);
  }
  bool have_all_reached(StepNumber step);

  RoomMemory memory_;
  StepNumber last_ = 0;
  StepNumber reached_by_all_ = 0;  // a step that all others have published
};

// Finds the member that combines for all in a step, and publishes its result.
class StepResults {
 public:
  explicit StepResults(const RoomMemory& memory) : memory_(memory) {}

  // Counts this member's arrival in a step that it has published. Returns true for the last one to arrive, which then
  // combines; all others wait for its result.
  bool arrives_last(StepNumber step) {
    StepArrivals& all = memory_.arrivals(step);
    const bool is_last =
        all.arrived.fetch_add(1, std::memory_order_acq_rel) + 1 == static_cast<std::uint32_t>(memory_.size());
    if (is_last) {
      all.arrived.store(0, std::memory_order_relaxed);
      all.leader.store(std::uint64_t{step} << 32U | static_cast<std::uint32_t>(memory_.index()),
                       std::memory_order_relaxed);
    }
    return is_last;
  }
  // Returns the index of the member that combines in this step; -1 if it is not known yet.
  int leader(StepNumber step) const {
    const std::uint64_t word = memory_.arrivals(step).leader.load(std::memory_order_relaxed);
    return static_cast<StepNumber>(word >> 32U) == step ? static_cast<int>(word & 0xffffffffU) : -1;
  }
  // Returns the line of a result that is small enough for one.
  Line& line(StepNumber step) const { return memory_.arrivals(step).result; }
  // Publishes the result; has_published_in() is true on the others from then on.
  void publish(StepNumber step, std::uint32_t call_tag) {
    line(step).stamp.store(std::uint64_t{step} << 32U | call_tag, std::memory_order_release);
    memory_.header().wake_all();
  }
  bool has_published_in(StepNumber step, std::uint32_t call_tag) const {
    return line(step).stamp.load(std::memory_order_acquire) == (std::uint64_t{step} << 32U | call_tag);
  }

 private:
  RoomMemory memory_;
};

// Sleeps until a member of the room publishes.
class RoomSleeper {
 public:
  explicit RoomSleeper(RoomHeader& header) : header_(header) {}
  // Sleeps at most this long; see RoomHeader::sleep().
  void sleep(std::int64_t nanoseconds);
  // Makes the next sleep short (50 us), because a copy of a GPU or a message may come, and neither wakes it.
  void shorten_next_sleep() { is_next_sleep_short_ = true; }

 private:
  RoomHeader& header_;
  bool is_next_sleep_short_ = false;
};

// Holds the thresholds of a room. All members have the same, and change them in the same turn.
class RoomThresholds {
 public:
  explicit RoomThresholds(const Tuning& tuning) : tuning_(tuning) {}
  const Tuning& tuning() const { return tuning_; }
  const TuningConfidence& confidence() const { return confidence_; }
  // `key`: of the stored measurements on the member that keeps them; else empty.
  void set(const Tuning& tuning, const TuningConfidence& confidence = {}, std::string key = {}) {
    tuning_ = tuning;
    confidence_ = confidence;
    key_ = std::move(key);
  }
  // Replaces a threshold because a running program was faster with this value.
  void give_up(const TuningField& field, std::size_t value);

 private:
  Tuning tuning_;
  TuningConfidence confidence_ = {};
  std::string key_ = {};
};

// Is one member's view of the room, as parts with one task each. It owns neither the shared memory nor other members'
// buffers. One thread at a time may use it; the members' threads and processes meet only in the shared memory.
class Room {
 public:
  // Takes the memory that RoomMemory describes. `one_process`: all members are threads of one process and can reach
  // each other's buffers wherever they lie. `reader`: by which members read each other's memory, if all can.
  Room(std::shared_ptr<std::byte> memory, int index, int size, bool one_process, ProcessMemoryReader reader = {})
      : memory_(std::move(memory), index, size),
        buffers_(index, size, one_process, std::move(reader)),
        gpus_(memory_, buffers_.reader()),
        access_(memory_, buffers_.reader(), gpus_),
        thresholds_(guessed_tuning(size)) {}
  ~Room() = default;
  Room(const Room&) = delete;
  Room& operator=(const Room&) = delete;

  int index() const { return memory_.index(); }
  int size() const { return memory_.size(); }
  const RoomMemory& memory() const { return memory_; }
  StepRing& ring() { return ring_; }
  StepResults& results() { return results_; }
  RoomSleeper& sleeper() { return sleeper_; }
  BufferFinder& buffers() { return buffers_; }
  MemberGpus& gpus() { return gpus_; }
  AccessGate& access() { return access_; }
  SlotStreams& streams() { return streams_; }
  const Tuning& tuning() const { return thresholds_.tuning(); }
  RoomThresholds& thresholds() { return thresholds_; }
  WriteStrategy& write_strategy() { return write_strategy_; }
  // Returns the number of bytes that this member has copied, without data that fit into a line.
  std::uint64_t copied_bytes() const { return copied_bytes_; }
  void add_copied_bytes(std::size_t bytes) { copied_bytes_ += bytes; }

 private:
  RoomMemory memory_;
  StepRing ring_{memory_};
  StepResults results_{memory_};
  RoomSleeper sleeper_{memory_.header()};
  BufferFinder buffers_;
  MemberGpus gpus_;
  AccessGate access_;
  SlotStreams streams_{memory_};
  RoomThresholds thresholds_;
  WriteStrategy write_strategy_;
  std::uint64_t copied_bytes_ = 0;
};

}  // namespace lockstep::node
