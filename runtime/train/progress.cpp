// SPDX-License-Identifier: Apache-2.0
// Writes the texts of Keras's displays.
#include "runtime/train/progress.hpp"

#include <unistd.h>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <system_error>

#include "topology/base/environment.hpp"
#include "topology/base/error.hpp"
#include "topology/base/text.hpp"

namespace lockstep::train {
namespace {

using ProgressClock = std::chrono::steady_clock;
constexpr std::int64_t bar_width = 30;                 // is Keras's
constexpr std::chrono::milliseconds redraw_every{50};  // is Keras's

template <class... A>
std::string formatted(const char* format, A... values) {
  std::string line(64, '\0');
  const int length = std::snprintf(line.data(), line.size(), format, values...);
  line.resize(static_cast<std::size_t>(std::max(0, std::min(length, 63))));
  return line;
}

void write_epoch(std::ostream& out, std::int64_t epoch, std::int64_t epochs) {
  if (epochs > 0) out << text("Epoch ", epoch + 1, '/', epochs, '\n');
}

class LineProgress final : public Progress {
 public:
  explicit LineProgress(std::ostream& out) : out_(out) {}
  void begin(std::int64_t epoch, std::int64_t epochs, std::optional<std::int64_t> steps) override {
    steps_ = steps;
    write_epoch(out_, epoch, epochs);
  }
  void end(std::int64_t done, const Logs& logs) override {
    const std::int64_t steps = steps_.value_or(done);
    out_ << text(steps, '/', steps, to_string(logs), '\n') << std::flush;
  }

 private:
  std::ostream& out_;
  std::optional<std::int64_t> steps_;
};

// Returns Keras's words for the time of a step: "2s/step", "12ms/step" or "80us/step".
std::string step_time(double seconds) {
  if (seconds >= 1 || seconds == 0) return formatted("%.0fs/step", seconds);
  return seconds >= 1e-3 ? formatted("%.0fms/step", seconds * 1e3) : formatted("%.0fus/step", seconds * 1e6);
}
std::string time_left(double seconds) {
  const auto whole = static_cast<long>(seconds);
  if (whole > 3600) return formatted("%ld:%02ld:%02ld", whole / 3600, whole % 3600 / 60, whole % 60);
  if (whole > 60) return formatted("%ld:%02ld", whole / 60, whole % 60);
  return formatted("%lds", whole);
}

class BarProgress final : public Progress {
 public:
  explicit BarProgress(std::ostream& out) : out_(out) {}
  void begin(std::int64_t epoch, std::int64_t epochs, std::optional<std::int64_t> steps) override {
    steps_ = steps;
    width_ = 0;
    start_ = ProgressClock::now();
    drawn_ = start_;
    write_epoch(out_, epoch, epochs);
  }
  bool wants_step(std::int64_t /*done*/) override { return ProgressClock::now() - drawn_ >= redraw_every; }
  void step(std::int64_t done, const Logs& logs) override {
    if (steps_ && done >= *steps_) return;  // The last one is drawn by end().
    const double taken = seconds();
    const double each = taken / static_cast<double>(std::max<std::int64_t>(1, done));
    draw(steps_ ? text(" - ETA: ", time_left(each * static_cast<double>(*steps_ - done)))
                : text(" - ", formatted("%.0fs ", taken), step_time(each)),
         done, logs);
    out_ << std::flush;
  }
  void end(std::int64_t done, const Logs& logs) override {
    steps_ = std::max(steps_.value_or(done), done);
    const double taken = seconds();
    draw(text(" - ", formatted("%.0fs ", taken),
              step_time(taken / static_cast<double>(std::max<std::int64_t>(1, done)))),
         *steps_, logs);
    out_ << '\n' << std::flush;
  }

 private:
  double seconds() const { return std::chrono::duration<double>(ProgressClock::now() - start_).count(); }
  void draw(const std::string& times, std::int64_t done, const Logs& logs) {
    drawn_ = ProgressClock::now();
    std::string line;
    if (steps_) {
      const std::string all = text(*steps_);
      const std::string now = text(done);
      line = text(std::string(all.size() - std::min(all.size(), now.size()), ' '), now, '/', all, ' ',
                  bar_text(done, *steps_));
    } else {
      line = formatted("%7lld/Unknown", static_cast<long long>(done));
    }
    line += times + to_string(logs);
    // Spaces hide the end of a longer line below.
    out_ << '\r' << line << std::string(width_ - std::min(width_, line.size()), ' ');
    width_ = line.size();
  }

  std::ostream& out_;
  std::optional<std::int64_t> steps_;
  ProgressClock::time_point start_;
  ProgressClock::time_point drawn_;
  std::size_t width_ = 0;
};

// True if standard output is a terminal that Open MPI's launcher made, whose own output goes elsewhere.
bool is_terminal_of_launcher() {
  if (process_environment("OMPI_COMM_WORLD_RANK") == nullptr) return false;
  std::error_code fault;
  const auto output = std::filesystem::read_symlink(text("/proc/", getppid(), "/fd/1"), fault);
  return !fault && !output.string().starts_with("/dev/");
}

bool is_terminal(const std::ostream& out) {
  if (out.rdbuf() == std::cout.rdbuf()) return isatty(STDOUT_FILENO) == 1 && !is_terminal_of_launcher();
  return (out.rdbuf() == std::cerr.rdbuf() || out.rdbuf() == std::clog.rdbuf()) && isatty(STDERR_FILENO) == 1;
}

template <class Names>
[[noreturn]] void refuse_name(std::string_view name, const Names& names) {
  std::string all;
  for (const auto& [each, value] : names) all += text(all.empty() ? "" : ", ", each);
  throw Error(Code::usage, text("training has no number of the name ", name), text("it has: ", all));
}

}  // namespace

double Logs::operator[](std::string_view name) const {
  if (const auto value = find(name)) return *value;
  refuse_name(name, entries_);
}
const std::vector<double>& History::operator[](const std::string& name) const {
  const auto at = values.find(name);
  if (at == values.end()) refuse_name(name, values);
  return at->second;
}

std::string to_string(const Logs& logs) {
  std::string all;
  for (const auto& [name, value] : logs)
    all += text(" - ", name, ": ", formatted(std::abs(value) > 1e-3 ? "%.4f" : "%.4e", value));
  return all;
}

std::string bar_text(std::int64_t done, std::int64_t steps) {
  const std::int64_t filled = bar_width * std::min(done, steps) / std::max<std::int64_t>(1, steps);
  std::string bar(static_cast<std::size_t>(filled), '=');
  if (filled > 0 && done < steps) bar.back() = '>';
  return text('[', bar, std::string(static_cast<std::size_t>(bar_width - filled), '.'), ']');
}

std::unique_ptr<Progress> make_lines(std::ostream& out) { return std::make_unique<LineProgress>(out); }
std::unique_ptr<Progress> make_bar(std::ostream& out) { return std::make_unique<BarProgress>(out); }
std::unique_ptr<Progress> make_progress(Verbose verbose, std::ostream& out) {
  if (verbose == Verbose::silent) return nullptr;
  if (verbose == Verbose::automatic) verbose = is_terminal(out) ? Verbose::bar : Verbose::lines;
  return verbose == Verbose::bar ? make_bar(out) : make_lines(out);
}

}  // namespace lockstep::train
