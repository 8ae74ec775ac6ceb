// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>

#include <fstream>
#include <regex>
#include <set>

#include "tests/support/refusal.hpp"
#include "topology/base/bytes.hpp"
#include "topology/base/duration.hpp"
#include "topology/base/error.hpp"
#include "topology/base/error_report.hpp"
#include "topology/base/escaped.hpp"
#include "topology/base/log.hpp"
#include "topology/base/progress_hooks.hpp"
#include "topology/base/settings.hpp"
#include "topology/base/text.hpp"
#include "topology/base/time_span.hpp"

namespace lockstep {
namespace {

using namespace std::chrono_literals;

using test::refusal;

TEST(Text, JoinsItsArguments) {
  EXPECT_EQ(text("rank ", 3, " of ", std::string("8"), ' ', 2.5), "rank 3 of 8 2.5");
  const std::vector<std::string> parts{"a", "a", "b"};
  EXPECT_EQ(join(parts, ", "), "a, a, b");
  EXPECT_EQ(split("a,,b", ','), (std::vector<std::string>{"a", "", "b"}));
  EXPECT_EQ(trim(" \t a b\n"), "a b");
  EXPECT_EQ(trim("  "), "");
}

TEST(Text, DurationsAreReadAsPeopleWriteThem) {
  EXPECT_EQ(parse_duration("10"), 10s);
  EXPECT_EQ(parse_duration("10s"), 10s);
  EXPECT_EQ(parse_duration("500ms"), 500ms);
  EXPECT_EQ(parse_duration("2m"), 120s);
  EXPECT_EQ(parse_duration("1h"), 3600s);
  EXPECT_EQ(parse_duration("0"), 0s);
  EXPECT_EQ(parse_duration("1.5s"), 1500ms);
  for (const char* junk : {"", "s", "-1", "ten", "10 s", "1e99", "nan", "inf", "10x", "99999999999999h"}) {
    EXPECT_EQ(parse_duration(junk), std::nullopt) << junk;
  }
}

TEST(TimeSpan, ConvertsFromAndToDurations) {
  constexpr TimeSpan hours = 2h;
  static_assert(hours.count() == 7'200'000'000'000);
  static_assert(TimeSpan(20ns).count() == 20);
  static_assert(TimeSpan::seconds(3) == 3s && TimeSpan() == 0s);
  // A float loses digits, and these units are no whole nanoseconds; <chrono> refuses both as well.
  static_assert(!std::is_convertible_v<std::chrono::duration<double>, TimeSpan>);
  static_assert(!std::is_convertible_v<std::chrono::duration<int, std::pico>, TimeSpan>);
  static_assert(!std::is_convertible_v<TimeSpan, std::chrono::seconds>);
  static_assert(!std::is_convertible_v<int, TimeSpan>);
  const std::chrono::nanoseconds nanoseconds = hours;
  EXPECT_EQ(nanoseconds, 2h);
  EXPECT_DOUBLE_EQ((std::chrono::duration<double>(hours).count()), 7200);
  EXPECT_DOUBLE_EQ((std::chrono::duration<double, std::milli>(hours).count()), 7.2e6);
}

TEST(TimeSpan, CalculatesAndComparesWithDurations) {
  const TimeSpan limit = 6s;
  EXPECT_TRUE(limit == 6000ms && limit != 5s && limit > 5s && 7s > limit && limit <= 6s);
  EXPECT_EQ((limit - 2s) * 3, 12s);
  EXPECT_EQ(1min + limit / 4U, 61500ms);
  EXPECT_EQ(std::min<Duration>(limit, 7s), 6s);
}

TEST(Text, SizesAndDurationsAreWrittenForPeople) {
  EXPECT_EQ(format_bytes(0), "0 B");
  EXPECT_EQ(format_bytes(1536), "1.5 KiB");
  EXPECT_EQ(format_bytes(64ULL << 20), "64 MiB");
  EXPECT_EQ(format_duration(1500ms), "1.5 s");
  EXPECT_EQ(format_duration(0s), "0 s");
}

TEST(Text, NearestNameIsFoundOnlyWhenNear) {
  const std::vector<std::string> names{"topo", "doctor", "bench"};
  EXPECT_EQ(nearest("tpo", names), "topo");
  EXPECT_EQ(nearest("docter", names), "doctor");
  EXPECT_EQ(nearest("completely-else", names), std::nullopt);
  EXPECT_EQ(nearest(std::string(100000, 'x'), names), std::nullopt);
}

TEST(Text, EscapesControlCharacters) {
  EXPECT_EQ(escaped("a\x1b[2J\n\t\r\x7f\u00e4\u009b\\n"), "a\\x1b[2J\\n\\t\\r\\x7f\u00e4\\xc2\\x9b\\n");
  EXPECT_EQ(escaped(escaped("\x1b\n\u009b")), escaped("\x1b\n\u009b"));
  EXPECT_EQ(escaped("\xc2"), "\xc2") << "cut";
  const Error error(Code::mismatch, "members of \"a\x1b[2J\nb\"", "rename \"a\x1b\"");
  EXPECT_NE(std::string(error.what()).find("members of \"a\\x1b[2J\\nb\" -> rename \"a\\x1b\""), std::string::npos)
      << error.what();
  std::string said;
  const Log log(LogLevel::warn, [&](LogLevel, std::string_view line) { said = line; });
  log.speaking_as("rank \x1b").warn("of \"b\nERROR\"");
  EXPECT_EQ(said, "[rank \\x1b] of \"b\\nERROR\"");
}

TEST(Text, PrintableEscapesControlCharacters) {
  EXPECT_EQ(printable("a\x1b[2J\n\u00e4"), "a\\x1b[2J\\n\\xc3\\xa4");
  EXPECT_EQ(printable(std::string(100, 'x'), 3), "xxx...");
}

TEST(IndexSet, BehavesLikeASetOfNumbers) {
  std::uint32_t seed = 12345;
  const auto random = [&] { return static_cast<int>((seed = seed * 1664525U + 1013904223U) >> 26U); };
  for (int round = 0; round < 200; ++round) {
    IndexSet ours;
    std::set<int> theirs;
    for (int i = 0; i < round % 40; ++i) {
      const int member = random();
      ours.insert(member);
      theirs.insert(member);
    }
    EXPECT_EQ(ours.members(), std::vector<int>(theirs.begin(), theirs.end()));
    EXPECT_EQ(ours.size(), theirs.size());
    for (int member = 0; member < 64; ++member) EXPECT_EQ(ours.contains(member), theirs.contains(member));
    EXPECT_EQ(IndexSet::parse(ours.to_string()), ours);
  }
}

TEST(IndexSet, UnionsIntersectionsAndContainment) {
  const auto set = [](const char* text) { return IndexSet::parse(text).value(); };
  IndexSet all = set("0-3,8");
  all.insert(set("2-6,10"));
  EXPECT_EQ(all.to_string(), "0-6,8,10");
  EXPECT_EQ(set("0-6,8").intersect(set("5-9")).to_string(), "5-6,8");
  EXPECT_TRUE(set("0-6,8").contains(set("1-2,8")));
  EXPECT_FALSE(set("0-6,8").contains(set("6-8")));
  for (const char* junk : {"x", "3-1", "-1", "1-", "1,,2", "0-99999999999"})
    EXPECT_EQ(IndexSet::parse(junk), std::nullopt) << junk;
}

TEST(Bytes, ComeBackAsTheyWent) {
  Writer writer;
  writer.put(7).put(2.5).put("word").put(IndexSet{1, 2, 9}).put(Exit::unfit);
  const Bytes bytes = writer.take();
  Reader reader(bytes);
  EXPECT_EQ(reader.get<int>(), 7);
  EXPECT_EQ(reader.get<double>(), 2.5);
  EXPECT_EQ(reader.get_string(), "word");
  EXPECT_EQ(reader.get_set(), (IndexSet{1, 2, 9}));
  EXPECT_EQ(reader.get_enum(Exit::inconclusive), Exit::unfit);
  EXPECT_NO_THROW(reader.expect_done());
}

TEST(Bytes, ABoolIsTrueForEveryByteButZero) {
  const std::array<std::byte, 3> bytes = {std::byte{0}, std::byte{1}, std::byte{2}};
  Reader reader(bytes);
  EXPECT_FALSE(reader.get<bool>());
  EXPECT_TRUE(reader.get<bool>());
  EXPECT_EQ(static_cast<int>(reader.get<bool>()), 1);
}

TEST(Bytes, TruncatedAnywhereIsAnError) {
  Writer writer;
  writer.put("word").put(IndexSet{1, 2, 9}).put(7);
  const Bytes whole = writer.take();
  for (std::size_t size = 0; size < whole.size(); ++size) {
    refusal(
        [&] {
          Reader reader(std::span<const std::byte>(whole).first(size));
          reader.get_string();
          reader.get_set();
          reader.get<int>();
        },
        Code::bad_message);
  }
}

TEST(Bytes, AHugeLengthAllocatesNothing) {
  Writer writer;
  writer.put(~std::uint64_t{0});
  const Bytes bytes = writer.take();
  refusal([&] { Reader(bytes).get_string(); }, Code::bad_message);
}

TEST(Errors, HaveIdTextAndRemedy) {
  const Error error(Code::bad_setting, "X=1", "say 2");
  EXPECT_STREQ(error.what(), "LOCKSTEP-E002 a LOCKSTEP_ variable has a value that is not allowed: X=1 -> say 2");
  EXPECT_EQ(error.exit(), Exit::usage);
}

TEST(ErrorReport, RoundTripsAndTrustsNoByte) {
  const Error error(Code::stall, "rank 3 did not come", "look at it");
  Writer writer;
  put(writer, report_of(error));
  const Bytes bytes = writer.take();
  Reader reader(bytes);
  EXPECT_EQ(get_error_report(reader), (ErrorReport{Code::stall, "rank 3 did not come -> look at it"}));
  reader.expect_done();

  put(writer, {static_cast<Code>(12345), std::string(20000, 'x') + "\n"});
  const Bytes wrong = writer.take();
  Reader second(wrong);
  const ErrorReport read = get_error_report(second);
  EXPECT_EQ(read.code, Code::internal);
  EXPECT_LT(read.text.size(), 16100U);
  refusal(
      [] {
        Reader none({});
        get_error_report(none);
      },
      Code::bad_message);
}

TEST(Errors, EveryIdHasOneEntryInTheDocumentation) {
  std::ifstream file(std::string(SOURCE_ROOT) + "/docs/errors.md");
  std::set<std::string> documented;
  const std::regex heading("^## (LOCKSTEP-E[0-9]{3}) (.*)$");
  for (std::string line; std::getline(file, line);) {
    std::smatch match;
    if (std::regex_match(line, match, heading)) {
      EXPECT_TRUE(documented.insert(match[1]).second) << match[1] << " twice";
    }
  }
  std::set<std::string> known;
  for (const CodeEntry& entry : code_entries()) known.insert(id(entry.code));
  EXPECT_EQ(documented, known);
  EXPECT_EQ(known.size(), code_entries().size());
}

TEST(Settings, ComeFromDefaultEnvironmentAndProgram) {
  const std::vector<std::string> lines{"LOCKSTEP_TIMEOUT=2m", "HOME=/", "NO_EQUALS"};
  Settings settings = Settings::from_lines(lines);
  EXPECT_EQ(settings.timeout(), 120s);
  EXPECT_EQ(settings.source(Setting::timeout), SettingSource::environment);
  EXPECT_EQ(settings.stall_warn(), 10s);
  EXPECT_EQ(settings.silence(), 10s);
  EXPECT_EQ(settings.signal(), 0);
  settings.set(Setting::signal, "USR2");
  EXPECT_EQ(settings.signal(), SIGUSR2);
  settings.set(Setting::silence, "2s");
  EXPECT_EQ(settings.silence(), 2s);
  EXPECT_EQ(settings.source(Setting::stall_warn), SettingSource::built_in);
  settings.set(Setting::timeout, "0");
  EXPECT_EQ(settings.timeout(), 0s);
  EXPECT_EQ(settings.source(Setting::timeout), SettingSource::program);
  EXPECT_EQ(Settings().timeout(), 300s);
  EXPECT_FALSE(Settings().allow_singleton());
  EXPECT_EQ(Settings().algorithm(), "auto");
  EXPECT_EQ(Settings().table(), std::nullopt);
  settings.set(Setting::algorithm, "all_reduce:ring, broadcast : chain");
  settings.set(Setting::table, "/tmp/some table");
  EXPECT_EQ(settings.table(), "/tmp/some table");
}

TEST(Settings, BadValuesAreNamedWithTheAllowedOnes) {
  for (const char* line :
       {"LOCKSTEP_TIMEOUT=soon", "LOCKSTEP_STALL_WARN=-1", "LOCKSTEP_ALLOW_SINGLETON=yes", "LOCKSTEP_LOG=loud",
        "LOCKSTEP_ALGORITHM=ring", "LOCKSTEP_ALGORITHM=all_reduce:", "LOCKSTEP_ALGORITHM=a:b,", "LOCKSTEP_TABLE=",
        "LOCKSTEP_ALGORITHM=a:b c", "LOCKSTEP_SILENCE=0", "LOCKSTEP_SILENCE=1999ms", "LOCKSTEP_SILENCE=61m"}) {
    const std::vector<std::string> lines{line};
    const std::string all = refusal([&] { Settings::from_lines(lines); }, Code::bad_setting);
    const auto parts = split(line, '=');
    EXPECT_NE(all.find(parts[0]), std::string::npos) << all;
    EXPECT_NE(all.find(parts[1]), std::string::npos) << all;
    EXPECT_NE(all.find("allowed is"), std::string::npos) << all;
  }
}

TEST(Settings, APathThatCannotBePrintedIsRefused) {
  for (const char* path : {"\xff", "a\nb"}) {
    const std::string all = refusal([&] { Settings().set(Setting::table, path); }, Code::bad_setting);
    EXPECT_NE(all.find("printable ASCII"), std::string::npos) << all;
  }
}

TEST(Settings, AnUnknownNameWarnsWithTheNearest) {
  const std::vector<std::string> lines{"LOCKSTEP_TIMOUT=3", "LOCKSTEP_COMPLETELY_ELSE=3"};
  const Settings settings = Settings::from_lines(lines);
  ASSERT_EQ(settings.warnings().size(), 2U);
  EXPECT_NE(settings.warnings()[0].find("did you mean LOCKSTEP_TIMEOUT?"), std::string::npos);
  EXPECT_EQ(settings.warnings()[1].find("did you mean"), std::string::npos);
}

TEST(Settings, TheTableIsSortedAndItsDefaultsAreAllowed) {
  const auto rows = setting_rows();
  for (std::size_t i = 0; i < rows.size(); ++i) {
    EXPECT_EQ(static_cast<std::size_t>(rows[i].setting), i);
    if (i > 0) {
      EXPECT_LT(rows[i - 1].name, rows[i].name);
    }
    EXPECT_NO_THROW(Settings().set(rows[i].setting, rows[i].built_in)) << rows[i].name;
    EXPECT_TRUE(std::string(rows[i].name).starts_with("LOCKSTEP_"));
  }
}

TEST(Settings, TheDocumentationHasTheSameTable) {
  std::ifstream file(std::string(SOURCE_ROOT) + "/docs/settings.md");
  const std::string page((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  for (const SettingRow& row : setting_rows()) {
    const std::string line = text("| `", row.name, "` | ", row.built_in, " | ", row.allowed, " | ", row.meaning, " |");
    EXPECT_NE(page.find(line), std::string::npos) << "docs/settings.md lacks the line\n" << line;
  }
}

TEST(Log, GoesToTheSinkAndRespectsTheLevel) {
  std::vector<std::string> lines;
  const Log log(LogLevel::warn,
                [&](LogLevel level, std::string_view line) { lines.push_back(text(to_string(level), ": ", line)); });
  log.info("too quiet");
  log.speaking_as("rank 3").warn("heard");
  log.error("heard too");
  EXPECT_EQ(lines, (std::vector<std::string>{"warn: [rank 3] heard", "error: heard too"}));
  EXPECT_EQ(parse_log_level("debug"), LogLevel::debug);
  EXPECT_EQ(parse_log_level("loud"), std::nullopt);
}

TEST(OutsideProgress, RunsUntilItEndsAndNotWhilePaused) {
  int outer = 0;
  int inner = 0;
  run_outside_progress();
  {
    const OutsideProgress first([&] { ++outer; });
    run_outside_progress();
    {
      const OutsideProgress second([&] { ++inner; });
      run_outside_progress();
      const OutsidePause pause;
      run_outside_progress();
    }
    run_outside_progress();
  }
  run_outside_progress();
  EXPECT_EQ(outer, 2);
  EXPECT_EQ(inner, 1);
}

TEST(OutsideProgress, DoesNotRunInAForkedChildNorAfterItWasStopped) {
  int runs = 0;
  const OutsideProgress progress([&] { ++runs; });
  const pid_t child = ::fork();
  if (child == 0) {
    run_outside_progress();
    ::_exit(runs);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EXIT(
      {
        const OutsideProgress own([&] { ++runs; });
        run_outside_progress();
        stop_outside_progress();
        run_outside_progress();
        const OutsideProgress later([&] { ++runs; });
        run_outside_progress();
        ::_exit(runs);
      },
      testing::ExitedWithCode(1), "");
}

}  // namespace
}  // namespace lockstep
