// SPDX-License-Identifier: Apache-2.0
// Reads the status files of processes on this host, from outside or from within. Also leaves them as files if a
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
#include "topology/members.hpp"

namespace lockstep::status {

// Describes one call of a communicator.
struct CallSnapshot {
  std::uint64_t number = 0;
  std::string call;   // such as "all_reduce of 1000 f32, sum"
  std::string place;  // such as "train.cpp:40"; empty if not known
  bool operator==(const CallSnapshot&) const = default;
};

// Says how a member responded: not at all, with some control message, with an answer, or it has left.
enum class MemberResponse : std::uint32_t { silent, heard, answered, left };

// Describes a member as another member knows it, from its answers and control messages.
struct MemberSnapshot {
  // Marks a time as absent.
  static constexpr std::int64_t never = -1;
  int rank = 0;
  std::string host;
  int process = 0;
  MemberResponse state = MemberResponse::silent;
  // Holds its last finished call. If it left, this is its last call.
  std::uint64_t finished = 0;
  // Gives the number of its oldest call under way; 0 means none.
  std::uint64_t in_flight = 0;
  // Holds the milliseconds since the first question that it has not answered.
  std::int64_t unanswered_ms = never;
  // Holds the milliseconds since its last answer, or since its last control message if it never answered.
  std::int64_t heard_ms = never;
  bool operator==(const MemberSnapshot&) const = default;
};

// Returns the response in a word, such as "answered".
std::string_view to_string(MemberResponse state);

// Describes a communicator as its process shows it.
struct CommunicatorSnapshot {
  std::string name;
  int rank = 0;
  int size = 1;
  // Counts the communicators that the process made before this one.
  int order = 0;
  // Identifies the communicator, the same on all members; 0 means none.
  std::uint64_t id = 0;
  std::uint64_t started = 0;
  // Gives the number up to which all calls are finished.
  std::uint64_t finished = 0;
  std::uint64_t messages = 0;
  // Describes the present wait. It is empty if there was no long wait when the process was looked at.
  std::string waits = {};
  // Holds the length of that wait in milliseconds.
  std::int64_t waited_ms = 0;
  // Describes the failure with its code; empty if there is none.
  std::string failure = {};
  // Lists the last calls in their order.
  std::vector<CallSnapshot> calls = {};
  // Lists all members by rank. It is empty if hosts and processes are not known.
  std::vector<MemberSnapshot> members = {};
  bool operator==(const CommunicatorSnapshot&) const = default;

  // Returns true if a collective call is under way.
  bool is_in_call() const { return started > finished; }
  // Returns the number of the oldest call that is not finished, or else of the last call; 0 if there was none.
  std::uint64_t current() const { return is_in_call() ? finished + 1 : started; }
  // Returns null if the call is too long ago to be kept.
  const CallSnapshot* call(std::uint64_t number) const;
};

// Describes a process and its communicators.
struct ProcessSnapshot {
  std::string host;
  int process = 0;
  std::string program = {};
  // Holds "running", "sleeping", "stopped", "traced", "waiting for the system", "ended", or that the state is not
  // known.
  std::string state = {};
  std::vector<CommunicatorSnapshot> communicators = {};
  bool operator==(const ProcessSnapshot&) const = default;
};

// Reads the communicators from the bytes of a status file. The bytes may be anything: throws Error bad_message if they
// are not the status file of that process. `now_ns` is the monotonic time in nanoseconds.
std::vector<CommunicatorSnapshot> read(std::span<const std::byte> bytes, int process, std::int64_t now_ns);

// Returns the state of a process on this host; nothing if it has no status file. Throws Error system if the process
// does not exist or may not be read.
std::optional<ProcessSnapshot> read_process(int process);
// Returns the ids of all processes of this user that have a readable status file, in ascending order.
std::vector<int> processes();
// Returns a text for people about those ranks of a communicator that are other processes on this host: their ids,
// states and calls. `members` gives their names. Returns an empty text if there are none. Looks for about 50 ms at
// most, so it may miss some.
std::string neighbours(std::uint64_t id, const IndexSet& ranks, const Members& members = {});
// Returns the ids of other processes on this host that are members of one of those communicators.
std::vector<int> related_processes(const std::vector<CommunicatorSnapshot>& communicators);

// Returns for example "call 812, all_reduce of 1000 f32, sum at heat.cpp:40"; "no call" for number 0.
std::string call_text(const CommunicatorSnapshot& seen, std::uint64_t number);
// Returns the state in words, or the failure. Examples: "is in call 812, ...; waits 12 s: ..." and "is in no call; last
// was call 811, ...".
std::string progress_text(const CommunicatorSnapshot& seen);

// Returns the snapshot as JSON, in the format that `lockstep why` reads.
std::string to_json(const ProcessSnapshot& seen);

// Sets the folder for status dumps. If a communicator of this process fails, its status file is left there. So are
// those of its relatives, which have not failed and may never write one. An empty name turns this off. Throws Error
// system if the folder cannot be written to.
void set_dump_folder(std::string folder);
// Writes the dump now. Returns the folder; nothing if no folder is set or this process has no status file. Throws Error
// system if it cannot be written.
std::optional<std::string> dump();

// Makes this process log the state of its communicators at that signal, call dump(), and go on. 0 means no signal. If
// the program has a handler for the signal, this only logs a warning. Throws Error system if descriptors run out.
void write_on_signal(int signal, const Log& log);

}  // namespace lockstep::status
