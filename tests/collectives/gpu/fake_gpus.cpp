// SPDX-License-Identifier: Apache-2.0
#include "tests/collectives/gpu/fake_gpus.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>
#include <chrono>
#include <thread>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "collectives/gpu/combining.hpp"
#include "collectives/gpu/packing.hpp"
#include "tests/collectives/gpu/fake_event.hpp"
#include "topology/base/error.hpp"
#include "topology/base/text.hpp"

namespace lockstep::test {
namespace {

constexpr int never = -1;
constexpr std::size_t threads = 7;  // of a launch
thread_local int copies_until_failure = never;
thread_local int copies_until_break = never;
thread_local bool pinning_fails = false;
thread_local bool pinning_is_refused = false;
thread_local int allocations_until_failure = never;
thread_local bool mapping_fails = false;
thread_local bool opening_fails = false;
thread_local std::vector<int> entered;
thread_local bool is_measuring = false;
thread_local double measured_us = 0;

std::size_t in_pages(std::size_t bytes) {
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  return (bytes + page - 1) / page * page;
}

// What processes tell each other.
struct Shared {
  pid_t process;
  int file;
  std::size_t bytes;
};

std::byte* map_file(int file, std::size_t bytes, int protection) {
  void* const memory = ::mmap(nullptr, bytes, protection, MAP_SHARED, file, 0);
  if (memory == MAP_FAILED) throw system_error(text("mapping ", bytes, " bytes"), errno, "");
  return static_cast<std::byte*>(memory);
}

}  // namespace

FakeGpus::~FakeGpus() {
  // A stream that was given up ends in a thread of its own, if ever.
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(1);
  while (made_streams_ > 0 && std::chrono::steady_clock::now() < limit) std::this_thread::yield();
  {
    const std::lock_guard lock(streams_mutex_);
    ordinary_.clear();
  }
  defaults_.clear();
  while (!blocks_.empty()) free(0, const_cast<std::byte*>(blocks_.begin()->first));
  for (const auto& [address, bytes] : freed_) ::munmap(const_cast<std::byte*>(address), bytes);
}

void FakeGpus::enter(int device) {
  if (device < 0 || device >= devices_) throw Error(Code::device, text("using GPU ", device, ": there is none"), "");
  entered.push_back(device);
}

void FakeGpus::leave() noexcept { entered.pop_back(); }

int FakeGpus::used() { return entered.empty() ? 0 : entered.back(); }

double FakeGpus::now_us() const { return measured_us; }

gpu::DeviceCosts FakeGpus::measure_costs(int device) {
  ++measurings_;
  if (measuring_fails_) throw Error(Code::device, text("measuring GPU ", device, ": it fell off the bus"), "");
  is_measuring = true;
  const gpu::DeviceCosts measured = DeviceBackend::measure_costs(device);
  is_measuring = false;
  return measured;
}

bool FakeGpus::is_measured(const gpu::LinearCost& cost, std::size_t bytes) {
  if (is_measuring) measured_us += static_cast<double>(cost.of(bytes)) / 1e3;
  return is_measuring;
}

void FakeGpus::fail_copy_after(int more) { copies_until_failure = more; }
void FakeGpus::break_copy_after(int more) { copies_until_break = more; }
void FakeGpus::refuse_to_pin(bool refuses) { pinning_is_refused = refuses; }

void FakeGpus::before_copies(std::function<void(Way, std::size_t)> hook) {
  const std::lock_guard lock(mutex_);
  before_copies_ = std::move(hook);
}

void FakeGpus::at(Moment moment, std::function<void()> hook) {
  const std::lock_guard lock(mutex_);
  at_moments_.at(static_cast<std::size_t>(moment)) = std::move(hook);
}

void FakeGpus::come_to(Moment moment) const {
  std::function<void()> hook;
  {
    const std::lock_guard lock(mutex_);
    hook = at_moments_.at(static_cast<std::size_t>(moment));
  }
  if (hook) hook();
}

void FakeGpus::fail_allocation_after(int more) { allocations_until_failure = more; }
void FakeGpus::fail_pinning(bool fails) { pinning_fails = fails; }
void FakeGpus::fail_mapping(bool fails) { mapping_fails = fails; }
void FakeGpus::fail_opening(bool fails) { opening_fails = fails; }

std::size_t FakeGpus::living() const {
  const std::lock_guard lock(mutex_);
  return blocks_.size();
}

gpu::MemoryLocation FakeGpus::where(const void* address) const {
  const std::lock_guard lock(mutex_);
  const auto* const at = static_cast<const std::byte*>(address);
  auto block = blocks_.upper_bound(at);
  if (block == blocks_.begin()) return {};
  --block;
  return at < block->first + in_pages(block->second.bytes) ? gpu::MemoryLocation{block->second.device}
                                                           : gpu::MemoryLocation{};
}

std::byte* FakeGpus::allocate(int device, std::size_t bytes) {
  if (!is_measuring && allocations_until_failure >= 0 && allocations_until_failure-- == 0)
    throw Error(Code::out_of_memory, text("allocating ", bytes, " bytes on GPU ", device, ": none left"), "use less");
  const std::size_t whole = in_pages(bytes);
  const int file = ::memfd_create("fake-gpu", MFD_CLOEXEC);
  if (file < 0 || ::ftruncate(file, static_cast<off_t>(whole)) != 0)
    throw system_error(text("taking ", whole, " bytes"), errno, "");
  static std::atomic<std::uint64_t> numbers = 0;
  std::byte* const memory = take(device, bytes, file, ++numbers);
  std::memset(inside(memory, bytes), 0xa5, whole);  // nobody may count on zeros
  return memory;
}

std::byte* FakeGpus::take(int device, std::size_t bytes, int file, std::uint64_t number) {
  std::byte* const outside = map_file(file, in_pages(bytes), PROT_NONE);
  std::byte* const inside = map_file(file, in_pages(bytes), PROT_READ | PROT_WRITE);
  const std::lock_guard lock(mutex_);
  blocks_[outside] = {device, bytes, inside, file, number};
  return outside;
}

// By the owner's own file, as long as it has it.
std::optional<gpu::IpcMemoryHandle> FakeGpus::show(const void* address) {
  come_to(Moment::showing);
  const std::lock_guard lock(mutex_);
  auto block = blocks_.upper_bound(static_cast<const std::byte*>(address));
  if (block == blocks_.begin()) return std::nullopt;
  --block;
  block->second.was_shown = true;
  gpu::IpcMemoryHandle shown{
      .number = block->second.number, .base = reinterpret_cast<std::uintptr_t>(block->first), .gone = gone_};
  const Shared shared{::getpid(), block->second.file, block->second.bytes};
  std::memcpy(shown.handle.data(), &shared, sizeof shared);
  return shown;
}

std::byte* FakeGpus::map(int device, const gpu::IpcMemoryHandle& theirs) {
  come_to(Moment::mapping);
  if (mapping_fails) throw Error(Code::device, text("mapping another process's memory on GPU ", device), "");
  Shared shared{};
  std::memcpy(&shared, theirs.handle.data(), sizeof shared);
  const std::string path = text("/proc/", shared.process, "/fd/", shared.file);
  const int file = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (file < 0) throw Error(Code::device, text("opening ", path, ": ", std::strerror(errno)), "");
  ++mappings_;
  return take(device, shared.bytes, file, 0);
}

void FakeGpus::free(int /*device*/, std::byte* memory) noexcept {
  ++frees_;
  const std::lock_guard lock(mutex_);
  const auto block = blocks_.find(memory);
  if (block->second.was_shown) {
    std::copy_backward(gone_.begin(), gone_.end() - 1, gone_.end());
    gone_.front() = block->second.number;
  }
  ::munmap(block->second.inside, in_pages(block->second.bytes));
  ::close(block->second.file);
  const std::size_t whole = in_pages(block->second.bytes);
  blocks_.erase(block);
  // Nothing is there, and nothing comes there before much else was freed.
  ::mmap(memory, whole, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
  freed_[memory] = whole;
  order_of_freeing_.push_back(memory);
  constexpr std::size_t most = 2000;
  if (order_of_freeing_.size() <= most) return;
  const auto oldest = freed_.find(order_of_freeing_.front());
  order_of_freeing_.pop_front();
  ::munmap(const_cast<std::byte*>(oldest->first), oldest->second);
  freed_.erase(oldest);
}

bool FakeGpus::is_freed(const void* address) const {
  auto freed = freed_.upper_bound(static_cast<const std::byte*>(address));
  if (freed == freed_.begin()) return false;
  --freed;
  return static_cast<const std::byte*>(address) < freed->first + freed->second;
}

// As CUDA does with a copy from or to an address that it does not know.
void FakeGpus::refuse_freed(int device, const void* address) const {
  const std::lock_guard lock(mutex_);
  if (is_freed(address))
    throw Error(Code::device, text("copying from or to GPU ", device, ": invalid argument (that memory was freed)"),
                "");
}

std::byte* FakeGpus::allocate_pinned(std::size_t bytes) {
  if (pinning_fails && !is_measuring)
    throw Error(Code::out_of_memory, text("pinning ", bytes, " bytes of host memory: none left"), "free some");
  if (!is_measuring) ++pinnings_;
  return static_cast<std::byte*>(::operator new(bytes));
}

void FakeGpus::free_pinned(std::byte* memory) noexcept { ::operator delete(memory); }

std::byte* FakeGpus::inside(const void* given, std::size_t bytes, int device) const {
  auto* const address = static_cast<std::byte*>(const_cast<void*>(given));
  const std::lock_guard lock(mutex_);
  auto block = blocks_.upper_bound(address);
  const bool is_here = block != blocks_.begin() && address < (--block)->first + in_pages(block->second.bytes);
  if (!is_here && is_freed(address)) throw Error(Code::device, "an illegal memory access: it was freed", "");
  if (device != gpu::MemoryLocation::host && (!is_here || block->second.device != device))
    throw Error(Code::internal, text("an address that is not in GPU ", device, "'s memory"), "");
  if (!is_here) return address;
  const auto at = static_cast<std::size_t>(address - block->first);
  if (at + bytes > block->second.bytes)
    throw Error(Code::internal, text("a copy of ", bytes, " bytes at ", at, " of ", block->second.bytes), "");
  return block->second.inside + at;
}

void FakeGpus::fail_if_told(int device) {
  if (copies_until_failure >= 0 && copies_until_failure-- == 0)
    throw Error(Code::device, text("copying from or to GPU ", device, ": it fell off the bus"), "look for it");
}

void FakeGpus::pack(int device, const gpu::PackArguments& all, bool packs) {
  fail_if_told(device);
  ++launches_;
  wait_for_default(device);
  pack_now(device, all, packs);
}

void FakeGpus::pack_now(int device, const gpu::PackArguments& all, bool packs) const {
  gpu::PackArguments here = all;
  for (int i = 0; i < all.count; ++i) here.pieces[i] = inside(all.pieces[i], gpu::bytes_of_piece(all, i), device);
  here.whole = inside(all.whole, all.begins[all.count]);
  const bool known = gpu::with_copier(here, packs, [&]<class Copier>(Copier) {
    for (std::size_t thread = threads; thread-- > 0;) gpu::pack_thread<Copier>(here, packs, thread, threads);
  });
  if (!known) throw Error(Code::device, "packing what becomes another type, between which there is no way");
}

void FakeGpus::combine(int device, DataType type, const gpu::CombineArguments& all) {
  const auto parts = static_cast<std::size_t>(all.input_count) + static_cast<std::size_t>(all.output_count);
  if (is_measured(taken_.launch, parts * all.count * size_of(type))) return combine_now(device, type, all);
  fail_if_told(device);
  ++launches_;
  wait_for_default(device);
  combine_now(device, type, all);
}

void FakeGpus::combine_now(int device, DataType type, const gpu::CombineArguments& all) const {
  gpu::CombineArguments here = all;
  const std::size_t bytes = all.count * size_of(type);
  for (int i = 0; i < all.input_count; ++i) here.inputs[i] = inside(all.inputs[i], bytes, device);
  for (int i = 0; i < all.output_count; ++i) here.outputs[i] = inside(all.outputs[i], bytes, device);
  gpu::with_format(type, [&]<class F>(F) {
    for (std::size_t thread = threads; thread-- > 0;) {
      if (thread == threads / 2) come_to(Moment::combining);
      gpu::combine_thread<F>(here, thread, threads);
    }
  });
}

std::string FakeGpus::id(int device) const { return text("GPU ", device, " of the tests"); }

std::unique_ptr<gpu::DeviceEvent> FakeGpus::open(int device, const gpu::IpcEventHandle& theirs) {
  come_to(Moment::opening);
  if (opening_fails) throw Error(Code::device, text("opening another process's event on GPU ", device), "");
  ++events_;
  return std::make_unique<FakeEvent>(theirs);
}

void FakeGpus::begin_copy(int device, std::byte* to, const std::byte* from, std::size_t bytes, gpu::Stream stream) {
  fail_if_told(device);
  refuse_freed(device, to);
  refuse_freed(device, from);
  ++copies_;
  const bool breaks = copies_until_break >= 0 && copies_until_break-- == 0;
  put(device, stream, [this, to, from, bytes, breaks] {
    if (breaks) throw Error(Code::device, "a copy that was under way: it fell off the bus", "look for it");
    copy_now(to, from, bytes);
  });
}

void FakeGpus::copy_now(std::byte* to, const std::byte* from, std::size_t bytes) const {
  std::function<void(Way, std::size_t)> hook;
  {
    const std::lock_guard lock(mutex_);
    hook = before_copies_;
  }
  if (hook) hook(!where(from).on_device() ? Way::up : where(to).on_device() ? Way::within : Way::down, bytes);
  std::memcpy(inside(to, bytes), inside(from, bytes), bytes);
}

// Nobody else has it, as in CUDA.
bool FakeGpus::begin_pinning(std::byte* memory, std::size_t bytes) noexcept {
  if (pinning_is_refused || memory == nullptr || bytes == 0) return false;
  ++pinned_places_;
  return true;
}

void FakeGpus::end_pinning(std::byte* /*memory*/) noexcept { --pinned_places_; }

void FakeGpus::begin_combine(int device, DataType type, const gpu::CombineArguments& all, gpu::Stream stream) {
  fail_if_told(device);
  ++launches_;
  put(device, stream, [=, this] { combine_now(device, type, all); });
}

void FakeGpus::begin_pack(int device, const gpu::PackArguments& all, bool packs, gpu::Stream stream) {
  fail_if_told(device);
  ++launches_;
  put(device, stream, [=, this] { pack_now(device, all, packs); });
}

void FakeGpus::begin_own(int device, const std::function<void()>& own) {
  fail_if_told(device);
  ++launches_;
  const gpu::DeviceGuard now(device);
  own();
}

void FakeGpus::copy(int device, gpu::StridedRuns to, gpu::StridedRuns from, std::size_t bytes, std::size_t blocks) {
  const bool is_up = where(to.first).on_device();
  const bool is_down = where(from.first).on_device();
  if (!is_measured(is_up && is_down ? taken_.copy : (is_up ? taken_.up : taken_.down), bytes * blocks)) {
    fail_if_told(device);
    ++copies_;
    wait_for_default(device);
  }
  for (std::size_t block = 0; block < blocks; ++block) {
    std::memcpy(inside(to.first + block * to.stride, bytes), inside(from.first + block * from.stride, bytes), bytes);
  }
}

}  // namespace lockstep::test
