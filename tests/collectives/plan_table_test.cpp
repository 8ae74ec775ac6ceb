// SPDX-License-Identifier: Apache-2.0
// The text that people write about the choice of algorithms: what is understood, and how the rest is refused.
#include "collectives/plan_table.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>

#include "tests/support/folder.hpp"
#include "tests/support/lacks.hpp"
#include "tests/support/refusal.hpp"
#include "tests/topology/shapes.hpp"
#include "topology/base/text.hpp"
#include "topology/base/text_file.hpp"

namespace lockstep {
namespace {

using test::refusal;

constexpr std::uint64_t any = std::numeric_limits<std::uint64_t>::max();

TEST(PlanTable, RowsAreUnderstoodAsWritten) {
  const auto rows = parse_plan_table(
      "# collective members nodes bytes algorithm segment provenance\n"
      "\n"
      "  all_reduce\t2-8   1  0-16K  ring  1M  2026-11-21 node7, by hand  # a remark\r\n"
      "AllReduce * 2+ 1g+ ring 0 a guess");
  ASSERT_EQ(rows.size(), 2U);
  EXPECT_EQ(rows[0].collective, Collective::all_reduce);
  EXPECT_EQ(rows[0].members, (AmountRange{2, 8}));
  EXPECT_EQ(rows[0].nodes, (AmountRange{1, 1}));
  EXPECT_EQ(rows[0].bytes, (AmountRange{0, 16384}));
  EXPECT_EQ(rows[0].algorithm, "ring");
  EXPECT_EQ(rows[0].segment_bytes, 1U << 20U);
  EXPECT_EQ(rows[0].provenance, "2026-11-21 node7, by hand");
  EXPECT_EQ(rows[0].line, 3);
  EXPECT_EQ(rows[1].members, (AmountRange{0, any}));
  EXPECT_EQ(rows[1].nodes, (AmountRange{2, any}));
  EXPECT_EQ(rows[1].bytes, (AmountRange{1U << 30U, any}));
  EXPECT_EQ(rows[1].line, 4);
}

// Members on machines of one kind, at the same places, whatever the hosts are called.
TEST(PlanTable, IsRefusedWhereItWasNotMeasured) {
  const auto here = test::made_of({test::shape({.cores = 4})}, {{0, {{0, 1}, {2, 3}}}, {0, {{0, 1}, {2, 3}}}});
  const auto elsewhere = test::made_of({test::shape({.cores = 4})}, {{0, {{0, 1}, {2, 3}}}, {0, {{2, 3}, {0, 1}}}});
  const auto larger = test::made_of({test::shape({.cores = 8})}, {{0, {{0, 1}, {2, 3}}}, {0, {{0, 1}, {2, 3}}}});
  const std::string table =
      text("# measured\nfor ", hexadecimal(here.kind()), "  # by hand\nall_reduce * * * ring 0 here");
  EXPECT_NO_THROW(refuse_foreign_table(table, "a.table", here));
  EXPECT_EQ(parse_plan_table(table).size(), 1U);
  EXPECT_NO_THROW(refuse_foreign_table("all_reduce * * * ring 0 a guess", "a.table", elsewhere));
  for (const Topology& other : {elsewhere, larger}) {
    EXPECT_NE(other.kind(), here.kind());
    const std::string words = refusal([&] { refuse_foreign_table(table, "a.table", other); }, Code::bad_setting);
    EXPECT_NE(words.find("line 2 of a.table"), std::string::npos) << words;
    EXPECT_NE(words.find(hexadecimal(other.kind())), std::string::npos) << words;
    EXPECT_NE(words.find("lockstep tune"), std::string::npos) << words;
  }
  for (const char* const wrong : {"for", "for x", "for 12g", "for 0123456789abcdef0", "for 1 2", "for -1"})
    refusal([&] { parse_plan_table(wrong); }, Code::bad_setting);
}

TEST(PlanTable, MayBeEmpty) {
  EXPECT_TRUE(parse_plan_table("").empty());
  EXPECT_TRUE(parse_plan_table("\n\n# nothing yet\n   \t").empty());
}

TEST(PlanTable, ErrorsNameTheLineAndTheAllowedValues) {
  struct Wrong {
    std::string row;
    std::vector<std::string> says;
  };
  const std::vector<Wrong> all = {
      {"all_reduce 2 1 * ring 0", {"fewer than seven words", "collective members nodes bytes"}},
      {"all_redcue 2 1 * ring 0 x", {"no collective \"all_redcue\"", "did you mean all_reduce?", "all_gather"}},
      {"sendrecv 2 1 * ring 0 x", {"no collective \"sendrecv\" to plan"}},
      {"all_reduce two 1 * ring 0 x", {"\"two\" is not a range of members", "a-b"}},
      {"all_reduce 8-2 1 * ring 0 x", {"\"8-2\" is not a range"}},
      {"all_reduce 2 -1 * ring 0 x", {"\"-1\" is not a range of nodes"}},
      {"all_reduce 2 1-2-3 * ring 0 x", {"\"1-2-3\" is not a range of nodes"}},
      {"all_reduce 2 1 1K-2K+ ring 0 x", {"\"1K-2K+\" is not a range of bytes"}},
      {"all_reduce 2 1 99999999999T ring 0 x", {"not a range of bytes"}},
      {"all_reduce 2 1 * rign 0 x", {"no algorithm \"rign\" for all_reduce", "did you mean ring?"}},
      {"all_reduce 2 1 * ring some x", {"\"some\" is not a number of bytes for the segment"}},
      {"all_gather 2 1 * ring 4K x", {"all_gather by ring is not done in segments", "write 0"}},
      {"all_reduce \x1b[31m 1 * ring 0 x", {"\"\\x1b[31m\" is not a range"}},
  };
  for (const Wrong& wrong : all) {
    const std::string message =
        refusal([&] { (void)parse_plan_table("# one\n" + wrong.row + "\n", "some.table"); }, Code::bad_setting);
    EXPECT_NE(message.find("line 2 of some.table"), std::string::npos) << message;
    EXPECT_NE(message.find(" -> "), std::string::npos) << message;
    for (const std::string& part : wrong.says) EXPECT_NE(message.find(part), std::string::npos) << message;
  }
}

TEST(PlanTable, HasALimitedSize) {
  const std::string huge(most_table_bytes + 1, '\n');
  EXPECT_NE(refusal([&] { (void)parse_plan_table(huge); }, Code::bad_setting).find("at most 16 MiB"),
            std::string::npos);
}

TEST(Amounts, HaveBinaryUnits) {
  EXPECT_EQ(parse_amount("0"), 0U);
  EXPECT_EQ(parse_amount("17"), 17U);
  EXPECT_EQ(parse_amount("64k"), 65536U);
  EXPECT_EQ(parse_amount("3G"), 3ULL << 30U);
  EXPECT_EQ(parse_amount("8388608T"), 1ULL << 63U);
  for (const char* bad : {"", "K", "1.5K", "-1", "+1", "1 K", "1KB", "K1", "0x10", "8388609T", "99999999999999999999"})
    EXPECT_EQ(parse_amount(bad), std::nullopt) << bad;
}

TEST(ForcedNames, ArePairsWithCommas) {
  EXPECT_TRUE(parse_forced_algorithms("auto").empty());
  EXPECT_TRUE(parse_forced_algorithms("").empty());
  const auto all = parse_forced_algorithms("all_reduce:ring, AllGather:ring");
  ASSERT_EQ(all.size(), 2U);
  EXPECT_EQ(all[0].collective, Collective::all_reduce);
  EXPECT_EQ(all[1].collective, Collective::all_gather);
  EXPECT_EQ(all[1].algorithm, "ring");
}

TEST(ForcedNames, ThatDoNotExistAreRefusedWithTheNearest) {
  const auto says = [](std::string_view text, std::string_view part) {
    const std::string message = refusal([&] { (void)parse_forced_algorithms(text); }, Code::bad_setting);
    EXPECT_NE(message.find("LOCKSTEP_ALGORITHM"), std::string::npos) << message;
    EXPECT_NE(message.find(part), std::string::npos) << message;
  };
  says("ring", "write collective:algorithm");
  says("all_reduce:ring,", "write collective:algorithm");
  says("all_reduce:rong", "did you mean ring?");
  says("all_reduse:ring", "did you mean all_reduce?");
  says("all_reduce:", "no algorithm \"\"");
  says("all_reduce:ring,all_reduce:ring", "named twice");
}

TEST(TextFile, IsReadCompletelyOrRefusedWithTheReason) {
  namespace fs = std::filesystem;
  const fs::path folder = fs::path(testing::TempDir()) / text("plan_table.", ::getpid());
  fs::create_directory(folder);
  const std::string path = folder / "table";
  const std::string content(100000, 'x');
  std::ofstream(path) << content;
  EXPECT_EQ(read_text_file(path), content);
  const auto says = [](const std::string& file, std::size_t most, std::string_view part) {
    const std::string message = refusal([&] { (void)read_text_file(file, most); }, Code::file);
    EXPECT_NE(message.find(file), std::string::npos) << message;
    EXPECT_NE(message.find(part), std::string::npos) << message;
  };
  says(path, 99999, "more than");
  says(folder / "missing", 10, "No such file");
  says(folder, 10, "not a regular file");
  says("/dev/zero", 10, "not a regular file");
  fs::remove_all(folder);
}

// Whoever holds a lease keeps those who open the file waiting, for 45 s by default.
TEST(TextFile, LeasesDoNotDelayItsReader) {
  const test::Folder folder;
  const std::string path = folder.path() / "table";
  const int file = ::open(path.c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0600);
  ASSERT_GE(file, 0);
  ASSERT_EQ(std::signal(SIGIO, SIG_IGN), SIG_DFL);
  const bool is_leased = ::fcntl(file, F_SETLEASE, F_WRLCK) == 0;
  const std::string message = is_leased ? refusal([&] { (void)read_text_file(path); }, Code::file) : "";
  ::close(file);
  std::signal(SIGIO, SIG_DFL);
  if (!is_leased) GTEST_SKIP() << test::lacks("leases on files of this system");
  EXPECT_NE(message.find("holds a lease"), std::string::npos) << message;
}

}  // namespace
}  // namespace lockstep
