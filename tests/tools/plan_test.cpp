// SPDX-License-Identifier: Apache-2.0
// `lockstep plan`: what it prints, as text and as JSON, who sends what to whom, and how misuse is refused.
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <regex>

#include "tests/tools/run_command.hpp"
#include "tools/lockstep/plan_steps.hpp"
#include "tools/lockstep/plan_text.hpp"

namespace lockstep::command {
namespace {

using test::holds;
using test::Words;

std::string printed(const Words& words) { return test::printed(run_plan, plan_manual(), words); }

TEST(PlanText, ShowsTheCallTheMachineAndTheChoice) {
  const std::string all =
      printed({"all_reduce", "--count", "1M", "--synthetic", "2 x node(core:4 pu:1 nic:25G)", "--algorithm", "ring"});
  EXPECT_TRUE(all.starts_with("all_reduce of 1048576 f32, sum (4 MiB), by 8 members on 2 nodes\n")) << all;
  EXPECT_TRUE(holds(all, "a core per member; between nodes 25 Gbit/s, as its interfaces report\n")) << all;
  EXPECT_TRUE(holds(all, "> ring")) << all;
  EXPECT_TRUE(holds(all, "       14         7 MiB")) << all;
  EXPECT_TRUE(holds(all, "\nring: forced by --algorithm\n")) << all;
  EXPECT_TRUE(holds(all, "\n  flat")) << all;
  EXPECT_FALSE(holds(all, "Rounds of member")) << all;
}

TEST(PlanText, ShowsRejectedAlgorithmsAndThatCostsAreGuesses) {
  const std::string all =
      printed({"all_reduce", "-c", "100", "--order", "reproducible", "-s", "2 x node(core:2 pu:1)"});
  EXPECT_TRUE(holds(all, "all_reduce of 100 f32, sum, reproducible (400 B), by 4 members on 2 nodes\n")) << all;
  EXPECT_TRUE(holds(all, "does not combine in the balanced tree of the reproducible order\n")) << all;
  EXPECT_TRUE(holds(all, "Constants of the cost model were not measured on this machine; --terms")) << all;
}

TEST(PlanText, MembersOfOneNodeMeetInMemory) {
  const std::string all = printed({"all_reduce", "-c", "100", "-s", "core:4 pu:1"});
  EXPECT_TRUE(holds(all, "\n> node ")) << all;
  EXPECT_TRUE(holds(all, "\nnode: the members share this node's memory\nNo messages: ")) << all;
  EXPECT_TRUE(std::regex_search(all, std::regex("\n> node +- +- +- +[0-9.]+ us\n"))) << all;
  EXPECT_TRUE(holds(all, "\nThe predicted time of node does not affect the choice: ")) << all;
  const std::string two = printed({"all_reduce", "-c", "100", "-s", "2 x node(core:4 pu:1)"});
  EXPECT_TRUE(holds(two, "needs memory that all members share\n")) << two;
}

TEST(PlanText, TermsAddUpToThePredictedTimeAndConstantsHaveAProvenance) {
  const Words words{"all_reduce", "-c", "1M", "-s", "4 x node(core:2 pu:1 nic:1G)", "-r", "4", "-a", "node_ring"};
  Words asked = words;
  asked.emplace_back("--terms");
  const std::string all = printed(asked);
  EXPECT_TRUE(holds(all, "\nPredicted time = rounds + network + node + combine - overlap\n")) << all;
  EXPECT_TRUE(std::regex_search(all, std::regex("\n  turn_waits +2  times its work +measured 2026-11-25"))) << all;
  EXPECT_TRUE(std::regex_search(all, std::regex("\n  network rate +1250  bytes/us +not measured\n"))) << all;
  EXPECT_FALSE(holds(printed(words), "turn_waits"));
  asked.emplace_back("--json");
  const nlohmann::json answer = nlohmann::json::parse(printed(asked));
  for (const auto& each : answer.at("candidates")) {
    if (!each.contains("terms_us") || each.at("predicted_us") == 0) continue;
    const auto& terms = each.at("terms_us");
    const auto us = [&](const char* name) { return terms.at(name).get<double>(); };
    EXPECT_NEAR(us("rounds") + us("network") + us("node") + us("combine") - us("overlap"),
                each.at("predicted_us").get<double>(), 1e-6 * each.at("predicted_us").get<double>())
        << each;
    EXPECT_GT(us("rounds"), 0) << each;
    EXPECT_GT(us("network"), 0) << each;
  }
}

TEST(PlanText, ListsMeasuredThresholdsByTheirNames) {
  auto plan = std::make_shared<Plan>();
  plan->algorithm = "node";
  plan->in_node = true;
  node::Tuning tuning{.two_phase_from = 65536, .segment = 8192, .slow_write_from = 1, .each_combines_from = 1};
  tuning.flow_from = node::never;
  node::TuningConfidence confidence{.counted = 3, .spread = 1.04};
  const auto shown = [&] {
    return plan_text({.facts = {}, .plan = plan, .candidates = {}, .measured = tuning, .confidence = confidence});
  };
  EXPECT_TRUE(holds(shown(), "Thresholds here (measured in 3 jobs; times within 4 %):\n")) << shown();
  confidence = {.refused = 1, .last_doubt = node::Doubt::spread};
  EXPECT_TRUE(holds(shown(),
                    "Thresholds here (defaults; 1 measurement was not believed, the last because its times "
                    "differed too much):\n"))
      << shown();
  for (const char* line : {"two_phase_from +64 KiB", "segment +8 KiB", "flow_from +never", "slow_write_from +1 ns/KiB",
                           "each_combines_from +never"})
    EXPECT_TRUE(std::regex_search(shown(), std::regex(text("\n  ", line, "  [a-z]")))) << shown();
  tuning.slow_write_from = 0;
  tuning.each_combines_from = node::never;
  for (const char* line : {"slow_write_from +always", "each_combines_from +always"})
    EXPECT_TRUE(std::regex_search(shown(), std::regex(text("\n  ", line, "  [a-z]")))) << shown();
}

TEST(PlanText, ScheduleIsAPictureOfRoundsAndMessages) {
  const Words words{"all_reduce", "-c", "8", "-s", "core:4 pu:1", "-a", "ring", "--schedule", "--index", "1"};
  const std::string all = printed(words);
  EXPECT_TRUE(holds(all, "\nRounds of member 1 (-> sends, <- receives, = combines or copies)\n")) << all;
  EXPECT_TRUE(holds(all, "\n      1  ->2 in[0,2)   <-0 tmp[0,2)   tmp[0,2) = tmp[0,2) op in[6,8)\n") ||
              holds(all, "\n      1  ->2 in[0,2)   <-0 tmp["))
      << all;
  EXPECT_TRUE(holds(all, "\nAll messages by step, if all rounds take equally long\n")) << all;
  EXPECT_TRUE(holds(all, "\n     1  0->1 in[6,8)   1->2 in[0,2)   2->3 in[2,4)   3->0 in[4,6)\n")) << all;
  EXPECT_TRUE(holds(all, "\n     6  ")) << all;
  EXPECT_FALSE(holds(all, "\n     7  ")) << all;
}

TEST(PlanText, ShowsTheWireFormatBetweenNodes) {
  const Words asked = {"all_reduce", "-c", "4M", "-s",        "4 x node(core:8 pu:1 nic:1G)",
                       "-r",         "2",  "-a", "node_ring", "--schedule"};
  Words narrow = asked;
  narrow.insert(narrow.end(), {"--wire", "bf16"});
  const std::string plain = printed(asked);
  const std::string all = printed(narrow);
  EXPECT_TRUE(holds(all, "f32, sum, bf16 between nodes")) << all;
  EXPECT_TRUE(holds(all, "forced by --algorithm; between nodes in bf16")) << all;
  EXPECT_TRUE(holds(all, " narrow")) << all;
  EXPECT_TRUE(holds(all, " = rounded")) << all;
  EXPECT_TRUE(holds(plain, "12 MiB") && holds(all, "6 MiB")) << plain << all;  // sent by one
  EXPECT_FALSE(holds(plain, "bf16") || holds(plain, "narrow")) << plain;
}

TEST(PlanText, EveryCollectiveHasAnAnswerWhoseLinesFitThePage) {
  for (int i = 0; i < collective_count; ++i) {
    const auto collective = static_cast<Collective>(i);
    if (collective == Collective::sendrecv) continue;
    const std::string name(to_string(collective));
    const std::string all = printed({name, "-s", "2 x node(core:4 pu:1)", "--schedule"});
    for (const std::string& line : split(all, '\n')) {
      EXPECT_LE(line.size(), 110U) << line;
      const bool is_idle = line.find_first_not_of(" 0123456789") == std::string::npos;  // a round of nothing
      EXPECT_TRUE(is_idle || !line.ends_with(' ')) << line;
    }
    EXPECT_TRUE(all.starts_with(name) && holds(all, "\n> ") && holds(all, "All messages")) << all;
  }
  EXPECT_FALSE(holds(printed({"barrier", "-s", "core:9 pu:1", "--schedule"}), "All messages")) << "nine are too many";
}

TEST(PlanText, AMemberAloneCopies) {
  const std::string all = printed({"all_gather", "-c", "5", "-s", "pu:1", "--schedule"});
  EXPECT_TRUE(holds(all, "by 1 member on 1 node\n")) << all;
  EXPECT_TRUE(holds(all, "\ncopy: the group has one member\n")) << all;
  EXPECT_TRUE(holds(all, "out[0,5) = in[0,5)")) << all;
}

TEST(PlanJson, HasEverythingThatTheTextHas) {
  const Words words{"broadcast", "-c",        "64k", "-t", "u8", "-R", "2", "-s", "2 x node(core:2 pu:1)",
                    "--json",    "--schedule"};
  const auto json = nlohmann::json::parse(printed(words));
  EXPECT_EQ(json.at("schema"), 1);
  EXPECT_EQ(json.at("collective"), "broadcast");
  EXPECT_EQ(json.at("bytes"), 65536);
  EXPECT_EQ(json.at("root"), 2);
  EXPECT_TRUE(json.at("op").is_null());
  EXPECT_EQ(json.at("members"), 4);
  EXPECT_EQ(json.at("nodes"), 2);
  EXPECT_EQ(json.at("network_known"), false);
  EXPECT_EQ(json.at("choice").get<std::string>().size(), 16U);
  const auto& candidates = json.at("candidates");
  const auto chosen = std::ranges::find_if(candidates, [](const auto& each) { return each.value("chosen", false); });
  ASSERT_NE(chosen, candidates.end());
  EXPECT_EQ(chosen->at("name"), json.at("algorithm"));
  EXPECT_FALSE(json.at("schedule").at("rounds").empty());
}

TEST(PlanSteps, AChainTakesAStepForEachLink) {
  std::vector<Schedule> chain;
  for (int i = 0; i < 3; ++i) {
    ScheduleBuilder builder;
    if (i > 0) builder.round().receive(i - 1, output(0, 4));
    if (i < 2) builder.round().send(i + 1, output(0, 4));
    chain.push_back(builder.done());
  }
  const std::vector<StepMessage> expected{{1, 0, 1, output(0, 4)}, {2, 1, 2, output(0, 4)}};
  EXPECT_EQ(step_messages(chain, 100), expected);
  EXPECT_EQ(step_messages(chain, 1).size(), 1U);
}

TEST(PlanOptions, MisuseIsRefusedWithAWayOut) {
  std::vector<test::Misuse> all = {
      {{}, "no collective is named"},
      {{"all_redcue"}, "did you mean all_reduce?"},
      {{"sendrecv"}, "there is no collective \"sendrecv\""},
      {{"all_reduce", "1M"}, "values follow their options"},
      {{"all_reduce", "--count", "many"}, "64k or 3G"},
      {{"all_reduce", "--count", "-1"}, "--count \"-1\""},
      {{"all_reduce", "--count", "999999T"}, "of at most"},
      {{"all_reduce", "--type", "f33"}, "did you mean f32?"},
      {{"all_reduce", "--op", "summ"}, "did you mean sum?"},
      {{"all_reduce", "--op", "bit_and"}, "bit_and of f32 has no meaning"},
      {{"scan", "--op", "avg"}, "where ranks combine different numbers"},
      {{"all_reduce", "--order", "quick"}, "--order reproducible"},
      {{"all_reduce", "--ordered"}, "--op user"},
      {{"all_reduce", "--root", "1"}, "which has no root"},
      {{"broadcast", "--op", "sum"}, "which reduces nothing"},
      {{"broadcast", "--root", "4"}, "from 0 to 3"},
      {{"barrier", "--count", "4"}, "a barrier moves no data"},
      {{"all_reduce", "--index", "1"}, "give both"},
      {{"all_reduce", "--schedule", "--index", "4"}, "from 0 to 3"},
      {{"all_reduce", "--synthetic", "core:2 pu:1"}, "given twice"},
      {{"all_reduce", "--algorithm", "all_reduce:ring"}, "the algorithm's name alone"},
      {{"all_reduce", "--algorithm", "rong"}, "did you mean ring?"},
      {{"all_reduce", "--wire", "bf17"}, "--wire as_is, bf16 or f16"},
      {{"broadcast", "--wire", "bf16"}, "which has no wire format"},
      {{"all_reduce", "--cuont", "4"}, "did you mean --count?"},
  };
  for (auto& [words, says] : all) words.insert(words.end(), {"--synthetic", "core:4 pu:1"});
  test::expect_refused(run_plan, plan_manual(), all);
}

TEST(PlanOptions, AnAlgorithmThatDoesNotFitIsRefusedWithOthers) {
  try {
    (void)run_plan(parse(plan_manual(), {"all_reduce", "-s", "core:4 pu:1", "-a", "ring", "--order", "reproducible"}));
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::usage);
    EXPECT_TRUE(holds(error.what(), "--algorithm forces all_reduce:ring, which does not combine")) << error.what();
  }
}

TEST(PlanOptions, TheManualsExamplesWork) {
  const std::string manual = page(plan_manual());
  for (const std::string& line : split(manual, '\n')) EXPECT_LE(line.size(), 110U) << line;
  for (const Option& option : plan_manual().options) EXPECT_TRUE(holds(manual, text("--", option.name))) << option.name;
  EXPECT_TRUE(holds(printed({"all_reduce", "--count", "1M", "--synthetic", "4 x node(core:8 pu:1 nic:25G)"}), "> "));
}

}  // namespace
}  // namespace lockstep::command
