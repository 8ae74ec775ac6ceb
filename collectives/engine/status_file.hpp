// SPDX-License-Identifier: Apache-2.0
// What the communicators of this process do, where others can read it: a file in memory that has no name but in /proc,
// for processes of the same user. It is there while the process computes, waits, or is stopped, and costs a few stores
// in each call. `lockstep stat` reads it, and what is left of it where a communicator fails.
// Other processes write `requests` alone.
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

inline constexpr std::string_view file_name = "lockstep-book";
inline constexpr std::uint64_t magic = 0x4b4f4f424c4b534c;
inline constexpr std::uint32_t layout = 4;  // another number for another layout
inline constexpr std::size_t most_statuses = 64;
inline constexpr std::size_t calls_kept = 64;

// Holds a text with a zero behind it, in at most `bytes` bytes. One thread writes it while others read. What they read
// is whole if `version` is even, and the same before and after.
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

// A call, at its number's place among those that are kept.
struct CallEntry {
  std::atomic<std::uint64_t> number;  // 0 while the rest is written
  Signature signature;
  const char* source;  // where its file's name lies in the process
  std::int32_t line;
  std::array<char, 60> file;
};

enum class CommunicatorState : std::uint32_t { unused, open, failed };

// Of one communicator: what is looked at first.
struct CommunicatorHeader {
  std::atomic<CommunicatorState> state;
  std::int32_t rank;
  std::int32_t size;
  std::int32_t order;             // how many the process had made before it
  std::atomic<std::uint64_t> id;  // that all its members have, and no other communicator; 0: none
};

struct CommunicatorStatus {
  TextField<64> name;
  std::atomic<std::uint64_t> started;        // the last collective call
  std::atomic<std::uint64_t> finished;       // all up to this one
  std::atomic<std::uint64_t> exchanges;      // messages, started
  std::atomic<std::int64_t> waits_since_ns;  // by the monotonic clock; 0: it did not wait when it was looked at
  TextField<240> waits;
  TextField<640> failure;
  std::atomic<std::uint64_t> requests;         // counts what readers want: that all members are asked where they stand
  std::atomic<std::uint64_t> requests_served;  // `requests` when this process last asked them
  std::array<CallEntry, calls_kept> calls;

  // `is_same`: what lies at the number's place is the same call but for where it was made.
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
  void finish(std::uint64_t number) { finished.store(number, std::memory_order_relaxed); }
  bool is_requested() const {
    return requests.load(std::memory_order_relaxed) != requests_served.load(std::memory_order_relaxed);
  }
  void wait_no_more() { waits_since_ns.store(0, std::memory_order_relaxed); }

 private:
  static void write_source(CallEntry& call, const char* source);
};

struct StatusFile {
  std::uint64_t magic;
  std::uint32_t layout;
  std::int32_t process;
  std::atomic<std::int32_t> made;  // communicators, since the process began
  std::array<CommunicatorHeader, most_statuses> headers;
  std::array<CommunicatorStatus, most_statuses> statuses;
};

static_assert(std::is_standard_layout_v<StatusFile> && std::atomic<std::uint64_t>::is_always_lock_free);

// Takes an entry of the status file for a communicator of this process. Returns nothing if no entry is left, or the
// system gives no such file.
CommunicatorStatus* claim_status(std::string_view name, int rank, int size, std::uint64_t id = 0) noexcept;
void give_back(const CommunicatorStatus* status) noexcept;
void mark_failed(const CommunicatorStatus* status) noexcept;
// Returns the entry's place in the file of this process; nothing for an entry of a parent that forked, and for none.
std::optional<std::size_t> number_of(const CommunicatorStatus* status) noexcept;

// Returns the descriptor of this process's status file, valid until the process ends; -1 if it has none so far.
int file_of_this_process() noexcept;

}  // namespace lockstep::status
