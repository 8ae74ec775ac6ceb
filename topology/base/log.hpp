// SPDX-License-Identifier: Apache-2.0
// What the library has to say while it runs. A value that is handed down, so that a program which
// embeds Lockstep decides where lines go; by default they go to standard error, each in one write.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace lockstep {

enum class LogLevel : std::uint8_t { off, error, warn, info, debug };

std::string_view to_string(LogLevel level);
std::optional<LogLevel> parse_log_level(std::string_view name);

class Log {
 public:
  using Sink = std::function<void(LogLevel, std::string_view line)>;

  // Without a sink: standard error, as "lockstep WARN [who] text".
  explicit Log(LogLevel threshold = LogLevel::warn, Sink sink = {});

  // The same log, with every line naming its speaker ("rank 3 of 8 on node-a").
  Log speaking_as(std::string_view who) const;

  void error(std::string_view message) const { write(LogLevel::error, message); }
  void warn(std::string_view message) const { write(LogLevel::warn, message); }
  void info(std::string_view message) const { write(LogLevel::info, message); }
  void debug(std::string_view message) const { write(LogLevel::debug, message); }

 private:
  void write(LogLevel level, std::string_view message) const;

  LogLevel threshold_;
  std::shared_ptr<const Sink> sink_;
  std::string who_;
};

}  // namespace lockstep
