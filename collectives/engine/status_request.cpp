// SPDX-License-Identifier: Apache-2.0
// Writes requests into another process's status file, at positions that follow from its layout.
#include "collectives/engine/status_request.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <new>
#include <optional>
#include <span>
#include <utility>

#include "collectives/engine/status_file.hpp"
#include "collectives/engine/status_members.hpp"
#include "topology/base/proc.hpp"
#include "topology/base/text.hpp"

namespace lockstep::status {
namespace {

static_assert(sizeof(std::atomic<std::uint64_t>) == sizeof(std::uint64_t));
static_assert(sizeof(std::atomic<CommunicatorState>) == sizeof(CommunicatorState));

// Returns the value at a position of the file; nothing if it is too short.
template <class Value>
std::optional<Value> value_at(int file, std::size_t begin) noexcept {
  Value value{};
  if (::pread(file, &value, sizeof value, static_cast<off_t>(begin)) != sizeof value) return std::nullopt;
  return value;
}

// Returns the position of the communicator's entry; nothing if it has none. The file may hold anything, so it is
// checked.
std::optional<std::size_t> find_status(int file, int process, int order) noexcept {
  if (value_at<std::uint64_t>(file, offsetof(StatusFile, magic)) != magic) return std::nullopt;
  if (value_at<std::uint32_t>(file, offsetof(StatusFile, layout)) != layout) return std::nullopt;
  if (value_at<std::int32_t>(file, offsetof(StatusFile, process)) != process) return std::nullopt;
  for (std::size_t i = 0; i < most_statuses; ++i) {
    const std::size_t header = offsetof(StatusFile, headers) + i * sizeof(CommunicatorHeader);
    if (value_at<CommunicatorState>(file, header + offsetof(CommunicatorHeader, state)) == CommunicatorState::open &&
        value_at<std::int32_t>(file, header + offsetof(CommunicatorHeader, order)) == order)
      return offsetof(StatusFile, statuses) + i * sizeof(CommunicatorStatus);
  }
  return std::nullopt;
}

// Opens the process's status file for writing; returns an empty descriptor if that fails.
OwnedDescriptor open_status_file(int process) {
  const OwnedDescriptor found(find_memory_file(process, file_name).descriptor);
  return found ? OwnedDescriptor(open_memory_file(text("/proc/self/fd/", found.get()), O_RDWR)) : OwnedDescriptor();
}

}  // namespace

StatusRequester::StatusRequester(int process, int order) noexcept {
  try {
    OwnedDescriptor file = open_status_file(process);
    const auto status = file ? find_status(file.get(), process, order) : std::nullopt;
    if (!status) return;
    status_begin_ = *status;
    file_ = std::move(file);
  } catch (const std::bad_alloc&) {  // without memory, this object requests nothing
  }
}

// One round of questions serves all readers: those that write the same number, and those that find a request there.
void StatusRequester::request() noexcept {
  const auto requests = value_at<std::uint64_t>(file_.get(), status_begin_ + offsetof(CommunicatorStatus, requests));
  const auto served =
      value_at<std::uint64_t>(file_.get(), status_begin_ + offsetof(CommunicatorStatus, requests_served));
  if (!requests || !served) return;
  const std::uint64_t request = *served + 1;
  if (*requests != *served || write_at(file_.get(), status_begin_ + offsetof(CommunicatorStatus, requests),
                                       std::as_bytes(std::span(&request, 1))))
    before_ = *served;
}

bool StatusRequester::is_served() const noexcept {
  const auto served =
      value_at<std::uint64_t>(file_.get(), status_begin_ + offsetof(CommunicatorStatus, requests_served));
  return before_ && served && *served != *before_;
}

}  // namespace lockstep::status
