// SPDX-License-Identifier: Apache-2.0
// Records and awaits shared events by the driver's operations on words of memory, which streams carry out.
#include "collectives/gpu/cuda_shared_event.hpp"

#include <algorithm>
#include <cstddef>
#include <cstring>

namespace lockstep::gpu {
namespace {

// True if a number that wraps around has reached another one; GPUs compare alike.
bool has_come_to(std::uint32_t reached, std::uint32_t wanted) {
  return static_cast<std::int32_t>(reached - wanted) >= 0;
}

CUdeviceptr word_at(CUdeviceptr line, std::uint32_t reader) {
  return line + offsetof(EventFlags, reached) + reader * sizeof(std::uint32_t);
}

}  // namespace

EventFlagPage::EventFlagPage(SharedMemory memory) : memory_(std::move(memory)) {
  std::byte* const host = memory_.memory().get();
  void* there = nullptr;
  check(cudaHostRegister(host, bytes, cudaHostRegisterPortable | cudaHostRegisterMapped),
        "showing GPUs the words that processes share");
  check(cudaHostGetDevicePointer(&there, host, 0), "finding the words that processes share on a GPU");
  on_gpu_ = reinterpret_cast<CUdeviceptr>(there);
}

EventFlags& EventFlagPage::flags(std::size_t line) const {
  return reinterpret_cast<EventFlags*>(memory_.memory().get())[line];  // zeros, which are valid words
}

CudaSharedEvent::CudaSharedEvent(int device, std::shared_ptr<const EventFlagPage> page, std::size_t line,
                                 std::uint32_t reader, IpcEventHandle shown)
    : CudaMark(device),
      page_(std::move(page)),
      flags_(page_->flags(line)),
      on_gpu_(page_->on_gpu(line)),
      reader_(reader),
      shown_(shown),
      health_(device, cudaEventDisableTiming) {}

bool CudaSharedEvent::is_reached() {
  if (has_come_to(flags_.reached[reader_].load(std::memory_order_acquire), recorded())) return true;
  health_.is_reached();
  return false;
}

// Writes two words at a time. The stream's earlier work is visible to all when they are written.
void CudaSharedEvent::record(Stream stream) {
  const CurrentContext on(device());
  const std::uint32_t number = recorded() + 1;
  std::array<CUstreamBatchMemOpParams, EventFlags::readers / 2> all{};
  for (std::uint32_t i = 0; i < all.size(); ++i) {
    auto& write = all[i].writeValue;
    write.operation = CU_STREAM_MEM_OP_WRITE_VALUE_64;
    write.address = word_at(on_gpu_, 2 * i);
    write.value64 = std::uint64_t{number} << 32U | number;
    write.flags = CU_STREAM_WRITE_VALUE_DEFAULT;
  }
  check(driver()->batch(static_cast<CUstream>(stream), all.size(), all.data(), 0),
        text("recording an event in a stream of GPU ", device()));
  flags_.recorded.store(number, std::memory_order_release);
  is_now_in(stream);
}

void CudaSharedEvent::come_before(int device, Stream stream) const {
  const std::uint32_t number = recorded();
  if (has_come_to(flags_.reached[reader_].load(std::memory_order_acquire), number)) return;
  check(driver()->wait(static_cast<CUstream>(stream), word_at(on_gpu_, reader_), number, CU_STREAM_WAIT_VALUE_GEQ),
        text("putting one stream of GPU ", device, " behind another process's"));
}

void CudaSharedEvent::release_waits() { flags_.reached[reader_].store(recorded(), std::memory_order_release); }

std::unique_ptr<DeviceEvent> SharedEventPool::make(int device) {
  const CurrentContext on(device);
  const std::lock_guard lock(mutex_);
  if (own_ == nullptr || next_line_ == EventFlagPage::lines) {
    own_ = std::make_shared<const EventFlagPage>(SharedMemory::make(EventFlagPage::bytes, true));
    next_line_ = 0;
  }
  const std::string ticket = own_->ticket();
  EventFlagAddress address{{}, static_cast<std::uint32_t>(next_line_)};
  if (ticket.size() >= address.ticket.size())
    throw Error(Code::internal, text("\"", ticket, "\" is too long for a shared event"));
  std::ranges::copy(ticket, address.ticket.begin());
  IpcEventHandle shown{.number = ++made_};
  static_assert(sizeof address <= sizeof shown.handle);
  std::memcpy(shown.handle.data(), &address, sizeof address);
  return std::make_unique<CudaSharedEvent>(device, own_, next_line_++, 0, shown);
}

void SharedEventPool::forget() {
  const std::lock_guard lock(mutex_);
  for (auto& [ticket, page] : theirs_) forgotten_.push_back(std::move(page));
  if (own_ != nullptr) forgotten_.push_back(std::move(own_));
  theirs_.clear();
}

std::unique_ptr<DeviceEvent> SharedEventPool::open(int device, const IpcEventHandle& theirs) {
  EventFlagAddress address{};
  std::memcpy(&address, theirs.handle.data(), sizeof address);
  if (address.line >= EventFlagPage::lines || address.ticket.back() != 0)
    throw Error(Code::bad_message, "a malformed description of a shared event from another process");
  const std::string ticket = address.ticket.data();
  const CurrentContext on(device);
  const std::lock_guard lock(mutex_);
  std::shared_ptr<const EventFlagPage>& page = theirs_[ticket];
  if (page == nullptr) page = std::make_shared<const EventFlagPage>(SharedMemory::open(ticket, EventFlagPage::bytes));
  const auto [known, is_new] = readers_.try_emplace({ticket, address.line}, 0);
  if (is_new) known->second = 1 + page->flags(address.line).taken.fetch_add(1);
  if (known->second >= EventFlags::readers)
    throw Error(Code::device, text("more than ", EventFlags::readers, " processes on GPU ", device, " share an event"));
  return std::make_unique<CudaSharedEvent>(device, page, address.line, known->second, theirs);
}

}  // namespace lockstep::gpu
