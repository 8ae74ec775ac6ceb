// SPDX-License-Identifier: Apache-2.0
// The one table of LOCKSTEP_ variables: parsed once at the edge, checked, handed down by reference.
// An unknown name is a warning with the nearest name; a bad value is an error that says what is allowed.
#pragma once

#include <array>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "topology/base/log.hpp"
#include "topology/base/text.hpp"

namespace lockstep {

enum class SettingSource : std::uint8_t { built_in, environment, program };

std::string_view to_string(SettingSource source);

enum class Setting : std::uint8_t {
  algorithm,
  allow_singleton,
  checksums,
  dump,
  interface,
  key_file,
  log,
  nccl,
  node_memory,
  racks,
  signal,
  silence,
  stall_warn,
  strict,
  table,
  timeline,
  timeout,
  transport,
  wire
};

struct SettingRow {
  Setting setting;
  std::string_view name;
  std::string_view built_in;
  std::string_view allowed;  // as people read it
  bool agree;                // must be the same on all members
  std::string_view meaning;
};

// Sorted by name; the position of a row is its Setting.
std::span<const SettingRow> setting_rows();

class Settings {
 public:
  Settings();

  // From the process's environment. A set-user-id program ignores the environment.
  static Settings from_environment();
  // From "NAME=value" lines; those that do not begin with LOCKSTEP_ are passed over.
  static Settings from_lines(std::span<const std::string> lines);

  // Throws Error bad_setting when the value is not allowed.
  void set(Setting setting, std::string_view value, SettingSource source = SettingSource::program);

  const std::string& value(Setting setting) const { return values_.at(index(setting)); }
  SettingSource source(Setting setting) const { return sources_.at(index(setting)); }

  // As written; collectives/plan_table.hpp knows what it means.
  const std::string& algorithm() const { return value(Setting::algorithm); }
  // The path of the file; nothing: none.
  std::optional<std::string> table() const;
  // The path of a file; empty: that of the user.
  std::string key_file() const;
  // The paths of folders; empty: none.
  std::string dump() const;
  std::string timeline() const;
  bool allow_singleton() const { return value(Setting::allow_singleton) == "1"; }
  bool checksums() const { return value(Setting::checksums) == "1"; }
  bool strict() const { return value(Setting::strict) == "1"; }
  bool nccl() const { return value(Setting::nccl) == "1"; }
  bool node_memory() const { return value(Setting::node_memory) == "1"; }
  // As written: words, or the path of a file; topology/racks.hpp knows what they mean. Empty: none.
  std::string racks() const;
  // A name, or the beginning of addresses; empty: any.
  std::string interface() const;
  // Its number; 0: none.
  int signal() const;
  // auto, mpi, tcp or ucx.
  const std::string& transport() const { return value(Setting::transport); }
  LogLevel log_level() const;
  Duration silence() const;     // at least two seconds
  Duration stall_warn() const;  // zero: never
  Duration timeout() const;     // zero: never
  // As written; collectives/spec.hpp knows what it means.
  const std::string& wire() const { return value(Setting::wire); }

  // One sentence for each unknown LOCKSTEP_ variable.
  const std::vector<std::string>& warnings() const { return warnings_; }

 private:
  static std::size_t index(Setting setting) { return static_cast<std::size_t>(setting); }
  void take_line(std::string_view name, std::string_view value);

  static constexpr std::size_t count = 19;
  std::array<std::string, count> values_;
  std::array<SettingSource, count> sources_{};
  std::vector<std::string> warnings_;
};

}  // namespace lockstep
