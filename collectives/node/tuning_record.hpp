// SPDX-License-Identifier: Apache-2.0
// Keeps the measurements of thresholds that counted, and the number of those that did not, in a file in
// ~/.cache/lockstep. The median of each threshold is used. After `most_attempts` jobs none measures any more, so a
// machine that is never quiet does not pay for ever.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/node/tuning.hpp"

namespace lockstep::node {

// Counts the measurements after which members measure no more; a guess.
inline constexpr std::size_t measurements_needed = 5;
// Counts the jobs that measure at all; a guess.
inline constexpr std::size_t most_attempts = 20;

// Returns the median of each field. `measured` must not be empty.
Tuning median_of(std::span<const Tuning> measured);

// Holds the measurements of one key.
class TuningRecord {
 public:
  // Adds a job's measurement, or counts it as refused.
  void add(const TuningMeasurement& measured, Doubt doubt);
  // Replaces the oldest measurement of a threshold, because a running program was faster with this value. One program
  // does not change the median of five.
  void give_up(const TuningField& field, std::size_t value);

  // Returns the thresholds to use: medians, or guesses for this number of members.
  TuningOffer offer(int members) const;
  TuningConfidence confidence() const;
  bool needs_measurement() const {
    return measured_.size() < measurements_needed && measured_.size() + refused_ < most_attempts;
  }
  std::span<const Tuning> measured() const { return measured_; }
  std::size_t refused() const { return refused_; }

  // Write and read the file's text: lines such as "two_phase_from 16384 65536 16384", with a value for every
  // measurement. Text after # is for people. parse() returns an empty record if a line is missing or wrong, or the key
  // differs; an empty key fits all.
  std::string to_text(std::string_view key) const;
  static TuningRecord parse(std::string_view text, std::string_view key = {});

  bool operator==(const TuningRecord&) const = default;

 private:
  bool read_line(std::string_view name, std::string_view values, std::size_t& fields_read);

  std::vector<Tuning> measured_;      // the oldest first
  std::vector<std::size_t> spreads_;  // per cent, one for each measurement
  std::size_t refused_ = 0;
  std::size_t given_up_ = 0;
  Doubt last_doubt_ = Doubt::none;
};

// Returns the path of the file for this key; empty if there is no folder for it.
std::string tuning_file(std::string_view key);
// Returns the stored record for this key; empty if there is none.
TuningRecord read_record(std::string_view key);
// Stores the record. If that fails, later jobs measure again.
void store_record(const TuningRecord& record, std::string_view key) noexcept;

// Notes in the stored record that a running program was faster with another value of a threshold.
void note_given_up(std::string_view key, const TuningField& field, std::size_t value) noexcept;

// Is a stored record with the end of its key, such as "2 processes, 50 to 200 ns apart".
struct StoredRecord {
  std::string path;
  std::string layout;
  TuningRecord record;
};
// Returns all stored records of this machine and build for this number of members.
std::vector<StoredRecord> stored_records(int members);

}  // namespace lockstep::node
