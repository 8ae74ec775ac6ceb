// SPDX-License-Identifier: Apache-2.0
// Holds the targets for GPUs, reads the files with the measured numbers, and prints the verdicts.
#include "tests/gpu/judge_numbers.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>

#include "bench/run_json.hpp"
#include "topology/base/error.hpp"
#include "topology/base/text.hpp"

namespace lockstep::bench {
namespace {

using Json = nlohmann::json;
using Files = std::map<std::string, std::string>;

constexpr Target combining{0.9, 0.97};  // relative to the rate of a copy
constexpr Target packing{0.8, 0.95};
constexpr Target above_nccl{3, 1, true};  // for a rank with its own GPU: time above NCCL's own call
constexpr Target beside_nccl{2, 4};       // for ranks that share a GPU
constexpr Target beside_mpi{5, 20};       // the same, with MPI staged through the host

constexpr std::array members_on_one_gpu = {2, 4, 8};
// For members that share a GPU, in bytes.
constexpr std::array<std::uint64_t, 6> shared_sizes = {8, 4 << 10, 64 << 10, 1 << 20, 16 << 20, 256 << 20};

std::string words_of(const Target& target) {
  return target.is_cost ? text("at most ", target.must, " us, aim ", target.aim, " us")
                        : text("at least ", target.must, ", aim ", target.aim);
}

GpuNumber not_here(std::string what, const Target& target, std::string why) {
  return {std::move(what), target, std::nullopt, TargetStatus::not_measurable, std::move(why)};
}

GpuNumber held(std::string what, const Target& target, double value) {
  const auto reaches = [&](double wanted) { return target.is_cost ? value <= wanted : value >= wanted; };
  const TargetStatus status = reaches(target.aim)    ? TargetStatus::aim
                              : reaches(target.must) ? TargetStatus::met
                                                     : TargetStatus::missed;
  return {std::move(what), target, value, status, {}};
}

// Adds the shares that one question of the probe has measured.
void from_question(const Json& questions, const std::string& id, const std::string& what, const Target& target,
                   std::vector<GpuNumber>& all) {
  for (const Json& question : questions) {
    if (question.at("id") != id) continue;
    if (question.at("state") != "answered") {
      // A GPU that gives a wrong answer, or none, has missed the target.
      GpuNumber none = not_here(what, target, text(id, ": ", question.at("answer").get<std::string>()));
      if (question.at("state") != "no_gpu") none.status = TargetStatus::missed;
      return all.push_back(none);
    }
    for (const Json& figure : question.at("figures")) {
      const auto name = figure.at("name").get<std::string>();
      if (name.ends_with("share of a copy's rate") && figure.at("value").is_number())
        all.push_back(held(text(what, ": ", name), target, figure.at("value").get<double>()));
    }
    return;
  }
  all.push_back(not_here(what, target, text("the probe was not asked ", id)));
}

void from_probe(const Files& files, std::vector<GpuNumber>& all) {
  const std::string name = "gpu-probe.json";
  const auto file = files.find(name);
  Json parsed;
  std::string why = text(name, " is not there");
  if (file != files.end()) {
    parsed = Json::parse(file->second, nullptr, false);
    why = text(name, " is none of the probe's");
  }
  const std::size_t before = all.size();
  try {
    if (parsed.is_object()) {
      from_question(parsed.at("questions"), "ours_combine", "combining", combining, all);
      from_question(parsed.at("questions"), "ours_pack", "packing", packing, all);
      return;
    }
  } catch (const Json::exception&) {
    all.resize(before);
  }
  all.push_back(not_here("combining", combining, why));
  all.push_back(not_here("packing", packing, why));
}

// Returns the run in that file. If there is none, it returns nothing and sets `why`.
std::optional<BenchRun> run_of(const Files& files, const std::string& name, std::string& why) {
  const auto file = files.find(name);
  why = text(name, " is not there");
  if (file == files.end()) return std::nullopt;
  try {
    BenchRun run = parse_run(file->second, name);
    why = run.rows.empty() ? text(name, " has no rows: ", run.verdict) : std::string();
    return run.rows.empty() ? std::nullopt : std::optional(std::move(run));
  } catch (const Error& error) {
    why = error.detail();
    return std::nullopt;
  }
}

const Baseline* find(const std::vector<Baseline>& baselines, std::string_view name) {
  const auto found = std::ranges::find(baselines, name, &Baseline::name);
  return found == baselines.end() ? nullptr : &*found;
}

bool is_right(const Row& row) { return row.check.wrong == 0 && row.check.ranks_equal; }

std::string why_without(const BenchRun& run, std::string_view baseline) {
  for (const Fact& each : run.settings) {
    if (each.name.starts_with("left out") && each.value.starts_with(baseline)) return each.value;
  }
  return text(baseline, " was not measured");
}

// A time does not count if the data is wrong.
GpuNumber judged(GpuNumber number, const Row& row) {
  if (is_right(row)) return number;
  number.status = TargetStatus::missed;
  number.why = row.check.wrong == 0 ? "ranks have different bits" : text(row.check.wrong, " wrong elements");
  return number;
}

// Describes a baseline for members on one GPU.
struct SharedGpuBaseline {
  std::string file;  // the beginning of the file's name
  std::string name;
  std::string baseline;
  Target target;
  bool is_in_stream;  // measured by the GPU's clock
};

const Baseline* find(const Row& row, const SharedGpuBaseline& other) {
  if (!other.is_in_stream) return find(row.baselines, other.baseline);
  return row.in_stream ? find(row.in_stream->baselines, other.baseline) : nullptr;
}

// Returns the reason why a run was not measured. If two members could not, more are not tried.
std::string why_no_run(const Files& files, const SharedGpuBaseline& other, bool with_mps, const std::string& why) {
  const auto no_mps = files.find("no-mps.txt");
  if (with_mps && no_mps != files.end() && !no_mps->second.empty())
    return no_mps->second.substr(0, no_mps->second.find('\n'));
  std::string why_of_two;
  const auto two = run_of(files, text(other.file, with_mps ? "-mps" : "", "-2.json"), why_of_two);
  const bool could = !two || !other.is_in_stream || !two->rows.front().in_stream || find(two->rows.front(), other);
  return could ? why : why_without(*two, other.baseline);
}

// Adds the numbers of members on one GPU, at each size.
void from_shared(const Files& files, int members, const SharedGpuBaseline& other, bool with_mps,
                 std::vector<GpuNumber>& all) {
  const std::string who = text(members, " processes on one GPU", with_mps ? " under MPS" : "", ", ");
  std::string why;
  const auto run = run_of(files, text(other.file, with_mps ? "-mps-" : "-", members, ".json"), why);
  if (!run)
    return all.push_back(
        not_here(text(who, "against ", other.name), other.target, why_no_run(files, other, with_mps, why)));
  const auto what = [&](std::uint64_t bytes) { return text(who, bytes, " B, ", other.name, "'s time by ours"); };
  for (const Row& row : run->rows) {
    const Baseline* const found = find(row, other);
    all.push_back(found != nullptr ? judged(held(what(row.bytes), other.target, found->ratio.value), row)
                                   : not_here(what(row.bytes), other.target, why_without(*run, other.baseline)));
  }
  for (const std::uint64_t bytes : shared_sizes) {
    if (std::ranges::find(run->rows, bytes, &Row::bytes) == run->rows.end())
      all.push_back(not_here(what(bytes), other.target, "the run ended before it"));
  }
}

// NCCL has runs of its own, because it may hang there.
void from_shared(const Files& files, std::vector<GpuNumber>& all) {
  const SharedGpuBaseline mpi{"shared", "the host's best MPI", "mpi:best", beside_mpi, false};
  const SharedGpuBaseline nccl{"shared-nccl", "NCCL", "nccl", beside_nccl, true};
  for (const SharedGpuBaseline* const other : {&mpi, &nccl}) {
    for (const bool with_mps : {false, true}) {
      for (const int members : members_on_one_gpu) from_shared(files, members, *other, with_mps, all);
    }
  }
}

// Adds the numbers of a rank with its own GPU: the time above NCCL's call. The host waits for each call, or for none.
void from_one(const Files& files, std::vector<GpuNumber>& all) {
  std::string why;
  const auto run = run_of(files, "one.json", why);
  if (!run) return all.push_back(not_here("one member, above NCCL's own call", above_nccl, why));
  for (const Row& row : run->rows) {
    const std::string what = text("one member, ", row.bytes, " B, above NCCL's own call, ");
    const auto note = [&](const std::string& how, const Baseline* nccl, double ours) {
      all.push_back(nccl != nullptr ? judged(held(what + how, above_nccl, ours - nccl->time.median), row)
                                    : not_here(what + how, above_nccl, why_without(*run, "nccl")));
    };
    note("each waited for", find(row.baselines, "nccl"), row.time.median);
    if (!row.in_stream) continue;
    const Baseline* const nccl = find(row.in_stream->baselines, "nccl");
    const Baseline* const plan = find(row.in_stream->baselines, "plan");
    note("in a stream", nccl, row.in_stream->time.median);
    if (plan != nullptr) note("planned, in a stream", nccl, plan->time.median);
  }
}

std::string_view word_of(TargetStatus status) {
  switch (status) {
    case TargetStatus::aim:
      return "aim reached";
    case TargetStatus::met:
      return "met";
    case TargetStatus::missed:
      return "missed";
    case TargetStatus::not_measurable:
      return "not measurable here";
  }
  return "";
}

std::string counts_of(const std::vector<GpuNumber>& numbers, std::string_view form) {
  const auto many = [&](TargetStatus status) { return std::ranges::count(numbers, status, &GpuNumber::status); };
  return form == "json" ? text("\"aim_reached\": ", many(TargetStatus::aim), ", \"met\": ", many(TargetStatus::met),
                               ", \"missed\": ", many(TargetStatus::missed),
                               ", \"not_measurable\": ", many(TargetStatus::not_measurable))
                        : text(many(TargetStatus::aim), " aim reached, ", many(TargetStatus::met), " met, ",
                               many(TargetStatus::missed), " missed, ", many(TargetStatus::not_measurable),
                               " not measurable here");
}

std::string line_of(const nlohmann::ordered_json& json) {
  return json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

}  // namespace

std::vector<GpuNumber> gpu_numbers(const Files& files) {
  std::vector<GpuNumber> all;
  from_probe(files, all);
  from_one(files, all);
  from_shared(files, all);
  return all;
}

std::vector<std::string> files_of_gpu_numbers() {
  std::vector<std::string> all = {"gpu-probe.json", "one.json", "no-mps.txt"};
  for (const char* const beginning : {"shared-", "shared-mps-", "shared-nccl-", "shared-nccl-mps-"}) {
    for (const int members : members_on_one_gpu) all.push_back(text(beginning, members, ".json"));
  }
  return all;
}

std::vector<Fact> machine_of_gpu_numbers(const Files& files) {
  std::vector<Fact> all;
  if (const auto probe = files.find("gpu-probe.json"); probe != files.end()) {
    const Json parsed = Json::parse(probe->second, nullptr, false);
    if (parsed.is_object() && parsed.contains("driver") && parsed.at("driver").is_string())
      all.push_back({"driver", parsed.at("driver").get<std::string>()});
  }
  for (const std::string& name : files_of_gpu_numbers()) {
    std::string why;
    const auto run = run_of(files, name, why);
    for (const Fact& fact : run ? run->machine : std::vector<Fact>{}) {
      if (std::ranges::find(all, fact.name, &Fact::name) == all.end()) all.push_back(fact);
    }
  }
  return all;
}

std::string numbers_as_json(const std::vector<GpuNumber>& numbers, const std::vector<Fact>& machine) {
  nlohmann::ordered_json facts = nlohmann::ordered_json::object();
  for (const Fact& each : machine) facts[each.name] = each.value;
  std::string rows;
  for (const GpuNumber& each : numbers) {
    nlohmann::ordered_json row = {{"what", each.what},      {"must", each.target.must},
                                  {"aim", each.target.aim}, {"is_cost_us", each.target.is_cost},
                                  {"value", nullptr},       {"verdict", word_of(each.status)},
                                  {"why", nullptr}};
    if (each.value) row["value"] = *each.value;
    if (!each.why.empty()) row["why"] = each.why;
    rows += text(rows.empty() ? "\n    " : ",\n    ", line_of(row));
  }
  return text("{\n  \"schema\": \"lockstep.gpu_numbers/2\", ", counts_of(numbers, "json"),
              ",\n  \"machine\": ", line_of(facts), ",\n  \"rows\": [", rows, "\n  ]\n}\n");
}

std::string numbers_as_text(const std::vector<GpuNumber>& numbers) {
  std::string all;
  for (const GpuNumber& each : numbers) {
    all += text(word_of(each.status), ": ", each.what, " (", words_of(each.target), ")");
    if (each.value) all += text(", ", std::round(*each.value * 1000) / 1000);
    if (!each.why.empty()) all += text(": ", printable(each.why, 300));
    all += '\n';
  }
  return text(all, counts_of(numbers, "text"), '\n');
}

}  // namespace lockstep::bench
