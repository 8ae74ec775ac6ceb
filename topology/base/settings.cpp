// SPDX-License-Identifier: Apache-2.0
// Holds the table of LOCKSTEP_ variables, and checks their values.
#include "topology/base/settings.hpp"

#include <unistd.h>

#include <algorithm>
#include <csignal>

#include "topology/base/duration.hpp"
#include "topology/base/environment.hpp"
#include "topology/base/error.hpp"
#include "topology/base/text.hpp"

namespace lockstep {
namespace {

constexpr std::string_view a_duration = "a duration: 10, 10s, 500ms, 2m or 1h; 0 = never";

constexpr std::array rows = {
    SettingRow{Setting::algorithm, "LOCKSTEP_ALGORITHM", "auto",
               "auto, or collective:algorithm with commas between several: all_reduce:ring,broadcast:chain", true,
               "the algorithm to use for a collective; `lockstep plan COLLECTIVE` lists the names"},
    SettingRow{Setting::allow_singleton, "LOCKSTEP_ALLOW_SINGLETON", "0", "0 or 1", false,
               "continue as a world of one although the launcher's variables say that several were meant"},
    SettingRow{Setting::checksums, "LOCKSTEP_CHECKSUMS", "0", "0 or 1", true,
               "add checksums to messages (1): a byte that changes on the way is an error"},
    SettingRow{
        Setting::dump, "LOCKSTEP_DUMP", "none", "none, or the path of a folder, in printable ASCII", false,
        "folder for the last calls of each member when one of its communicators fails; `lockstep why FOLDER` reads it"},
    SettingRow{Setting::interface, "LOCKSTEP_INTERFACE", "any",
               "any, or the name of a network interface, or the beginning of its addresses: eth1, 10.2.", true,
               "the network for messages between nodes when MPI does not carry them"},
    SettingRow{Setting::key_file, "LOCKSTEP_KEY_FILE", "none",
               "none, or the path of a file of 16 to 4096 bytes that only its owner may read, in printable ASCII",
               false,
               "the key by which processes that TF_CONFIG names, without MPI, know each other; none: the user's own, "
               "in ~/.config/lockstep"},
    SettingRow{Setting::log, "LOCKSTEP_LOG", "notice", "off, error, warn, notice, info or debug", false,
               "the level of messages on standard error or to the program's log callback"},
    SettingRow{Setting::nccl, "LOCKSTEP_NCCL", "1", "0 or 1", true,
               "use NCCL for data on GPUs if each member has its own (1), or copy it through the host (0)"},
    SettingRow{Setting::node_memory, "LOCKSTEP_NODE_MEMORY", "1", "0 or 1", true,
               "let members of a node work in shared memory (1), or by messages only (0)"},
    SettingRow{Setting::racks, "LOCKSTEP_RACKS", "none",
               "none, or words such as \"a = node[1-4]; b = node[5-8]; uplink = 400G\", or the path of a file with a "
               "sentence to a line, in printable ASCII",
               true, "which nodes share a rack; data is combined within racks first; none: as Slurm says"},
    SettingRow{Setting::signal, "LOCKSTEP_SIGNAL", "none", "none, USR1 or USR2", false,
               "on this signal a process prints the state of its communicators, writes it to the folder of "
               "LOCKSTEP_DUMP, and continues"},
    SettingRow{Setting::silence, "LOCKSTEP_SILENCE", "10s", "a duration from 2s to 1h", true,
               "over sockets: how long a host may be silent, its kernel included, before its members count as dead"},
    SettingRow{Setting::stall_warn, "LOCKSTEP_STALL_WARN", "10s", a_duration, false,
               "how long a wait lasts before a warning names the missing members"},
    SettingRow{Setting::strict, "LOCKSTEP_STRICT", "0", "0 or 1", true,
               "require members to call collectives, and change variables, at the same lines of the program (1)"},
    SettingRow{Setting::table, "LOCKSTEP_TABLE", "none",
               "none, or the path of a file that all members can read, in printable ASCII", true,
               "a table of measured choices of algorithms, used before the cost model"},
    SettingRow{
        Setting::timeline, "LOCKSTEP_TIMELINE", "none", "none, or the path of a folder, in printable ASCII", false,
        "folder for the begin and end of each member's calls; `lockstep timeline FOLDER` makes one picture of all"},
    SettingRow{Setting::timeout, "LOCKSTEP_TIMEOUT", "300s", a_duration, true,
               "how long a wait lasts before it fails with an error that names the missing members"},
    SettingRow{
        Setting::transport, "LOCKSTEP_TRANSPORT", "auto", "auto, mpi, tcp or ucx", true,
        "the transport of messages: MPI, Lockstep's TCP sockets, or UCX (without MPI only); auto: under MPI, sockets "
        "between nodes without a network faster than TCP, and wherever mpirun was given `--enable-recovery`; else MPI"},
    SettingRow{Setting::wire, "LOCKSTEP_WIRE", "as_is", "as_is, bf16 or f16", true,
               "the format of f32 in messages between nodes, for an all_reduce that adds in the fast order and if that "
               "saves time"},
};

// True for letters, digits and underscores, with blanks around them.
bool is_word(std::string_view word) {
  const std::string_view inner = trim(word);
  return !inner.empty() && inner.size() < 64 && std::ranges::all_of(inner, [](char letter) {
    return (letter >= 'a' && letter <= 'z') || (letter >= 'A' && letter <= 'Z') || (letter >= '0' && letter <= '9') ||
           letter == '_';
  });
}

// True for "word:word", or several with commas between.
bool are_pairs(std::string_view value) {
  return std::ranges::all_of(split(value, ','), [](std::string_view pair) {
    const std::size_t colon = pair.find(':');
    return colon != std::string_view::npos && is_word(pair.substr(0, colon)) && is_word(pair.substr(colon + 1));
  });
}

bool is_allowed(Setting setting, std::string_view value) {
  switch (setting) {
    case Setting::algorithm:
      return value == "auto" || are_pairs(value);
    case Setting::allow_singleton:
    case Setting::checksums:
    case Setting::nccl:
    case Setting::node_memory:
    case Setting::strict:
      return value == "0" || value == "1";
    case Setting::log:
      return parse_log_level(value).has_value();
    case Setting::dump:
    case Setting::interface:
    case Setting::key_file:
    case Setting::racks:
    case Setting::table:
    case Setting::timeline:
      return !value.empty() && value.size() < 4096 && printable(value, value.size()) == value;
    case Setting::signal:
      return value == "none" || value == "USR1" || value == "USR2";
    case Setting::silence: {
      const auto given = parse_duration(value);
      return given && *given >= std::chrono::seconds(2) && *given <= std::chrono::hours(1);
    }
    case Setting::stall_warn:
    case Setting::timeout:
      return parse_duration(value).has_value();
    case Setting::transport:
      return value == "auto" || value == "mpi" || value == "tcp" || value == "ucx";
    case Setting::wire:
      return value == "as_is" || value == "bf16" || value == "f16";
  }
  return false;
}

std::string unknown_sentence(std::string_view name) {
  std::vector<std::string> names;
  names.reserve(rows.size());
  for (const SettingRow& row : rows) names.emplace_back(row.name);
  const auto near = nearest(name, names);
  return text(id(Code::unknown_setting), " the variable ", printable(name), " does not exist and is ignored",
              near ? text("; did you mean ", *near, "?") : text("; `lockstep doctor --env` lists all"));
}

}  // namespace

std::string_view to_string(SettingSource source) {
  constexpr std::array<std::string_view, 3> names = {"default", "environment", "program"};
  return names.at(static_cast<std::size_t>(source));
}

std::span<const SettingRow> setting_rows() { return rows; }

Settings::Settings() {
  static_assert(rows.size() == count);
  for (const SettingRow& row : rows) values_.at(index(row.setting)) = row.built_in;
}

Settings Settings::from_environment() {
  std::vector<std::string> lines;
  if (!has_raised_rights()) {
    for (char** line = environ; line != nullptr && *line != nullptr; ++line) lines.emplace_back(*line);
  }
  return from_lines(lines);
}

Settings Settings::from_lines(std::span<const std::string> lines) {
  Settings settings;
  for (const std::string& line : lines) {
    const std::size_t equals = line.find('=');
    if (!line.starts_with("LOCKSTEP_") || equals == std::string::npos) continue;
    settings.take_line(std::string_view(line).substr(0, equals), std::string_view(line).substr(equals + 1));
  }
  return settings;
}

void Settings::take_line(std::string_view name, std::string_view value) {
  const auto row = std::ranges::find(rows, name, &SettingRow::name);
  if (row == rows.end()) {
    warnings_.push_back(unknown_sentence(name));
  } else {
    set(row->setting, value, SettingSource::environment);
  }
}

void Settings::set(Setting setting, std::string_view value, SettingSource source) {
  const SettingRow& row = rows.at(index(setting));
  if (!is_allowed(setting, value)) {
    throw Error(Code::bad_setting, text(row.name, "=\"", printable(value), "\" (from the ", to_string(source), ")"),
                text("allowed is ", row.allowed, "; the default is ", row.built_in));
  }
  values_.at(index(setting)) = value;
  sources_.at(index(setting)) = source;
}

std::optional<std::string> Settings::table() const {
  const std::string& path = value(Setting::table);
  return path == "none" ? std::nullopt : std::optional(path);
}

std::string Settings::interface() const {
  const std::string& name = value(Setting::interface);
  return name == "any" ? std::string() : name;
}

std::string Settings::racks() const {
  const std::string& words = value(Setting::racks);
  return words == "none" ? std::string() : words;
}

std::string Settings::key_file() const {
  const std::string& path = value(Setting::key_file);
  return path == "none" ? std::string() : path;
}

std::string Settings::dump() const {
  const std::string& path = value(Setting::dump);
  return path == "none" ? std::string() : path;
}

std::string Settings::timeline() const {
  const std::string& path = value(Setting::timeline);
  return path == "none" ? std::string() : path;
}

int Settings::signal() const {
  const std::string& name = value(Setting::signal);
  return name == "none" ? 0 : name == "USR1" ? SIGUSR1 : SIGUSR2;
}

LogLevel Settings::log_level() const { return parse_log_level(value(Setting::log)).value_or(LogLevel::notice); }

TimeSpan Settings::silence() const { return parse_duration(value(Setting::silence)).value_or(Duration{}); }

TimeSpan Settings::stall_warn() const { return parse_duration(value(Setting::stall_warn)).value_or(Duration{}); }

TimeSpan Settings::timeout() const { return parse_duration(value(Setting::timeout)).value_or(Duration{}); }

}  // namespace lockstep
