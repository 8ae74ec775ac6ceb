// SPDX-License-Identifier: Apache-2.0
#include "collectives/spec.hpp"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

TEST(Spec, NamesComeBack) {
  for (int i = 0; i < collective_count; ++i) {
    const auto each = static_cast<Collective>(i);
    EXPECT_EQ(parse_collective(to_string(each)), each);
  }
  for (int i = 0; i < data_type_count; ++i) {
    const auto each = static_cast<DataType>(i);
    EXPECT_EQ(parse_data_type(to_string(each)), each);
    EXPECT_GT(size_of(each), 0U);
  }
  for (int i = 0; i < reduce_op_count; ++i) {
    const auto each = static_cast<ReduceOp>(i);
    EXPECT_EQ(parse_reduce_op(to_string(each)), each);
  }
}

TEST(Spec, TheSpellingsOfOtherToolsAreUnderstood) {
  EXPECT_EQ(parse_collective("AllReduce"), Collective::all_reduce);
  EXPECT_EQ(parse_collective("alltoall"), Collective::all_to_all);
  EXPECT_EQ(parse_data_type("float"), DataType::f32);
  EXPECT_EQ(parse_data_type("bfloat16"), DataType::bf16);
  EXPECT_EQ(parse_data_type("double"), DataType::f64);
  EXPECT_EQ(parse_data_type(""), std::nullopt);
  EXPECT_EQ(parse_data_type("f33"), std::nullopt);
  EXPECT_EQ(parse_reduce_op("SUM"), ReduceOp::sum);
  EXPECT_EQ(parse_reduce_op("sums"), std::nullopt);
}

TEST(Spec, SizesAreThoseOfTheTypes) {
  EXPECT_EQ(size_of(DataType::bf16), 2U);
  EXPECT_EQ(size_of(DataType::c128), 16U);
  EXPECT_EQ(size_of(DataType::u64), sizeof(std::uint64_t));
}

TEST(Spec, OperationsWithoutMeaningAreKnown) {
  EXPECT_TRUE(is_defined(ReduceOp::sum, DataType::c64));
  EXPECT_FALSE(is_defined(ReduceOp::max, DataType::c64));
  EXPECT_FALSE(is_defined(ReduceOp::bit_and, DataType::f32));
  EXPECT_TRUE(is_defined(ReduceOp::bit_and, DataType::boolean));
  EXPECT_FALSE(is_defined(ReduceOp::sum, DataType::boolean));
  EXPECT_TRUE(is_defined(ReduceOp::min, DataType::located_f64));
  EXPECT_FALSE(is_defined(ReduceOp::sum, DataType::located_f64));
  EXPECT_FALSE(is_defined(ReduceOp::min, DataType::opaque));
  EXPECT_TRUE(is_defined(ReduceOp::user, DataType::opaque));
}

}  // namespace
}  // namespace lockstep
