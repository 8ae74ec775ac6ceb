// SPDX-License-Identifier: Apache-2.0
// What was measured on a GPU, judged: met, missed, or not measurable and why.
#include "bench/gpu_numbers.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "bench/run_json.hpp"
#include "topology/base/text.hpp"

namespace lockstep::bench {
namespace {

const Number& number(const std::vector<Number>& all, std::string_view what) {
  const auto found = std::ranges::find(all, what, &Number::what);
  if (found != all.end()) return *found;
  ADD_FAILURE() << "there is no " << what << " in\n" << numbers_as_text(all);
  static const Number none;
  return none;
}

Baseline baseline(std::string name, double us, double ratio) {
  Baseline all{.name = std::move(name)};
  all.time.median = us;
  all.ratio.value = ratio;
  return all;
}

bench::Run run_with(std::uint64_t bytes, std::vector<Baseline> host, std::vector<Baseline> stream) {
  bench::Run run;
  run.rows.resize(1);
  Row& row = run.rows.front();
  row.bytes = bytes;
  row.time.median = 20;
  row.baselines = std::move(host);
  row.in_stream = InStream{.operations = 20, .baselines = std::move(stream)};
  row.in_stream->time.median = 9;
  return run;
}

constexpr const char* probe = R"({"questions": [
  {"id": "ours_combine", "state": "answered", "answer": "", "figures": [
    {"name": "f32, 2 members, bytes read and written", "value": 2000, "unit": "GB/s"},
    {"name": "f32, 2 members, share of a copy's rate", "value": 0.95, "unit": ""},
    {"name": "bf16, 8 members, share of a copy's rate", "value": 0.89, "unit": ""}]},
  {"id": "ours_pack", "state": "refused", "answer": "3 words are wrong after packing", "figures": []}]})";

TEST(GpuNumbers, AreHeldAgainstWhatIsAskedFor) {
  const auto all = gpu_numbers({{"gpu-probe.json", probe},
                                {"one.json", to_json(run_with(8, {baseline("nccl", 18, 0.9)},
                                                              {baseline("plan", 7, 0.8), baseline("nccl", 5, 0.6)}))},
                                {"shared-4.json", to_json(run_with(64, {baseline("mpi", 30, 1.5)}, {}))},
                                {"shared-nccl-4.json", to_json(run_with(64, {}, {baseline("nccl", 8, 0.88)}))}});
  EXPECT_EQ(number(all, "combining: f32, 2 members, share of a copy's rate").met, Met::met);
  EXPECT_EQ(number(all, "combining: bf16, 8 members, share of a copy's rate").met, Met::missed);
  EXPECT_EQ(number(all, "packing").met, Met::missed) << "what is wrong is no question of the machine";
  EXPECT_NE(number(all, "packing").why.find("3 words are wrong"), std::string::npos);
  EXPECT_EQ(number(all, "one member, 8 B, above NCCL's own call, each waited for").value, 2);
  EXPECT_EQ(number(all, "one member, 8 B, above NCCL's own call, each waited for").met, Met::met);
  EXPECT_EQ(number(all, "one member, 8 B, above NCCL's own call, in a stream").met, Met::missed) << "4 us";
  EXPECT_EQ(number(all, "one member, 8 B, above NCCL's own call, planned, in a stream").met, Met::met);
  EXPECT_EQ(number(all, "4 processes on one GPU, 64 B, the host's MPI's time by ours").met, Met::met);
  EXPECT_EQ(number(all, "4 processes on one GPU, 64 B, NCCL's time by ours").met, Met::missed);
  EXPECT_EQ(number(all, "8 processes on one GPU, against NCCL").met, Met::not_measurable);
  EXPECT_EQ(std::ranges::count(all, std::string("combining: f32, 2 members, bytes read and written"), &Number::what),
            0);
}

TEST(GpuNumbers, SayWhyTheyAreNotMeasurable) {
  bench::Run without = run_with(8, {baseline("mpi", 30, 1.5)}, {});
  without.settings = {{"left out", "nccl: not there, or ranks share a GPU"}};
  const auto all = gpu_numbers(
      {{"gpu-probe.json", R"({"questions": [{"id": "ours_pack", "state": "no_gpu", "answer": "no GPU: none"}]})"},
       {"one.json", to_json(bench::Run{})},
       {"shared-nccl-2.json", to_json(without)},
       {"shared-4.json", "{"}});
  const auto why = [&](std::string_view what) {
    EXPECT_EQ(number(all, what).met, Met::not_measurable) << what;
    EXPECT_FALSE(number(all, what).value) << what;
    return number(all, what).why;
  };
  EXPECT_EQ(why("packing"), "ours_pack: no GPU: none");
  EXPECT_EQ(why("combining"), "the probe was not asked ours_combine");
  EXPECT_NE(why("one member, above NCCL's own call").find("one.json has no rows"), std::string::npos);
  EXPECT_EQ(why("2 processes on one GPU, 8 B, NCCL's time by ours"), "nccl: not there, or ranks share a GPU");
  EXPECT_EQ(why("8 processes on one GPU, against NCCL"), "nccl: not there, or ranks share a GPU") << "as with two";
  EXPECT_NE(why("4 processes on one GPU, against the host's MPI").find("shared-4.json is cut off"), std::string::npos);
  EXPECT_EQ(why("8 processes on one GPU, against the host's MPI"), "shared-8.json is not there");
}

// A quick wrong result is none.
TEST(GpuNumbers, OfWrongDataAreMissed) {
  bench::Run run = run_with(8, {baseline("mpi", 30, 1.5)}, {baseline("nccl", 30, 3)});
  run.rows.front().check.wrong = 7;
  const auto all = gpu_numbers({{"shared-2.json", to_json(run)}, {"shared-nccl-2.json", to_json(run)}});
  EXPECT_EQ(number(all, "2 processes on one GPU, 8 B, the host's MPI's time by ours").met, Met::missed);
  EXPECT_EQ(number(all, "2 processes on one GPU, 8 B, NCCL's time by ours").met, Met::missed);
  EXPECT_EQ(number(all, "2 processes on one GPU, 8 B, NCCL's time by ours").why, "7 wrong elements");
}

TEST(GpuNumbers, AreWrittenWhole) {
  const auto all = gpu_numbers({{"gpu-probe.json", probe}});
  const auto json = nlohmann::json::parse(numbers_as_json(all));
  EXPECT_EQ(json.at("rows").size(), all.size());
  EXPECT_EQ(json.at("met"), 1);
  EXPECT_EQ(json.at("missed"), 2);
  EXPECT_EQ(json.at("rows").at(0).at("value"), 0.95);
  EXPECT_EQ(json.at("rows").at(0).at("verdict"), "met");
  EXPECT_NE(
      numbers_as_text(all).find("missed: combining: bf16, 8 members, share of a copy's rate (at least 0.9), 0.89\n"),
      std::string::npos);
  for (const char* const spoilt : {"", "[]", "{}", R"({"questions": 7})", R"({"questions": [{}]})"})
    EXPECT_EQ(gpu_numbers({{"gpu-probe.json", spoilt}}).size(), gpu_numbers({}).size()) << spoilt;
  EXPECT_EQ(gpu_numbers({}).size(), 9U);
}

}  // namespace
}  // namespace lockstep::bench
