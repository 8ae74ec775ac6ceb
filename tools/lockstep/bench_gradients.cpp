// SPDX-License-Identifier: Apache-2.0
// Refuses what an exchange of gradients lacks, and finds the ways that this job can take.
#include "tools/lockstep/bench_gradients.hpp"

#include <algorithm>
#include <array>
#include <string_view>

#include "bench/gradient_exchange.hpp"
#include "collectives/gpu/device_backend.hpp"
#include "topology/base/error.hpp"
#include "topology/base/text.hpp"

namespace lockstep::command {
namespace {

constexpr std::string_view gradients_word = "gradients";
constexpr std::array<std::string_view, 9> foreign_options = {"sizes", "begin", "end",  "factor",  "step",
                                                             "op",    "type",  "root", "in-place"};

}  // namespace

bool is_of_gradients(const ParsedOptions& parsed) {
  std::vector<std::string> words;
  for (const std::string& each : parsed.words()) {
    for (std::string& word : split(each, ',')) words.push_back(std::move(word));
  }
  if (std::ranges::find(words, gradients_word) == words.end()) {
    refuse_if(parsed.has("model"), "--model belongs to gradients", "write: lockstep bench gradients --model resnet50");
    return false;
  }
  refuse_if(words.size() > 1, "gradients are measured together with collectives", "measure each in a run of its own");
  for (const std::string_view option : foreign_options)
    refuse_if(parsed.has(option), text("--", option, " with gradients, which are f32, summed in place"),
              text("leave --", option, " out; --model chooses the sizes"));
  return true;
}

std::vector<bench::Subject> gradient_subjects(const ParsedOptions& parsed) {
  std::vector<std::string> models = parsed.values("model");
  if (models.empty()) models = bench::model_names();
  std::vector<bench::Subject> subjects;
  for (auto each = models.begin(); each != models.end(); ++each) {
    if (std::find(models.begin(), each, *each) != each) continue;
    subjects.push_back(subject_of(bench::parse_gradients(*each)));
    subjects.back().cold = parsed.has("cold");
  }
  return subjects;
}

std::vector<std::string> default_gradient_baselines(bool on_gpu) {
  if (on_gpu) return {"nccl", "ring", "hierarchical", "reproducible"};
  return {"ring", "hierarchical", "reproducible"};
}

void refuse_gradient_baselines(const std::vector<std::string>& baselines, bool on_gpu) {
  for (const std::string& each : baselines) {
    const bool is_known =
        bench::is_gradient_way(each) || each == "none" || each.starts_with("file:") || (each == "nccl" && on_gpu);
    if (is_known) continue;
    throw Error(Code::usage, text("--baseline ", printable(each), " with gradients"),
                "choose from ring, hierarchical, reproducible, none and file:EARLIER.json, and nccl with --device gpu");
  }
}

void choose_gradient_ways(Communicator& world, const std::vector<std::string>& baselines,
                          bench::BenchOptions& bench_options, bench::BenchRun& run) {
  for (const bench::Subject& each : bench_options.subjects)
    run.settings.push_back({text("gradients:", each.gradients->name), each.gradients->to_text()});
  for (const std::string& name : baselines) {
    if (!bench::is_gradient_way(name)) continue;
    bench_options.gradient_ways.push_back(name);
    for (const bench::Subject& each : bench_options.subjects) {
      const bench::GradientWay way = bench::find_gradient_way(world, name, *each.gradients);
      if (way.why_not.empty()) continue;
      run.settings.push_back({"left out", text(name, ": ", way.why_not)});
      break;
    }
  }
  if (bench_options.gpu) return;
  const bool has_gpu = gpu::backend() != nullptr;
  run.settings.push_back({"left out", text("nccl: ", has_gpu ? "give --device gpu to measure it" : gpu::why_none())});
}

}  // namespace lockstep::command
