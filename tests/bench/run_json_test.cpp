// SPDX-License-Identifier: Apache-2.0
// A run as JSON and JUnit XML: what is written, what is read back, and every refusal. The example of
// docs/bench-json.md is the golden: after a wanted change, put the text of the failure there, and read it.
#include "bench/run_json.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <functional>
#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>

#include "bench/run_junit.hpp"
#include "tests/support/holds.hpp"
#include "tests/support/refusal.hpp"
#include "tests/support/sanitized.hpp"
#include "topology/base/text.hpp"

namespace lockstep::bench {
namespace {

using Whole = bench::BenchRun;  // GoogleTest has a Run of its own
using RunJson = nlohmann::ordered_json;
using lockstep::test::holds;
using lockstep::test::refusal;

std::string example() {
  const std::ifstream file(std::string(SOURCE_ROOT) + "/docs/bench-json.md");
  EXPECT_TRUE(file);
  std::ostringstream all;
  all << file.rdbuf();
  const std::string page = all.str();
  const std::string fence = "```json\n";
  const std::size_t start = page.find(fence) + fence.size();
  return page.substr(start, page.find("```", start) - start);
}

std::string refused(const std::string& json) {
  return refusal([&] { parse_run(json, "a.json"); }, Code::file);
}

// The example with one change, refused.
std::string damaged(std::string_view path, const RunJson& value) {
  RunJson json = RunJson::parse(example());
  json.at(RunJson::json_pointer(std::string(path))) = value;
  return refused(json.dump());
}

TEST(BenchJson, WritesTheExampleOfTheManual) { EXPECT_EQ(to_json(parse_run(example(), "example")), example()); }

TEST(BenchJson, ValuesComeBack) {
  Whole run = parse_run(example(), "example");
  EXPECT_EQ(run.rows.at(0).baselines.at(1).time.n, 0U);
  EXPECT_EQ(run.rows.at(0).limit, (Limit{16570, "mem"}));
  EXPECT_EQ(run.rows.at(1).root, 0);
  EXPECT_TRUE(run.rows.at(0).cold);
  ASSERT_TRUE(run.rows.at(0).in_stream);
  EXPECT_EQ(run.rows.at(0).in_stream->operations, 20U);
  EXPECT_EQ(run.rows.at(0).in_stream->baselines.at(0).ratio.value, 0.99);
  EXPECT_FALSE(run.rows.at(1).in_stream) << "files have been written without it";
  run.seed = std::numeric_limits<std::uint64_t>::max();
  run.machine.push_back({"quote \" and \\", "line\nfeed \x01 and \xc3\xa9"});
  run.machine.push_back(run.machine.back());
  run.interrupted = run.oversubscribed = true;
  run.exit_code = 7;
  run.rows[0].time.median = 0.1;
  run.rows[0].time.mean = -0.0;
  run.rows[0].time.mad = std::numeric_limits<double>::denorm_min();
  run.rows[0].time.max = std::numeric_limits<double>::max();
  run.rows[0].bytes = std::numeric_limits<std::uint64_t>::max();
  run.rows[1].check = {7, false, "x", false};
  run.rows[1].noise = {1.5, 9, 2.5, true};
  run.rows[1].op = "";
  run.rows[1].root = std::numeric_limits<int>::max();
  EXPECT_EQ(parse_run(to_json(run), "x"), run);
  EXPECT_EQ(parse_run(to_json(Whole{}), "x"), Whole{});
}

TEST(BenchJson, WritesNumbersThatAreNotFiniteAsNull) {
  Whole run = parse_run(example(), "example");
  run.rows[0].time.median = NAN;
  run.rows[0].time.ci = {-INFINITY, INFINITY};
  run.rows[0].baselines[0].ratio.value = INFINITY;
  const std::string json = to_json(run);
  EXPECT_TRUE(holds(json, R"("median":null)")) << json;
  EXPECT_TRUE(holds(json, R"("ci95":[null,null])"));
  EXPECT_TRUE(holds(json, R"("ratio":null)"));
  EXPECT_FALSE(holds(json, "nan")) << json;
  const Whole again = parse_run(json, "x");
  EXPECT_TRUE(std::isnan(again.rows[0].time.median));
  EXPECT_EQ(to_json(again), json);
}

TEST(BenchJson, BytesThatAreNoUtf8DoNotSpoilTheFile) {
  Whole run;
  run.verdict = "a\xff\xfe z \xc3";
  run.arguments = {"\x80"};
  run.rows.resize(1);
  run.rows[0].algorithm = "\xed\xa0\x80";
  const std::string json = to_json(run);
  EXPECT_TRUE(RunJson::accept(json));
  EXPECT_TRUE(holds(json, "a\xef\xbf\xbd"));
  EXPECT_EQ(to_json(parse_run(json, "x")), json);
}

TEST(BenchJson, CutOffAnywhereItIsAnError) {
  const std::string whole = example();
  const std::size_t end = whole.rfind('}');
  for (std::size_t length = 0; length <= end; ++length) {
    const std::string words = refused(whole.substr(0, length));
    EXPECT_TRUE(holds(words, "a.json is cut off: it ends in the middle of a value, at line ") ||
                holds(words, "a.json is empty"))
        << length << ": " << words;
  }
  EXPECT_NO_THROW(parse_run(whole.substr(0, end + 1), "a.json"));
}

TEST(BenchJson, AnyByteChangedIsReadOrAnError) {
  const std::string whole = example();
  const std::size_t step = lockstep::test::sanitized ? 7 : 1;
  std::size_t refusals = 0;
  for (std::size_t i = 0; i < whole.size(); i += step) {
    for (const char other : {'\0', '"', '9', '-'}) {
      std::string changed = whole;
      changed[i] = other;
      try {
        const std::string json = to_json(parse_run(changed, "a.json"));
        EXPECT_EQ(to_json(parse_run(json, "again")), json);
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), Code::file) << error.what();
        ++refusals;
      }
    }
  }
  EXPECT_GT(refusals, whole.size() / step);
}

TEST(BenchJson, RefusesBadJsonWithItsPlace) {
  EXPECT_TRUE(holds(refused(""), "a.json is empty"));
  EXPECT_TRUE(holds(refused(" \n"), "a.json is empty"));
  EXPECT_TRUE(holds(refused("size,count\n8,2\n"), "a.json is not JSON from line 1, column 1 on"));
  EXPECT_TRUE(holds(refused("{\n \"schema\": tru }"), "a.json is not JSON from line 2, column 15 on"));
  EXPECT_TRUE(holds(refused(example() + "x"), "is not JSON from line "));
  EXPECT_TRUE(holds(refused("{\"schema\": \"\xff\"}"), "is not JSON from line 1"));
  EXPECT_TRUE(holds(refused("{\"schema\": 1e999}"), "has a number that no computer can hold"));
  EXPECT_TRUE(holds(refused(std::string(1000000, '[')), "is cut off"));
  EXPECT_TRUE(holds(refused(std::string(1000000, '[') + std::string(1000000, ']')), "it has no \"schema\""));
  const std::string words = refusal([] { parse_run("", "a\x1b[31m.json"); }, Code::file);
  EXPECT_TRUE(holds(words, "a\\x1b[31m.json")) << words;
}

TEST(BenchJson, OtherSchemasAreRefused) {
  for (const char* each : {"[]", "{}", "7", "null", "\"schema\"", "[\"schema\"]"})
    EXPECT_TRUE(holds(refused(each), "a.json is not a result of lockstep bench: it has no \"schema\"")) << each;
  EXPECT_TRUE(holds(damaged("/schema", "lockstep.bench/2"),
                    "a.json has the schema \"lockstep.bench/2\", and this version reads \"lockstep.bench/1\""));
  EXPECT_TRUE(holds(damaged("/schema", 1), "a.json: schema is not a text"));
}

// Calls with each place of a field, as a path and as a pointer.
void each_field(const RunJson& json, const std::string& path, const RunJson::json_pointer& pointer,
                const std::function<void(const std::string&, const RunJson::json_pointer&)>& call) {
  if (json.is_object()) {
    for (const auto& [name, value] : json.items()) {
      const std::string here = path.empty() ? name : text(path, '.', name);
      call(here, pointer / name);
      each_field(value, here, pointer / name, call);
    }
  } else if (json.is_array()) {
    for (std::size_t i = 0; i < json.size(); ++i) each_field(json[i], text(path, '[', i, ']'), pointer / i, call);
  }
}

TEST(BenchJson, EachMissingFieldIsNamedWithItsPlace) {
  const RunJson whole = RunJson::parse(example());
  int count = 0;
  each_field(whole, "", RunJson::json_pointer(), [&](const std::string& path, const RunJson::json_pointer& pointer) {
    if (path == "schema" || path == "topology" || path == "links" || path.ends_with(".percent") ||
        path.ends_with(".rounds") || path.ends_with(".sent_bytes") || path.ends_with(".in_stream"))
      return;
    RunJson less = whole;
    less.at(pointer.parent_pointer()).erase(pointer.back());
    EXPECT_TRUE(holds(refused(less.dump()), text("a.json: ", path, " is missing"))) << path;
    ++count;
  });
  EXPECT_GT(count, 100);
}

TEST(BenchJson, EachFieldOfAWrongTypeIsNamedWithItsPlace) {
  const RunJson whole = RunJson::parse(example());
  each_field(whole, "", RunJson::json_pointer(), [&](const std::string& path, const RunJson::json_pointer& pointer) {
    if (path.ends_with(".percent")) return;
    for (const RunJson& wrong : {RunJson::array({RunJson::array()}), RunJson{{"no", "such"}}}) {
      RunJson other = whole;
      other.at(pointer) = wrong;
      EXPECT_TRUE(holds(refused(other.dump()), text("a.json: ", path))) << path;
    }
  });
}

TEST(BenchJson, WrongValuesAreRefusedInPlainWords) {
  EXPECT_TRUE(holds(damaged("/rows/1/time_us/median", "fast"), "a.json: rows[1].time_us.median is not a number"));
  EXPECT_TRUE(holds(damaged("/rows/0/size_bytes", -8), "rows[0].size_bytes is not a whole number from 0 to 2^64 - 1"));
  EXPECT_TRUE(holds(damaged("/rows/0/count", 1.5), "rows[0].count is not a whole number"));
  EXPECT_TRUE(holds(damaged("/seed", 1e20), "seed is not a whole number"));
  EXPECT_TRUE(holds(damaged("/seed", nullptr), "seed is not a whole number"));
  EXPECT_TRUE(holds(damaged("/ranks", 3000000000U), "ranks is not a whole number of 32 bits"));
  EXPECT_TRUE(holds(damaged("/ranks", 1.5), "ranks is not a whole number of 32 bits"));
  EXPECT_TRUE(holds(damaged("/rows/0/in_place", 1), "rows[0].in_place is neither true nor false"));
  EXPECT_TRUE(holds(damaged("/rows/0/cache", "warm"), "rows[0].cache is neither \"hot\" nor \"cold\""));
  EXPECT_TRUE(holds(damaged("/rows/0/type", nullptr), "rows[0].type is not a text"));
  EXPECT_TRUE(holds(damaged("/rows/0/time_us/ci95", {1, 2, 3}), "rows[0].time_us.ci95 does not have two elements"));
  EXPECT_TRUE(holds(damaged("/rows/0/time_us/ci95/1", "x"), "rows[0].time_us.ci95[1] is not a number"));
  EXPECT_TRUE(holds(damaged("/rows/0/time_us/of", "mean over ranks"), "rows[0].time_us.of is not \"max over ranks\""));
  EXPECT_TRUE(holds(damaged("/rows/0/in_stream/clock", "host"), "rows[0].in_stream.clock is not \"gpu\""));
  EXPECT_TRUE(holds(damaged("/rows", nullptr), "a.json: rows is not a list"));
  EXPECT_TRUE(holds(damaged("/rows/0", 7), "a.json: rows[0] is not an object"));
  EXPECT_TRUE(holds(damaged("/rows/0/limit", "mem"), "rows[0].limit is not an object"));
  for (const double absurd : {-1.0, 1e-320, 1e308})
    EXPECT_TRUE(holds(damaged("/rows/0/time_us/median", absurd), "rows[0].time_us.median is not a measured time"))
        << absurd;
  EXPECT_TRUE(holds(damaged("/links/1/b", 4), "links[1] is not a pair of 4 ranks"));
  EXPECT_TRUE(holds(damaged("/links/1/b", 0), "links[1] is not a pair of 4 ranks"));
  EXPECT_TRUE(holds(damaged("/links/1/why", 4), "links[1].why is not a text"));
  EXPECT_TRUE(holds(damaged("/hosts", {"a"}), "hosts does not have one name for each of 4 ranks"));
}

TEST(BenchJson, FieldsOfLaterVersionsArePassedOver) {
  RunJson json = RunJson::parse(example());
  json["later"] = {1, 2};
  json["rows"][0]["later"] = "x";
  json["rows"][0]["time_us"]["p999"] = 1;
  json["rows"][0]["baselines"][0]["later"] = nullptr;
  EXPECT_EQ(to_json(parse_run(json.dump(), "x")), example());
}

TEST(BenchJson, FilesFromBeforeThereWereLinksAreRead) {
  RunJson json = RunJson::parse(example());
  for (const char* later : {"topology", "hosts", "links"}) json.erase(later);
  const Whole run = parse_run(json.dump(), "x");
  EXPECT_EQ(run.rows.size(), 2U);
  EXPECT_TRUE(run.links.empty() && run.hosts.empty() && run.topology.empty());
}

TEST(BenchJson, ReadsWholeNumbersWrittenAsDecimals) {
  RunJson json = RunJson::parse(example());
  json["seed"] = 42.0;
  json["ranks"] = 4.0;
  json["rows"][0]["time_us"]["median"] = 18210;
  EXPECT_EQ(to_json(parse_run(json.dump(), "x")), example());
}

TEST(BenchJunit, ACaseForEachRow) {
  EXPECT_EQ(to_junit(parse_run(example(), "example")), R"(<?xml version="1.0" encoding="UTF-8"?>
<testsuites tests="2" failures="0" errors="0">
  <testsuite name="lockstep bench" tests="2" failures="0" errors="0" timestamp="2026-11-21T10:00:00Z">
    <properties>
      <property name="version" value="0.4.0"/>
      <property name="commit" value="1a2b3c"/>
      <property name="seed" value="42"/>
    </properties>
    <testcase classname="lockstep.bench.all_reduce" name="67108864 B f32 sum cold launch 2" time="0.018210000"/>
    <testcase classname="lockstep.bench.broadcast" name="8 B f32 root 0 in place hot" time="0.000000410"/>
  </testsuite>
</testsuites>
)");
}

TEST(BenchJunit, WrongDataUnequalRanksAndGatesFail) {
  Whole run = parse_run(example(), "example");
  run.rows[0].check.wrong = 17;
  run.rows[0].check.ranks_equal = false;
  run.exit_code = 2;
  const std::string all = to_junit(run, std::vector<GateFailure>{{1, "8 % slower than a<b>&\"c'\x01\x1b[31m\nd\xff"}});
  EXPECT_TRUE(holds(all, R"(tests="2" failures="2")")) << all;
  EXPECT_TRUE(holds(all, R"(<failure message="17 wrong elements; ranks have unequal results"/>)")) << all;
  EXPECT_TRUE(holds(all, R"(<failure message="8 % slower than a&lt;b&gt;&amp;&quot;c&apos;[31m d?"/>)")) << all;
}

TEST(BenchJunit, TroubleOfNoRowIsACaseOfItsOwn) {
  Whole run = parse_run(example(), "example");
  run.interrupted = true;
  EXPECT_TRUE(holds(to_junit(run), "name=\"the whole run\""));
  EXPECT_TRUE(holds(to_junit(run), R"(tests="3" failures="1")"));
  EXPECT_TRUE(holds(to_junit(run), R"(message="interrupted: rows are missing")"));
  run.interrupted = false;
  run.exit_code = 4;
  run.verdict = "Rank 3 did not come.";
  EXPECT_TRUE(holds(to_junit(run), R"(message="exit code 4: Rank 3 did not come.")")) << to_junit(run);
  const std::vector<GateFailure> gate = {{99, "no such row"}};
  EXPECT_TRUE(holds(to_junit(run, gate), R"(message="no such row")"));
  run.exit_code = 3;
  EXPECT_TRUE(holds(to_junit(run, std::vector<GateFailure>{{0, "slow"}}), R"(tests="2" failures="1")"));
}

}  // namespace
}  // namespace lockstep::bench
