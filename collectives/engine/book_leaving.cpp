// SPDX-License-Identifier: Apache-2.0
// Books as files, for `lockstep why`.
#include <unistd.h>

#include <algorithm>
#include <mutex>

#include "collectives/engine/book_reading.hpp"
#include "collectives/engine/files.hpp"
#include "topology/base/error.hpp"
#include "topology/base/text.hpp"

namespace lockstep::book {
namespace {

constexpr std::string_view setting = "LOCKSTEP_DUMP";

struct Place {
  std::mutex mutex;
  std::string folder;
};

Place& place() {
  static Place* const one = new Place;  // communicators may end after statics
  return *one;
}

std::string json_of(const CommunicatorSeen& seen) {
  std::vector<std::string> calls;
  calls.reserve(seen.calls.size());
  for (const CallSeen& call : seen.calls)
    calls.push_back(text("        {\"number\": ", call.number, ", \"call\": ", json_text(call.call),
                         ", \"place\": ", json_text(call.place), "}"));
  return text("    {\"name\": ", json_text(seen.name), ", \"rank\": ", seen.rank, ", \"size\": ", seen.size,
              ", \"order\": ", seen.order, ", \"id\": ", seen.id, ",\n     \"started\": ", seen.started,
              ", \"finished\": ", seen.finished, ", \"messages\": ", seen.messages,
              ",\n     \"waits\": ", json_text(seen.waits), ", \"waited_ms\": ", seen.waited_ms,
              ",\n     \"failure\": ", json_text(seen.failure), ",\n     \"calls\": [", calls.empty() ? "" : "\n",
              join(calls, ",\n"), "]}");
}

// Written by that process, or by another one that has seen it.
enum class By : std::uint8_t { itself, another };
std::string path_of(const std::string& folder, const std::string& host, int process, By by) {
  return text(folder, "/lockstep-", file_part(host), '-', process, by == By::itself ? "" : "-seen", ".json");
}

bool has_failed(const ProcessSeen& seen) {
  return std::ranges::any_of(seen.communicators, [](const auto& each) { return !each.failure.empty(); });
}

}  // namespace

std::string to_json(const ProcessSeen& seen) {
  std::vector<std::string> all;
  all.reserve(seen.communicators.size());
  for (const CommunicatorSeen& each : seen.communicators) all.push_back(json_of(each));
  return text("{\"lockstep_book\": 1,\n \"host\": ", json_text(seen.host), ", \"process\": ", seen.process,
              ", \"program\": ", json_text(seen.program), ", \"state\": ", json_text(seen.state),
              ",\n \"communicators\": [", all.empty() ? "" : "\n", join(all, ",\n"), "]}\n");
}

void leave_in(std::string folder) {
  if (!folder.empty()) make_folder(folder, setting);
  const std::lock_guard lock(place().mutex);
  place().folder = std::move(folder);
}

std::optional<std::string> leave() {
  const std::lock_guard lock(place().mutex);
  const std::string& folder = place().folder;
  const auto mine = folder.empty() ? std::nullopt : look_at(::getpid());
  if (!mine) return std::nullopt;
  make_folder(folder, setting);
  write_whole_file(path_of(folder, mine->host, mine->process, By::itself), to_json(*mine), setting);
  for (const int process : relatives(mine->communicators)) {
    const std::string path = path_of(folder, mine->host, process, By::another);
    const std::string own = path_of(folder, mine->host, process, By::itself);
    if (::access(path.c_str(), F_OK) == 0 || ::access(own.c_str(), F_OK) == 0) continue;
    try {
      const auto theirs = look_at(process);
      if (theirs && !has_failed(*theirs)) write_whole_file(path, to_json(*theirs), setting);
    } catch (const Error&) {  // it has just ended
    }
  }
  return folder;
}

}  // namespace lockstep::book
