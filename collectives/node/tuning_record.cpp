// SPDX-License-Identifier: Apache-2.0
// Adds measurements to a record, and reads and writes it as a file.
#include "collectives/node/tuning_record.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <fstream>

#include "topology/base/bytes.hpp"
#include "topology/base/environment.hpp"
#include "topology/base/text.hpp"
#include "topology/base/text_file.hpp"

namespace lockstep::node {
namespace {

constexpr std::string_view file_end = ".txt";
constexpr std::string_view file_begin = "node-";
constexpr std::size_t most_counted = 9999;     // refused or given up
constexpr std::int64_t most_spread = 100'000;  // per cent

// Returns the folder of the files; empty if there is none.
std::string cache_folder() {
  const auto variable = [](const char* name) {
    const char* value = process_environment(name);
    return std::string(value == nullptr ? "" : value);
  };
  std::string folder = variable("XDG_CACHE_HOME");
  if (folder.empty() && !variable("HOME").empty()) folder = text(variable("HOME"), "/.cache");
  if (folder.empty() || folder.front() != '/') return {};
  return folder + "/lockstep";
}

std::string read_start(const std::string& path) {
  std::error_code error;
  if (path.empty() || !std::filesystem::is_regular_file(path, error)) return {};
  std::ifstream file(path);
  std::string all(4096, '\0');
  file.read(all.data(), static_cast<std::streamsize>(all.size()));
  all.resize(static_cast<std::size_t>(file.gcount()));
  return all;
}

// Removes files that a process was writing when it was killed. It spares those of the last hour, since another process
// may be writing one just now.
void remove_old_drafts(const std::filesystem::path& folder) {
  const auto old = std::filesystem::file_time_type::clock::now() - std::chrono::hours(1);
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(folder, ignored)) {
    const std::string name = entry.path().filename();
    const std::size_t begin = name.find(file_end);
    const bool is_draft =
        name.starts_with(file_begin) && begin != std::string::npos && begin + file_end.size() < name.size();
    if (is_draft && entry.last_write_time(ignored) < old) std::filesystem::remove(entry.path(), ignored);
  }
}

// Parses numbers between two limits. Returns nothing if one is wrong.
std::optional<std::vector<std::size_t>> numbers_of(std::string_view values, std::int64_t least, std::size_t most) {
  std::vector<std::size_t> all;
  for (const std::string& each : split(values, ' ')) {
    const auto number = parse_integer(each);
    if (!number || *number < least || static_cast<std::size_t>(*number) > most) return std::nullopt;
    all.push_back(static_cast<std::size_t>(*number));
  }
  return all;
}

template <class Values>
auto median(Values values) {
  const auto at = values.begin() + static_cast<std::ptrdiff_t>((values.size() - 1) / 2);
  std::ranges::nth_element(values, at);
  return *at;
}

}  // namespace

Tuning median_of(std::span<const Tuning> measured) {
  Tuning middle;
  std::vector<std::size_t> values(measured.size());
  for (const TuningField& field : tuning_fields()) {
    std::ranges::transform(measured, values.begin(), [&](const Tuning& each) { return each.*field.value; });
    middle.*field.value = median(values);
  }
  return middle;
}

void TuningRecord::add(const TuningMeasurement& measured, Doubt doubt) {
  if (doubt != Doubt::none) {
    ++refused_;
    last_doubt_ = doubt;
    return;
  }
  measured_.push_back(measured.tuning);
  const double percent = std::isfinite(measured.conditions.spread) ? 100 * measured.conditions.spread : 100;
  spreads_.push_back(static_cast<std::size_t>(std::clamp(percent, 100.0, static_cast<double>(most_spread))));
}

void TuningRecord::give_up(const TuningField& field, std::size_t value) {
  given_up_ = std::min(given_up_ + 1, most_counted);
  for (std::size_t i = 1; i < measured_.size(); ++i) measured_[i - 1].*field.value = measured_[i].*field.value;
  if (!measured_.empty()) measured_.back().*field.value = value;
}

TuningConfidence TuningRecord::confidence() const {
  return {.counted = static_cast<std::uint32_t>(measured_.size()),
          .refused = static_cast<std::uint32_t>(refused_),
          .given_up = static_cast<std::uint32_t>(given_up_),
          .last_doubt = last_doubt_,
          .is_full = !needs_measurement(),
          .spread = spreads_.empty() ? 1 : static_cast<double>(median(spreads_)) / 100};
}

TuningOffer TuningRecord::offer(int members) const {
  return {.tuning = measured_.empty() ? guessed_tuning(members) : median_of(measured_),
          .confidence = confidence(),
          .measures = needs_measurement()};
}

std::string TuningRecord::to_text(std::string_view key) const {
  std::string all = text("# Thresholds of this machine: ", node::to_text(confidence()), ".\n# Up to ",
                         measurements_needed, " jobs count, of at most ", most_attempts,
                         " that measure; the median is used. Delete this file to measure again.\nfor ", key,
                         "\nrefused ", refused_, "\ndoubt ", to_word(last_doubt_), "\ngiven_up ", given_up_, '\n');
  if (measured_.empty()) return all;
  all += "spread";
  for (const std::size_t each : spreads_) all += text(' ', each);
  all += '\n';
  for (const TuningField& field : tuning_fields()) {
    all += field.name;
    for (const Tuning& each : measured_) all += text(' ', each.*field.value);
    all += '\n';
  }
  return all;
}

// Reads one line. Returns false if it is wrong.
bool TuningRecord::read_line(std::string_view name, std::string_view values, std::size_t& fields_read) {
  if (name == "doubt") {
    const auto doubt = doubt_of(values);
    last_doubt_ = doubt.value_or(Doubt::none);
    return doubt.has_value();
  }
  const auto fields = tuning_fields();
  const auto field = std::ranges::find(fields, name, &TuningField::name);
  const bool is_spread = name == "spread";
  const bool is_count = name == "refused" || name == "given_up";
  if (field == fields.end() && !is_spread && !is_count) return false;
  const auto numbers = numbers_of(values,
                                  is_count    ? 0
                                  : is_spread ? 100
                                              : field->least,
                                  is_count    ? most_counted
                                  : is_spread ? most_spread
                                              : never);
  if (!numbers || numbers->size() > measurements_needed) return false;
  if (is_count) {
    (name == "refused" ? refused_ : given_up_) = numbers->front();
    return numbers->size() == 1;
  }
  if (is_spread) {
    spreads_ = *numbers;
    return true;
  }
  if (fields_read == 0) measured_.resize(numbers->size());
  if (numbers->size() != measured_.size()) return false;
  for (std::size_t i = 0; i < measured_.size(); ++i) measured_[i].*(field->value) = (*numbers)[i];
  ++fields_read;
  return true;
}

TuningRecord TuningRecord::parse(std::string_view text, std::string_view key) {
  TuningRecord record;
  std::size_t fields_read = 0;
  bool is_for = false;
  for (const std::string& whole : split(text, '\n')) {
    const std::string_view line = trim(whole);
    if (line.empty() || line.front() == '#') continue;
    const std::size_t blank = std::min(line.find(' '), line.size());
    const std::string_view values = trim(line.substr(blank));
    if (line.substr(0, blank) == "for") {
      is_for = key.empty() || values == key;
      continue;
    }
    if (!record.read_line(line.substr(0, blank), values, fields_read)) return {};
  }
  const std::size_t wanted = record.measured_.empty() ? 0 : tuning_fields().size();
  if (!is_for || fields_read != wanted || record.spreads_.size() != record.measured_.size()) return {};
  return record;
}

std::string tuning_file(std::string_view key) {
  const std::string folder = cache_folder();
  if (folder.empty()) return {};
  return text(folder, '/', file_begin, hexadecimal(hash(std::as_bytes(std::span(key)))), file_end);
}

TuningRecord read_record(std::string_view key) { return TuningRecord::parse(read_start(tuning_file(key)), key); }

void store_record(const TuningRecord& record, std::string_view key) noexcept {
  try {
    const std::string path = tuning_file(key);
    if (path.empty()) return;
    const auto folder = std::filesystem::path(path).parent_path();
    std::filesystem::create_directories(folder);
    remove_old_drafts(folder);
    replace_file(path, record.to_text(key));
  } catch (const std::exception&) {
    return;  // a read-only home is no reason to complain
  }
}

void note_given_up(std::string_view key, const TuningField& field, std::size_t value) noexcept {
  try {
    TuningRecord record = read_record(key);
    record.give_up(field, value);
    store_record(record, key);
  } catch (const std::exception&) {
    return;  // this job uses the value; later ones may find it again
  }
}

std::vector<StoredRecord> stored_records(int members) {
  std::vector<StoredRecord> all;
  const std::string machine = text("\nfor ", machine_key());
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(cache_folder(), error)) {
    const std::string name = entry.path().filename();
    if (!name.starts_with(file_begin) || !name.ends_with(file_end)) continue;
    const std::string stored = '\n' + read_start(entry.path());
    const std::size_t begin = stored.find(machine);
    if (begin == std::string::npos) continue;
    const std::size_t from = begin + machine.size();
    const std::string layout = stored.substr(from, stored.find('\n', from) - from);
    const TuningRecord record = TuningRecord::parse(stored);
    if (layout.starts_with(text(members, ' ')) && record != TuningRecord())
      all.push_back({entry.path(), layout.substr(0, layout.find(", version")), record});
  }
  std::ranges::sort(all, {}, &StoredRecord::layout);
  return all;
}

}  // namespace lockstep::node
