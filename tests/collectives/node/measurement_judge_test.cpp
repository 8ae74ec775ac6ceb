// SPDX-License-Identifier: Apache-2.0
// The load that makes a measurement of thresholds worthless, and the record of those that counted.
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "collectives/node/measurement_judge.hpp"
#include "collectives/node/tuning_record.hpp"
#include "topology/base/text.hpp"

namespace lockstep {
namespace {

using node::Doubt;
using node::judge;
using node::MeasurementConditions;
using node::TuningRecord;

constexpr MeasurementConditions quiet = {.load = {.stolen = 0.001, .off_core = 0.003, .switches = 8, .queue = 2},
                                         .spread = 1.05,
                                         .members = 2,
                                         .processors = 2};

TEST(Judge, BelievesAQuietMachine) { EXPECT_EQ(judge(quiet), Doubt::none); }

TEST(Judge, NamesTheReasonAgainstAMeasurement) {
  const auto with = [](auto spoil) {
    MeasurementConditions conditions = quiet;
    spoil(conditions);
    return judge(conditions);
  };
  EXPECT_EQ(with([](auto& each) { each.load.stolen = 0.2; }), Doubt::stolen);
  EXPECT_EQ(with([](auto& each) { each.load.off_core = 0.3; }), Doubt::off_core);
  EXPECT_EQ(with([](auto& each) { each.load.switches = 900; }), Doubt::switches);
  EXPECT_EQ(with([](auto& each) { each.load.queue = 3; }), Doubt::queue);
  EXPECT_EQ(with([](auto& each) { each.spread = 2.5; }), Doubt::spread);
}

TEST(Judge, RanksThatShareCoresWaitForEachOther) {
  MeasurementConditions conditions = quiet;
  conditions.crowded = true;
  conditions.members = 4;
  conditions.load = {.stolen = 0, .off_core = 0.5, .switches = 900, .queue = 4};
  EXPECT_EQ(judge(conditions), Doubt::none);
  conditions.load.queue = 5;
  EXPECT_EQ(judge(conditions), Doubt::queue);
}

TEST(Judge, AnUnknownFigureIsNoReason) {
  MeasurementConditions conditions = quiet;
  conditions.load = {};
  EXPECT_EQ(judge(conditions), Doubt::none);
}

TEST(LoadReading, ReadsStolenTimeAndTheRunQueue) {
  const LoadCounters before = load_counters("cpu  100 0 100 800 0 0 0 0 0 0\nctxt 5\nprocs_running 4\n");
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  const LoadCounters after = load_counters("cpu  150 0 100 820 0 0 0 30 0 0\nctxt 9\nprocs_running 3\n");
  const Load load = load_between(before, after);
  EXPECT_DOUBLE_EQ(load.stolen, 0.3);
  EXPECT_DOUBLE_EQ(load.queue, 3);
  EXPECT_GT(load.off_core, 0.5) << "the thread slept";
  EXPECT_GE(load.switches, 0);
}

TEST(LoadReading, AStrangeFileLeavesFiguresUnknown) {
  for (const char* text : {"", "cpu", "cpu  1 2 x", "procs_running many\n\n\ncpu0 1 2 3 4 5 6 7 8"}) {
    const LoadCounters counters = load_counters(text);
    const Load load = load_between(counters, counters);
    EXPECT_EQ(load.stolen, Load::unknown) << text;
    EXPECT_EQ(load.queue, Load::unknown) << text;
  }
}

node::TuningMeasurement measurement_of(std::size_t two_phase_from) {
  node::TuningMeasurement measured{.tuning = node::guessed_tuning(2), .conditions = quiet};
  measured.tuning.two_phase_from = two_phase_from;
  return measured;
}

TEST(TuningRecord, AMeasurementThatDoesNotCountIsNotKept) {
  TuningRecord record;
  record.add(measurement_of(64), Doubt::off_core);
  EXPECT_EQ(record.offer(2).tuning, node::guessed_tuning(2));
  record.add(measurement_of(4096), Doubt::none);
  record.add(measurement_of(64), Doubt::queue);
  EXPECT_EQ(record.offer(2).tuning.two_phase_from, 4096U);
  EXPECT_EQ(node::to_text(record.confidence()),
            "measured in 1 job; times within 5 %; 2 measurements were not believed, the last because more threads ran "
            "than there are cores");
}

TEST(TuningRecord, AttemptsAreBounded) {
  TuningRecord record;
  for (std::size_t job = 0; job < node::most_attempts; ++job) {
    EXPECT_TRUE(record.needs_measurement()) << job;
    record.add(measurement_of(64), Doubt::stolen);
  }
  EXPECT_FALSE(record.needs_measurement());
  TuningRecord measured;
  for (std::size_t job = 0; job < node::measurements_needed; ++job) measured.add(measurement_of(4096), Doubt::none);
  EXPECT_FALSE(measured.needs_measurement());
}

TEST(TuningRecord, ThreeProgramsThatGiveAValueUpChangeTheMedian) {
  TuningRecord record;
  for (std::size_t job = 0; job < node::measurements_needed; ++job) record.add(measurement_of(4096), Doubt::none);
  const node::TuningField& field = node::tuning_fields()[0];
  ASSERT_EQ(field.name, "two_phase_from");
  for (const std::size_t expected : {4096U, 4096U, 8192U}) {
    record.give_up(field, 8192);
    EXPECT_EQ(record.offer(2).tuning.two_phase_from, expected);
  }
  EXPECT_EQ(record.confidence().given_up, 3U);
}

TEST(TuningRecord, TextIsReadBack) {
  TuningRecord record;
  EXPECT_EQ(TuningRecord::parse(record.to_text("a machine"), "a machine"), record);
  record.add(measurement_of(64), Doubt::spread);
  EXPECT_EQ(TuningRecord::parse(record.to_text("a machine"), "a machine"), record);
  for (const std::size_t value : {4096U, 8192U}) record.add(measurement_of(value), Doubt::none);
  record.give_up(node::tuning_fields()[1], 32768);
  const std::string whole = record.to_text("a machine");
  EXPECT_EQ(TuningRecord::parse(whole, "a machine"), record);
  EXPECT_EQ(TuningRecord::parse(whole), record);
  EXPECT_EQ(TuningRecord::parse(whole, "another machine"), TuningRecord());
  for (std::size_t cut = 1; cut + 1 < whole.size(); cut += 37) TuningRecord::parse(whole.substr(0, cut));
  EXPECT_EQ(TuningRecord::parse(whole.substr(0, whole.size() / 2), "a machine"), TuningRecord());
  EXPECT_EQ(TuningRecord::parse(whole + "spread 101\n"), TuningRecord());
  EXPECT_EQ(TuningRecord::parse(whole + "doubt weather\n"), TuningRecord());
}

}  // namespace
}  // namespace lockstep
