// SPDX-License-Identifier: Apache-2.0
// The library's messages to people while it runs. A log is a value that is handed down, so that a program which
// embeds Lockstep decides where lines go. By default each line goes to standard error in one write.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace lockstep {

// Orders the levels from silent to talkative. A log writes the lines of its threshold and of the levels before it.
// `notice` is the default: warnings, and the few lines in which a program says on which devices it runs.
enum class LogLevel : std::uint8_t { off, error, warn, notice, info, debug };

// Return a level's name, and the level of a name; nothing if there is no such level.
std::string_view to_string(LogLevel level);
std::optional<LogLevel> parse_log_level(std::string_view name);

// Holds a threshold, a sink and a speaker. Copies share the sink.
class Log {
 public:
  // Takes one line, without a line break and with control characters written out. It is called by any thread that
  // logs.
  using Sink = std::function<void(LogLevel, std::string_view line)>;

  // Makes a log. An empty `sink` writes lines such as "lockstep WARN [speaker] text" to standard error.
  explicit Log(LogLevel threshold = LogLevel::notice, Sink sink = {});

  // Returns the same log, in which every line names its speaker ("rank 3 of 8 on node-a").
  Log speaking_as(std::string_view who) const;

  // Write a line of that level, if the threshold lets it pass.
  void error(std::string_view message) const { write(LogLevel::error, message); }
  void warn(std::string_view message) const { write(LogLevel::warn, message); }
  void notice(std::string_view message) const { write(LogLevel::notice, message); }
  void info(std::string_view message) const { write(LogLevel::info, message); }
  void debug(std::string_view message) const { write(LogLevel::debug, message); }

 private:
  void write(LogLevel level, std::string_view message) const;

  LogLevel threshold_;
  std::shared_ptr<const Sink> sink_;
  std::string speaker_;
};

}  // namespace lockstep
