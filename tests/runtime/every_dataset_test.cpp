// SPDX-License-Identifier: Apache-2.0
// Data sets that a strategy divides, under every strategy and layout.
#include "runtime/distributed_dataset.hpp"
#include "tests/runtime/layouts.hpp"
#include "tests/support/holds.hpp"
#include "tests/support/lacks.hpp"
#include "tests/support/refusal.hpp"

namespace lockstep::test {
namespace {

using Array = Tensor<std::int64_t>;

class Datasets : public EveryLayout {
 protected:
  // The elements of all replicas, batch by batch: each batch is what its pieces give one behind the other.
  std::vector<Array> batches_of(DistributedIterator<Array>& iterator, int most = 1000) {
    std::vector<Array> all;
    for (int i = 0; i < most; ++i) {
      const auto batch = iterator.next();
      if (!batch) break;
      all.push_back(strategy->gather(*batch, 0));
    }
    return all;
  }
  std::vector<Array> batches_of(const Dataset<Array>& dataset, InputOptions options = {}) {
    auto iterator = strategy->distribute(dataset, options).open();
    return batches_of(iterator);
  }
  static std::vector<Array> all_of(const Dataset<Array>& dataset) {
    std::vector<Array> all;
    for (const Array& each : dataset) all.push_back(each);
    return all;
  }
};

TEST_P(Datasets, HaveThePiecesOfEachBatchInTheOrderOfReplicas) {
  for (const std::int64_t size : {1, 2, 4, 7}) {
    const auto dataset = data::range(15).batch(size);
    for (const BatchDivision division : {BatchDivision::fixed_size, BatchDivision::even}) {
      EXPECT_EQ(batches_of(dataset, {.division = division}), all_of(dataset)) << size;
      std::int64_t first_row = 0;
      for (const auto& batch : strategy->distribute(dataset, {.division = division})) {
        const std::int64_t rows = std::min(size, 15 - first_row);
        for (int local = 0; local < batch.size(); ++local) {
          const auto own = detail::rows_of_replica(rows, size, first() + local, this->size(), division);
          const Array& piece = batch[local];
          EXPECT_EQ(piece.shape(), TensorShape{own.count});
          if (own.count > 0) {
            EXPECT_EQ(piece[0], first_row + own.first);
          }
        }
        first_row += rows;
      }
      EXPECT_EQ(first_row, 15);
    }
  }
}

// TensorFlow's examples: a batch of 4 for 3 replicas, and the last 3 rows of batches of 4 for 4 replicas.
TEST_P(Datasets, AreDividedByBothRules) {
  using Numbers = std::vector<std::int64_t>;
  const auto numbers = [](std::int64_t rows, std::int64_t size, int replicas, BatchDivision division) {
    Numbers all;
    for (int replica = 0; replica < replicas; ++replica)
      all.push_back(detail::rows_of_replica(rows, size, replica, replicas, division).count);
    return all;
  };
  EXPECT_EQ(numbers(4, 4, 3, BatchDivision::fixed_size), (Numbers{2, 2, 0}));
  EXPECT_EQ(numbers(4, 4, 3, BatchDivision::even), (Numbers{2, 1, 1}));
  EXPECT_EQ(numbers(3, 4, 4, BatchDivision::fixed_size), (Numbers{1, 1, 1, 0}));
  EXPECT_EQ(numbers(1, 2, 2, BatchDivision::fixed_size), (Numbers{1, 0}));
  EXPECT_EQ(numbers(7, 7, 4, BatchDivision::even), (Numbers{2, 2, 2, 1}));
  EXPECT_EQ(numbers(9, data::unknown_length, 2, BatchDivision::fixed_size), (Numbers{5, 4}));
}

// All processes draw with one seed, so no element comes twice and none is lost.
TEST_P(Datasets, AreShuffledAlikeInAllProcesses) {
  const auto dataset = data::range(40).shuffle(16).repeat(2).batch(6);
  const std::vector<Array> batches = batches_of(dataset);
  std::vector<std::int64_t> all;
  for (const Array& batch : batches) all.insert(all.end(), batch.begin(), batch.end());
  ASSERT_EQ(all.size(), 80U);
  for (std::ptrdiff_t lap = 0; lap < 2; ++lap) {
    std::vector<std::int64_t> elements(all.begin() + lap * 40, all.begin() + (lap + 1) * 40);
    EXPECT_FALSE(std::ranges::is_sorted(elements));
    std::ranges::sort(elements);
    for (std::int64_t i = 0; i < 40; ++i) EXPECT_EQ(elements[static_cast<std::size_t>(i)], i);
  }
}

TEST_P(Datasets, GoOnAtAPositionOfTheSequence) {
  const auto dataset = data::range(40).shuffle(16).batch(6);
  auto first = strategy->distribute(dataset).open();
  batches_of(first, 3);
  const Bytes position = first.position();
  // It has no trace of the replicas: another strategy, or a single loop, goes on there.
  auto plain = dataset.open();
  plain.seek(position);
  auto second = strategy->distribute(dataset).open();
  second.seek(position);
  const std::vector<Array> rest = batches_of(first);
  EXPECT_EQ(rest.size(), 4U);
  EXPECT_EQ(batches_of(second), rest);
  for (const Array& each : rest) EXPECT_EQ(plain.next(), each);
}

// Replicas without rows take part with a sum of 0 over 0 examples, and the mean is over all examples.
TEST_P(Datasets, OfUnevenBatchesHaveTrueMeans) {
  const auto dataset = data::range(1007).map([](std::int64_t x) { return std::tuple(static_cast<double>(x), x % 3); });
  std::vector<double> means;
  for (const auto& batch : strategy->distribute(dataset.batch(64))) {
    strategy->run(
        [&](ReplicaContext& replica, const auto& mine) {
          const auto& [x, y] = mine;
          double total = 0;
          for (const double each : x) total += each;
          const double all = replica.all_reduce(total, sum);
          const auto count = replica.all_reduce(static_cast<std::int64_t>(y.size()), sum);
          if (replica.local_id() == 0) means.push_back(all / static_cast<double>(count));
        },
        batch);
  }
  ASSERT_EQ(means.size(), 16U);
  EXPECT_EQ(means.front(), 31.5);
  EXPECT_EQ(means.back(), (960 + 1006) / 2.0);
}

TEST_P(Datasets, OfProcessesThatDifferAreAMismatch) {
  if (is_in_one_process()) GTEST_SKIP() << lacks("two processes, of which one has another batch size");
  end_calls();
  const std::string words =
      refusal([&] { (void)strategy->distribute(data::range(9).batch(first() == 0 ? 2 : 3)).open(); }, Code::mismatch);
  EXPECT_PRED2(holds, words, "processes loop over different data sets");
  const InputOptions options{.division = first() == 0 ? BatchDivision::even : BatchDivision::fixed_size};
  refusal([&] { (void)strategy->distribute(data::range(9).batch(3), options).open(); }, Code::mismatch);
  EXPECT_EQ(batches_of(data::range(9).batch(3)).size(), 3U) << "and all go on";
}

TEST_P(Datasets, WithoutRowsInTheirElementsAreRefused) {
  const auto scalars = data::range(3).map([](std::int64_t x) { return Array(x); });
  auto iterator = strategy->distribute(scalars).open();
  EXPECT_PRED2(holds, refusal([&] { iterator.next(); }, Code::usage), "call batch(size of the global batch)");
}

INSTANTIATE_TEST_SUITE_P(All, Datasets, testing::ValuesIn(layouts()), [](const auto& each) { return each.param.name; });

}  // namespace
}  // namespace lockstep::test
