// SPDX-License-Identifier: Apache-2.0
// Makes the status file of this process, and manages its entries.
#include "collectives/engine/status_file.hpp"

#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <mutex>
#include <utility>

namespace lockstep::status {
namespace {

// Holds the status file until the process exits, since a reader may come late. A forked child has none: it would write
// to its parent's file.
struct ProcessStatusFile {
  std::mutex mutex;
  StatusFile* status_file = nullptr;
  int file = -1;
  bool is_tried = false;
};

ProcessStatusFile& own() {
  static ProcessStatusFile* const one =
      new ProcessStatusFile;  // never destroyed, since communicators may end after statics
  return *one;
}

// Returns false if RLIMIT_FSIZE is too small for the file. Making a longer file would end the process.
bool may_be_made() {
  rlimit longest{};
  return ::getrlimit(RLIMIT_FSIZE, &longest) == 0 && longest.rlim_cur >= sizeof(StatusFile);
}

// Makes the file at the first communicator. The magic number is written last, since readers look for it.
void make(ProcessStatusFile& mine) noexcept {
  if (!may_be_made()) return;
  const int file = ::memfd_create(file_name.data(), MFD_CLOEXEC);
  if (file < 0) return;
  void* memory = MAP_FAILED;
  if (::ftruncate(file, sizeof(StatusFile)) == 0)
    memory = ::mmap(nullptr, sizeof(StatusFile), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (memory == MAP_FAILED) {
    ::close(file);
    return;
  }
  mine.file = file;
  mine.status_file = static_cast<StatusFile*>(memory);  // its zeros are the initial values of all fields
  mine.status_file->layout = layout;
  mine.status_file->process = ::getpid();
  mine.status_file->magic = magic;
}

// Returns null in a forked child, which shares the memory of its parent's file.
StatusFile* status_file_of_this_process(const ProcessStatusFile& mine) noexcept {
  return mine.status_file != nullptr && mine.status_file->process == ::getpid() ? mine.status_file : nullptr;
}

void set_state(const CommunicatorStatus* status, CommunicatorState state) noexcept {
  ProcessStatusFile& mine = own();
  const std::lock_guard lock(mine.mutex);
  StatusFile* const status_file = status_file_of_this_process(mine);
  if (status == nullptr || status_file == nullptr) return;
  const auto which = static_cast<std::size_t>(status - status_file->statuses.data());
  status_file->headers[which].state.store(state, std::memory_order_release);
}

}  // namespace

void CommunicatorStatus::write_source(CallEntry& call, const char* source) {
  call.source = source;
  const std::string_view whole = source;
  const std::size_t most = call.file.size() - 1;
  const std::string_view end = whole.substr(whole.size() - std::min(whole.size(), most));
  std::copy(end.begin(), end.end(), call.file.begin());
  call.file[end.size()] = '\0';
}

// Takes a free entry and clears it. Readers ignore it until its state is `open`.
CommunicatorStatus* claim_status(std::string_view name, int rank, int size, std::uint64_t id) noexcept {
  ProcessStatusFile& mine = own();
  const std::lock_guard lock(mine.mutex);
  if (!std::exchange(mine.is_tried, true)) make(mine);
  StatusFile* const status_file = status_file_of_this_process(mine);
  if (status_file == nullptr) return nullptr;
  const int order = status_file->made.fetch_add(1, std::memory_order_relaxed);
  for (std::size_t i = 0; i < most_statuses; ++i) {
    CommunicatorHeader& header = status_file->headers[i];
    if (header.state.load(std::memory_order_relaxed) != CommunicatorState::unused) continue;
    CommunicatorStatus& status = status_file->statuses[i];
    status.name.write(name);
    status.started.store(0, std::memory_order_relaxed);
    status.finished.store(0, std::memory_order_relaxed);
    status.messages.store(0, std::memory_order_relaxed);
    status.wait_no_more();
    status.waits.write({});
    status.failure.write({});
    status.requests.store(0, std::memory_order_relaxed);
    status.requests_served.store(0, std::memory_order_relaxed);
    for (CallEntry& call : status.calls) {
      call.number.store(0, std::memory_order_relaxed);
      call.source = nullptr;
    }
    header.rank = rank;
    header.size = size;
    header.order = order;
    header.id.store(id, std::memory_order_relaxed);
    header.state.store(CommunicatorState::open, std::memory_order_release);
    return &status;
  }
  return nullptr;
}

void give_back(const CommunicatorStatus* status) noexcept { set_state(status, CommunicatorState::unused); }

void mark_failed(const CommunicatorStatus* status) noexcept { set_state(status, CommunicatorState::failed); }

std::optional<std::size_t> number_of(const CommunicatorStatus* status) noexcept {
  ProcessStatusFile& mine = own();
  const std::lock_guard lock(mine.mutex);
  const StatusFile* const status_file = status_file_of_this_process(mine);
  if (status == nullptr || status_file == nullptr) return std::nullopt;
  return static_cast<std::size_t>(status - status_file->statuses.data());
}

int file_of_this_process() noexcept {
  ProcessStatusFile& mine = own();
  const std::lock_guard lock(mine.mutex);
  return status_file_of_this_process(mine) != nullptr ? mine.file : -1;
}

}  // namespace lockstep::status
