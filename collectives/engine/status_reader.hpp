// SPDX-License-Identifier: Apache-2.0
// The status files of processes on this host, read from outside or from within; and what is left of them where a
// communicator fails.
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

namespace lockstep::status {

struct CallSnapshot {
  std::uint64_t number = 0;
  std::string call;   // "all_reduce of 1000 f32, sum"
  std::string place;  // "train.cpp:40"
  bool operator==(const CallSnapshot&) const = default;
};

enum class MemberResponse : std::uint32_t { silent, heard, answered, left };

// A member as another one knows it, which has asked it or heard of it.
struct MemberSnapshot {
  static constexpr std::int64_t never = -1;
  int rank = 0;
  std::string host;
  int process = 0;
  MemberResponse state = MemberResponse::silent;
  std::uint64_t finished = 0;          // its last finished call; if it left, its last call
  std::uint64_t in_flight = 0;         // its oldest call under way; 0: none
  std::int64_t unanswered_ms = never;  // since the first question that it has not answered
  std::int64_t heard_ms = never;       // since its last answer, or its last control message if it never answered
  bool operator==(const MemberSnapshot&) const = default;
};

std::string_view to_string(MemberResponse state);

struct CommunicatorSnapshot {
  std::string name;
  int rank = 0;
  int size = 1;
  int order = 0;         // how many its process had made before
  std::uint64_t id = 0;  // that all its members have; 0: none
  std::uint64_t started = 0;
  std::uint64_t finished = 0;  // all up to this one
  std::uint64_t messages = 0;
  std::string waits = {};                    // for what; empty: it did not wait long when it was looked at
  std::int64_t waited_ms = 0;                // so long by then
  std::string failure = {};                  // with its code; empty: none
  std::vector<CallSnapshot> calls = {};      // the last ones, in their order
  std::vector<MemberSnapshot> members = {};  // all, by rank; empty: hosts and processes are not known
  bool operator==(const CommunicatorSnapshot&) const = default;

  bool is_in_call() const { return started > finished; }
  // The oldest that is not finished, or else the last one.
  std::uint64_t current() const { return is_in_call() ? finished + 1 : started; }
  // Nothing where it is too long ago.
  const CallSnapshot* call(std::uint64_t number) const;
};

struct ProcessSnapshot {
  std::string host;
  int process = 0;
  std::string program = {};
  std::string state = {};  // "running", "sleeping", "stopped", "traced", "waiting for the system", "ended"
  std::vector<CommunicatorSnapshot> communicators = {};
  bool operator==(const ProcessSnapshot&) const = default;
};

// Nothing in the bytes is believed: throws Error bad_message where they are no status file of that process.
std::vector<CommunicatorSnapshot> read(std::span<const std::byte> bytes, int process, std::int64_t now_ns);

// Of a process on this host; nothing where it has no status file. Throws Error system where it may not be read, or is
// not there.
std::optional<ProcessSnapshot> look_at(int process);
// All that have one and may be read, in their order.
std::vector<int> processes();
// Who of those members of a communicator is another process on this host, and what that does; empty: none is, or
// nothing can be read of it. For people. Looks for a moment only.
std::string neighbours(std::uint64_t id, const IndexSet& ranks);
// Others on this host that have one of those communicators, by their processes.
std::vector<int> relatives(const std::vector<CommunicatorSnapshot>& communicators);

// "call 812, all_reduce of 1000 f32, sum at heat.cpp:40"; "no call" for 0.
std::string call_words(const CommunicatorSnapshot& seen, std::uint64_t number);
// "is in call 812, ...; waits 12 s: ...", "is in no call; last was call 811, ...", or how it failed.
std::string standing(const CommunicatorSnapshot& seen);

std::string to_json(const ProcessSnapshot& seen);

// From now on, where a communicator of this process fails, its status file is left in that folder, and those of its
// relatives, which have not failed and may never say anything. Empty: nowhere. Throws Error system where nothing can be
// left in it.
void leave_in(std::string folder);
// The folder, if anything was left there; what is in the way of that is thrown (Error system).
std::optional<std::string> leave();

// From now on this process says at that signal what its communicators do, leaves it as leave() does, and goes on. 0:
// none. The program's own handler, if it has one, stays.
void tell_on(int signal, const Log& log);

}  // namespace lockstep::status
