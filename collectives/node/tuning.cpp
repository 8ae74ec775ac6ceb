// SPDX-License-Identifier: Apache-2.0
// Guesses thresholds, and reads and writes them as a file.
#include "collectives/node/tuning.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <filesystem>
#include <fstream>

#include "collectives/kernels/kernels.hpp"
#include "collectives/kernels/streaming.hpp"
#include "topology/base/bytes.hpp"
#include "topology/base/environment.hpp"
#include "topology/base/text.hpp"
#include "topology/base/text_file.hpp"

namespace lockstep::node {
namespace {

struct TuningField {
  std::string_view name;
  std::size_t Tuning::*value;
  std::int64_t least = 64;
};
constexpr std::array fields = {TuningField{"two_phase_from", &Tuning::two_phase_from},
                               TuningField{"segment", &Tuning::segment},
                               TuningField{"flow_from", &Tuning::flow_from},
                               TuningField{"spread_from", &Tuning::spread_from},
                               TuningField{"stream_from", &Tuning::stream_from},
                               TuningField{"slow_write_from", &Tuning::slow_write_from, 0},
                               TuningField{"direct_from", &Tuning::direct_from},
                               TuningField{"process_read_from", &Tuning::process_read_from},
                               TuningField{"each_combines_from", &Tuning::each_combines_from, 1},
                               TuningField{"stream_moved_from", &Tuning::stream_moved_from},
                               TuningField{"step", &Tuning::step}};

std::string processor() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const std::size_t colon = line.find(':');
    if (colon != std::string::npos && (line.starts_with("model name") || line.starts_with("CPU part")))
      return std::string(trim(line.substr(colon + 1)));
  }
  return "unknown processor";
}

// Returns the class of a distance between cores. Each class reaches four times as far as the one before: cores that
// share caches of one core, the last cache, or only the board.
std::string distance(double nanoseconds) {
  if (nanoseconds <= 0) return {};
  double class_end = 50;
  while (class_end < nanoseconds) class_end *= 4;
  return text(", ", class_end / 4, " to ", class_end, " ns apart");
}

// Removes files that a process was writing when it was killed. It spares those of the last hour, since another process
// may be writing one just now.
void remove_old_drafts(const std::filesystem::path& folder) {
  constexpr std::string_view end = ".txt";
  const auto old = std::filesystem::file_time_type::clock::now() - std::chrono::hours(1);
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(folder, ignored)) {
    const std::string name = entry.path().filename();
    const std::size_t begin = name.find(end);
    const bool is_draft = name.starts_with("node-") && begin != std::string::npos && begin + end.size() < name.size();
    if (is_draft && entry.last_write_time(ignored) < old) std::filesystem::remove(entry.path(), ignored);
  }
}

}  // namespace

// The second cache holds a member's working data; results that no cache holds are written past the caches. More than 16
// members would take too long if each read all lines, so the last one combines for all.
Tuning guessed_tuning(int members) {
  const std::size_t cache = last_cache_size();
  const auto n = static_cast<std::size_t>(std::max(1, members));
  constexpr std::size_t least = 1024;
  return {.two_phase_from = std::max(least, cache / 512 / n),
          .segment = std::max(16 * least, cache / 512),
          .step = std::max(16 * least, cache / 512),
          .flow_from = never,
          .spread_from = never,
          .stream_from = std::max(least, cache / 2),
          .stream_moved_from = std::max(least, cache / 2),
          .slow_write_from = never,
          .direct_from = std::max(least, cache / 8192),
          .process_read_from = never,

          .each_combines_from = members > 16 ? never : 1};
}

std::string tuning_key(int members, bool one_process, bool crowded, double nanoseconds) {
  return text(processor(), ", ", format_bytes(last_cache_size()), " cache, ", kernel_target(), ", ",
              std::max(1L, ::sysconf(_SC_NPROCESSORS_ONLN)), " processors, ", members,
              one_process ? " threads" : " processes", crowded ? " sharing cores" : "", distance(nanoseconds),
              ", version 12");
}

std::string tuning_file(std::string_view key) {
  const auto variable = [](const char* name) {
    const char* value = process_environment(name);
    return std::string(value == nullptr ? "" : value);
  };
  std::string folder = variable("XDG_CACHE_HOME");
  if (folder.empty() && !variable("HOME").empty()) folder = text(variable("HOME"), "/.cache");
  if (folder.empty() || folder.front() != '/') return {};
  return text(folder, "/lockstep/node-", hexadecimal(hash(std::as_bytes(std::span(key)))), ".txt");
}

Tuning median_of(std::span<const Tuning> measured) {
  Tuning middle;
  std::vector<std::size_t> values(measured.size());
  for (const TuningField& field : fields) {
    std::ranges::transform(measured, values.begin(), [&](const Tuning& each) { return each.*field.value; });
    const auto at = values.begin() + static_cast<std::ptrdiff_t>((values.size() - 1) / 2);
    std::ranges::nth_element(values, at);
    middle.*field.value = *at;
  }
  return middle;
}

std::string to_text(std::span<const Tuning> measured, std::string_view key) {
  std::string all = text("# Measurements of this machine, in ", measured.size(), " of ", measurements_needed,
                         " jobs; the median counts. Delete this file to measure again.\nfor ", key, '\n');
  for (const TuningField& field : fields) {
    all += field.name;
    for (const Tuning& each : measured) all += text(' ', each.*field.value);
    all += '\n';
  }
  return all;
}

std::vector<Tuning> parse_tunings(std::string_view text, std::string_view key) {
  std::vector<Tuning> all;
  std::size_t found = 0;
  bool is_for = false;
  for (const std::string& whole : split(text, '\n')) {
    const std::string_view line = trim(whole);
    if (line.empty() || line.front() == '#') continue;
    const std::size_t blank = std::min(line.find(' '), line.size());
    const std::string_view name = line.substr(0, blank);
    if (name == "for") {
      is_for = key.empty() || trim(line.substr(blank)) == key;
      continue;
    }
    const auto* const field = std::ranges::find(fields, name, &TuningField::name);
    const std::vector<std::string> values = split(trim(line.substr(blank)), ' ');
    if (found == 0) all.resize(values.size());
    if (field == fields.end() || values.size() != all.size() || values.size() > measurements_needed) return {};
    for (std::size_t i = 0; i < values.size(); ++i) {
      const auto number = parse_integer(values[i]);
      if (!number || *number < field->least || static_cast<std::size_t>(*number) > never) return {};
      all[i].*(field->value) = static_cast<std::size_t>(*number);
    }
    ++found;
  }
  if (!is_for || found != fields.size()) return {};
  return all;
}

std::vector<Tuning> read_tunings(std::string_view key) {
  const std::string path = tuning_file(key);
  std::error_code error;
  if (path.empty() || !std::filesystem::is_regular_file(path, error)) return {};
  std::ifstream file(path);
  std::array<char, 4096> all{};
  file.read(all.data(), all.size());
  return parse_tunings({all.data(), static_cast<std::size_t>(file.gcount())}, key);
}

void store_tunings(std::span<const Tuning> measured, std::string_view key) noexcept {
  try {
    const std::string path = tuning_file(key);
    if (path.empty()) return;
    const auto folder = std::filesystem::path(path).parent_path();
    std::filesystem::create_directories(folder);
    remove_old_drafts(folder);
    replace_file(path, to_text(measured, key));
  } catch (const std::exception&) {
    return;  // a read-only home is no reason to complain
  }
}

}  // namespace lockstep::node
