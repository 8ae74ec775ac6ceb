// SPDX-License-Identifier: Apache-2.0
// Records timelines in memory, and writes them as JSON in the folder of LOCKSTEP_TIMELINE.
#include "collectives/engine/timeline.hpp"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <mutex>

#include "collectives/engine/files.hpp"
#include "topology/base/text.hpp"

namespace lockstep::timeline {
namespace {

constexpr std::string_view setting = "LOCKSTEP_TIMELINE";

// Holds the folder, and the number of records taken so far.
struct TimelineFolder {
  std::mutex mutex;
  std::string folder;
  int made = 0;
};

TimelineFolder& timeline_folder() {
  static TimelineFolder* const one = new TimelineFolder;  // never destroyed, since communicators may end after statics
  return *one;
}

// Numbers texts, so that the file holds each text once.
class TextTable {
 public:
  int number_of(const std::string& text) {
    const auto [entry, is_new] = numbers_.try_emplace(text, static_cast<int>(all_.size()));
    if (is_new) all_.push_back(json_text(text));
    return entry->second;
  }
  std::string list() const { return text('[', join(all_, ", "), ']'); }

 private:
  std::map<std::string, int> numbers_;
  std::vector<std::string> all_;
};

}  // namespace

std::int64_t now_ns() { return std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1); }

void Track::add(std::uint64_t number, std::int64_t begin_ns, std::int64_t end_ns, const Signature& signature,
                const Origin& origin) {
  const CallSpan span{number, begin_ns, end_ns, signature, origin};
  if (spans_.size() < most)
    spans_.push_back(span);
  else
    spans_[added_ % most] = span;
  ++added_;
}

std::string Track::to_json(std::string_view host, int process, std::string_view program) const {
  TextTable texts;
  std::vector<std::string> calls;
  calls.reserve(spans_.size());
  for (const CallSpan& each : spans_) {
    const int call = texts.number_of(to_text(each.signature));
    const int place = texts.number_of(lockstep::place(each.origin));
    calls.push_back(text('[', each.number, ", ", each.begin_ns, ", ", each.end_ns, ", ", call, ", ", place, ']'));
  }
  return text("{\"lockstep_timeline\": 1, \"host\": ", json_text(host), ", \"process\": ", process,
              ", \"program\": ", json_text(program), ",\n \"name\": ", json_text(name_), ", \"rank\": ", rank_,
              ", \"size\": ", size_, ", \"order\": ", order_, ", \"id\": ", id_,
              ", \"dropped\": ", added_ - spans_.size(), ",\n \"texts\": ", texts.list(), ",\n \"calls\": [\n",
              join(calls, ",\n"), "]}\n");
}

void Track::write() const {
  make_folder(folder_, setting);
  const std::string host = own_host();
  write_whole_file(text(folder_, "/lockstep-", file_part(host), '-', ::getpid(), '-', order_, ".timeline"),
                   to_json(host, ::getpid(), own_program()), "LOCKSTEP_TIMELINE");
}

void set_folder(std::string folder) {
  if (!folder.empty()) make_folder(folder, setting);
  const std::lock_guard lock(timeline_folder().mutex);
  timeline_folder().folder = std::move(folder);
}

std::unique_ptr<Track> take_track(std::string_view name, int rank, int size, std::uint64_t id) {
  const std::lock_guard lock(timeline_folder().mutex);
  if (timeline_folder().folder.empty()) return nullptr;
  return std::make_unique<Track>(timeline_folder().folder, name, rank, size, timeline_folder().made++, id);
}

}  // namespace lockstep::timeline
