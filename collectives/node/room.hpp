// SPDX-License-Identifier: Apache-2.0
// Is the memory in which the members of a node meet. Every member has a few lines and slots in a ring, which only it
// writes. A collective is a sequence of steps, numbered through all calls. In a step a member writes its data into its
// line or slot, and publishes the step's number there together with the call's tag. The others find both when they look
// for that step. Nothing here waits: a caller that must wait asks again.
//
// The rule that frees a line or slot: a member that has published step j reads no step before j - 1 any more. There are
// four slots, so step k may be written when all others have published k - 2. Lines and pages are more, so that a member
// that needs no other may be many steps ahead with small data.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "collectives/gpu/copy_streams.hpp"
#include "collectives/node/events.hpp"
#include "collectives/node/gpus.hpp"
#include "collectives/node/process_memory_reader.hpp"
#include "collectives/node/symmetric_registry.hpp"
#include "collectives/node/tuning.hpp"
#include "collectives/node/write_strategy.hpp"

namespace lockstep::node {

using StepNumber = std::uint32_t;  // wraps around at 2^32

// Count the places in each member's rings of slots, and of lines and pages.
inline constexpr StepNumber slot_ring = 4;
inline constexpr StepNumber line_ring = 32;
// Counts the steps that are in use: the one that is written, and the one before it, which may still be read.
inline constexpr StepNumber in_use = 2;
inline constexpr std::size_t cache_line = 64;    // bytes
inline constexpr std::size_t page_bytes = 2048;  // bytes; small data for one member, or from one, lie in a page
inline constexpr std::size_t line_size = 128;    // bytes: two cache lines, because processors fetch them in pairs

// Returns the smallest multiple of `multiple` that is at least `number`.
constexpr std::size_t round_up(std::size_t number, std::size_t multiple) {
  return (number + multiple - 1) / multiple * multiple;
}

// Pauses the core briefly between two looks at memory that another core writes.
inline void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// True if step a is k or a later one. Steps wrap, so the two must be less than 2^31 apart.
constexpr bool reaches(StepNumber a, StepNumber k) { return static_cast<std::int32_t>(a - k) >= 0; }

// Is one step of one member: its number, its call tag and up to 112 bytes of data.
struct alignas(line_size) Line {
  static constexpr std::size_t room = line_size - 2 * sizeof(std::uint64_t);
  std::atomic<std::uint64_t> word;  // the step in the upper half, the call tag in the lower one
  std::uint64_t extra;              // a number beside the data, such as a count of steps
  std::byte payload[room];
};
static_assert(sizeof(Line) == line_size && std::atomic<std::uint64_t>::is_always_lock_free);

// Names the places for a step's data.
enum class StepStorage : std::uint8_t { line, page, slot };

// Names the calls in which members ask each other where their buffers lie: none, those with large blocks, or all.
enum class AddressQueries : std::uint8_t { none, large, all };

// Holds the division of a room's memory for some number of members. All values are in bytes; those that begin with
// `lines` are offsets.
struct Layout {
  explicit Layout(int members);
  std::size_t slot;    // data in a slot: 16 to 256 KiB, less with more members
  std::size_t area;    // in which the data rotate; a number for every member lies behind it
  std::size_t stride;  // from slot to slot
  std::size_t lines;   // the header lies before them
  std::size_t pages;
  std::size_t slots;
  std::size_t bytes;  // of the whole room
};

// Is one member's view of the room. It owns neither the shared memory nor other members' buffers. One thread at a time
// may use it; the members' threads and processes meet only in the shared memory.
class Room {
 public:
  // Takes memory of bytes_for(size) bytes, which is the same for all members, begins as zeros and is kept alive by
  // `memory`. `one_process`: all members are threads of one process and can reach each other's buffers wherever they
  // lie.
  Room(std::shared_ptr<std::byte> memory, int index, int size, bool one_process);
  ~Room();
  Room(const Room&) = delete;
  Room& operator=(const Room&) = delete;

  // Returns the number of data bytes that fit into a slot.
  std::size_t slot_bytes() const { return layout_.slot; }
  // Return the numbers beside a slot, one for each member: of my next step, and of any member's step.
  std::uint64_t* my_next_numbers() { return numbers_at(index_, last_ + 1); }
  const std::uint64_t* numbers(int member, StepNumber step) const { return numbers_at(member, step); }
  // Returns the size in bytes of the largest element that can be reduced here; 0: there are too many members.
  static std::size_t most_element(int members) {
    return static_cast<std::size_t>(members) > most_members
               ? 0
               : Layout(members).slot / static_cast<std::size_t>(members) / 4;
  }
  static constexpr std::size_t most_members = 256;  // a guess
  static std::size_t bytes_for(int members) { return Layout(members).bytes; }
  // Serves tests: continues as if this many steps had been made. All members call it before any of them begins.
  void begin_at(StepNumber step);

  int index() const { return index_; }
  int size() const { return size_; }
  StepNumber last() const { return last_; }  // the last step that this member has published
  // Returns the number of bytes that this member has copied, without data that fit into a line.
  std::uint64_t moved() const { return moved_; }
  void has_moved(std::size_t bytes) { moved_ += bytes; }

  // True if the next step may be written to this kind of place.
  bool is_free(StepStorage holder) { return reaches(known_, needed(holder)) || look_for_all(needed(holder)); }
  // True if the member is one that keeps the place from being free.
  bool is_behind(int member, StepStorage holder) const { return !has_published(member, needed(holder)); }
  // Return the places of my next step. Write to one only after is_free(); publish() then makes it visible.
  Line& my_next_line() { return lines_[line_at(index_, last_ + 1)]; }
  std::byte* my_next_page() { return pages_ + line_at(index_, last_ + 1) * page_bytes; }
  std::byte* my_next_slot(std::size_t span) { return my_slot(last_ + 1, span); }
  // Publishes my next step under the call's tag. A member that sees the step also sees everything written before.
  void publish(std::uint32_t call_tag) {
    ++last_;
    lines_[line_at(index_, last_)].word.store(std::uint64_t{last_} << 32U | call_tag, std::memory_order_release);
    if (header().asleep.load(std::memory_order_relaxed) > 0) wake();
  }

  // Counts this member's arrival in a step in which one member combines for all; it has published the step. Returns
  // true for the last one to arrive, which then combines; all others wait for its result.
  bool arrives_last() {
    const bool is_last =
        gathering(last_).arrived.fetch_add(1, std::memory_order_acq_rel) + 1 == static_cast<std::uint32_t>(size_);
    if (is_last) {
      gathering(last_).arrived.store(0, std::memory_order_relaxed);
      gathering(last_).leader.store(std::uint64_t{last_} << 32U | static_cast<std::uint32_t>(index_),
                                    std::memory_order_relaxed);
    }
    return is_last;
  }
  // Returns the line of a combined result that is small enough for one.
  Line& result(StepNumber step) const { return gathering(step).result; }
  // Returns the index of the member that combines in this step; -1 if it is not known yet.
  int leader(StepNumber step) const {
    const std::uint64_t word = gathering(step).leader.load(std::memory_order_relaxed);
    return static_cast<StepNumber>(word >> 32U) == step ? static_cast<int>(word & 0xffffffffU) : -1;
  }
  // Publishes the result of my last step; has_result() is true on the others from then on.
  void publish_result(std::uint32_t call_tag) {
    result(last_).word.store(std::uint64_t{last_} << 32U | call_tag, std::memory_order_release);
    if (header().asleep.load(std::memory_order_relaxed) > 0) wake();
  }
  bool has_result(StepNumber step, std::uint32_t call_tag) const {
    return gathering(step).result.word.load(std::memory_order_acquire) == (std::uint64_t{step} << 32U | call_tag);
  }
  // Returns my slot of a step; see slot() for the span.
  std::byte* my_slot(StepNumber step, std::size_t span) { return slot_at(index_, step) + moved(step, span); }

  // True if the member has published the step in the same call.
  bool is_there(int member, StepNumber step, std::uint32_t call_tag) const {
    return line(member, step).word.load(std::memory_order_acquire) == (std::uint64_t{step} << 32U | call_tag);
  }
  // True if the member has published the step in another call.
  bool is_in_another(int member, StepNumber step, std::uint32_t call_tag) const {
    const std::uint64_t word = line(member, step).word.load(std::memory_order_acquire);
    return word >> 32U == step && static_cast<std::uint32_t>(word) != call_tag;
  }
  // Records that all others were seen in this step, so that is_free() need not look.
  void all_reached(StepNumber step) { known_ = step; }
  // Return the places of a member's step. Read one only after is_there().
  const Line& line(int member, StepNumber step) const { return lines_[line_at(member, step)]; }
  const std::byte* page(int member, StepNumber step) const { return pages_ + line_at(member, step) * page_bytes; }
  // Returns a member's slot. Steps that have the same span, in bytes, rotate within the slot's area. New data then lie
  // where the others read long ago, and their caches no longer hold that line. With span 0 the place stays.
  const std::byte* slot(int member, StepNumber step, std::size_t span) const {
    return slot_at(member, step) + moved(step, span);
  }

  // Tells which calls may find buffers that need no slot. The answer is the same on all members. A communicator that
  // was split from another one asks for large data at least, since the parent's members may allocate memory at any
  // time.
  AddressQueries address_queries() const {
    if (one_process_ || symmetric_registry_.own().added() > 0 || symmetric_registry_.has_inherited())
      return AddressQueries::all;
    return symmetric_registry_.is_split() ? AddressQueries::large : AddressQueries::none;
  }
  const Tuning& tuning() const { return tuning_; }
  void set_tuning(const Tuning& tuning) { tuning_ = tuning; }
  WriteStrategy& write_strategy() { return write_strategy_; }
  bool is_one_process() const { return one_process_; }
  // Returns the reader by which members read each other's memory wherever it lies; works() is false if one of them
  // cannot. The same holds on all members.
  const ProcessMemoryReader& memory_reader() const { return memory_reader_; }
  void set_memory_reader(ProcessMemoryReader reader) { memory_reader_ = std::move(reader); }
  // Returns the GPUs that all members of several processes see; null: there is none. The room owns the object.
  Gpus* gpus() const { return gpus_.get(); }
  void set_gpus(std::unique_ptr<Gpus> gpus) { gpus_ = std::move(gpus); }
  // True if members work only on the host's data here. keep_to_host() sets it for good.
  bool is_of_host() const { return is_of_host_; }
  void keep_to_host() {
    is_of_host_ = true;
    gpus_ = nullptr;
  }
  // Returns this member's own events, and makes them at the first call. May be called only if there is a GPU.
  GpuEvents& events();
  // Records if other members may wait for this one's events. They may until came_behind(), or until all do without.
  void show_events(bool are_shown) { are_shown_ = are_shown; }
  // Records that this member has queued its waits for the others' events of its last step.
  void came_behind();
  // Records that this member has begun work on a GPU in the others' memory, and reaches there until it is done.
  void reaches_on_gpu() { is_on_gpu_ = true; }
  // True if such work is still under way. Throws Error device if it failed.
  bool is_working() {
    is_on_gpu_ = is_on_gpu_ && (events_ == nullptr || events_->is_working());  // kept ones may be for ever
    return is_on_gpu_;
  }
  // Keeps this member's mappings and events for ever, because something may still use them.
  void keep_on_gpus();
  // Returns the address of this member's buffer for the others. `is_readable`: others may read it in this process.
  BufferAddress place_of(const void* data, std::size_t bytes, bool is_readable);
  // Returns this process's address of another member's buffer; null if only a slot, a GPU or the system's copy reaches
  // it.
  std::byte* reach(int member, const BufferAddress& place, const GenerationCounts& known_to_all) const;
  // Returns the streams in which this member's data go from a GPU's memory to the slots, and back.
  gpu::CopyStreams& ways() { return ways_; }
  // Pins the room's memory for such copies. Only the first call does it, and the system may refuse.
  void pin();
  // Returns everything in this room that copies under way may touch, and the streams. It lives while the caller holds
  // it.
  std::vector<std::shared_ptr<const void>> for_copies() const;
  SymmetricRegistry& symmetric_registry() { return symmetric_registry_; }
  const SymmetricRegistry& symmetric_registry() const { return symmetric_registry_; }

  // Enclose every access of this member to the others' buffers. The first returns false if a member has given up and
  // may use its memory for something else; then nothing may be touched.
  bool begin_reaching();
  void end_reaching() noexcept;
  // Ends this member's work on GPUs for another member that has given up and waits for it. Call it again and again: a
  // call in a stream is over long before its work on the GPU.
  void end_if_given_up() {
    if (is_on_gpu_ && somebody_gave_up()) end_reaching();
  }
  // True if a member has given up this room after a failure.
  bool somebody_gave_up() const { return header().given_up.load(std::memory_order_relaxed) != 0; }
  // Gives the room up after a failure, so that no member begins to reach any more. Waits at most a second for those
  // that have begun. Returns false if one did not end; then no buffer that others reach may be freed.
  bool abandon();

  // Sleeps until a member publishes, at most this long. May return early, and late if the step was published at the
  // very same time.
  void sleep(std::int64_t nanoseconds);
  // Makes the next sleep short (50 us), because the missing data come from a GPU, which wakes no member.
  void look_again_soon() { looks_soon_ = true; }

 private:
  struct alignas(line_size) RoomHeader {
    std::atomic<std::uint32_t> asleep;    // the members that sleep
    std::atomic<std::uint32_t> rings;     // changes when a member wakes them
    std::atomic<std::uint32_t> given_up;  // 1: a member called abandon()
  };
  // Belongs to one of the steps in the ring in which one member combines.
  struct StepArrivals {
    alignas(line_size) std::atomic<std::uint32_t> arrived;
    std::atomic<std::uint64_t> leader;  // the step in the upper half, the member that combines in the lower one
    Line result;
  };
  // Is the part of the header that only one member writes.
  struct alignas(line_size) RoomMemberHeader {
    std::atomic<std::uint32_t> busy;    // 1: it reaches into the memory of others
    std::atomic<std::uint32_t> behind;  // the last step whose events it has queued waits for
    std::atomic<std::uint32_t> left;    // 1: it has left, and waits for nothing any more
  };

  void let_go_of_dead();
  std::byte* slot_at(int member, StepNumber step) const {
    return slots_ + (static_cast<std::size_t>(member) * slot_ring + step % slot_ring) * layout_.stride;
  }
  std::size_t moved(StepNumber step, std::size_t span) const {
    return span == 0 ? 0 : step / slot_ring % (layout_.area / span) * span;
  }
  std::uint64_t* numbers_at(int member, StepNumber step) const {
    return reinterpret_cast<std::uint64_t*>(slot_at(member, step) + layout_.area);
  }
  static std::size_t line_at(int member, StepNumber step) {
    return static_cast<std::size_t>(member) * line_ring + step % line_ring;
  }
  // Returns the step that all others must have published before the next step is written.
  StepNumber needed(StepStorage holder) const {
    return last_ + 1 - ((holder == StepStorage::slot ? slot_ring : line_ring) - in_use);
  }
  bool has_published(int member, StepNumber step) const {
    const auto word = line(member, step).word.load(std::memory_order_acquire);
    return reaches(static_cast<StepNumber>(word >> 32U), step);
  }
  // All members meet in a step in which one combines, so a ring of four is as good as a longer one.
  StepArrivals& gathering(StepNumber step) const {
    return reinterpret_cast<StepArrivals*>(memory_.get() + sizeof(RoomHeader))[step % slot_ring];
  }
  RoomHeader& header() const { return *reinterpret_cast<RoomHeader*>(memory_.get()); }
  static RoomMemberHeader& header_in(std::byte* memory, int member) {
    return reinterpret_cast<RoomMemberHeader*>(memory + sizeof(RoomHeader) + slot_ring * sizeof(StepArrivals))[member];
  }
  RoomMemberHeader& header_of(int member) const { return header_in(memory_.get(), member); }
  bool look_for_all(StepNumber step);
  void wake();
  void give_back_events() noexcept;
  friend struct Layout;

  std::shared_ptr<std::byte> memory_;
  Layout layout_;
  int index_;
  int size_;
  bool one_process_;
  Line* lines_;
  std::byte* pages_;
  std::byte* slots_;
  StepNumber last_ = 0;
  std::uint64_t moved_ = 0;
  StepNumber known_ = 0;  // a step that all others have published
  SymmetricRegistry symmetric_registry_;
  ProcessMemoryReader memory_reader_;
  std::unique_ptr<Gpus> gpus_;
  bool is_of_host_ = false;
  std::shared_ptr<const void> pin_;
  bool has_tried_to_pin_ = false;
  gpu::CopyStreams ways_;
  std::unique_ptr<GpuEvents> events_;
  StepNumber ordered_ = 0;  // the last step with events, if has_ordered_
  bool has_ordered_ = false;
  bool are_shown_ = false;
  bool is_on_gpu_ = false;
  bool looks_soon_ = false;
  Tuning tuning_;
  WriteStrategy write_strategy_;
};

}  // namespace lockstep::node
