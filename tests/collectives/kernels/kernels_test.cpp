// SPDX-License-Identifier: Apache-2.0
// Every kernel, for every set of vector instructions that this processor has, against the reference, bit for bit:
// all short lengths, at addresses that are aligned to nothing, in place and not, with values from the edges of the
// types, and with guards around what is written. That all targets give the same bits follows.
#include <gtest/gtest.h>

#include <numeric>

#include "collectives/kernels/kernels.hpp"
#include "collectives/types.hpp"
#include "tests/collectives/kernels/kernels_data.hpp"
#include "topology/base/error.hpp"

namespace lockstep {
namespace {

using test::Bytes;
using test::Place;
using test::Random;
using test::Streaming;
using test::tables;

std::size_t index(DataType type) { return static_cast<std::size_t>(type); }
std::size_t index(ReduceOp op) { return static_cast<std::size_t>(op); }

std::vector<ReduceOp> defined_ops(DataType type) {
  std::vector<ReduceOp> ops;
  for (int o = 0; o < reduce_op_count; ++o) {
    const auto op = static_cast<ReduceOp>(o);
    if (op != ReduceOp::user && op != ReduceOp::avg && op != ReduceOp::premul_sum && is_defined(op, type))
      ops.push_back(op);
  }
  return ops;
}

constexpr int apart = -1;  // in place with no source

// One reduction, by all targets: of sources that are cut out of a pool and lie at various places.
class Reduction {
 public:
  Reduction(DataType type, const Bytes& pool, Random& random, int number, std::size_t length, std::size_t shift)
      : type_(type), length_(length), target_(length * size_of(type), shift) {
    const std::size_t size = size_of(type);
    for (int k = 0; k < number; ++k) {
      const std::size_t from = random() % (pool.size() / size - length + 1) * size;
      const auto begin = pool.begin() + static_cast<std::ptrdiff_t>(from);
      values_.emplace_back(begin, begin + static_cast<std::ptrdiff_t>(length * size));
      places_.emplace_back(length * size, (shift * 5 + static_cast<std::size_t>(k) * 3 + 1) % 40);
      places_.back().fill(values_.back());
    }
  }

  // By `many`, or by `two` where that is asked; the result where source `in_place` is.
  void check(ReduceOp op, int in_place, bool by_two) {
    const Bytes expected = test::reference_of(type_).reduce(op, values_);
    for (const KernelTable& table : tables()) {
      for (const bool streams : {false, true}) {
        if (streams && in_place != apart) continue;
        const Streaming streaming(streams);
        run(table.kernels[index(type_)][index(op)], in_place, by_two);
        ASSERT_TRUE(is_right(expected, in_place))
            << table.target << ' ' << to_string(type_) << ' ' << to_string(op) << " of " << values_.size()
            << " sources, " << length_ << " elements, in place with " << in_place << (streams ? ", streamed" : "");
      }
    }
  }

 private:
  void run(const Kernel& kernel, int in_place, bool by_two) {
    std::vector<const void*> sources;
    for (Place& each : places_) sources.push_back(each.data());
    target_.spoil();
    void* target = in_place == apart ? target_.data() : places_[static_cast<std::size_t>(in_place)].data();
    if (by_two)
      kernel.two(target, sources[0], sources[1], length_);
    else
      kernel.many(target, sources.data(), static_cast<int>(sources.size()), length_);
  }

  // Also puts back the source that was overwritten.
  bool is_right(const Bytes& expected, int in_place) {
    bool right = target_.is_guarded();
    if (in_place == apart) right = right && target_.holds(expected);
    for (std::size_t k = 0; k < places_.size(); ++k) {
      const bool overwritten = static_cast<int>(k) == in_place;
      right = right && places_[k].is_guarded() && places_[k].holds(overwritten ? expected : values_[k]);
      if (overwritten) places_[k].fill(values_[k]);
    }
    return right;
  }

  DataType type_;
  std::size_t length_;
  Place target_;
  std::vector<Bytes> values_;
  std::vector<Place> places_;
};

std::vector<std::size_t> lengths() {
  std::vector<std::size_t> all(131);
  std::iota(all.begin(), all.end(), 0U);
  for (const std::size_t large : {257U, 1000U, 4099U}) all.push_back(large);
  return all;
}

class Kernels : public testing::TestWithParam<DataType> {};

TEST_P(Kernels, TwoAreCombined) {
  Random random(1);
  const Bytes pool = test::reference_of(GetParam()).any_values(random, 20000, 4);
  for (const ReduceOp op : defined_ops(GetParam())) {
    for (const std::size_t length : lengths()) {
      for (std::size_t shift = 0; shift < 8; ++shift) {
        Reduction reduction(GetParam(), pool, random, 2, length, shift);
        for (const int in_place : {apart, 0, 1}) ASSERT_NO_FATAL_FAILURE(reduction.check(op, in_place, true));
      }
    }
  }
}

TEST_P(Kernels, ManyAreCombined) {
  Random random(2);
  const Bytes pool = test::reference_of(GetParam()).any_values(random, 20000, 24);
  for (const ReduceOp op : defined_ops(GetParam())) {
    for (const std::size_t length : lengths()) {
      for (const int number : {1, 2, 3, 4, 5, 6, 7, 8, 9, 17}) {
        if (length > 130 && number > 4) continue;
        const std::size_t shift = (length + static_cast<std::size_t>(number)) % 8;
        Reduction reduction(GetParam(), pool, random, number, length, shift);
        ASSERT_NO_FATAL_FAILURE(reduction.check(op, apart, false));
        // In place with each of them, at the lengths on both sides of the width of vectors.
        for (int k = 0; k < number && (length % 16 < 2 || length % 16 > 14); ++k)
          ASSERT_NO_FATAL_FAILURE(reduction.check(op, k, false));
      }
    }
  }
}

TEST_P(Kernels, LargeAndOddCounts) {
  Random random(3);
  const Bytes pool = test::reference_of(GetParam()).any_values(random, 120000, 8);
  for (const ReduceOp op : defined_ops(GetParam())) {
    Reduction(GetParam(), pool, random, 2, 100003, 3).check(op, apart, true);
    Reduction(GetParam(), pool, random, 2, 65537, 16).check(op, 0, true);
    Reduction(GetParam(), pool, random, 4, 10007, size_of(GetParam())).check(op, apart, false);
  }
}

// Which of two is left and which right must not matter: algorithms differ in it.
TEST_P(Kernels, TheOrderOfTwoDoesNotMatter) {
  Random random(4);
  const std::size_t count = 5000;
  const Bytes left = test::reference_of(GetParam()).any_values(random, count, 3);
  const Bytes right = test::reference_of(GetParam()).any_values(random, count, 3);
  Bytes one(left.size());
  Bytes other(left.size());
  for (const ReduceOp op : defined_ops(GetParam())) {
    const Kernel* kernel = find_kernel(GetParam(), op);
    ASSERT_NE(kernel, nullptr);
    kernel->two(one.data(), left.data(), right.data(), count);
    kernel->two(other.data(), right.data(), left.data(), count);
    EXPECT_EQ(one, other) << to_string(op);
  }
}

INSTANTIATE_TEST_SUITE_P(All, Kernels, testing::ValuesIn(test::all_types()),
                         [](const auto& each) { return std::string(to_string(each.param)); });

TEST(KernelTable, HoldsExactlyTheDefinedKernels) {
  EXPECT_EQ(kernel_target(), tables().back().target);
  for (int t = 0; t < data_type_count; ++t) {
    const auto type = static_cast<DataType>(t);
    for (int o = 0; o < reduce_op_count; ++o) {
      const auto op = static_cast<ReduceOp>(o);
      const bool expected = op != ReduceOp::user && is_defined(op, type);
      const Kernel* kernel = find_kernel(type, op);
      ASSERT_EQ(kernel != nullptr, expected) << to_string(type) << ' ' << to_string(op);
      EXPECT_TRUE(kernel == nullptr || (kernel->two != nullptr && kernel->many != nullptr));
      for (const KernelTable& table : tables())
        EXPECT_EQ(table.kernels[index(type)][index(op)].two != nullptr, expected);
    }
    if (!is_defined(ReduceOp::sum, type)) {
      EXPECT_THROW(divide(type, nullptr, nullptr, 0, 2), Error);
      EXPECT_THROW(scale(type, nullptr, nullptr, 0, 2), Error);
      continue;
    }
    for (const ReduceOp op : {ReduceOp::avg, ReduceOp::premul_sum})
      EXPECT_EQ(find_kernel(type, op)->two, find_kernel(type, ReduceOp::sum)->two);
  }
}

TEST(KernelTable, StreamingBeginsAtTheSizeOfACache) {
  EXPECT_EQ(streaming_size().load(), last_cache_size());
  EXPECT_GE(last_cache_size(), 64U * 1024U);
}

TEST(KernelTable, ShortFloatsAreRoundedOnce) {
  const f16 one(1.0F);
  const f16 little(0.375F / 1024);  // of the distance from 1 to the next half: two of them are nearer to that one
  const void* sources[] = {&one, &little, &little};
  f16 result;
  find_kernel(DataType::f16, ReduceOp::sum)->many(&result, sources, 3, 1);
  EXPECT_EQ(result.bits, one.bits + 1);
}

}  // namespace
}  // namespace lockstep
