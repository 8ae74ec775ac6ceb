// SPDX-License-Identifier: Apache-2.0
// Publishes the state of this process's communicators for other processes of the same user. It is a file in memory that
// has no name except in /proc. It stays readable while the process computes, waits, or is stopped, and costs a few
// stores in each call. `lockstep stat` reads it, and a dump of it is written if a communicator fails. Other processes
// write only `requests`.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>

#include "collectives/node/call.hpp"
#include "collectives/plan.hpp"
#include "topology/base/text.hpp"

namespace lockstep::status {

// Identify the file. `layout` changes with every change of the structures below.
inline constexpr std::string_view file_name = "lockstep-status";
inline constexpr std::uint64_t magic = 0x4b4f4f424c4b534c;
inline constexpr std::uint32_t layout = 4;
// Bound the communicators in the file, and the calls kept of each; both are guesses.
inline constexpr std::size_t most_statuses = 64;
inline constexpr std::size_t calls_kept = 64;

// Holds a zero-terminated text of at most `bytes` bytes. One thread writes it while others read. A reader has a whole
// text if `version` is even, and the same before and after.
template <std::size_t bytes>
struct TextField {
  std::atomic<std::uint32_t> version;
  std::array<char, bytes> text;

  void write(std::string_view words) {
    version.fetch_add(1, std::memory_order_acq_rel);
    const std::size_t count = std::min(words.size(), bytes - 1);
    std::copy_n(words.begin(), count, text.begin());
    text[count] = '\0';
    version.fetch_add(1, std::memory_order_release);
  }
};

// Describes a call. It lies at its number modulo `calls_kept`.
struct CallEntry {
  // Is 0 while the other fields are written.
  std::atomic<std::uint64_t> number;
  Signature signature;
  // Holds the address of the file's name in the writing process.
  const char* source;
  std::int32_t line;
  std::array<char, 60> file;
};

// Tells if an entry is in use, and if its communicator has failed.
enum class CommunicatorState : std::uint32_t { unused, open, failed };

// Holds the fields of one communicator that readers look at first.
struct CommunicatorHeader {
  std::atomic<CommunicatorState> state;
  std::int32_t rank;
  std::int32_t size;
  // Counts the communicators that the process made before this one.
  std::int32_t order;
  // Identifies the communicator: the same on all members, and unique. 0 means none.
  std::atomic<std::uint64_t> id;
};

// Holds the state of one communicator. The engine writes it, and other processes of the same user read it.
struct CommunicatorStatus {
  TextField<64> name;
  // Gives the number of the last collective call started.
  std::atomic<std::uint64_t> started;
  // Gives the number up to which all calls are finished.
  std::atomic<std::uint64_t> finished;
  // Counts the messages (sends and receives) started.
  std::atomic<std::uint64_t> messages;
  // Gives the monotonic time since which the member waits; 0 means that it is in no long wait.
  std::atomic<std::int64_t> waits_since_ns;
  // Describe the present wait, and the failure with its code.
  TextField<240> waits;
  TextField<640> failure;
  // Counts the requests of readers to ask all members for their state.
  std::atomic<std::uint64_t> requests;
  // Equals `requests` as of the last time that this process asked them.
  std::atomic<std::uint64_t> requests_served;
  std::array<CallEntry, calls_kept> calls;

  // Publishes the start of a call. If `is_same` is true, the entry already holds this call, except for its origin.
  void begin(std::uint64_t number, const Signature& signature, const Origin& origin, bool is_same) {
    CallEntry& call = calls[number % calls_kept];
    call.number.store(0, std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_release);
    if (!is_same) call.signature = signature;
    call.line = origin.line;
    if (call.source != origin.file) [[unlikely]]
      write_source(call, origin.file);
    call.number.store(number, std::memory_order_release);
    started.store(number, std::memory_order_relaxed);
  }
  // Publishes that all calls up to this number are finished.
  void finish(std::uint64_t number) { finished.store(number, std::memory_order_relaxed); }
  // Returns true if a reader's request has not been served.
  bool is_requested() const {
    return requests.load(std::memory_order_relaxed) != requests_served.load(std::memory_order_relaxed);
  }
  // Publishes that the member does not wait any more.
  void wait_no_more() { waits_since_ns.store(0, std::memory_order_relaxed); }

 private:
  static void write_source(CallEntry& call, const char* source);
};

// Defines the layout of the file.
struct StatusFile {
  std::uint64_t magic;
  std::uint32_t layout;
  std::int32_t process;
  // Counts the communicators made since the process began.
  std::atomic<std::int32_t> made;
  std::array<CommunicatorHeader, most_statuses> headers;
  std::array<CommunicatorStatus, most_statuses> statuses;
};

static_assert(std::is_standard_layout_v<StatusFile> && std::atomic<std::uint64_t>::is_always_lock_free);

// Takes an entry of the status file for a communicator of this process. Makes the file at the first call. Returns null
// if no entry is left, or if the system does not provide such a file. The file owns the entry.
CommunicatorStatus* claim_status(std::string_view name, int rank, int size, std::uint64_t id = 0) noexcept;
// Frees the entry, or marks its communicator as failed. Both do nothing for null.
void give_back(const CommunicatorStatus* status) noexcept;
void mark_failed(const CommunicatorStatus* status) noexcept;
// Returns the entry's index in the file of this process. Returns nothing for null, and for an entry of the parent in a
// forked child.
std::optional<std::size_t> number_of(const CommunicatorStatus* status) noexcept;

// Returns the descriptor of this process's status file, which the file owns and which is valid until the process exits.
// Returns -1 if there is no file.
int file_of_this_process() noexcept;

}  // namespace lockstep::status
