// SPDX-License-Identifier: Apache-2.0
// Holds the rare paths of a room: its layout, events of GPUs, failure and sleep.
#include "collectives/node/room.hpp"

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <climits>
#include <new>
#include <utility>

#include "topology/base/error.hpp"
#include "topology/base/keep.hpp"

namespace lockstep::node {
namespace {

constexpr std::size_t page = 4096;

// Waits for a word of memory to change, or wakes those that wait. Several processes may share the word.
long futex(std::atomic<std::uint32_t>& word, int what, std::uint32_t value, const timespec* limit) {
  return ::syscall(SYS_futex, &word, what, value, limit, nullptr, 0);
}

}  // namespace

// Slots lie an odd number of lines apart, so that equal places in them use different places of a cache.
Layout::Layout(int members) {
  constexpr std::size_t most = 256U << 10U;
  constexpr std::size_t least = 16U << 10U;
  constexpr std::size_t in_all = 64U << 20U;
  constexpr std::size_t turns = 4;  // more data than the caches of a core hold
  const auto n = static_cast<std::size_t>(members);
  slot = std::clamp(in_all / (n * slot_ring * turns), least, most) / page * page;
  area = turns * slot;
  stride = area + round_up(n * sizeof(std::uint64_t), 2 * line_size) + line_size;
  lines = sizeof(Room::RoomHeader) + slot_ring * sizeof(Room::StepArrivals) + n * sizeof(Room::RoomMemberHeader);
  pages = round_up(lines + n * line_ring * sizeof(Line), page);
  slots = pages + n * line_ring * page_bytes;
  bytes = round_up(slots + n * slot_ring * stride, page);
}

Room::Room(std::shared_ptr<std::byte> memory, int index, int size, bool one_process)
    : memory_(std::move(memory)),
      layout_(size),
      index_(index),
      size_(size),
      one_process_(one_process),
      lines_(reinterpret_cast<Line*>(memory_.get() + layout_.lines)),
      pages_(memory_.get() + layout_.pages),
      slots_(memory_.get() + layout_.slots),
      symmetric_registry_(index, size),
      tuning_(guessed_tuning(size)) {}

Room::~Room() {
  if (!is_on_gpu_) header_of(index_).busy.store(0, std::memory_order_release);
  if (events_ != nullptr) give_back_events();
  header_of(index_).left.store(1, std::memory_order_release);
}

// Returns the events for reuse. They are free once all members have queued their waits, have left, or have died.
void Room::give_back_events() noexcept {
  try {
    const auto is_done_with = [memory = memory_, reader = memory_reader_, me = index_, size = size_, step = ordered_,
                               could_be_behind = has_ordered_ && !are_shown_, are_known = has_ordered_ || are_shown_] {
      for (int member = 0; are_known && member < size; ++member) {
        const RoomMemberHeader& theirs = header_in(memory.get(), member);
        const bool is_behind = could_be_behind && reaches(theirs.behind.load(std::memory_order_acquire), step);
        if (member != me && !is_behind && theirs.left.load(std::memory_order_acquire) == 0 && !reader.is_gone(member))
          return false;
      }
      return true;
    };
    if (is_done_with())
      events_->give_back();
    else
      events_->give_back_when(is_done_with);
  } catch (const std::bad_alloc&) {
    return;  // no other member has them then
  }
}

GpuEvents& Room::events() {
  if (events_ == nullptr) {
    events_ = std::make_unique<GpuEvents>(*gpu::backend());
    if (gpus_) gpus_->use_with(*events_);
  }
  return *events_;
}

void Room::came_behind() {
  ordered_ = last_;
  has_ordered_ = true;
  are_shown_ = false;
  header_of(index_).behind.store(last_, std::memory_order_release);
}

// Releases work behind a dead member's events, which would wait for ever, as would calls that free the GPU's memory.
// The program is told of the death, so it does not use the data as a result.
void Room::let_go_of_dead() {
  if (gpus_ == nullptr) return;
  for (int member = 0; member < size_; ++member) {
    if (member != index_ && memory_reader_.is_gone(member)) gpus_->let_go_of(member);
  }
}

void Room::keep_on_gpus() {
  let_go_of_dead();
  keep_for_ever(std::shared_ptr<Gpus>(std::move(gpus_)));
  keep_for_ever(std::shared_ptr<GpuEvents>(std::move(events_)));
}

void Room::begin_at(StepNumber step) {
  for (StepNumber back = 0; back < line_ring; ++back)
    lines_[line_at(index_, step - back)].word.store(std::uint64_t{step} << 32U, std::memory_order_release);
  for (StepNumber back = 0; back < slot_ring; ++back) result(step - back).word.store(0, std::memory_order_release);
  last_ = known_ = step;
}

// Each look fetches a line from another core. So it asks first for more steps than needed; members that keep up have
// them.
bool Room::look_for_all(StepNumber step) {
  const auto all_have = [&](StepNumber published) {
    for (int member = 0; member < size_; ++member) {
      if (member != index_ && !has_published(member, published)) return false;
    }
    known_ = published;
    return true;
  };
  const StepNumber more = step + line_ring / 2;
  return (reaches(last_, more) && all_have(more)) || all_have(step);
}

BufferAddress Room::place_of(const void* data, std::size_t bytes, bool is_readable) {
  if (const BufferAddress place = symmetric_registry_.find(data, bytes); place.memory != 0) return place;
  const auto address = reinterpret_cast<std::uintptr_t>(data);
  if (one_process_) return {BufferAddress::threads, address};
  return is_readable && memory_reader_.could_be_read(data, bytes) ? BufferAddress{BufferAddress::other_process, address}
                                                                  : BufferAddress();
}

std::byte* Room::reach(int member, const BufferAddress& place, const GenerationCounts& known_to_all) const {
  if (place.memory == 0 || place.memory == BufferAddress::other_process || place.memory == BufferAddress::mapped)
    return nullptr;
  // NOLINTNEXTLINE(performance-no-int-to-ptr): an address of this process, told as a number
  if (place.memory == BufferAddress::threads) return reinterpret_cast<std::byte*>(place.offset);
  return symmetric_registry_.reach(member, place, known_to_all);
}

void Room::pin() {
  if (std::exchange(has_tried_to_pin_, true)) return;
  pin_ = gpu::backend()->pin(memory_, layout_.bytes);
}

std::vector<std::shared_ptr<const void>> Room::for_copies() const {
  std::vector<std::shared_ptr<const void>> all{memory_, pin_};
  for (const auto& stream : ways_.streams()) all.emplace_back(stream);
  return all;
}

// Both sides write before they look, so one of them sees the other.
bool Room::begin_reaching() {
  header_of(index_).busy.store(1, std::memory_order_seq_cst);
  if (header().given_up.load(std::memory_order_seq_cst) == 0) return true;
  end_reaching();
  return false;
}

void Room::end_reaching() noexcept {
  try {
    if (is_working()) return;
  } catch (const Error&) {
    is_on_gpu_ = false;  // nothing runs there any more
  }
  header_of(index_).busy.store(0, std::memory_order_release);
}

bool Room::abandon() {
  header().given_up.store(1, std::memory_order_seq_cst);
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(1);
  let_go_of_dead();  // also if only this member's streams wait for its events
  for (end_reaching(); is_on_gpu_ && std::chrono::steady_clock::now() < limit; end_reaching()) {
    let_go_of_dead();  // repeated: a dead process is gone only when the GPU has released its work
    ::usleep(100);
  }
  if (!is_on_gpu_) header_of(index_).busy.store(0, std::memory_order_release);
  for (int member = 0; member < size_; ++member) {
    while (header_of(member).busy.load(std::memory_order_seq_cst) != 0 && !memory_reader_.is_gone(member)) {
      if (std::chrono::steady_clock::now() > limit) return false;
      ::sched_yield();
    }
  }
  return true;
}

void Room::wake() {
  header().rings.fetch_add(1, std::memory_order_relaxed);
  futex(header().rings, FUTEX_WAKE, INT_MAX, nullptr);
}

void Room::sleep(std::int64_t nanoseconds) {
  constexpr std::int64_t soon = 50'000;
  if (std::exchange(looks_soon_, false)) nanoseconds = std::min(nanoseconds, soon);
  const std::uint32_t before = header().rings.load(std::memory_order_relaxed);
  header().asleep.fetch_add(1, std::memory_order_seq_cst);
  const timespec limit{nanoseconds / 1'000'000'000, nanoseconds % 1'000'000'000};
  futex(header().rings, FUTEX_WAIT, before, &limit);
  header().asleep.fetch_sub(1, std::memory_order_relaxed);
}

}  // namespace lockstep::node
