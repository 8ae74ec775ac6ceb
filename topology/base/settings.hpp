// SPDX-License-Identifier: Apache-2.0
// The one table of LOCKSTEP_ variables. They are parsed once at the edge, checked, and handed down by reference. An
// unknown name is a warning with the nearest name; a bad value is an error that lists the allowed ones.
#pragma once

#include <array>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "topology/base/log.hpp"
#include "topology/base/time_span.hpp"

namespace lockstep {

// Tells where a value comes from. to_string() names `built_in` "default".
enum class SettingSource : std::uint8_t { built_in, environment, program };

std::string_view to_string(SettingSource source);

// Names the settings. The order is that of setting_rows().
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

// Describes one variable for people and for the check that members agree.
struct SettingRow {
  Setting setting;
  std::string_view name;      // for example "LOCKSTEP_TIMEOUT"
  std::string_view built_in;  // the default, as one would write it
  std::string_view allowed;   // the allowed values, as people read them
  bool agree;                 // true if the value must be the same on all members
  std::string_view meaning;
};

// Returns the rows sorted by name; the position of a row is its Setting.
std::span<const SettingRow> setting_rows();

// Holds a checked value for every setting, and its source.
class Settings {
 public:
  // Makes settings with all defaults.
  Settings();

  // Reads the environment of this process. Throws Error bad_setting. A program with raised rights (set-user-id,
  // for example) ignores the environment.
  static Settings from_environment();
  // Reads "NAME=value" lines, and skips those that do not begin with LOCKSTEP_. Throws Error bad_setting.
  static Settings from_lines(std::span<const std::string> lines);

  // Throws Error bad_setting if the value is not allowed, and then changes nothing.
  void set(Setting setting, std::string_view value, SettingSource source = SettingSource::program);

  // Return the value of a setting, and where it was set.
  const std::string& value(Setting setting) const { return values_.at(index(setting)); }
  SettingSource source(Setting setting) const { return sources_.at(index(setting)); }

  // Returns the text as written; collectives/plan_table.hpp parses it.
  const std::string& algorithm() const { return value(Setting::algorithm); }
  // Returns the path of the file; nothing if there is none.
  std::optional<std::string> table() const;
  // Returns the path of a file; empty: the file of the user.
  std::string key_file() const;
  // Return the paths of folders; empty if there is none.
  std::string dump() const;
  std::string timeline() const;
  bool allow_singleton() const { return value(Setting::allow_singleton) == "1"; }
  bool checksums() const { return value(Setting::checksums) == "1"; }
  bool strict() const { return value(Setting::strict) == "1"; }
  bool nccl() const { return value(Setting::nccl) == "1"; }
  bool node_memory() const { return value(Setting::node_memory) == "1"; }
  // Returns sentences or the path of a file, as written; topology/racks.hpp parses them. Empty if there are none.
  std::string racks() const;
  // Returns a name, or the beginning of addresses; empty: any.
  std::string interface() const;
  // Returns the signal's number; 0: none.
  int signal() const;
  // Returns auto, mpi, tcp or ucx.
  const std::string& transport() const { return value(Setting::transport); }
  LogLevel log_level() const;
  TimeSpan silence() const;     // from two seconds to one hour
  TimeSpan stall_warn() const;  // zero: never warn
  TimeSpan timeout() const;     // zero: wait for ever
  // Returns the text as written; collectives/spec.hpp parses it.
  const std::string& wire() const { return value(Setting::wire); }

  // Returns one sentence for each unknown LOCKSTEP_ variable.
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
