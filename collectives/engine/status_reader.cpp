// SPDX-License-Identifier: Apache-2.0
// Reads status files of processes on this host. Another process may write anything there at any time, so no value is
// trusted.
#include "collectives/engine/status_reader.hpp"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <memory>

#include "collectives/engine/files.hpp"
#include "collectives/engine/status_file.hpp"
#include "collectives/engine/status_members.hpp"
#include "topology/base/descriptor.hpp"
#include "topology/base/error.hpp"
#include "topology/base/proc.hpp"

namespace lockstep::status {
namespace {

// Copies bytes of a file into a StatusFile. Its fields may have any values.
class StatusFileCopy {
 public:
  explicit StatusFileCopy(std::span<const std::byte> bytes)
      : status_file_(static_cast<StatusFile*>(::operator new(sizeof(StatusFile)))) {
    std::memcpy(static_cast<void*>(status_file_.get()), bytes.data(), sizeof(StatusFile));
  }
  const StatusFile& operator*() const { return *status_file_; }

 private:
  struct StatusFileDeleter {
    void operator()(StatusFile* status_file) const { ::operator delete(status_file); }
  };
  std::unique_ptr<StatusFile, StatusFileDeleter> status_file_;
};

template <std::size_t bytes>
std::string words_of(const std::array<char, bytes>& text) {
  return printable(std::string_view(text.data(), ::strnlen(text.data(), bytes)), bytes);
}

// Returns nothing if an enumeration has an unknown value.
std::optional<Signature> signature_of(const CallEntry& call) {
  const Signature& all = call.signature;
  const bool is_known = all.collective <= Collective::allocate && all.type <= DataType::opaque &&
                        all.op <= ReduceOp::user && all.order <= Order::reproducible && all.wire <= WireFormat::f16;
  return is_known ? std::optional(all) : std::nullopt;
}

std::vector<CallSnapshot> calls_of(const CommunicatorStatus& status) {
  std::vector<CallSnapshot> all;
  for (const CallEntry& call : status.calls) {
    const std::uint64_t number = call.number.load(std::memory_order_relaxed);
    const auto signature = signature_of(call);
    if (number == 0 || !signature) continue;
    const std::string file = words_of(call.file);
    all.push_back({number, to_text(*signature), call.line > 0 ? text(file, ':', call.line) : std::string()});
  }
  std::ranges::sort(all, {}, &CallSnapshot::number);
  return all;
}

CommunicatorSnapshot communicator_of(const CommunicatorHeader& header, const CommunicatorStatus& status,
                                     std::int64_t now_ns) {
  constexpr std::int64_t ms_ns = 1'000'000;
  CommunicatorSnapshot seen{.name = words_of(status.name.text),
                            .rank = header.rank,
                            .size = header.size,
                            .order = header.order,
                            .id = header.id,
                            .started = status.started,
                            .finished = status.finished,
                            .messages = status.messages,
                            .calls = calls_of(status)};
  if (const std::int64_t since = status.waits_since_ns; since > 0 && since <= now_ns) {
    seen.waits = words_of(status.waits.text);
    seen.waited_ms = (now_ns - since) / ms_ns;
  }
  if (header.state == CommunicatorState::failed) seen.failure = words_of(status.failure.text);
  return seen;
}

bool is_in_use(const CommunicatorHeader& header) {
  const auto state = header.state.load(std::memory_order_relaxed);
  return state == CommunicatorState::open || state == CommunicatorState::failed;
}

// Returns true if size and rank are possible, since the process may have written anything there.
bool has_possible_rank(const CommunicatorHeader& header) {
  constexpr int most_members = 1 << 20;
  return header.size >= 1 && header.size <= most_members && header.rank >= 0 && header.rank < header.size;
}

// Returns true if no text was being written.
bool is_whole(const CommunicatorStatus& status) {
  return status.name.version % 2 == 0 && status.waits.version % 2 == 0 && status.failure.version % 2 == 0;
}

std::string folder_of(int process) { return text("/proc/", process); }

// Returns the remedy for an error of the system.
std::string_view advice_for(int error) {
  if (error == ENOENT || error == ESRCH) return "give the id of a process of this host (pgrep -a NAME)";
  if (error == EACCES || error == EPERM) return "run as the user of that process, or as root";
  return "check the limits of this process (ulimit -a)";
}

// Returns a descriptor of the process's status file; an empty one if it has none. Throws Error system.
OwnedDescriptor find_status_file(int process) {
  const MemoryFile found = find_memory_file(process, file_name);
  if (found.error != 0) throw system_error(text("looking at process ", process), found.error, advice_for(found.error));
  return OwnedDescriptor(found.descriptor);
}

Bytes bytes_of(int file, std::size_t most = sizeof(StatusFile)) {
  Bytes bytes(most);
  const ssize_t got = ::pread(file, bytes.data(), bytes.size(), 0);
  bytes.resize(static_cast<std::size_t>(std::max<ssize_t>(0, got)));
  return bytes;
}

// Holds the letter of the state and the program's name from /proc/PID/stat.
struct ProcessState {
  char state = '?';
  std::string program;
};

ProcessState status_of(int process) {
  const std::string line = read_proc(folder_of(process) + "/stat");  // several lines if the program's name has several
  const std::size_t begin = line.find('(');
  const std::size_t end = line.rfind(')');
  if (begin == std::string::npos || end == std::string::npos || end + 2 >= line.size()) return {};
  return {line[end + 2], printable(line.substr(begin + 1, end - begin - 1))};
}

std::string words_for(char state) {
  switch (state) {
    case 'R':
      return "running";
    case 'S':
    case 'I':
      return "sleeping";
    case 'D':
      return "waiting for the system";
    case 'T':
      return "stopped";
    case 't':
      return "traced";
    case 'Z':
    case 'X':
      return "ended";
    default:
      return "in an unknown state";
  }
}

// Returns for example "rank 1 is process 4711, stopped, after call 811, barrier at heat.cpp:20 (kill -CONT 4711 lets it
// go on)".
std::string neighbour_words(const ProcessSnapshot& process, const CommunicatorSnapshot& seen, const Members& members) {
  const CallSnapshot* const last = seen.call(seen.current());
  const std::string call = last == nullptr ? text("call ", seen.current())
                                           : text("call ", last->number, ", ", last->call,
                                                  last->place.empty() ? "" : text(" at ", last->place));
  return text(members.number_of(seen.rank), " is process ", process.process, ", ", process.state, ", ",
              seen.started == 0 ? "and has made no call" : text(seen.is_in_call() ? "in " : "after ", call),
              process.state == "stopped" ? text(" (kill -CONT ", process.process, " resumes it)") : "");
}

std::int64_t now_ns() { return std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1); }

}  // namespace

const CallSnapshot* CommunicatorSnapshot::call(std::uint64_t number) const {
  const auto found = std::ranges::find(calls, number, &CallSnapshot::number);
  return found == calls.end() ? nullptr : &*found;
}

std::vector<CommunicatorSnapshot> read(std::span<const std::byte> bytes, int process, std::int64_t now_ns) {
  if (bytes.size() != sizeof(StatusFile))
    throw Error(Code::bad_message, "a status file of another size", "use the build of Lockstep that the process uses");
  const StatusFileCopy copy(bytes);
  const StatusFile& status_file = *copy;
  if (status_file.magic != magic || status_file.layout != layout)
    throw Error(Code::bad_message, "a status file of another build", "use the build of Lockstep that the process uses");
  if (status_file.process != process)
    throw Error(Code::bad_message, "a status file of another process, which has forked this one");
  std::vector<CommunicatorSnapshot> all;
  for (std::size_t i = 0; i < most_statuses; ++i) {
    if (is_in_use(status_file.headers[i]) && has_possible_rank(status_file.headers[i]))
      all.push_back(communicator_of(status_file.headers[i], status_file.statuses[i], now_ns));
  }
  std::ranges::sort(all, {}, &CommunicatorSnapshot::order);
  return all;
}

namespace {

// Reads the notes until two reads are equal, so that no entry was half written. Gives up after 4 tries.
Bytes bytes_of_members(int file, std::size_t index, int size) {
  constexpr int tries = 4;
  const auto begin = static_cast<off_t>(members_begin(index));
  MembersHeader header{};
  if (::pread(file, &header, sizeof header, begin) != sizeof header) return {};
  const auto read = [&] {
    Bytes bytes(members_bytes(size, header.hosts));
    const ssize_t got = ::pread(file, bytes.data(), bytes.size(), begin);
    bytes.resize(static_cast<std::size_t>(std::max<ssize_t>(0, got)));
    return bytes;
  };
  Bytes bytes = read();
  for (int i = 0; i < tries; ++i) {
    Bytes again = read();
    if (again == bytes) break;
    bytes = std::move(again);
  }
  return bytes;
}

// Adds the notes on other members to each communicator.
void add_members(int file, const StatusFile& status_file, std::vector<CommunicatorSnapshot>& communicators) {
  for (CommunicatorSnapshot& seen : communicators) {
    const auto header = std::ranges::find(status_file.headers, seen.order, &CommunicatorHeader::order);
    const auto index = static_cast<std::size_t>(header - status_file.headers.begin());
    if (index < most_statuses)
      seen.members = read_members(bytes_of_members(file, index, seen.size), seen.size, now_ns());
  }
}

ProcessSnapshot look_into(int file, int process) {
  constexpr int tries = 4;  // tries until no text is being written
  Bytes bytes;
  for (int i = 0; i < tries; ++i) {
    bytes = bytes_of(file);
    if (bytes.size() != sizeof(StatusFile)) break;
    const StatusFileCopy copy(bytes);
    if (std::ranges::all_of((*copy).statuses, is_whole)) break;
  }
  ProcessSnapshot seen{.host = own_host(), .process = process};
  seen.communicators = read(bytes, process, now_ns());
  add_members(file, *StatusFileCopy(bytes), seen.communicators);
  const ProcessState status = status_of(process);
  seen.program = status.program;
  seen.state = words_for(status.state);
  return seen;
}

// Mirrors the beginning of StatusFile, up to the communicators' headers.
struct StatusFilePrefix {
  std::uint64_t magic;
  std::uint32_t layout;
  std::int32_t process;
  std::int32_t made;
  std::array<CommunicatorHeader, most_statuses> headers;
};
static_assert(offsetof(StatusFile, statuses) >= sizeof(StatusFilePrefix) &&
              offsetof(StatusFile, headers) == offsetof(StatusFilePrefix, headers));

// Calls visit(headers) with the beginning of a process's status file. Returns false if the process has no valid one.
template <class Visit>
bool glance_at(int process, const Visit& visit) {
  const OwnedDescriptor file = find_status_file(process);
  if (!file) return false;
  const Bytes bytes = bytes_of(file.get(), sizeof(StatusFilePrefix));
  if (bytes.size() != sizeof(StatusFilePrefix)) return false;
  const std::unique_ptr<StatusFilePrefix, void (*)(StatusFilePrefix*)> begin(
      static_cast<StatusFilePrefix*>(::operator new(sizeof(StatusFilePrefix))),
      [](StatusFilePrefix* each) { ::operator delete(each); });
  std::memcpy(static_cast<void*>(begin.get()), bytes.data(), sizeof(StatusFilePrefix));
  if (begin->magic != magic || begin->layout != layout || begin->process != process) return false;
  visit(begin->headers);
  return true;
}

// Calls visit(process) for the processes of this user until it returns true. Skips a process if visit throws an Error.
template <class Visit>
void for_each_process(const Visit& visit) {
  visit_processes_of_this_user([&](int process) {
    try {
      return visit(process);
    } catch (const Error&) {  // the process may not be read, or has just ended
      return false;
    }
  });
}

}  // namespace

std::optional<ProcessSnapshot> read_process(int process) {
  if (const int own = process == ::getpid() ? file_of_this_process() : -1; own >= 0) return look_into(own, process);
  const OwnedDescriptor file = find_status_file(process);
  return file ? std::optional(look_into(file.get(), process)) : std::nullopt;
}

std::vector<int> processes() {
  std::vector<int> all;
  for_each_process([&](int process) {
    if (glance_at(process, [](const auto& /*headers*/) {})) all.push_back(process);
    return false;
  });
  std::ranges::sort(all);
  return all;
}

// Returns the processes that share a communicator with these.
std::vector<int> related_processes(const std::vector<CommunicatorSnapshot>& communicators) {
  std::vector<int> all;
  for_each_process([&](int process) {
    bool is_one = false;
    if (process == ::getpid()) return false;
    glance_at(process, [&](const auto& headers) {
      is_one = std::ranges::any_of(headers, [&](const CommunicatorHeader& header) {
        return is_in_use(header) && header.id != 0 &&
               std::ranges::count(communicators, header.id.load(), &CommunicatorSnapshot::id) > 0;
      });
    });
    if (is_one) all.push_back(process);
    return false;
  });
  std::ranges::sort(all);
  return all;
}

std::string call_text(const CommunicatorSnapshot& seen, std::uint64_t number) {
  if (number == 0) return "no call";
  const CallSnapshot* const call = seen.call(number);
  if (call == nullptr) return text("call ", number);
  return text("call ", number, ", ", call->call, call->place.empty() ? "" : text(" at ", call->place));
}

std::string progress_text(const CommunicatorSnapshot& seen) {
  if (!seen.failure.empty()) return seen.failure;
  const std::string waits =
      seen.waits.empty()
          ? ""
          : text("; waits ", format_duration(std::chrono::milliseconds(seen.waited_ms)), ": ", seen.waits);
  if (seen.is_in_call()) return text("is in ", call_text(seen, seen.current()), waits);
  if (seen.started == 0) return text(waits.empty() ? "has made no call" : "has made no call of all", waits);
  return text(waits.empty() ? "is in no call" : "is in no call of all", "; last was ", call_text(seen, seen.started),
              waits);
}

// Describes the awaited members on this host. It takes at most 50 ms, because a waiting call asks for it.
std::string neighbours(std::uint64_t id, const IndexSet& ranks, const Members& members) {
  constexpr std::size_t most = 3;
  constexpr std::chrono::milliseconds longest{50};
  if (id == 0 || ranks.empty()) return {};
  const auto until = std::chrono::steady_clock::now() + longest;
  std::vector<std::pair<int, int>> found;  // rank and process
  for_each_process([&](int process) {
    if (process != ::getpid()) {
      glance_at(process, [&](const auto& headers) {
        for (const CommunicatorHeader& header : headers) {
          if (is_in_use(header) && header.id == id && ranks.contains(header.rank))
            found.emplace_back(header.rank, process);
        }
      });
    }
    return found.size() == static_cast<std::size_t>(ranks.size()) || std::chrono::steady_clock::now() > until;
  });
  std::ranges::sort(found);
  std::vector<std::string> parts;
  for (std::size_t i = 0; i < std::min(most, found.size()); ++i) {
    const auto [rank, process] = found[i];
    try {
      const auto seen = read_process(process);
      const auto own = std::ranges::find_if(
          seen.value().communicators,
          [&, rank = rank](const CommunicatorSnapshot& each) { return each.id == id && each.rank == rank; });
      if (own != seen->communicators.end()) parts.push_back(neighbour_words(*seen, *own, members));
    } catch (const std::exception&) {  // the process has just ended
    }
  }
  if (found.size() > most) parts.push_back(text("and ", found.size() - most, " more: `lockstep stat`"));
  return parts.empty() ? "" : text("; on this host ", join(parts, "; "));
}

}  // namespace lockstep::status
