// SPDX-License-Identifier: Apache-2.0
// Books as files, for `lockstep why`.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <mutex>

#include "collectives/engine/book_reading.hpp"
#include "topology/base/error.hpp"
#include "topology/base/text.hpp"

namespace lockstep::book {
namespace {

struct Place {
  std::mutex mutex;
  std::string folder;
};

Place& place() {
  static Place* const one = new Place;  // communicators may end after statics
  return *one;
}

// Of what may be printed only two letters mean something in JSON.
std::string quoted(std::string_view words) {
  std::string all = "\"";
  for (const char letter : printable(words, words.size())) {
    if (letter == '"' || letter == '\\') all += '\\';
    all += letter;
  }
  return all += '"';
}

std::string json_of(const CommunicatorSeen& seen) {
  std::vector<std::string> calls;
  calls.reserve(seen.calls.size());
  for (const CallSeen& call : seen.calls)
    calls.push_back(text("        {\"number\": ", call.number, ", \"call\": ", quoted(call.call),
                         ", \"place\": ", quoted(call.place), "}"));
  return text("    {\"name\": ", quoted(seen.name), ", \"rank\": ", seen.rank, ", \"size\": ", seen.size,
              ", \"order\": ", seen.order, ",\n     \"started\": ", seen.started, ", \"finished\": ", seen.finished,
              ", \"messages\": ", seen.messages, ",\n     \"waits\": ", quoted(seen.waits),
              ", \"waited_s\": ", seen.waited_s, ",\n     \"failure\": ", quoted(seen.failure), ",\n     \"calls\": [",
              calls.empty() ? "" : "\n", join(calls, ",\n"), "]}");
}

// Written by that process, or by another one that has seen it.
enum class By : std::uint8_t { itself, another };
std::string path_of(const std::string& folder, std::string host, int process, By by) {
  std::ranges::replace(host, '/', '-');
  return text(folder, "/lockstep-", host, '-', process, by == By::itself ? "" : "-seen", ".json");
}

// Whole or not at all.
void write_file(const std::string& path, const std::string& words) {
  const std::string before = text(path, ".", ::getpid());
  const int file = ::open(before.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, S_IRUSR | S_IWUSR);
  const bool is_written = file >= 0 && ::write(file, words.data(), words.size()) == static_cast<ssize_t>(words.size());
  const int error = errno;
  if (file >= 0) ::close(file);
  if (is_written && ::rename(before.c_str(), path.c_str()) == 0) return;
  const int reason = is_written ? errno : error;
  ::unlink(before.c_str());
  throw system_error(text("writing ", printable(path, path.size())), reason,
                     "let LOCKSTEP_DUMP name a folder that can be written to");
}

bool has_failed(const ProcessSeen& seen) {
  return std::ranges::any_of(seen.communicators, [](const auto& each) { return !each.failure.empty(); });
}

}  // namespace

std::string to_json(const ProcessSeen& seen) {
  std::vector<std::string> all;
  all.reserve(seen.communicators.size());
  for (const CommunicatorSeen& each : seen.communicators) all.push_back(json_of(each));
  return text("{\"lockstep_book\": 1,\n \"host\": ", quoted(seen.host), ", \"process\": ", seen.process,
              ", \"program\": ", quoted(seen.program), ", \"state\": ", quoted(seen.state), ",\n \"communicators\": [",
              all.empty() ? "" : "\n", join(all, ",\n"), "]}\n");
}

void leave_in(std::string folder) {
  const std::lock_guard lock(place().mutex);
  place().folder = std::move(folder);
}

std::optional<std::string> leave() {
  const std::lock_guard lock(place().mutex);
  const std::string& folder = place().folder;
  const auto mine = folder.empty() ? std::nullopt : look_at(::getpid());
  if (!mine) return std::nullopt;
  if (::mkdir(folder.c_str(), S_IRWXU) != 0 && errno != EEXIST)
    throw system_error(text("making the folder ", printable(folder, folder.size())), errno,
                       "let LOCKSTEP_DUMP name a folder in one that is there");
  write_file(path_of(folder, mine->host, mine->process, By::itself), to_json(*mine));
  for (const int process : processes()) {
    if (process == mine->process || parent_of(process) != ::getppid()) continue;
    const std::string path = path_of(folder, mine->host, process, By::another);
    const std::string own = path_of(folder, mine->host, process, By::itself);
    if (::access(path.c_str(), F_OK) == 0 || ::access(own.c_str(), F_OK) == 0) continue;
    try {
      const auto theirs = look_at(process);
      if (theirs && !has_failed(*theirs)) write_file(path, to_json(*theirs));
    } catch (const Error&) {  // it has just ended
    }
  }
  return folder;
}

}  // namespace lockstep::book
