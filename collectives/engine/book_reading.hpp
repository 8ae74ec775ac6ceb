// SPDX-License-Identifier: Apache-2.0
// The books of processes on this host, read from outside or from within; and what is left of them where a communicator
// fails.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "topology/base/bytes.hpp"
#include "topology/base/index_set.hpp"
#include "topology/base/log.hpp"

namespace lockstep::book {

struct CallSeen {
  std::uint64_t number = 0;
  std::string call;   // "all_reduce of 1000 f32, sum"
  std::string place;  // "train.cpp:40"
  bool operator==(const CallSeen&) const = default;
};

struct CommunicatorSeen {
  std::string name;
  int rank = 0;
  int size = 1;
  int order = 0;         // how many its process had made before
  std::uint64_t id = 0;  // that all its members have; 0: none
  std::uint64_t started = 0;
  std::uint64_t finished = 0;  // all up to this one
  std::uint64_t messages = 0;
  std::string waits = {};            // for what; empty: it did not wait long when it was looked at
  std::int64_t waited_ms = 0;        // so long by then
  std::string failure = {};          // with its code; empty: none
  std::vector<CallSeen> calls = {};  // the last ones, in their order
  bool operator==(const CommunicatorSeen&) const = default;

  bool is_in_call() const { return started > finished; }
  // The oldest that is not finished, or else the last one.
  std::uint64_t current() const { return is_in_call() ? finished + 1 : started; }
  // Nothing where it is too long ago.
  const CallSeen* call(std::uint64_t number) const;
};

struct ProcessSeen {
  std::string host;
  int process = 0;
  std::string program = {};
  std::string state = {};  // "running", "sleeping", "stopped", "traced", "waiting for the system", "ended"
  std::vector<CommunicatorSeen> communicators = {};
  bool operator==(const ProcessSeen&) const = default;
};

// Nothing in the bytes is believed: throws Error bad_message where they are no book of that process.
std::vector<CommunicatorSeen> read(std::span<const std::byte> bytes, int process, std::int64_t now_ns);

// Of a process on this host; nothing where it has no book. Throws Error system where it may not be read, or is not
// there.
std::optional<ProcessSeen> look_at(int process);
// All that have one and may be read, in their order.
std::vector<int> processes();
// Who of those members of a communicator is another process on this host, and what that does; empty: none is, or
// nothing can be read of it. For people. Looks for a moment only.
std::string neighbours(std::uint64_t id, const IndexSet& ranks);
// Others on this host that have one of those communicators, by their processes.
std::vector<int> relatives(const std::vector<CommunicatorSeen>& communicators);

// "call 812, all_reduce of 1000 f32, sum at heat.cpp:40"; "no call" for 0.
std::string call_words(const CommunicatorSeen& seen, std::uint64_t number);
// "is in call 812, ...; waits 12 s: ...", "is in no call; last was call 811, ...", or how it failed.
std::string standing(const CommunicatorSeen& seen);

std::string to_json(const ProcessSeen& seen);

// From now on, where a communicator of this process fails, its book is left in that folder, and those of its relatives,
// which have not failed and may never say anything. Empty: nowhere. Throws Error
// system where nothing can be left in it.
void leave_in(std::string folder);
// The folder, if anything was left there; what is in the way of that is thrown (Error system).
std::optional<std::string> leave();

// From now on this process says at that signal what its communicators do, leaves it as leave() does, and goes on. 0:
// none. The program's own handler, if it has one, stays.
void tell_on(int signal, const Log& log);

}  // namespace lockstep::book
