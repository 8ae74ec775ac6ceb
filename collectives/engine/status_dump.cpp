// SPDX-License-Identifier: Apache-2.0
// Writes the status of this process and its relatives to files in a folder, for `lockstep why`.
#include <unistd.h>

#include <algorithm>
#include <mutex>

#include "collectives/engine/files.hpp"
#include "collectives/engine/status_reader.hpp"
#include "topology/base/error.hpp"
#include "topology/base/text.hpp"

namespace lockstep::status {
namespace {

constexpr std::string_view setting = "LOCKSTEP_DUMP";

struct DumpFolder {
  std::mutex mutex;
  std::string folder;
};

DumpFolder& dump_folder() {
  static DumpFolder* const one = new DumpFolder;  // never destroyed, since communicators may end after statics
  return *one;
}

std::string json_of(const MemberSnapshot& member) {
  const auto ago = [](std::string_view key, std::int64_t ms) {
    return ms == MemberSnapshot::never ? "" : text(", \"", key, "\": ", ms);
  };
  return text("        {\"rank\": ", member.rank, ", \"host\": ", json_text(member.host),
              ", \"process\": ", member.process, ", \"state\": ", json_text(to_string(member.state)),
              ", \"finished\": ", member.finished, ", \"in_flight\": ", member.in_flight,
              ago("unanswered_ms", member.unanswered_ms), ago("heard_ms", member.heard_ms), "}");
}

std::string json_of(const CommunicatorSnapshot& seen) {
  std::vector<std::string> calls;
  calls.reserve(seen.calls.size());
  for (const CallSnapshot& call : seen.calls)
    calls.push_back(text("        {\"number\": ", call.number, ", \"call\": ", json_text(call.call),
                         ", \"place\": ", json_text(call.place), "}"));
  std::vector<std::string> members;
  members.reserve(seen.members.size());
  for (const MemberSnapshot& member : seen.members) members.push_back(json_of(member));
  return text("    {\"name\": ", json_text(seen.name), ", \"rank\": ", seen.rank, ", \"size\": ", seen.size,
              ", \"order\": ", seen.order, ", \"id\": ", seen.id, ",\n     \"started\": ", seen.started,
              ", \"finished\": ", seen.finished, ", \"messages\": ", seen.messages,
              ",\n     \"waits\": ", json_text(seen.waits), ", \"waited_ms\": ", seen.waited_ms,
              ",\n     \"failure\": ", json_text(seen.failure), ",\n     \"calls\": [", calls.empty() ? "" : "\n",
              join(calls, ",\n"), "],\n     \"members\": [", members.empty() ? "" : "\n", join(members, ",\n"), "]}");
}

// Tells if a file was written by the process that it describes, or by another one that saw it.
enum class DumpAuthor : std::uint8_t { itself, another };
std::string path_of(const std::string& folder, const std::string& host, int process, DumpAuthor by) {
  return text(folder, "/lockstep-", file_part(host), '-', process, by == DumpAuthor::itself ? "" : "-seen", ".json");
}

// Returns the snapshot without members that no one asked or heard. In a large job each process leaves a file, and such
// members would fill the disk.
ProcessSnapshot without_silent_members(ProcessSnapshot seen) {
  for (CommunicatorSnapshot& each : seen.communicators)
    std::erase_if(each.members, [](const MemberSnapshot& member) {
      return member.state == MemberResponse::silent && member.unanswered_ms == MemberSnapshot::never;
    });
  return seen;
}

bool has_failed(const ProcessSnapshot& seen) {
  return std::ranges::any_of(seen.communicators, [](const auto& each) { return !each.failure.empty(); });
}

}  // namespace

std::string to_json(const ProcessSnapshot& seen) {
  std::vector<std::string> all;
  all.reserve(seen.communicators.size());
  for (const CommunicatorSnapshot& each : seen.communicators) all.push_back(json_of(each));
  return text("{\"lockstep_book\": 1,\n \"host\": ", json_text(seen.host), ", \"process\": ", seen.process,
              ", \"program\": ", json_text(seen.program), ", \"state\": ", json_text(seen.state),
              ",\n \"communicators\": [", all.empty() ? "" : "\n", join(all, ",\n"), "]}\n");
}

void set_dump_folder(std::string folder) {
  if (!folder.empty()) make_folder(folder, setting);
  const std::lock_guard lock(dump_folder().mutex);
  dump_folder().folder = std::move(folder);
}

std::optional<std::string> dump() {
  const std::lock_guard lock(dump_folder().mutex);
  const std::string& folder = dump_folder().folder;
  const auto mine = folder.empty() ? std::nullopt : read_process(::getpid());
  if (!mine) return std::nullopt;
  make_folder(folder, setting);
  write_whole_file(path_of(folder, mine->host, mine->process, DumpAuthor::itself),
                   to_json(without_silent_members(*mine)), setting);
  for (const int process : related_processes(mine->communicators)) {
    const std::string path = path_of(folder, mine->host, process, DumpAuthor::another);
    const std::string own = path_of(folder, mine->host, process, DumpAuthor::itself);
    const auto is_left = [&] { return ::access(path.c_str(), F_OK) == 0 || ::access(own.c_str(), F_OK) == 0; };
    if (is_left()) continue;
    try {
      const auto theirs = read_process(process);
      // Another member may have written it meanwhile, and ended. Then the launcher ends all processes, and first lets
      // stopped ones continue. So this look would say less than that member's.
      if (theirs && !has_failed(*theirs) && !is_left())
        write_whole_file(path, to_json(without_silent_members(*theirs)), setting);
    } catch (const Error&) {  // the process has just ended
    }
  }
  return folder;
}

}  // namespace lockstep::status
