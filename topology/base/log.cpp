// SPDX-License-Identifier: Apache-2.0
// Formats log lines, and writes them to standard error by default.
#include "topology/base/log.hpp"

#include <unistd.h>

#include <array>

#include "topology/base/escaped.hpp"
#include "topology/base/text.hpp"

namespace lockstep {
namespace {

constexpr std::array<std::string_view, 6> level_names = {"off", "error", "warn", "notice", "info", "debug"};
constexpr std::array<std::string_view, 6> shouts = {"", "ERROR", "WARN", "NOTICE", "INFO", "DEBUG"};

// Writes each line by one write(), so that lines of many processes on one terminal do not mix.
void to_standard_error(LogLevel level, std::string_view line) {
  const std::string whole = text("lockstep ", shouts.at(static_cast<std::size_t>(level)), " ", line, "\n");
  [[maybe_unused]] const auto written = ::write(STDERR_FILENO, whole.data(), whole.size());
}

}  // namespace

std::string_view to_string(LogLevel level) { return level_names.at(static_cast<std::size_t>(level)); }

std::optional<LogLevel> parse_log_level(std::string_view name) {
  for (std::size_t i = 0; i < level_names.size(); ++i) {
    if (level_names.at(i) == name) return static_cast<LogLevel>(i);
  }
  return std::nullopt;
}

Log::Log(LogLevel threshold, Sink sink)
    : threshold_(threshold), sink_(std::make_shared<const Sink>(sink ? std::move(sink) : to_standard_error)) {}

Log Log::speaking_as(std::string_view who) const {
  Log named = *this;
  named.speaker_ = who;
  return named;
}

void Log::write(LogLevel level, std::string_view message) const {
  if (level > threshold_) return;
  (*sink_)(level, escaped(speaker_.empty() ? std::string(message) : text("[", speaker_, "] ", message)));
}

}  // namespace lockstep
