// SPDX-License-Identifier: Apache-2.0
// The memory in which the members of a node meet: for every member a few lines and slots in a ring, each written by
// that member alone. A collective is a sequence of steps, numbered through all calls. In a step a member puts what it
// gives into its line or slot, and publishes the step's number there together with the call's tag; the others find
// both when they look for that step. Nothing here waits: who must wait asks again.
//
// The rule that makes a line or slot free: who has published step j reads no step before j - 1 any more. There are four
// slots, so step k may be written there when all others have published k - 2; and more lines, and pages beside them, so
// that with small things a member who needs nobody may be many steps ahead.
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

using StepNumber = std::uint32_t;  // wraps around

inline constexpr StepNumber slot_ring = 4;
inline constexpr StepNumber line_ring = 32;  // and of pages
inline constexpr StepNumber in_use = 2;      // the step that is written, and the one before it, which may still be read
inline constexpr std::size_t cache_line = 64;
inline constexpr std::size_t page_bytes = 2048;
inline constexpr std::size_t line_size = 128;  // two cache lines, because processors fetch them in pairs

constexpr std::size_t round_up(std::size_t number, std::size_t multiple) {
  return (number + multiple - 1) / multiple * multiple;
}

// Between two looks at what another core writes.
inline void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// a is k or behind it, on numbers that wrap.
constexpr bool reaches(StepNumber a, StepNumber k) { return static_cast<std::int32_t>(a - k) >= 0; }

// One step of one member.
struct alignas(line_size) Line {
  static constexpr std::size_t room = line_size - 2 * sizeof(std::uint64_t);
  std::atomic<std::uint64_t> word;  // the step above, the call tag below
  std::uint64_t extra;              // a number beside the data
  std::byte payload[room];
};
static_assert(sizeof(Line) == line_size && std::atomic<std::uint64_t>::is_always_lock_free);

// Where a step's data lies.
enum class StepStorage : std::uint8_t { line, page, slot };

// Which calls ask where the buffers lie.
enum class AddressQueries : std::uint8_t { none, large, all };

// How the memory is divided, for so many members.
struct Layout {
  explicit Layout(int members);
  std::size_t slot;    // bytes of data in a slot
  std::size_t area;    // in which it moves about; behind that lies a number for every member
  std::size_t stride;  // from slot to slot
  std::size_t lines;   // where they begin; before them is the header
  std::size_t pages;
  std::size_t slots;
  std::size_t bytes;  // in all
};

class Room {
 public:
  // Everywhere the same bytes, zeros at first, kept by `memory`. With one_process all members are threads of one, which
  // can reach each other's buffers wherever they lie.
  Room(std::shared_ptr<std::byte> memory, int index, int size, bool one_process);
  ~Room();
  Room(const Room&) = delete;
  Room& operator=(const Room&) = delete;

  // So many bytes fit into a slot.
  std::size_t slot_bytes() const { return layout_.slot; }
  std::uint64_t* my_next_numbers() { return numbers_at(index_, last_ + 1); }
  const std::uint64_t* numbers(int member, StepNumber step) const { return numbers_at(member, step); }
  // The largest element that can be reduced here.
  static std::size_t most_element(int members) {
    return static_cast<std::size_t>(members) > most_members
               ? 0
               : Layout(members).slot / static_cast<std::size_t>(members) / 4;
  }
  static constexpr std::size_t most_members = 256;
  static std::size_t bytes_for(int members) { return Layout(members).bytes; }
  // For tests: as if so many steps had been made. By all members before any of them begins.
  void begin_at(StepNumber step);

  int index() const { return index_; }
  int size() const { return size_; }
  StepNumber last() const { return last_; }  // that this member has published
  // Bytes that this member has copied, but for what fits into a line.
  std::uint64_t moved() const { return moved_; }
  void has_moved(std::size_t bytes) { moved_ += bytes; }

  // Whether the next step, with data there, may be written.
  bool is_free(StepStorage holder) { return reaches(known_, needed(holder)) || look_for_all(needed(holder)); }
  // Whether the member is what keeps it from being free.
  bool is_behind(int member, StepStorage holder) const { return !has_published(member, needed(holder)); }
  Line& my_next_line() { return lines_[line_at(index_, last_ + 1)]; }
  std::byte* my_next_page() { return pages_ + line_at(index_, last_ + 1) * page_bytes; }
  std::byte* my_next_slot(std::size_t span) { return my_slot(last_ + 1, span); }
  // Everything that this member wrote is there for who sees it.
  void publish(std::uint32_t call_tag) {
    ++last_;
    lines_[line_at(index_, last_)].word.store(std::uint64_t{last_} << 32U | call_tag, std::memory_order_release);
    if (header().asleep.load(std::memory_order_relaxed) > 0) wake();
  }

  // In a step in which one combines for all: this member has published it. Whether it is the last to do so, which
  // everybody then waits for.
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
  Line& result(StepNumber step) const { return gathering(step).result; }
  // Who combines in this step; none yet: -1.
  int leader(StepNumber step) const {
    const std::uint64_t word = gathering(step).leader.load(std::memory_order_relaxed);
    return static_cast<StepNumber>(word >> 32U) == step ? static_cast<int>(word & 0xffffffffU) : -1;
  }
  void publish_result(std::uint32_t call_tag) {
    result(last_).word.store(std::uint64_t{last_} << 32U | call_tag, std::memory_order_release);
    if (header().asleep.load(std::memory_order_relaxed) > 0) wake();
  }
  bool has_result(StepNumber step, std::uint32_t call_tag) const {
    return gathering(step).result.word.load(std::memory_order_acquire) == (std::uint64_t{step} << 32U | call_tag);
  }
  std::byte* my_slot(StepNumber step, std::size_t span) { return slot_at(index_, step) + moved(step, span); }

  // Whether the member has published the step in the same call.
  bool is_there(int member, StepNumber step, std::uint32_t call_tag) const {
    return line(member, step).word.load(std::memory_order_acquire) == (std::uint64_t{step} << 32U | call_tag);
  }
  // Whether the member has published the step in another call.
  bool is_in_another(int member, StepNumber step, std::uint32_t call_tag) const {
    const std::uint64_t word = line(member, step).word.load(std::memory_order_acquire);
    return word >> 32U == step && static_cast<std::uint32_t>(word) != call_tag;
  }
  // All others have been seen in this step.
  void all_reached(StepNumber step) { known_ = step; }
  const Line& line(int member, StepNumber step) const { return lines_[line_at(member, step)]; }
  const std::byte* page(int member, StepNumber step) const { return pages_ + line_at(member, step) * page_bytes; }
  // Steps that say the same span, bytes, take turns within the area: what a member writes then lies where the others
  // read long ago, and their caches have let go of it. Span 0: it stays.
  const std::byte* slot(int member, StepNumber step, std::size_t span) const {
    return slot_at(member, step) + moved(step, span);
  }

  // Whether there is any memory that could be reached without a slot. The same on all members. Those whom this one's
  // members were split from may take some at any time.
  AddressQueries address_queries() const {
    if (one_process_ || symmetric_registry_.own().added() > 0 || symmetric_registry_.has_inherited())
      return AddressQueries::all;
    return symmetric_registry_.is_split() ? AddressQueries::large : AddressQueries::none;
  }
  const Tuning& tuning() const { return tuning_; }
  void set_tuning(const Tuning& tuning) { tuning_ = tuning; }
  WriteStrategy& write_strategy() { return write_strategy_; }
  bool is_one_process() const { return one_process_; }
  // Whether members can read each other's memory wherever it lies, though it is another process's. The same on all.
  const ProcessMemoryReader& memory_reader() const { return memory_reader_; }
  void set_memory_reader(ProcessMemoryReader reader) { memory_reader_ = std::move(reader); }
  // Those of several processes that all members see; nothing: there is none.
  Gpus* gpus() const { return gpus_.get(); }
  void set_gpus(std::unique_ptr<Gpus> gpus) { gpus_ = std::move(gpus); }
  // What members do here is on the host's data only.
  bool is_of_host() const { return is_of_host_; }
  void keep_to_host() {
    is_of_host_ = true;
    gpus_ = nullptr;
  }
  // Where there is a GPU. This member's own.
  GpuEvents& events();
  // Others may wait for them, until this member came behind theirs or all do without.
  void show_events(bool are_shown) { are_shown_ = are_shown; }
  // It has put behind the others' events of its last step what is to wait for them.
  void came_behind();
  // It has begun something on a GPU in the others' memory, and reaches there until that is done.
  void reaches_on_gpu() { is_on_gpu_ = true; }
  // Whether something of that is under way. Throws what failed.
  bool is_working() {
    is_on_gpu_ = is_on_gpu_ && (events_ == nullptr || events_->is_working());  // kept ones may be for ever
    return is_on_gpu_;
  }
  // What this member has on GPUs outlives it, because something may still use it.
  void keep_on_gpus();
  // `is_readable`: it may be read in this process by others.
  BufferAddress place_of(const void* data, std::size_t bytes, bool is_readable);
  std::byte* reach(int member, const BufferAddress& place, const GenerationCounts& known_to_all) const;
  // In which this member's data come from a GPU's memory into this memory, and go from here to it.
  gpu::CopyStreams& ways() { return ways_; }
  // For that: pins this memory once, if the system lets it.
  void pin();
  // All that copies under way may touch of it, and the streams: held, it stays.
  std::vector<std::shared_ptr<const void>> for_copies() const;
  SymmetricRegistry& symmetric_registry() { return symmetric_registry_; }
  const SymmetricRegistry& symmetric_registry() const { return symmetric_registry_; }

  // Before and after this member touches the others' buffers. False: one of them has given up, and may use its memory
  // for something else.
  bool begin_reaching();
  void end_reaching() noexcept;
  // Another one that has given up waits for what this one has on a GPU. To be asked again and again, whatever this
  // member does: a call in a stream is over for it long before what it has begun there.
  void end_if_given_up() {
    if (is_on_gpu_ && somebody_gave_up()) end_reaching();
  }
  bool somebody_gave_up() const { return header().given_up.load(std::memory_order_relaxed) != 0; }
  // After a failure: nobody begins to reach any more. False: somebody who has begun did not end within a second.
  bool abandon();

  // Sleeps until something is published, at most for so long; may return early, and late if it was published at the
  // very same time.
  void sleep(std::int64_t nanoseconds);
  // Where what is missing comes from a GPU, which wakes nobody, the next sleep is short.
  void look_again_soon() { looks_soon_ = true; }

 private:
  struct alignas(line_size) RoomHeader {
    std::atomic<std::uint32_t> asleep;  // members
    std::atomic<std::uint32_t> rings;   // changes when somebody wakes them
    std::atomic<std::uint32_t> given_up;
  };
  // Of one of the steps in the ring.
  struct StepArrivals {
    alignas(line_size) std::atomic<std::uint32_t> arrived;  // members
    std::atomic<std::uint64_t> leader;                      // the step above, who combines in it below
    Line result;
  };
  struct alignas(line_size) RoomMemberHeader {
    std::atomic<std::uint32_t> busy;    // with the memory of others
    std::atomic<std::uint32_t> behind;  // the events of which step
    std::atomic<std::uint32_t> left;    // and will wait for nothing any more
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
  // What all others must have published before the next step is written.
  StepNumber needed(StepStorage holder) const {
    return last_ + 1 - ((holder == StepStorage::slot ? slot_ring : line_ring) - in_use);
  }
  bool has_published(int member, StepNumber step) const {
    const auto word = line(member, step).word.load(std::memory_order_acquire);
    return reaches(static_cast<StepNumber>(word >> 32U), step);
  }
  // All meet in a step in which one combines, so four of them are as good as a ring of any length.
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
  StepNumber known_ = 0;  // all others have published at least this one
  SymmetricRegistry symmetric_registry_;
  ProcessMemoryReader memory_reader_;
  std::unique_ptr<Gpus> gpus_;
  bool is_of_host_ = false;
  std::shared_ptr<const void> pin_;
  bool has_tried_to_pin_ = false;
  gpu::CopyStreams ways_;
  std::unique_ptr<GpuEvents> events_;
  StepNumber ordered_ = 0;  // the last step with events; counts where there is one
  bool has_ordered_ = false;
  bool are_shown_ = false;
  bool is_on_gpu_ = false;
  bool looks_soon_ = false;
  Tuning tuning_;
  WriteStrategy write_strategy_;
};

}  // namespace lockstep::node
