// SPDX-License-Identifier: Apache-2.0
// What was measured on a GPU, judged: met, missed, or not measurable and why.
#include "tests/gpu/judge_numbers.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "bench/run_json.hpp"
#include "topology/base/text.hpp"

namespace lockstep::bench {
namespace {

const GpuNumber& number(const std::vector<GpuNumber>& all, std::string_view what) {
  const auto found = std::ranges::find(all, what, &GpuNumber::what);
  if (found != all.end()) return *found;
  ADD_FAILURE() << "there is no " << what << " in\n" << numbers_as_text(all);
  static const GpuNumber none;
  return none;
}

Baseline baseline(std::string name, double us, double ratio) {
  Baseline all{.name = std::move(name)};
  all.time.median = us;
  all.ratio.value = ratio;
  return all;
}

bench::BenchRun run_with(std::uint64_t bytes, std::vector<Baseline> host, std::vector<Baseline> stream) {
  bench::BenchRun run;
  run.rows.resize(1);
  Row& row = run.rows.front();
  row.bytes = bytes;
  row.time.median = 20;
  row.baselines = std::move(host);
  row.in_stream = StreamTiming{.operations = 20, .baselines = std::move(stream)};
  row.in_stream->time.median = 9;
  return run;
}

constexpr const char* probe = R"({"driver": "driver 580.1 for CUDA 13.0", "questions": [
  {"id": "ours_combine", "state": "answered", "answer": "", "figures": [
    {"name": "f32, 2 members of 256 MiB, bytes read and written", "value": 2000, "unit": "GB/s"},
    {"name": "f32, 2 members of 256 MiB, share of a copy's rate", "value": 0.95, "unit": ""},
    {"name": "bf16, 8 members of 256 MiB, share of a copy's rate", "value": 0.89, "unit": ""}]},
  {"id": "ours_pack", "state": "refused", "answer": "3 words are wrong after packing", "figures": []}]})";

std::string probe_with(double combine, double pack) {
  return text(R"({"questions": [
    {"id": "ours_combine", "state": "answered", "answer": "", "figures": [
      {"name": "share of a copy's rate", "value": )",
              combine, R"(}]},
    {"id": "ours_pack", "state": "answered", "answer": "", "figures": [
      {"name": "share of a copy's rate", "value": )",
              pack, "}]}]}");
}

// As the table of what is asked for has them: what must be, and the aim.
TEST(GpuNumbers, HaveTheBarsThatAreAskedFor) {
  const auto expect_target = [](const GpuNumber& of, const Target& target, TargetStatus status) {
    EXPECT_EQ(of.target, target) << of.what;
    EXPECT_EQ(of.status, status) << of.what << ", " << of.value.value_or(-1);
  };
  const auto probed = [&](double combine, double pack, TargetStatus status) {
    const auto all = gpu_numbers({{"gpu-probe.json", probe_with(combine, pack)}});
    expect_target(number(all, "combining: share of a copy's rate"), {0.9, 0.97}, status);
    expect_target(number(all, "packing: share of a copy's rate"), {0.8, 0.95}, status);
  };
  probed(0.97, 0.95, TargetStatus::aim);
  probed(0.969, 0.949, TargetStatus::met);
  probed(0.9, 0.8, TargetStatus::met);
  probed(0.899, 0.799, TargetStatus::missed);
  const auto shared = [&](double by_mpi, double by_nccl, TargetStatus status) {
    const std::string mpi = to_json(run_with(8, {baseline("mpi:best", 1, by_mpi)}, {}));
    const std::string nccl = to_json(run_with(8, {}, {baseline("nccl", 1, by_nccl)}));
    const auto all = gpu_numbers({{"shared-2.json", mpi},
                                  {"shared-mps-8.json", mpi},
                                  {"shared-nccl-4.json", nccl},
                                  {"shared-nccl-mps-2.json", nccl}});
    expect_target(number(all, "2 processes on one GPU, 8 B, the host's best MPI's time by ours"), {5, 20}, status);
    expect_target(number(all, "8 processes on one GPU under MPS, 8 B, the host's best MPI's time by ours"), {5, 20},
                  status);
    expect_target(number(all, "4 processes on one GPU, 8 B, NCCL's time by ours"), {2, 4}, status);
    expect_target(number(all, "2 processes on one GPU under MPS, 8 B, NCCL's time by ours"), {2, 4}, status);
  };
  shared(20, 4, TargetStatus::aim);
  shared(19.9, 3.9, TargetStatus::met);
  shared(5, 2, TargetStatus::met);
  shared(4.9, 1.9, TargetStatus::missed);
  const auto above = [&](double ours_above, TargetStatus status) {
    const auto all = gpu_numbers({{"one.json", to_json(run_with(8, {baseline("nccl", 20 - ours_above, 1)}, {}))}});
    expect_target(number(all, "one member, 8 B, above NCCL's own call, each waited for"), {3, 1, true}, status);
  };
  above(-0.5, TargetStatus::aim);
  above(1, TargetStatus::aim);
  above(1.25, TargetStatus::met);
  above(3, TargetStatus::met);
  above(3.25, TargetStatus::missed);
}

// The MPI library as it comes, and one that is measured elsewhere, are not what is asked for.
TEST(GpuNumbers, AreHeldAgainstTheBestMpiOnly) {
  const auto all = gpu_numbers({{"shared-2.json", to_json(run_with(8, {baseline("mpi", 30, 50)}, {}))}});
  const GpuNumber& none = number(all, "2 processes on one GPU, 8 B, the host's best MPI's time by ours");
  EXPECT_EQ(none.status, TargetStatus::not_measurable);
  EXPECT_EQ(none.why, "mpi:best was not measured");
}

// Up to 256 MiB: a run that ended before has not met what is asked for.
TEST(GpuNumbers, HaveARowForEachSize) {
  const auto all = gpu_numbers({{"shared-2.json", to_json(run_with(8, {baseline("mpi:best", 30, 50)}, {}))},
                                {"shared-nccl-2.json", to_json(run_with(8, {}, {baseline("nccl", 30, 50)}))}});
  for (const char* const other : {"the host's best MPI", "NCCL"}) {
    for (const std::uint64_t bytes : {4U << 10U, 64U << 10U, 1U << 20U, 16U << 20U, 256U << 20U}) {
      const GpuNumber& none = number(all, text("2 processes on one GPU, ", bytes, " B, ", other, "'s time by ours"));
      EXPECT_EQ(none.status, TargetStatus::not_measurable);
      EXPECT_EQ(none.why, "the run ended before it");
    }
    EXPECT_EQ(number(all, text("2 processes on one GPU, 8 B, ", other, "'s time by ours")).status, TargetStatus::aim);
  }
}

TEST(GpuNumbers, AreComparedWithTheirTargets) {
  const auto all = gpu_numbers({{"gpu-probe.json", probe},
                                {"one.json", to_json(run_with(8, {baseline("nccl", 18, 0.9)},
                                                              {baseline("plan", 7, 0.8), baseline("nccl", 5, 0.6)}))},
                                {"shared-4.json", to_json(run_with(64, {baseline("mpi:best", 30, 5.5)}, {}))},
                                {"shared-nccl-4.json", to_json(run_with(64, {}, {baseline("nccl", 8, 0.88)}))}});
  EXPECT_EQ(number(all, "combining: f32, 2 members of 256 MiB, share of a copy's rate").status, TargetStatus::met);
  EXPECT_EQ(number(all, "combining: bf16, 8 members of 256 MiB, share of a copy's rate").status, TargetStatus::missed);
  EXPECT_EQ(number(all, "packing").status, TargetStatus::missed) << "what is wrong is no question of the machine";
  EXPECT_NE(number(all, "packing").why.find("3 words are wrong"), std::string::npos);
  EXPECT_EQ(number(all, "one member, 8 B, above NCCL's own call, each waited for").value, 2);
  EXPECT_EQ(number(all, "one member, 8 B, above NCCL's own call, each waited for").status, TargetStatus::met);
  EXPECT_EQ(number(all, "one member, 8 B, above NCCL's own call, in a stream").status, TargetStatus::missed) << "4 us";
  EXPECT_EQ(number(all, "one member, 8 B, above NCCL's own call, planned, in a stream").status, TargetStatus::met);
  EXPECT_EQ(number(all, "4 processes on one GPU, 64 B, the host's best MPI's time by ours").status, TargetStatus::met);
  EXPECT_EQ(number(all, "4 processes on one GPU, 64 B, NCCL's time by ours").status, TargetStatus::missed);
  EXPECT_EQ(number(all, "8 processes on one GPU, against NCCL").status, TargetStatus::not_measurable);
  EXPECT_EQ(number(all, "8 processes on one GPU under MPS, against NCCL").status, TargetStatus::not_measurable);
  EXPECT_EQ(std::ranges::count(all, std::string("combining: f32, 2 members of 256 MiB, bytes read and written"),
                               &GpuNumber::what),
            0);
}

TEST(GpuNumbers, SayWhyTheyAreNotMeasurable) {
  bench::BenchRun without = run_with(8, {baseline("mpi:best", 30, 1.5)}, {});
  without.settings = {{"left out", "nccl: not found, or ranks share a GPU"}};
  const auto all = gpu_numbers(
      {{"gpu-probe.json", R"({"questions": [{"id": "ours_pack", "state": "no_gpu", "answer": "no GPU: none"}]})"},
       {"one.json", to_json(bench::BenchRun{})},
       {"shared-nccl-2.json", to_json(without)},
       {"shared-4.json", "{"},
       {"no-mps.txt", "there is no nvidia-cuda-mps-control\n"}});
  const auto why = [&](std::string_view what) {
    EXPECT_EQ(number(all, what).status, TargetStatus::not_measurable) << what;
    EXPECT_FALSE(number(all, what).value) << what;
    return number(all, what).why;
  };
  EXPECT_EQ(why("packing"), "ours_pack: no GPU: none");
  EXPECT_EQ(why("combining"), "the probe was not asked ours_combine");
  EXPECT_NE(why("one member, above NCCL's own call").find("one.json has no rows"), std::string::npos);
  EXPECT_EQ(why("2 processes on one GPU, 8 B, NCCL's time by ours"), "nccl: not found, or ranks share a GPU");
  EXPECT_EQ(why("8 processes on one GPU, against NCCL"), "nccl: not found, or ranks share a GPU") << "as with two";
  EXPECT_NE(why("4 processes on one GPU, against the host's best MPI").find("shared-4.json is cut off"),
            std::string::npos);
  EXPECT_EQ(why("8 processes on one GPU, against the host's best MPI"), "shared-8.json is not there");
  for (const char* const other : {"the host's best MPI", "NCCL"})
    EXPECT_EQ(why(text("4 processes on one GPU under MPS, against ", other)), "there is no nvidia-cuda-mps-control");
  const auto without_reason = gpu_numbers({{"no-mps.txt", ""}});
  EXPECT_EQ(number(without_reason, "4 processes on one GPU under MPS, against NCCL").why,
            "shared-nccl-mps-4.json is not there");
}

// A quick wrong result is none.
TEST(GpuNumbers, OfWrongDataAreMissed) {
  bench::BenchRun run = run_with(8, {baseline("mpi:best", 30, 30)}, {baseline("nccl", 30, 30)});
  run.rows.front().check.wrong = 7;
  const auto all = gpu_numbers({{"shared-2.json", to_json(run)}, {"shared-nccl-2.json", to_json(run)}});
  EXPECT_EQ(number(all, "2 processes on one GPU, 8 B, the host's best MPI's time by ours").status,
            TargetStatus::missed);
  EXPECT_EQ(number(all, "2 processes on one GPU, 8 B, NCCL's time by ours").status, TargetStatus::missed);
  EXPECT_EQ(number(all, "2 processes on one GPU, 8 B, NCCL's time by ours").why, "7 wrong elements");
  run.rows.front().check = {.ranks_equal = false};
  EXPECT_EQ(number(gpu_numbers({{"shared-2.json", to_json(run)}}),
                   "2 processes on one GPU, 8 B, the host's best MPI's time by ours")
                .why,
            "ranks have different bits");
}

TEST(GpuNumbers, AreWrittenCompletely) {
  bench::BenchRun one = run_with(8, {}, {});
  one.machine = {{"gpu", "NVIDIA H200"}, {"nccl", "2.30.1"}};
  const std::map<std::string, std::string> files = {{"gpu-probe.json", probe}, {"one.json", to_json(one)}};
  const auto all = gpu_numbers(files);
  const auto json = nlohmann::json::parse(numbers_as_json(all, machine_of_gpu_numbers(files)));
  EXPECT_EQ(json.at("rows").size(), all.size());
  EXPECT_EQ(json.at("aim_reached"), 0);
  EXPECT_EQ(json.at("met"), 1);
  EXPECT_EQ(json.at("missed"), 2);
  EXPECT_EQ(json.at("machine"), nlohmann::json::parse(R"({"driver": "driver 580.1 for CUDA 13.0",
                                                          "gpu": "NVIDIA H200", "nccl": "2.30.1"})"));
  EXPECT_EQ(json.at("rows").at(0).at("value"), 0.95);
  EXPECT_EQ(json.at("rows").at(0).at("must"), 0.9);
  EXPECT_EQ(json.at("rows").at(0).at("aim"), 0.97);
  EXPECT_EQ(json.at("rows").at(0).at("verdict"), "met");
  EXPECT_NE(numbers_as_text(all).find("missed: combining: bf16, 8 members of 256 MiB, share of a copy's rate (at least "
                                      "0.9, aim 0.97), 0.89\n"),
            std::string::npos);
  for (const char* const spoilt : {"", "[]", "{}", R"({"questions": 7})", R"({"questions": [{}]})"})
    EXPECT_EQ(gpu_numbers({{"gpu-probe.json", spoilt}}).size(), gpu_numbers({}).size()) << spoilt;
  EXPECT_EQ(gpu_numbers({}).size(), 15U);
}

}  // namespace
}  // namespace lockstep::bench
