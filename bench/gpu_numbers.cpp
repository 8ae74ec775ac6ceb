// SPDX-License-Identifier: Apache-2.0
#include "bench/gpu_numbers.hpp"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "bench/run_json.hpp"
#include "topology/base/error.hpp"
#include "topology/base/text.hpp"

namespace lockstep::bench {
namespace {

using Json = nlohmann::json;
using Files = std::map<std::string, std::string>;

constexpr double combine_share = 0.9;  // of a copy's rate
constexpr double pack_share = 0.8;
constexpr double most_above_us = 3;  // above NCCL's own call

Number not_here(std::string what, std::string asked, std::string why) {
  return {std::move(what), std::move(asked), std::nullopt, Met::not_measurable, std::move(why)};
}

Number at_least(std::string what, double wanted, double value) {
  return {std::move(what), text("at least ", wanted), value, value >= wanted ? Met::met : Met::missed, {}};
}

Number at_most(std::string what, double wanted, double value) {
  return {std::move(what), text("at most ", wanted, " us"), value, value <= wanted ? Met::met : Met::missed, {}};
}

// Of one question of the probe: its figures that are shares.
void from_question(const Json& questions, const std::string& id, const std::string& what, double wanted,
                   std::vector<Number>& all) {
  const std::string asked = text("at least ", wanted);
  for (const Json& question : questions) {
    if (question.at("id") != id) continue;
    if (question.at("state") != "answered") {
      // A GPU that gives a wrong answer, or none, has missed what is asked for.
      Number none = not_here(what, asked, text(id, ": ", question.at("answer").get<std::string>()));
      if (question.at("state") != "no_gpu") none.met = Met::missed;
      return all.push_back(none);
    }
    for (const Json& figure : question.at("figures")) {
      const auto name = figure.at("name").get<std::string>();
      if (name.ends_with("share of a copy's rate") && figure.at("value").is_number())
        all.push_back(at_least(text(what, ": ", name), wanted, figure.at("value").get<double>()));
    }
    return;
  }
  all.push_back(not_here(what, asked, text("the probe was not asked ", id)));
}

void from_probe(const Files& files, std::vector<Number>& all) {
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
      from_question(parsed.at("questions"), "ours_combine", "combining", combine_share, all);
      from_question(parsed.at("questions"), "ours_pack", "packing", pack_share, all);
      return;
    }
  } catch (const Json::exception&) {
    all.resize(before);
  }
  all.push_back(not_here("combining", text("at least ", combine_share), why));
  all.push_back(not_here("packing", text("at least ", pack_share), why));
}

// Nothing, and why, where there is none.
std::optional<Run> run_of(const Files& files, const std::string& name, std::string& why) {
  const auto file = files.find(name);
  why = text(name, " is not there");
  if (file == files.end()) return std::nullopt;
  try {
    Run run = parse_run(file->second, name);
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

std::string why_without(const Run& run, std::string_view baseline) {
  for (const Fact& each : run.settings) {
    if (each.name.starts_with("left out") && each.value.starts_with(baseline)) return each.value;
  }
  return text(baseline, " was not measured");
}

// Of data that are wrong no time counts.
Number judged(Number number, const Row& row) {
  if (is_right(row)) return number;
  number.met = Met::missed;
  number.why = text(row.check.wrong, " wrong elements");
  return number;
}

// Members on one GPU, at each size: against the host's MPI by the host's clock.
void from_shared(const Files& files, int members, std::vector<Number>& all) {
  const std::string who = text(members, " processes on one GPU, ");
  std::string why;
  const auto run = run_of(files, text("shared-", members, ".json"), why);
  if (!run) return all.push_back(not_here(who + "against the host's MPI", "at least 1", why));
  for (const Row& row : run->rows) {
    const std::string what = text(who, row.bytes, " B, the host's MPI's time by ours");
    const Baseline* const mpi = find(row.baselines, "mpi");
    all.push_back(mpi != nullptr ? judged(at_least(what, 1, mpi->ratio.value), row)
                                 : not_here(what, "at least 1", why_without(*run, "mpi")));
  }
}

// And against NCCL's own by the GPU's, in a run of its own, because it may hang there. What two could not is not tried
// with more.
void from_shared_by_nccl(const Files& files, int members, std::vector<Number>& all) {
  const std::string who = text(members, " processes on one GPU, ");
  std::string why;
  const auto run = run_of(files, text("shared-nccl-", members, ".json"), why);
  if (!run && members > 2) {
    std::string why_of_two;
    const auto two = run_of(files, "shared-nccl-2.json", why_of_two);
    const bool has_times = two && two->rows.front().in_stream;
    if (has_times && find(two->rows.front().in_stream->baselines, "nccl") == nullptr) why = why_without(*two, "nccl");
  }
  if (!run) return all.push_back(not_here(who + "against NCCL", "at least 1", why));
  for (const Row& row : run->rows) {
    const std::string what = text(who, row.bytes, " B, NCCL's time by ours");
    const Baseline* const nccl = row.in_stream ? find(row.in_stream->baselines, "nccl") : nullptr;
    all.push_back(nccl != nullptr ? judged(at_least(what, 1, nccl->ratio.value), row)
                                  : not_here(what, "at least 1", why_without(*run, "nccl")));
  }
}

// A GPU for itself: what ours costs above NCCL's call, where the host waits for each, and where it waits for none.
void from_one(const Files& files, std::vector<Number>& all) {
  const std::string asked = text("at most ", most_above_us, " us");
  std::string why;
  const auto run = run_of(files, "one.json", why);
  if (!run) return all.push_back(not_here("one member, above NCCL's own call", asked, why));
  for (const Row& row : run->rows) {
    const std::string what = text("one member, ", row.bytes, " B, above NCCL's own call, ");
    const auto note = [&](const std::string& how, const Baseline* nccl, double ours) {
      all.push_back(nccl != nullptr ? judged(at_most(what + how, most_above_us, ours - nccl->time.median), row)
                                    : not_here(what + how, asked, why_without(*run, "nccl")));
    };
    note("each waited for", find(row.baselines, "nccl"), row.time.median);
    if (!row.in_stream) continue;
    const Baseline* const nccl = find(row.in_stream->baselines, "nccl");
    const Baseline* const plan = find(row.in_stream->baselines, "plan");
    note("in a stream", nccl, row.in_stream->time.median);
    if (plan != nullptr) note("planned, in a stream", nccl, plan->time.median);
  }
}

std::string_view word_of(Met met) {
  switch (met) {
    case Met::met:
      return "met";
    case Met::missed:
      return "missed";
    case Met::not_measurable:
      return "not measurable here";
  }
  return "";
}

std::string counts_of(const std::vector<Number>& numbers, std::string_view form) {
  const auto many = [&](Met met) { return std::ranges::count(numbers, met, &Number::met); };
  return form == "json" ? text("\"met\": ", many(Met::met), ", \"missed\": ", many(Met::missed),
                               ", \"not_measurable\": ", many(Met::not_measurable))
                        : text(many(Met::met), " met, ", many(Met::missed), " missed, ", many(Met::not_measurable),
                               " not measurable here");
}

}  // namespace

std::vector<Number> gpu_numbers(const Files& files) {
  std::vector<Number> all;
  from_probe(files, all);
  from_one(files, all);
  for (const int members : {2, 4, 8}) from_shared(files, members, all);
  for (const int members : {2, 4, 8}) from_shared_by_nccl(files, members, all);
  return all;
}

std::string numbers_as_json(const std::vector<Number>& numbers) {
  std::string rows;
  for (const Number& each : numbers) {
    nlohmann::ordered_json row = {{"what", each.what},
                                  {"asked", each.asked},
                                  {"value", nullptr},
                                  {"verdict", word_of(each.met)},
                                  {"why", nullptr}};
    if (each.value) row["value"] = *each.value;
    if (!each.why.empty()) row["why"] = each.why;
    rows += text(rows.empty() ? "\n    " : ",\n    ",
                 row.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
  }
  return text("{\n  \"schema\": \"lockstep.gpu_numbers/1\", ", counts_of(numbers, "json"), ",\n  \"rows\": [", rows,
              "\n  ]\n}\n");
}

std::string numbers_as_text(const std::vector<Number>& numbers) {
  std::string all;
  for (const Number& each : numbers) {
    all += text(word_of(each.met), ": ", each.what, " (", each.asked, ")");
    if (each.value) all += text(", ", std::round(*each.value * 1000) / 1000);
    if (!each.why.empty()) all += text(": ", printable(each.why, 300));
    all += '\n';
  }
  return text(all, counts_of(numbers, "text"), '\n');
}

}  // namespace lockstep::bench
