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
  const bool is_known = all.collective <= Collective::allocate && all.type <= DataType::opaque &&
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

CommunicatorSeen communicator_of(const Head& head, const Page& page, std::int64_t now_ns) {
  constexpr std::int64_t ms_ns = 1'000'000;
  CommunicatorSeen seen{.name = words_of(page.name.text),
                        .rank = head.rank,
                        .size = head.size,
                        .order = head.order,
                        .id = head.id,
                        .started = page.started,
                        .finished = page.finished,
                        .messages = page.exchanges,
                        .calls = calls_of(page)};
  if (const std::int64_t since = page.waits_since_ns; since > 0 && since <= now_ns) {
    seen.waits = words_of(page.waits.text);
    seen.waited_ms = (now_ns - since) / ms_ns;
  }
  if (head.state == Head::State::failed) seen.failure = words_of(page.failure.text);
  return seen;
}

bool is_whole(const Page& page) {
  return page.name.version % 2 == 0 && page.waits.version % 2 == 0 && page.failure.version % 2 == 0;
}

std::string folder_of(int process) { return text("/proc/", process); }

class File {
 public:
  explicit File(int number) : number_(number) {}
  ~File() {
    if (number_ >= 0) ::close(number_);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  int get() const { return number_; }

 private:
  int number_;
};

std::string_view advice_for(int error) {
  if (error == ENOENT || error == ESRCH) return "take the number of a process that runs on this host (pgrep -a NAME)";
  if (error == EACCES || error == EPERM) return "be the user whose process it is, or root";
  return "look what this process lacks (ulimit -a)";
}

// Of its book; -1: it has none.
int find_book(int process) {
  const std::string folder = folder_of(process) + "/fd";
  const std::unique_ptr<DIR, int (*)(DIR*)> all(::opendir(folder.c_str()), ::closedir);
  if (!all) throw system_error(text("looking at process ", process), errno, advice_for(errno));
  const std::string wanted = text("/memfd:", file_name);
  while (const dirent* const each = ::readdir(all.get())) {
    std::array<char, PATH_MAX> target;
    const ssize_t length = ::readlinkat(::dirfd(all.get()), each->d_name, target.data(), target.size());
    if (length > 0 && std::string_view(target.data(), static_cast<std::size_t>(length)).starts_with(wanted)) {
      const std::string path = text(folder, '/', static_cast<const char*>(each->d_name));
      if (const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC); file >= 0) return file;
      throw system_error(text("reading what process ", process, " does"), errno, advice_for(errno));
    }
  }
  return -1;
}

Bytes bytes_of(int file, std::size_t most = sizeof(Book)) {
  Bytes bytes(most);
  const ssize_t got = ::pread(file, bytes.data(), bytes.size(), 0);
  bytes.resize(static_cast<std::size_t>(std::max<ssize_t>(0, got)));
  return bytes;
}

// What stands behind the name in /proc/PID/stat.
struct Status {
  char state = '?';
  std::string program;
};

Status status_of(int process) {
  std::ifstream file(folder_of(process) + "/stat");
  std::string line;
  std::getline(file, line);
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
      return "in a state that is not known";
  }
}

// "rank 1 is process 4711, stopped, after call 811, barrier at heat.cpp:20 (kill -CONT 4711 lets it go on)"
std::string neighbour_words(const ProcessSeen& process, const CommunicatorSeen& seen) {
  const CallSeen* const last = seen.call(seen.current());
  const std::string call = last == nullptr ? text("call ", seen.current())
                                           : text("call ", last->number, ", ", last->call,
                                                  last->place.empty() ? "" : text(" at ", last->place));
  return text("rank ", seen.rank, " is process ", process.process, ", ", process.state, ", ",
              seen.started == 0 ? "and has made no call" : text(seen.is_in_call() ? "in " : "after ", call),
              process.state == "stopped" ? text(" (kill -CONT ", process.process, " lets it go on)") : "");
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
  for (std::size_t i = 0; i < most_pages; ++i) {
    const auto state = book.heads[i].state.load(std::memory_order_relaxed);
    if (state == Head::State::open || state == Head::State::failed)
      all.push_back(communicator_of(book.heads[i], book.pages[i], now_ns));
  }
  std::ranges::sort(all, {}, &CommunicatorSeen::order);
  return all;
}

namespace {

ProcessSeen look_into(int file, int process) {
  constexpr int tries = 4;  // until no words are being written
  Bytes bytes;
  for (int i = 0; i < tries; ++i) {
    bytes = bytes_of(file);
    if (bytes.size() != sizeof(Book)) break;
    const Copy copy(bytes);
    if (std::ranges::all_of((*copy).pages, is_whole)) break;
  }
  ProcessSeen seen{.host = own_host(), .process = process};
  seen.communicators = read(bytes, process, now_ns());
  const Status status = status_of(process);
  seen.program = status.program;
  seen.state = words_for(status.state);
  return seen;
}

struct Beginning {
  std::uint64_t magic;
  std::uint32_t layout;
  std::int32_t process;
  std::int32_t made;
  std::array<Head, most_pages> heads;
};
static_assert(offsetof(Book, pages) >= sizeof(Beginning) && offsetof(Book, heads) == offsetof(Beginning, heads));

// Of a process's book, if that is one, only its beginning is looked at: `visit` has its heads.
template <class Visit>
bool glance_at(int process, const Visit& visit) {
  const File file(find_book(process));
  if (file.get() < 0) return false;
  const Bytes bytes = bytes_of(file.get(), sizeof(Beginning));
  if (bytes.size() != sizeof(Beginning)) return false;
  const std::unique_ptr<Beginning, void (*)(Beginning*)> begin(
      static_cast<Beginning*>(::operator new(sizeof(Beginning))), [](Beginning* each) { ::operator delete(each); });
  std::memcpy(static_cast<void*>(begin.get()), bytes.data(), sizeof(Beginning));
  if (begin->magic != magic || begin->layout != layout || begin->process != process) return false;
  visit(begin->heads);
  return true;
}

// Of all processes that can be read; until `visit` says that it is enough.
template <class Visit>
void for_each_process(const Visit& visit) {
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(::opendir("/proc"), ::closedir);
  while (const dirent* const each = folder ? ::readdir(folder.get()) : nullptr) {
    const std::string_view name = each->d_name;
    int process = 0;
    if (std::from_chars(name.data(), name.data() + name.size(), process).ec != std::errc{}) continue;
    try {
      if (visit(process)) return;
    } catch (const Error&) {  // another user's, or it has just ended
    }
  }
}

bool is_in_use(const Head& head) {
  const auto state = head.state.load(std::memory_order_relaxed);
  return state == Head::State::open || state == Head::State::failed;
}

}  // namespace

std::optional<ProcessSeen> look_at(int process) {
  if (const int own = process == ::getpid() ? file_of_this_process() : -1; own >= 0) return look_into(own, process);
  const File file(find_book(process));
  return file.get() < 0 ? std::nullopt : std::optional(look_into(file.get(), process));
}

std::vector<int> processes() {
  std::vector<int> all;
  for_each_process([&](int process) {
    if (glance_at(process, [](const auto& /*heads*/) {})) all.push_back(process);
    return false;
  });
  std::ranges::sort(all);
  return all;
}

std::vector<int> relatives(const std::vector<CommunicatorSeen>& communicators) {
  std::vector<int> all;
  for_each_process([&](int process) {
    bool is_one = false;
    if (process == ::getpid()) return false;
    glance_at(process, [&](const auto& heads) {
      is_one = std::ranges::any_of(heads, [&](const Head& head) {
        return is_in_use(head) && head.id != 0 &&
               std::ranges::count(communicators, head.id.load(), &CommunicatorSeen::id) > 0;
      });
    });
    if (is_one) all.push_back(process);
    return false;
  });
  std::ranges::sort(all);
  return all;
}

std::string call_words(const CommunicatorSeen& seen, std::uint64_t number) {
  if (number == 0) return "no call";
  const CallSeen* const call = seen.call(number);
  if (call == nullptr) return text("call ", number);
  return text("call ", number, ", ", call->call, call->place.empty() ? "" : text(" at ", call->place));
}

std::string standing(const CommunicatorSeen& seen) {
  if (!seen.failure.empty()) return seen.failure;
  const std::string waits =
      seen.waits.empty()
          ? ""
          : text("; waits ", format_duration(std::chrono::milliseconds(seen.waited_ms)), ": ", seen.waits);
  if (seen.is_in_call()) return text("is in ", call_words(seen, seen.current()), waits);
  if (seen.started == 0) return text(waits.empty() ? "has made no call" : "has made no call of all", waits);
  return text(waits.empty() ? "is in no call" : "is in no call of all", "; last was ", call_words(seen, seen.started),
              waits);
}

std::string neighbours(std::uint64_t id, const IndexSet& ranks) {
  constexpr std::size_t most = 3;
  constexpr std::chrono::milliseconds longest{50};
  if (id == 0 || ranks.empty()) return {};
  const auto until = std::chrono::steady_clock::now() + longest;
  std::vector<std::pair<int, int>> found;  // rank and process
  for_each_process([&](int process) {
    if (process != ::getpid()) {
      glance_at(process, [&](const auto& heads) {
        for (const Head& head : heads) {
          if (is_in_use(head) && head.id == id && ranks.contains(head.rank)) found.emplace_back(head.rank, process);
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
      const auto seen = look_at(process);
      const auto own = std::ranges::find_if(seen.value().communicators, [&, rank = rank](const CommunicatorSeen& each) {
        return each.id == id && each.rank == rank;
      });
      if (own != seen->communicators.end()) parts.push_back(neighbour_words(*seen, *own));
    } catch (const std::exception&) {  // it has just ended
    }
  }
  if (found.size() > most) parts.push_back(text("and ", found.size() - most, " more: `lockstep stat`"));
  return parts.empty() ? "" : text("; on this host ", join(parts, "; "));
}

}  // namespace lockstep::book
