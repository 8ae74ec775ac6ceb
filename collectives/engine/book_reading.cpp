// SPDX-License-Identifier: Apache-2.0
#include "collectives/engine/book_reading.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <fstream>
#include <memory>

#include "collectives/engine/book.hpp"
#include "collectives/engine/files.hpp"
#include "topology/base/error.hpp"

namespace lockstep::book {
namespace {

// Bytes of a book, as a book; what is in it may be anything.
class Copy {
 public:
  explicit Copy(std::span<const std::byte> bytes) : book_(static_cast<Book*>(::operator new(sizeof(Book)))) {
    std::memcpy(static_cast<void*>(book_.get()), bytes.data(), sizeof(Book));
  }
  const Book& operator*() const { return *book_; }

 private:
  struct Free {
    void operator()(Book* book) const { ::operator delete(book); }
  };
  std::unique_ptr<Book, Free> book_;
};

template <std::size_t bytes>
std::string words_of(const std::array<char, bytes>& text) {
  return printable(std::string_view(text.data(), ::strnlen(text.data(), bytes)), bytes);
}

std::optional<Signature> signature_of(const Called& call) {
  const Signature& all = call.signature;
  const bool is_known = all.collective <= Collective::exchange && all.type <= DataType::opaque &&
                        all.op <= ReduceOp::user && all.order <= Order::reproducible && all.wire <= WireFormat::f16;
  return is_known ? std::optional(all) : std::nullopt;
}

std::vector<CallSeen> calls_of(const Page& page) {
  std::vector<CallSeen> all;
  for (const Called& call : page.calls) {
    const std::uint64_t number = call.number.load(std::memory_order_relaxed);
    const auto signature = signature_of(call);
    if (number == 0 || !signature) continue;
    const std::string file = words_of(call.file);
    all.push_back({number, to_text(*signature), call.line > 0 ? text(file, ':', call.line) : std::string()});
  }
  std::ranges::sort(all, {}, &CallSeen::number);
  return all;
}

CommunicatorSeen communicator_of(const Page& page, std::int64_t now_ns) {
  constexpr double second_ns = 1e9;
  CommunicatorSeen seen{.name = words_of(page.name.text),
                        .rank = page.rank,
                        .size = page.size,
                        .order = page.order,
                        .started = page.started,
                        .finished = page.finished,
                        .messages = page.exchanges,
                        .calls = calls_of(page)};
  if (const std::int64_t since = page.waits_since_ns; since > 0) {
    seen.waits = words_of(page.waits.text);
    seen.waited_s = static_cast<double>(std::max<std::int64_t>(0, now_ns - since)) / second_ns;
  }
  if (page.state == Page::State::failed) seen.failure = words_of(page.failure.text);
  return seen;
}

bool is_whole(const Page& page) {
  return page.name.version % 2 == 0 && page.waits.version % 2 == 0 && page.failure.version % 2 == 0;
}

std::string folder_of(int process) { return text("/proc/", process); }

// The descriptor of its book; -1: it has none.
int find_book(int process) {
  const std::string folder = folder_of(process) + "/fd";
  const std::unique_ptr<DIR, int (*)(DIR*)> all(::opendir(folder.c_str()), ::closedir);
  if (!all)
    throw system_error(text("looking at process ", process), errno,
                       errno == ENOENT ? "take the number of a process that runs on this host (pgrep -a NAME)"
                                       : "be the user whose process it is, or root");
  const std::string wanted = text("/memfd:", file_name);
  while (const dirent* const each = ::readdir(all.get())) {
    std::array<char, PATH_MAX> target;
    const ssize_t length = ::readlinkat(::dirfd(all.get()), each->d_name, target.data(), target.size());
    if (length > 0 && std::string_view(target.data(), static_cast<std::size_t>(length)).starts_with(wanted)) {
      const std::string path = text(folder, '/', static_cast<const char*>(each->d_name));
      if (const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC); file >= 0) return file;
      throw system_error(text("reading what process ", process, " does"), errno,
                         "be the user whose process it is, or root");
    }
  }
  return -1;
}

std::optional<Bytes> bytes_of(int process) {
  const int file = find_book(process);
  if (file < 0) return std::nullopt;
  Bytes bytes(sizeof(Book));
  const ssize_t got = ::pread(file, bytes.data(), bytes.size(), 0);
  ::close(file);
  bytes.resize(static_cast<std::size_t>(std::max<ssize_t>(0, got)));
  return bytes;
}

// What stands behind the name in /proc/PID/stat: state and parent.
struct Status {
  char state = '?';
  int parent = 0;
  std::string program;
};

Status status_of(int process) {
  std::ifstream file(folder_of(process) + "/stat");
  std::string line;
  std::getline(file, line);
  const std::size_t begin = line.find('(');
  const std::size_t end = line.rfind(')');
  if (begin == std::string::npos || end == std::string::npos || end + 4 > line.size()) return {};
  Status status{.state = line[end + 2], .program = printable(line.substr(begin + 1, end - begin - 1))};
  std::from_chars(line.data() + end + 4, line.data() + line.size(), status.parent);
  return status;
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
      return "in a state that is not known";
  }
}

std::int64_t now_ns() { return std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1); }

}  // namespace

const CallSeen* CommunicatorSeen::call(std::uint64_t number) const {
  const auto found = std::ranges::find(calls, number, &CallSeen::number);
  return found == calls.end() ? nullptr : &*found;
}

std::vector<CommunicatorSeen> read(std::span<const std::byte> bytes, int process, std::int64_t now_ns) {
  if (bytes.size() != sizeof(Book))
    throw Error(Code::bad_message, "a book of another size", "take the same build of Lockstep as that process has");
  const Copy copy(bytes);
  const Book& book = *copy;
  if (book.magic != magic || book.layout != layout)
    throw Error(Code::bad_message, "a book of another build", "take the same build of Lockstep as that process has");
  if (book.process != process) throw Error(Code::bad_message, "a book of another process, which has forked this one");
  std::vector<CommunicatorSeen> all;
  for (const Page& page : book.pages) {
    const auto state = page.state.load(std::memory_order_relaxed);
    if (state == Page::State::open || state == Page::State::failed) all.push_back(communicator_of(page, now_ns));
  }
  std::ranges::sort(all, {}, &CommunicatorSeen::order);
  return all;
}

std::optional<ProcessSeen> look_at(int process) {
  constexpr int tries = 4;  // until no words are being written
  std::optional<Bytes> bytes;
  for (int i = 0; i < tries; ++i) {
    bytes = bytes_of(process);
    if (!bytes) return std::nullopt;
    if (bytes->size() != sizeof(Book)) break;
    const Copy copy(*bytes);
    if (std::ranges::all_of((*copy).pages, is_whole)) break;
  }
  ProcessSeen seen{.host = own_host(), .process = process};
  seen.communicators = read(*bytes, process, now_ns());
  const Status status = status_of(process);
  seen.program = status.program;
  seen.state = words_for(status.state);
  return seen;
}

int parent_of(int process) { return status_of(process).parent; }

// Only its beginning is looked at.
bool has_book(int process) {
  const int file = find_book(process);
  if (file < 0) return false;
  struct {
    std::uint64_t magic;
    std::uint32_t layout;
    std::int32_t process;
  } begin{};
  const bool is_read = ::pread(file, &begin, sizeof begin, 0) == sizeof begin;
  ::close(file);
  return is_read && begin.magic == magic && begin.layout == layout && begin.process == process;
}

std::vector<int> processes() {
  std::vector<int> all;
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(::opendir("/proc"), ::closedir);
  while (const dirent* const each = folder ? ::readdir(folder.get()) : nullptr) {
    const std::string_view name = each->d_name;
    int process = 0;
    if (std::from_chars(name.data(), name.data() + name.size(), process).ec != std::errc{}) continue;
    try {
      if (has_book(process)) all.push_back(process);
    } catch (const Error&) {  // another user's, or it has just ended
    }
  }
  std::ranges::sort(all);
  return all;
}

std::string neighbours(std::string_view name, int size, const IndexSet& ranks) {
  constexpr std::size_t most = 3;
  if (of_this_process() == nullptr || ranks.empty()) return {};
  std::vector<std::string> all;
  for (const int process : processes()) {
    if (process == ::getpid() || parent_of(process) != ::getppid()) continue;
    std::optional<ProcessSeen> seen;
    try {
      seen = look_at(process);
    } catch (const Error&) {  // it has just ended
    }
    if (!seen) continue;
    for (const CommunicatorSeen& each : seen->communicators) {
      if (each.name != name || each.size != size || !ranks.contains(each.rank)) continue;
      const CallSeen* const last = each.call(each.started);
      const std::string call =
          last == nullptr ? text("call ", each.started) : text("call ", last->number, ", ", last->call);
      all.push_back(text("rank ", each.rank, " is process ", process, ", ", seen->state, ", ",
                         each.started == 0
                             ? "and has made no call"
                             : text(each.is_in_call() ? "in " : "after ", call,
                                    last == nullptr || last->place.empty() ? "" : text(" at ", last->place)),
                         seen->state == "stopped" ? text(" (kill -CONT ", process, " lets it go on)") : ""));
      break;
    }
  }
  const std::size_t more = all.size() - std::min(all.size(), most);
  all.resize(all.size() - more);
  return all.empty()
             ? ""
             : text("; on this host ", join(all, "; "), more > 0 ? text("; and ", more, " more: `lockstep stat`") : "");
}

}  // namespace lockstep::book
