// SPDX-License-Identifier: Apache-2.0
// Holds the table of metrics, and writes a line for each metric and communicator.
#include "tools/lockstep/prometheus.hpp"

#include <array>
#include <functional>

#include "topology/base/text.hpp"

namespace lockstep::command {
namespace {

using status::CommunicatorSnapshot;
using status::ProcessSnapshot;

// Writes a label. Three characters of its value are escaped.
std::string label(std::string_view name, std::string_view value) {
  std::string all(name);
  all += "=\"";
  for (const char each : value) {
    if (each == '\n') {
      all += "\\n";
      continue;
    }
    if (each == '\\' || each == '"') all += '\\';
    all += each;
  }
  return all + '"';
}

std::string labels(const ProcessSnapshot& process, const CommunicatorSnapshot& seen) {
  return text('{', label("host", process.host), ',', label("program", process.program), ',',
              label("process", text(process.process)), ',', label("communicator", seen.name), ',',
              label("number", text(seen.order)), ',', label("rank", text(seen.rank)), ',',
              label("size", text(seen.size)), '}');
}

struct Metric {
  std::string_view name;
  std::string_view kind;
  std::string_view help;
  std::function<std::string(const CommunicatorSnapshot&)> value;
};

std::string seconds(std::int64_t ms) {
  std::string rest = text(ms % 1000);
  rest.insert(0, 3 - rest.size(), '0');
  return text(ms / 1000, '.', rest);
}

const std::array<Metric, 5>& metrics() {
  static const std::array<Metric, 5> all = {{
      {"lockstep_calls_started_total", "counter", "Collective calls that this member has begun.",
       [](const CommunicatorSnapshot& seen) { return text(seen.started); }},
      {"lockstep_calls_finished_total", "counter",
       "Number of the last collective call up to which all calls have ended.",
       [](const CommunicatorSnapshot& seen) { return text(seen.finished); }},
      {"lockstep_messages_total", "counter", "Point-to-point messages that this member has sent or received.",
       [](const CommunicatorSnapshot& seen) { return text(seen.messages); }},
      {"lockstep_waiting_seconds", "gauge",
       "Time that its call has waited for others; 0 if that is too short to count.",
       [](const CommunicatorSnapshot& seen) {
         return seen.waits.empty() ? std::string("0") : seconds(seen.waited_ms);
       }},
      {"lockstep_failed", "gauge", "1 if the communicator has failed.",
       [](const CommunicatorSnapshot& seen) { return std::string(seen.failure.empty() ? "0" : "1"); }},
  }};
  return all;
}

}  // namespace

std::string prometheus_text(std::span<const ProcessSnapshot> processes) {
  std::string all;
  for (const Metric& metric : metrics()) {
    all += text("# HELP ", metric.name, ' ', metric.help, "\n# TYPE ", metric.name, ' ', metric.kind, '\n');
    for (const ProcessSnapshot& process : processes) {
      for (const CommunicatorSnapshot& seen : process.communicators)
        all += text(metric.name, labels(process, seen), ' ', metric.value(seen), '\n');
    }
  }
  return all;
}

}  // namespace lockstep::command
