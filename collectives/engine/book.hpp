// SPDX-License-Identifier: Apache-2.0
// What the communicators of this process do, where others can read it: a file in memory that has no name but in /proc,
// for processes of the same user. It is there while the process computes, waits, or is stopped, and costs a few stores
// in each call. `lockstep stat` reads it, and what is left of it where a communicator fails.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>

#include "collectives/node/call.hpp"
#include "collectives/plan.hpp"
#include "topology/base/text.hpp"

namespace lockstep::book {

inline constexpr std::string_view file_name = "lockstep-book";
inline constexpr std::uint64_t magic = 0x4b4f4f424c4b534c;
inline constexpr std::uint32_t layout = 2;  // another number for another layout
inline constexpr std::size_t most_pages = 64;
inline constexpr std::size_t calls_kept = 64;

// Words of at most so many bytes, with a zero behind them, that one thread writes and others read meanwhile: they are
// whole where `version` is even and the same before and after.
template <std::size_t bytes>
struct Words {
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
struct Called {
  std::atomic<std::uint64_t> number;  // 0 while the rest is written
  Signature signature;
  const char* source;  // where its file's name lies in the process
  std::int32_t line;
  std::array<char, 60> file;
};

// Of one communicator: what is looked at first.
struct Head {
  enum class State : std::uint32_t { unused, open, failed };
  std::atomic<State> state;
  std::int32_t rank;
  std::int32_t size;
  std::int32_t order;             // how many the process had made before it
  std::atomic<std::uint64_t> id;  // that all its members have, and no other communicator; 0: none
};

struct Page {
  Words<64> name;
  std::atomic<std::uint64_t> started;        // the last collective call
  std::atomic<std::uint64_t> finished;       // all up to this one
  std::atomic<std::uint64_t> exchanges;      // messages, started
  std::atomic<std::int64_t> waits_since_ns;  // by the monotonic clock; 0: it did not wait when it was looked at
  Words<240> waits;
  Words<640> failure;
  std::array<Called, calls_kept> calls;

  // `is_same`: what lies at the number's place is the same call but for where it was made.
  void begin(std::uint64_t number, const Signature& signature, const Origin& origin, bool is_same) {
    Called& call = calls[number % calls_kept];
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
  void wait_no_more() { waits_since_ns.store(0, std::memory_order_relaxed); }

 private:
  static void write_source(Called& call, const char* source);
};

struct Book {
  std::uint64_t magic;
  std::uint32_t layout;
  std::int32_t process;
  std::atomic<std::int32_t> made;  // communicators, since the process began
  std::array<Head, most_pages> heads;
  std::array<Page, most_pages> pages;
};

static_assert(std::is_standard_layout_v<Book> && std::atomic<std::uint64_t>::is_always_lock_free);

// A page of its own for a communicator of this process; nothing where there is none left, or the system gives no such
// file.
Page* take_page(std::string_view name, int rank, int size, std::uint64_t id = 0) noexcept;
void give_back(const Page* page) noexcept;
void mark_failed(const Page* page) noexcept;

// The descriptor of this process's, as long as that lives; -1: it has none so far.
int file_of_this_process() noexcept;

}  // namespace lockstep::book
