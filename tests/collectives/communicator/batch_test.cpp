// SPDX-License-Identifier: Apache-2.0
// Lists of tensors as one operation, whether they are packed or combined where they lie: every result is that of a call
// for each.
#include <numeric>

#include "tests/collectives/communicator/members.hpp"
#include "tests/support/sanitized.hpp"

namespace lockstep::test {
namespace {

using Counts = std::vector<std::size_t>;

// Small whole numbers, so that every order of reduction gives the same bits.
template <class T>
std::vector<std::vector<T>> tensors(const Counts& counts, int rank, std::size_t begin) {
  std::vector<std::vector<T>> all;
  for (const std::size_t count : counts) {
    // Some begin at odd elements.
    std::vector<T> one(count + begin % 3);
    for (std::size_t i = 0; i < one.size(); ++i)
      one[i] = static_cast<T>(static_cast<float>((i * 7 + count + static_cast<std::size_t>(rank) * 5) % 13));
    all.push_back(std::move(one));
    ++begin;
  }
  return all;
}

const std::vector<Counts>& lists() {
  static const std::vector<Counts> all = {
      {1, 2, 3}, Counts(300, 256), {0, 5, 70'000, 1, 300'000, 17, 0}, {4096, 4096}, {300'000, 3, 250'001}};
  return all;
}

template <class T, class Op>
void expect_as_each_alone(Communicator& world, const Op& op) {
  for (const Counts& counts : lists()) {
    auto together = tensors<T>(counts, world.rank(), 0);
    auto alone = together;
    Batch batch(world);
    for (std::size_t i = 0; i < counts.size(); ++i) {
      batch.all_reduce(std::span(together[i]).last(counts[i]), op);
      world.all_reduce(std::span(alone[i]).last(counts[i]), op);
    }
    batch.run();
    for (std::size_t i = 0; i < counts.size(); ++i) ASSERT_EQ(together[i], alone[i]) << i << " of " << counts.size();
  }
}

class Batches : public testing::TestWithParam<int> {};

TEST_P(Batches, GiveTheResultsOfSeparateCalls) {
  with_members(GetParam(), [](Communicator& world) {
    expect_as_each_alone<float>(world, sum);
    expect_as_each_alone<std::int32_t>(world, commutative([](std::int32_t a, std::int32_t b) { return a + b; }));
    if (watched_for_races) return;  // members touch the same memory whatever the type
    expect_as_each_alone<double>(world, max);
    expect_as_each_alone<std::int8_t>(world, bit_xor);
    expect_as_each_alone<std::int64_t>(world, avg);
    auto same = world.reproducible();
    expect_as_each_alone<float>(same, sum);
  });
}
INSTANTIATE_TEST_SUITE_P(All, Batches, testing::Values(1, 2, 5));

// Every member has a factor of its own for every tensor.
template <class T>
void expect_factors_and_means_as_each_alone(Communicator& world, bool has_column) {
  const Counts counts = {5, 0, 3000, 1, 700};
  auto summed = tensors<T>(counts, world.rank(), 0);
  auto meant = summed;
  auto right_sums = summed;
  auto right_means = summed;
  std::vector<T> in_column = tensors<T>({700}, world.rank(), 0).front();
  std::vector<T> right_column = in_column;
  std::vector<T> mean_column = in_column;
  std::vector<T> right_mean_column = in_column;
  const auto column = [](std::vector<T>& data) { return StridedBuffer<T>{data.data(), 100, 7, 3}; };
  const auto op_of = [&](std::size_t i) { return premul_sum(0.37 * static_cast<double>(i + 1) + world.rank()); };
  Batch batch(world);
  for (std::size_t i = 0; i < counts.size(); ++i) batch.all_reduce(summed[i], op_of(i)).all_reduce(meant[i], avg);
  if (has_column) batch.all_reduce(column(in_column), op_of(9)).all_reduce(column(mean_column), avg);
  for (int turn = 0; turn < 2; ++turn) {
    batch.run();
    for (std::size_t i = 0; i < counts.size(); ++i) {
      world.all_reduce(right_sums[i], op_of(i));
      world.all_reduce(right_means[i], avg);
    }
    ASSERT_EQ(summed, right_sums) << turn;
    ASSERT_EQ(meant, right_means) << turn;
    if (has_column) {
      world.all_reduce(column(right_column), op_of(9));
      world.all_reduce(column(right_mean_column), avg);
    }
    ASSERT_EQ(in_column, right_column) << turn;
    ASSERT_EQ(mean_column, right_mean_column) << turn;
  }
}

// In the node, where they lie and packed, and by messages.
TEST(Batch, MultipliesAndDividesWhileItPacksAndUnpacks) {
  for (const int members : {1, 3}) {
    for (const bool in_node : {true, false}) {
      const auto body = [](Communicator& world) {
        Communicator same = world.reproducible();
        for (const bool has_column : {false, true}) {
          expect_factors_and_means_as_each_alone<float>(same, has_column);
          expect_factors_and_means_as_each_alone<bf16>(same, has_column);
          expect_factors_and_means_as_each_alone<std::int64_t>(same, has_column);
        }
      };
      with_members(members, body, {.node_memory = in_node});
    }
  }
}

TEST(Batch, MayBeRunAgainAndMeetsFlatCalls) {
  with_members(3, [](Communicator& world) {
    std::vector<int> one(1000, 1);
    std::vector<int> two(50'000, 2);
    Batch batch(world);
    batch.all_reduce(one, sum).all_reduce(two, sum);
    for (int round = 0; round < 5; ++round) {
      std::ranges::fill(one, 1);
      std::ranges::fill(two, 2);
      std::vector<int> flat(51'000, 4);
      auto request = batch.start();
      auto other = world.all_reduce_async(flat, sum);
      other.wait();
      request.wait();
      ASSERT_EQ(one[999], 3);
      ASSERT_EQ(two[49'999], 6);
      ASSERT_EQ(flat[0], 12);
    }
  });
}

// The same plan, with other memory: what the batch left must not be taken for it.
TEST(Batch, IsOverWhenAFlatCallOfItsSizeComes) {
  with_members(2, [](Communicator& world) {
    std::vector<int> flat(3000, 1);
    {
      std::vector<int> one(1000, 1);
      std::vector<int> two(2000, 1);
      Batch batch(world);
      batch.all_reduce(one, sum).all_reduce(two, sum);
      batch.run();
      ASSERT_EQ(two[1999], 2);
    }
    for (int round = 0; round < 3; ++round) {
      std::ranges::fill(flat, 1);
      world.all_reduce(flat, sum);
      ASSERT_EQ(flat, std::vector<int>(3000, 2));
    }
  });
}

// Each is packed before any result is there, as if they were apart.
TEST(Batch, MayNameTheSameMemoryTwice) {
  with_members(2, [](Communicator& world) {
    std::vector<int> data(20'000, 1);
    Batch batch(world);
    batch.all_reduce(data, sum).all_reduce(std::span(data).subspan(100, 200), sum);
    batch.run();
    EXPECT_EQ(data, std::vector<int>(20'000, 2));
    // By one element, which lies far apart in what is reduced.
    std::vector<int> large(1'500'000, 1);
    Batch touching(world);
    touching.all_reduce(std::span(large).last(500'000), sum).all_reduce(std::span(large).first(1'000'001), sum);
    touching.run();
    EXPECT_EQ(large, std::vector<int>(1'500'000, 2));
  });
}

}  // namespace
}  // namespace lockstep::test
