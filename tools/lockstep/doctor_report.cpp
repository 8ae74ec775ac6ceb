// SPDX-License-Identifier: Apache-2.0
// Formats findings, facts and settings as text and as JSON.
#include "tools/lockstep/doctor_report.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>

#include "tools/lockstep/options.hpp"
#include "topology/base/text.hpp"

namespace lockstep::command {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t grade_width = 8;

std::string padded_word(std::string_view word, std::size_t width) {
  std::string all(word);
  all.resize(std::max(width, word.size()), ' ');
  return all;
}

std::string_view shout(Grade grade) {
  constexpr std::array<std::string_view, 4> words = {"ok", "note", "SLOW", "BROKEN"};
  return words.at(static_cast<std::size_t>(grade));
}

std::size_t name_width() {
  std::size_t widest = 0;
  for (const DoctorCheck& each : checks()) widest = std::max(widest, each.name.size());
  return widest + 2;
}

// Returns the hosts of these ranks, each once, in the order of nodes.
std::vector<std::string> hosts_of(const JobView& view, const IndexSet& ranks) {
  std::vector<std::string> hosts;
  for (const int rank : ranks.members()) {
    const std::string host = printable(view.topology.node(view.topology.member(rank).node).host);
    if (std::ranges::find(hosts, host) == hosts.end()) hosts.push_back(host);
  }
  return hosts;
}

// Returns "ranks 0-7" in a world of one node, "ranks 0-7 on a, b" in a larger one.
std::string where(const JobView& view, const IndexSet& ranks) {
  if (view.topology.node_count() == 1) return name_ranks(ranks);
  constexpr std::size_t most = 3;
  std::vector<std::string> hosts = hosts_of(view, ranks);
  const std::size_t more = hosts.size() - std::min(hosts.size(), most);
  hosts.resize(hosts.size() - more);
  return text(name_ranks(ranks), " on ", join(hosts, ", "), more > 0 ? text(" and ", more, " more") : "");
}

std::string lines_of(const JobView& view, const DoctorCheck& check, const CheckOutcome& outcome) {
  const auto head = [&](Grade grade) {
    return text(padded_word(shout(grade), grade_width), padded_word(check.name, name_width()));
  };
  if (outcome.findings.empty()) return text(head(Grade::ok), outcome.summary, "\n");
  const std::string margin(grade_width + 2, ' ');
  std::string all;
  for (const Finding& each : outcome.findings) {
    all += text(head(each.grade), where(view, each.ranks), ": ", each.what, "\n");
    all += text(margin, "why   ", each.why, "\n", margin, "fix   ", each.fix, "\n");
  }
  return all;
}

std::string verdict(const Diagnosis& diagnosis) {
  std::vector<std::string> parts;
  if (const auto count = diagnosis.count(Grade::broken); count > 0) parts.push_back(text(count, " broken"));
  if (const auto count = diagnosis.count(Grade::slow); count > 0) parts.push_back(text(count, " slow"));
  if (const auto count = diagnosis.count(Grade::note); count > 0) parts.push_back(counted(count, "note"));
  return parts.empty() ? "healthy" : join(parts, ", ");
}

}  // namespace

Exit exit_for(Grade worst, bool strict) {
  return worst >= (strict ? Grade::slow : Grade::broken) ? Exit::unfit : Exit::success;
}

std::string report_text(const JobView& view, const Diagnosis& diagnosis) {
  std::string all;
  for (std::size_t i = 0; i < diagnosis.outcomes.size(); ++i) all += lines_of(view, checks()[i], diagnosis.outcomes[i]);
  const auto nodes = static_cast<std::size_t>(view.topology.node_count());
  return text(all, "\n", checks().size(), " checks of ", counted(static_cast<std::size_t>(view.size()), "rank"), " on ",
              counted(nodes, "node"), ": ", verdict(diagnosis), "\n");
}

namespace {

// Replaces bytes that are not UTF-8, because no text from a machine may break the report.
std::string dump(const Json& json) { return text(json.dump(2, ' ', false, Json::error_handler_t::replace), "\n"); }

Json doctor_node_json(const JobView& view, int node) {
  const MachineShape& machine = view.topology.machine_of_node(node);
  Json nics = Json::array();
  for (std::size_t i = 0; i < machine.nics.size(); ++i) {
    Json addresses = Json::array();
    for (const NicAddress& each : view.topology.node(node).addresses) {
      if (static_cast<std::size_t>(each.nic) == i) addresses.push_back(each.address);
    }
    nics.push_back(
        {{"name", machine.nics[i].name}, {"mbit_per_s", machine.nics[i].mbit_per_s}, {"addresses", addresses}});
  }
  return {{"host", view.topology.node(node).host},
          {"ranks", view.ranks_of_node(node).to_string()},
          {"cores", machine.cores()},
          {"gpus", machine.gpus.size()},
          {"measured_mbit_per_s", std::llround(view.first_of_node(node).link_mbit_per_s)},
          {"nics", nics}};
}

Json facts_json(const JobView& view) {
  Json nodes = Json::array();
  for (int node = 0; node < view.topology.node_count(); ++node) nodes.push_back(doctor_node_json(view, node));
  return {{"ranks", view.size()},
          {"mpi", view.of(0).mpi},
          {"cuda", view.of(0).cuda},
          {"nodes", std::move(nodes)},
          {"remarks", view.topology.remarks()}};
}

Json finding_json(const JobView& view, const DoctorCheck& check, const Finding& finding) {
  return {{"check", check.name},
          {"grade", to_string(finding.grade)},
          {"what", finding.what},
          {"ranks", finding.ranks.to_string()},
          {"hosts", hosts_of(view, finding.ranks)},
          {"why", finding.why},
          {"fix", finding.fix}};
}

}  // namespace

std::string report_json(const JobView& view, const Diagnosis& diagnosis, bool strict) {
  Json rows = Json::array();
  Json findings = Json::array();
  for (std::size_t i = 0; i < diagnosis.outcomes.size(); ++i) {
    const DoctorCheck& check = checks()[i];
    const CheckOutcome& outcome = diagnosis.outcomes[i];
    rows.push_back({{"name", check.name},
                    {"looks_at", check.looks_at},
                    {"grade", to_string(outcome.grade())},
                    {"summary", outcome.summary}});
    for (const Finding& each : outcome.findings) findings.push_back(finding_json(view, check, each));
  }
  const Json all = {{"schema", "lockstep-doctor"},
                    {"version", 1},
                    {"lockstep", {{"version", view.of(0).version}, {"commit", view.of(0).commit}}},
                    {"verdict", to_string(diagnosis.worst())},
                    {"exit", static_cast<int>(exit_for(diagnosis.worst(), strict))},
                    {"strict", strict},
                    {"checks", std::move(rows)},
                    {"findings", std::move(findings)},
                    {"facts", facts_json(view)}};
  return dump(all);
}

std::string settings_text(const Settings& settings, std::size_t width) {
  using SettingCells = std::array<std::string, 4>;
  constexpr std::size_t longest_value = 20;
  const std::string margin(4, ' ');
  const auto value_of = [&](const SettingRow& row) { return printable(settings.value(row.setting)); };
  std::vector<SettingCells> rows{{"NAME", "VALUE", "FROM", "DEFAULT"}};
  for (const SettingRow& row : setting_rows()) {
    const std::string value = value_of(row);
    rows.push_back({std::string(row.name), value.size() > longest_value ? "(below)" : value,
                    std::string(to_string(settings.source(row.setting))), std::string(row.built_in)});
  }
  std::array<std::size_t, 4> widths{};
  for (const SettingCells& row : rows) {
    for (std::size_t i = 0; i < row.size(); ++i) widths.at(i) = std::max(widths.at(i), row.at(i).size());
  }
  std::string all;
  const auto add = [&](std::string_view words) { all += text(margin, wrapped(words, margin.size(), width), "\n"); };
  for (std::size_t number = 0; number < rows.size(); ++number) {
    const SettingCells& cells = rows[number];
    for (std::size_t i = 0; i + 1 < cells.size(); ++i) all += padded_word(cells.at(i), widths.at(i) + 2);
    all += text(cells.back(), "\n");
    if (number == 0) continue;
    const SettingRow& row = setting_rows()[number - 1];
    if (cells.at(1) != value_of(row)) add(text("Value: ", value_of(row)));
    add(text(row.meaning, row.agree ? " (the same on all ranks)" : ""));
    add(text("Allowed: ", row.allowed));
  }
  for (const std::string& warning : settings.warnings()) all += text("\n", wrapped(warning, 0, width), "\n");
  return all;
}

std::string settings_json(const Settings& settings) {
  Json rows = Json::array();
  for (const SettingRow& row : setting_rows()) {
    rows.push_back({{"name", row.name},
                    {"value", settings.value(row.setting)},
                    {"from", to_string(settings.source(row.setting))},
                    {"default", row.built_in},
                    {"allowed", row.allowed},
                    {"agree", row.agree},
                    {"meaning", row.meaning}});
  }
  return dump({{"schema", "lockstep-settings"},
               {"version", 1},
               {"settings", std::move(rows)},
               {"warnings", settings.warnings()}});
}

}  // namespace lockstep::command
