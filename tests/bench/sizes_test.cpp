// SPDX-License-Identifier: Apache-2.0
// Sizes, sweeps and names as people type them, and every refusal with its words.
#include "bench/sizes.hpp"

#include <gtest/gtest.h>

#include <limits>
#include <string>

#include "tests/support/holds.hpp"
#include "tests/support/refusal.hpp"

namespace lockstep::bench {
namespace {

using Sizes = std::vector<std::uint64_t>;
using lockstep::test::holds;
using lockstep::test::refusal;

TEST(BenchSizes, UnitsArePowersOf1024OrOf1000) {
  EXPECT_EQ(parse_size("0"), 0U);
  EXPECT_EQ(parse_size("8"), 8U);
  EXPECT_EQ(parse_size("8B"), 8U);
  for (const char* each : {"4K", "4k", "4KiB", "4kib", "4 KiB", " 4K ", "4.0K", "0004K"})
    EXPECT_EQ(parse_size(each), 4096U) << each;
  EXPECT_EQ(parse_size("4KB"), 4000U);
  EXPECT_EQ(parse_size("1M"), 1U << 20U);
  EXPECT_EQ(parse_size("1MiB"), 1U << 20U);
  EXPECT_EQ(parse_size("1MB"), 1000000U);
  EXPECT_EQ(parse_size("2G"), 1ULL << 31U);
  EXPECT_EQ(parse_size("2GiB"), 1ULL << 31U);
  EXPECT_EQ(parse_size("2gb"), 2000000000U);
  EXPECT_EQ(parse_size("1T"), 1ULL << 40U);
  EXPECT_EQ(parse_size("1TiB"), 1ULL << 40U);
  EXPECT_EQ(parse_size("1TB"), 1000000000000ULL);
}

TEST(BenchSizes, MayBeFractionsThatMakeWholeBytes) {
  EXPECT_EQ(parse_size("1.5M"), 1572864U);
  EXPECT_EQ(parse_size("1.5MB"), 1500000U);
  EXPECT_EQ(parse_size("0.125K"), 128U);
  EXPECT_EQ(parse_size("8.000000000"), 8U);
  EXPECT_EQ(parse_size("0.999999TB"), 999999000000ULL);
  for (const char* each : {"1.3K", "0.5", "8.1B", "0.0005KB", "1.0000001TB"})
    EXPECT_TRUE(holds(refusal([&] { parse_size(each); }, Code::usage), "is not a whole number of bytes")) << each;
}

TEST(BenchSizes, TheLargestNumberIsExact) {
  EXPECT_EQ(parse_size("18446744073709551615"), std::numeric_limits<std::uint64_t>::max());
  EXPECT_EQ(parse_size("16777215.5T"), (16777215ULL << 40U) + (1ULL << 39U));
  for (const char* each : {"18446744073709551616", "16777216T", "99999999999999999999999999K", "18446744073709551615K"})
    EXPECT_TRUE(holds(refusal([&] { parse_size(each); }, Code::usage), "is more than 64 bits can count")) << each;
}

TEST(BenchSizes, RefusalsQuoteTheTextAndSayHowToWriteIt) {
  for (const char* each :
       {"", " ", "K", "4Q", "4KK", "-4", "+4", "1e6", "0x10", "4,5", ".5M", "5.M", "1.5.5M", "4 K B", "4Kb/s", "nan"}) {
    const std::string words = refusal([&] { parse_size(each); }, Code::usage);
    EXPECT_TRUE(holds(words, std::string("the size \"") + each + "\" is not understood")) << words;
    EXPECT_TRUE(holds(words, "write 8, 4K, 1.5M or 1MiB")) << words;
    EXPECT_TRUE(holds(words, "powers of 1000")) << words;
  }
  EXPECT_TRUE(holds(refusal([] { parse_size("4\x1b[31m"); }, Code::usage), "\"4\\x1b[31m\""));
}

TEST(BenchSizes, Lists) {
  EXPECT_EQ(parse_size_list("8,4K,1M"), (Sizes{8, 4096, 1 << 20}));
  EXPECT_EQ(parse_size_list("1M, 8"), (Sizes{1 << 20, 8}));
  for (const char* each : {"", ",", "8,", ",8", "8,,9"})
    EXPECT_TRUE(holds(refusal([&] { parse_size_list(each); }, Code::usage), "have an empty place")) << each;
  EXPECT_TRUE(holds(refusal([] { parse_size_list("8,4Q"); }, Code::usage), "the size \"4Q\""));
  std::string many = "8";
  for (std::size_t i = 1; i < most_sizes; ++i) many += ",8";
  EXPECT_EQ(parse_size_list(many).size(), most_sizes);
  EXPECT_TRUE(holds(refusal([&] { parse_size_list(many + ",8"); }, Code::usage), "more than 10000 sizes"));
}

TEST(BenchSizes, SweepsAreThoseOfNcclTests) {
  EXPECT_EQ(sizes_of({.begin = 8, .end = 64, .factor = 2}), (Sizes{8, 16, 32, 64}));
  EXPECT_EQ(sizes_of({.begin = 8, .end = 63, .factor = 2}), (Sizes{8, 16, 32}));
  EXPECT_EQ(sizes_of({.begin = 8, .end = 8, .factor = 2}), (Sizes{8}));
  EXPECT_EQ(sizes_of({.begin = 1, .end = 1000, .factor = 10}), (Sizes{1, 10, 100, 1000}));
  EXPECT_EQ(sizes_of({.begin = 8, .end = 20, .step = 4}), (Sizes{8, 12, 16, 20}));
  EXPECT_EQ(sizes_of({.begin = 8, .end = 19, .step = 4}), (Sizes{8, 12, 16}));
  EXPECT_EQ(sizes_of({.begin = 0, .end = 8, .step = 4}), (Sizes{0, 4, 8}));
  EXPECT_EQ(sizes_of({.begin = 8, .end = 64, .factor = 4, .step = 1}), (Sizes{8, 32}));
  EXPECT_EQ(sizes_of({.begin = 1 << 20, .end = 3 << 20}), (Sizes{1 << 20, 2 << 20, 3 << 20}));
  EXPECT_EQ(sizes_of({.begin = 1, .end = most_sizes, .step = 1}).size(), most_sizes);
}

TEST(BenchSizes, SweepsEndAtTheLargestNumber) {
  constexpr std::uint64_t largest = std::numeric_limits<std::uint64_t>::max();
  EXPECT_EQ(sizes_of({.begin = 1, .end = largest, .factor = 2}).size(), 64U);
  EXPECT_EQ(sizes_of({.begin = largest - 1, .end = largest, .step = 1}), (Sizes{largest - 1, largest}));
  EXPECT_EQ(sizes_of({.begin = 5, .end = largest, .step = largest - 7}), (Sizes{5, largest - 2}));
}

TEST(BenchSizes, SweepsThatAreRefused) {
  const auto words = [](const Sweep& sweep) { return refusal([&] { sizes_of(sweep); }, Code::usage); };
  EXPECT_TRUE(holds(words({.begin = 8, .end = 7, .factor = 2}), "sizes from 8 to 7 bytes"));
  EXPECT_TRUE(holds(words({.begin = 8, .end = 8, .factor = 1}), "a factor of 1 between sizes"));
  EXPECT_TRUE(holds(words({.begin = 8, .end = 8, .factor = 0}), "a factor of 0 between sizes"));
  EXPECT_TRUE(holds(words({.begin = 0, .end = 8, .factor = 2}), "sizes from 0 bytes on by a factor"));
  EXPECT_TRUE(holds(words({.begin = 8, .end = 8, .step = 0}), "a step of 0 bytes"));
  EXPECT_TRUE(holds(words({.begin = 0, .end = most_sizes, .step = 1}), "more than 10000 sizes from 0 to 10000"));
  EXPECT_TRUE(
      holds(words({.begin = 0, .end = std::numeric_limits<std::uint64_t>::max(), .step = 1}), "more than 10000"));
}

struct Name {
  std::string_view theirs;
  std::string_view ours;
};

TEST(BenchSizes, CollectivesOfNcclTests) {
  for (const auto& [theirs, ours] :
       {Name{"allreduce", "all_reduce"}, Name{"all_reduce", "all_reduce"}, Name{"all_reduce_perf", "all_reduce"},
        Name{"AllReduce", "all_reduce"}, Name{"reducescatter", "reduce_scatter"},
        Name{"reduce_scatter_perf", "reduce_scatter"}, Name{"allgather", "all_gather"}, Name{"alltoall", "all_to_all"},
        Name{"alltoall_perf", "all_to_all"}, Name{"broadcast", "broadcast"}, Name{"bcast", "broadcast"},
        Name{"reduce", "reduce"}, Name{"gather", "gather"}, Name{"scatter", "scatter"}, Name{"sendrecv", "sendrecv"},
        Name{"sendrecv_perf", "sendrecv"}, Name{"barrier", "barrier"}}) {
    EXPECT_EQ(our_collective(theirs), ours) << theirs;
  }
  for (const char* each : {"", "hypercube", "hypercube_perf", "perf", "_perf", "all", "allreduce2"})
    EXPECT_EQ(our_collective(each), std::nullopt) << each;
}

TEST(BenchSizes, TypesOfNcclTests) {
  for (const auto& [theirs, ours] :
       {Name{"float", "f32"}, Name{"double", "f64"}, Name{"half", "f16"}, Name{"bfloat16", "bf16"}, Name{"int8", "i8"},
        Name{"uint8", "u8"}, Name{"int32", "i32"}, Name{"uint32", "u32"}, Name{"int64", "i64"}, Name{"uint64", "u64"},
        Name{"f32", "f32"}, Name{"char", "i8"}, Name{"int", "i32"}}) {
    EXPECT_EQ(our_type(theirs), ours) << theirs;
  }
  for (const char* each : {"", "quad", "float128", "f128"}) EXPECT_EQ(our_type(each), std::nullopt) << each;
  for (const char* each : {"fp8", "fp8_e4m3", "f8e4m3", "f8e5m2", "float8_e4m3fn"}) {
    const std::string words = refusal([&] { our_type(each); }, Code::usage);
    EXPECT_TRUE(holds(words, std::string("there are no 8-bit floats such as \"") + each + "\"")) << words;
    EXPECT_TRUE(holds(words, "take f16 or bf16")) << words;
  }
}

TEST(BenchSizes, OperationsOfNcclTests) {
  for (const auto& [theirs, ours] : {Name{"sum", "sum"}, Name{"prod", "prod"}, Name{"min", "min"}, Name{"max", "max"},
                                     Name{"avg", "avg"}, Name{"mulsum", "premul_sum"}, Name{"SUM", "sum"}}) {
    EXPECT_EQ(our_op(theirs), ours) << theirs;
  }
  for (const char* each : {"", "all", "difference"}) EXPECT_EQ(our_op(each), std::nullopt) << each;
}

}  // namespace
}  // namespace lockstep::bench
