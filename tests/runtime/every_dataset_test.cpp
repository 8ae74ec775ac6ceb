// SPDX-License-Identifier: Apache-2.0
// Which rows of a data set each replica gets, under every strategy and layout.
#include <cmath>
#include <numeric>

#include "runtime/data/files/lines.hpp"
#include "runtime/default_strategy.hpp"
#include "runtime/virtual_replicas.hpp"
#include "tests/runtime/datasets.hpp"
#include "tests/support/folder.hpp"
#include "tests/support/holds.hpp"
#include "tests/support/lacks.hpp"
#include "tests/support/refusal.hpp"

namespace lockstep::test {
namespace {

TEST_P(Datasets, HaveThePiecesOfEachBatchInTheOrderOfReplicas) {
  for (const std::int64_t size : {1, 2, 4, 7}) {
    const auto dataset = data::range(15).batch(size);
    for (const BatchDivision division : {BatchDivision::fixed_size, BatchDivision::even}) {
      EXPECT_EQ(batches_of(dataset, {.division = division}), all_of(dataset)) << size;
      std::int64_t first_row = 0;
      for (const auto& batch : strategy->distribute(dataset, {.division = division})) {
        const std::int64_t rows = std::min(size, 15 - first_row);
        for (int local = 0; local < batch.size(); ++local) {
          const auto own = data::rows_of_piece(rows, size, first() + local, this->size(), division);
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

// The example of experimental_distribute_dataset, and the one of a sum in central storage.
TEST_P(Datasets, GiveTheResultsOfTheDocuments) {
  const auto doubled = [](const Array& x) { return x * std::int64_t{2}; };
  std::vector<Array> results;
  for (const auto& batch : strategy->distribute(data::range(4).batch(2)))
    results.push_back(strategy->gather(strategy->run(doubled, batch), 0));
  EXPECT_EQ(results, (std::vector<Array>{Array(TensorShape{2}, {0, 2}), Array(TensorShape{2}, {4, 6})}));
  if (size() != 2) return;
  auto batches = strategy->distribute(data::range(8).batch(8)).open();
  const auto batch = batches.next();
  EXPECT_EQ(strategy->reduce(sum, *batch), (Array(TensorShape{4}, {4, 6, 8, 10})));
  EXPECT_EQ(strategy->reduce(sum, *batch, 0).item(), 28);
}

TEST(Default, LeavesDataSetsAsTheyAre) {
  const auto dataset = data::range(10).shuffle(20, {.seed = 4, .reshuffle_each_iteration = false}).batch(4);
  auto expected = dataset.open();
  for (const auto& batch : default_strategy().distribute(dataset)) EXPECT_EQ(batch[0], expected.next());
  EXPECT_FALSE(expected.next());
}

// TensorFlow's examples: a batch of 4 for 3 replicas, and the last 3 rows of batches of 4 for 4 replicas.
TEST_P(Datasets, AreDividedByBothRules) {
  using Numbers = std::vector<std::int64_t>;
  const auto numbers = [](std::int64_t rows, std::int64_t size, int replicas, BatchDivision division) {
    Numbers all;
    for (int replica = 0; replica < replicas; ++replica)
      all.push_back(data::rows_of_piece(rows, size, replica, replicas, division).count);
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

// Returns the sum over 10,007 examples in batches of 64, and the mean, which divides by the true number.
std::pair<float, float> sum_and_mean(Strategy& strategy, int virtual_replicas) {
  const auto dataset =
      data::range(10'007).map([](std::int64_t x) { return std::sin(static_cast<float>(x)) + 1.5F; }).batch(64);
  float total = 0;
  std::int64_t rows = 0;
  auto batches = strategy.distribute(dataset).open();
  while (const auto batch = batches.next()) {
    const auto sums = strategy.run(
        [&](ReplicaContext& replica, const Tensor<float>& mine) {
          const int parts = virtual_replicas / strategy.num_replicas_in_sync();
          const std::int64_t size = 64 / strategy.num_replicas_in_sync();
          const int first_part = replica.replica_id_in_sync_group() * parts;
          const auto sum_of_part = [&](int part) {
            const auto own =
                data::rows_of_piece(mine.shape()[0], size, part - first_part, parts, BatchDivision::fixed_size);
            const auto begin = mine.begin() + own.first;
            return Tensor<float>(TensorShape{1}, std::accumulate(begin, begin + own.count, 0.0F));
          };
          Tensor<float> all = parts == 0
                                  ? Tensor<float>(TensorShape{1}, std::accumulate(mine.begin(), mine.end(), 0.0F))
                                  : sum_of_virtual_replicas(replica, virtual_replicas, sum_of_part);
          replica.all_reduce(all, sum);
          return all[0];
        },
        *batch);
    total += sums[0];
    rows += *batches.global_rows();
  }
  EXPECT_EQ(rows, 10'007);
  return {total, total / static_cast<float>(rows)};
}

TEST_P(Datasets, OfAnyLengthHaveTheBitsOfOneProcess) {
  const auto [total, mean] = sum_and_mean(*strategy, 0);
  MirroredStrategy replicas_here(size());
  EXPECT_EQ(total, sum_and_mean(replicas_here, 0).first);
  double exact = 0;
  for (std::int64_t x = 0; x < 10'007; ++x) exact += std::sin(static_cast<float>(x)) + 1.5F;
  EXPECT_NEAR(mean, exact / 10'007, 1e-6);
  if (size() != 1 && size() != 2 && size() != 4) return;
  MirroredStrategy four(4);
  EXPECT_EQ(sum_and_mean(*strategy, 4).first, sum_and_mean(four, 4).first);
}

// Each process reads all rows, in pieces whose sizes follow one another in a circle.
TEST_P(Datasets, WithoutShardingHaveAllRowsInEachProcess) {
  if (is_in_one_process()) GTEST_SKIP() << lacks("two processes, which would read alike");
  const std::int64_t size = this->size() + 1;
  const auto dataset = data::range(5 * size).batch(size).with_options({.sharding = data::Sharding::off});
  std::vector<std::int64_t> own;
  std::int64_t rows_of_all = 0;
  int place = first();
  for (const auto& batch : strategy->distribute(dataset)) {
    std::int64_t rows = 0;
    for (int local = 0; local < batch.size(); ++local, ++place) {
      const Array& piece = batch[local];
      if (std::ssize(own) + piece.shape()[0] < 5 * size) {
        EXPECT_EQ(piece.shape()[0], place % this->size() == 0 ? 2 : 1);
      }
      own.insert(own.end(), piece.begin(), piece.end());
      rows += piece.shape()[0];
    }
    const std::int64_t all = sum_of_processes(rows);
    if (rows_of_all == 0) {
      EXPECT_EQ(all, size) << "a step of all processes has the rows of one batch";
    }
    rows_of_all += all;
  }
  std::vector<std::int64_t> expected(static_cast<std::size_t>(5 * size));
  std::iota(expected.begin(), expected.end(), 0);
  EXPECT_EQ(own, expected);
  EXPECT_PRED2(holds,
               refusal([&] { (void)strategy->distribute(data::range(9).batch(1), {.sharding = data::Sharding::off}); },
                       Code::usage),
               "needs batches of at least as many rows");
}

// The hint may stand anywhere, and a shuffle before it has one order in all processes: nothing is lost or comes twice.
TEST_P(Datasets, ShardedByAHintHaveAllElementsOnce) {
  const auto even = [](std::int64_t x) { return x % 2 == 0; };
  const auto dataset =
      data::range(80 * size()).shuffle(30).filter(even).shard(data::shard_hint).repeat(2).take(1000).batch(size());
  std::vector<std::int64_t> counts(static_cast<std::size_t>(80 * size()));
  for (const auto& batch : strategy->distribute(dataset, {.sharding = data::Sharding::hint})) {
    for (const Array& piece : batch.local()) {
      for (const std::int64_t each : piece) ++counts[static_cast<std::size_t>(each)];
    }
  }
  strategy->channel(Channel::input).all_reduce(counts, sum);
  for (std::size_t i = 0; i < counts.size(); ++i) EXPECT_EQ(counts[i], i % 2 == 0 ? 2 : 0) << i;
  if (is_in_one_process()) return;
  const auto refused = [&](const auto& pipeline, data::Sharding sharding) {
    return refusal([&] { (void)strategy->distribute(pipeline, {.sharding = sharding}); }, Code::usage);
  };
  EXPECT_PRED2(holds, refused(data::range(40).batch(8), data::Sharding::hint), "which has no shard(data::shard_hint)");
  EXPECT_PRED2(holds, refused(data::range(40).batch(8), data::Sharding::file), "whose elements are not all from files");
}

// Each process reads files of its own, in the order of their names, and the rows of all come once.
TEST_P(Datasets, ShardedByFilesReadThemOnce) {
  const Folder folder;
  const int processes = strategy->channel(Channel::input).size();
  const int files = 2 * processes + 1;
  for (int file = 0; file < files; ++file) {
    std::string lines;
    for (int line = 0; line < 5; ++line) lines += text(5 * file + line, '\n');
    folder.write(text("part-", static_cast<char>('a' + file)), lines);
  }
  const auto number = [](const std::string& line) { return std::int64_t{std::stoi(line)}; };
  const auto dataset = data::from_lines((folder.path() / "part-*").string()).map(number).batch(size());
  const int process = strategy->channel(Channel::input).rank();
  std::vector<std::int64_t> own;
  for (const auto& batch : strategy->distribute(dataset, {.sharding = data::Sharding::file})) {
    for (const Array& piece : batch.local()) own.insert(own.end(), piece.begin(), piece.end());
  }
  std::ranges::sort(own);
  std::vector<std::int64_t> expected;
  for (int file = process; file < files; file += processes) {
    for (int line = 0; line < 5; ++line) expected.push_back(5 * file + line);
  }
  EXPECT_EQ(own, expected);
  if (is_in_one_process()) return;
  const auto one = data::from_lines((folder.path() / "part-a").string()).map(number).batch(size());
  const std::string words =
      refusal([&] { (void)strategy->distribute(one, {.sharding = data::Sharding::file}); }, Code::usage);
  EXPECT_PRED2(holds, words, text("# elems = 1, # shards = ", processes));
  EXPECT_EQ(batches_of(one).size(), static_cast<std::size_t>((5 + size() - 1) / size())) << "AUTO reads them by DATA";
}

TEST_P(Datasets, InTensorFlowsOrderDealTheirPiecesToTheProcessesInTurns) {
  std::vector<std::vector<Array>> batches;
  for (const auto& batch : strategy->distribute(data::range(15).batch(4), {.order = PieceOrder::tensorflow}))
    batches.emplace_back(batch.local().begin(), batch.local().end());
  ASSERT_EQ(batches.size(), 4U);
  if (size() == 4 && strategy->num_local_replicas() == 2) {  // TensorFlow's own example.
    const std::int64_t process = first() / 2;
    EXPECT_EQ(batches[0], (std::vector<Array>{Array(TensorShape{1}, process), Array(TensorShape{1}, 2 + process)}));
    EXPECT_EQ(batches[3][0], Array(TensorShape{1}, 12 + process));
    EXPECT_EQ(batches[3][1], process == 0 ? Array(TensorShape{1}, 14) : Array(TensorShape{0}));
  }
  Communicator& channel = strategy->channel(Channel::input);
  const std::int64_t own_replicas = strategy->num_local_replicas();
  std::vector<std::int64_t> replicas(static_cast<std::size_t>(channel.size()));
  channel.all_gather(std::span(&own_replicas, 1), replicas);
  // Each process gets a piece in its turn, until it has one for each replica.
  const auto number_of = [&](int local) {
    std::int64_t number = 0;
    for (int turn = 0; turn <= local; ++turn) {
      for (int process = 0; process < (turn < local ? channel.size() : channel.rank()); ++process)
        number += replicas[static_cast<std::size_t>(process)] > turn ? 1 : 0;
    }
    return number;
  };
  std::int64_t rows = 0;
  for (std::size_t step = 0; step < batches.size(); ++step) {
    for (int local = 0; local < std::ssize(batches[step]); ++local) {
      const Array& piece = batches[step][static_cast<std::size_t>(local)];
      rows += piece.shape()[0];
      if (piece.size() == 0) continue;
      EXPECT_EQ(piece[0], static_cast<std::int64_t>(4 * step) + number_of(local) * ((4 + size() - 1) / size()));
    }
  }
  EXPECT_EQ(sum_of_processes(rows), 15);
}

// Functions are called only for the rows of this process, after the first batch.
TEST_P(Datasets, ReadOnlyTheirOwnPieces) {
  std::int64_t calls = 0;
  const auto dataset = data::range(12 * size()).shuffle(5).map([&](std::int64_t x) {
    ++calls;
    return x;
  });
  EXPECT_EQ(batches_of(dataset.batch(3 * size()), {.prefetch = 0}).size(), 4U);
  EXPECT_EQ(calls, 3 * size() + 9 * strategy->num_local_replicas());
}

TEST_P(Datasets, AreDividedByWeights) {
  std::vector<double> weights(static_cast<std::size_t>(size()), 1);
  weights.back() = 3;
  const std::int64_t unit = 4;
  const std::int64_t rows = unit * (size() + 2);
  const auto dataset = data::range(2 * rows).batch(rows);
  for (const auto& batch : strategy->distribute(dataset, {.weights = ReplicaWeights(weights)})) {
    for (int local = 0; local < batch.size(); ++local)
      EXPECT_EQ(batch[local].shape()[0], first() + local == size() - 1 ? 3 * unit : unit);
  }
  EXPECT_EQ(batches_of(dataset, {.weights = ReplicaWeights(weights)}), all_of(dataset));
}

TEST_P(Datasets, OfRowsWithDifferentShapesAreRefusedWithoutSharding) {
  if (is_in_one_process()) GTEST_SKIP() << lacks("two processes, which would read alike");
  end_calls();
  const auto rows = data::range(10 * size() + 1).map([](std::int64_t x) { return Array(TensorShape{x % 7 + 1}, x); });
  const auto dataset = rows.padded_batch(2 * size()).repeat(3);
  refusal(
      [&] {
        for (const auto& batch : strategy->distribute(dataset, {.sharding = data::Sharding::off}))
          EXPECT_GT(batch.size(), 0);
      },
      Code::replica_failed);
  end_calls();
}

TEST_P(Datasets, NameTheTypesAndShapesOfTheirPieces) {
  const auto dataset = data::range(9).shuffle(3).map([](std::int64_t x) {
    return std::tuple(Tensor<float>(TensorShape{2, 3}), x);
  });
  const std::vector<TensorSpec> spec = strategy->distribute(dataset.batch(4)).spec();
  ASSERT_EQ(spec.size(), 2U);
  EXPECT_EQ(spec[0].to_string(), "TensorSpec(shape=(None, 2, 3), dtype=tf.float32, name=None)");
  EXPECT_EQ(spec[1].to_string(), "TensorSpec(shape=(None,), dtype=tf.int64, name=None)");
  refusal([&] { (void)strategy->distribute(data::range(0).batch(4)).spec(); }, Code::usage);
}

TEST_P(Datasets, RefuseOptionsThatDoNotFit) {
  const auto dataset = data::range(9).batch(4);
  const auto from = [&](const InputOptions& options) {
    return refusal([&] { (void)strategy->distribute_from([&](const InputContext&) { return dataset; }, options); },
                   Code::usage);
  };
  EXPECT_PRED2(
      holds,
      refusal([&] { (void)strategy->distribute(dataset, {.replication = ReplicationMode::per_replica}); }, Code::usage),
      "use it with distribute_from()");
  EXPECT_PRED2(holds, from({.place_dataset_on_device = true}),
               "place_dataset_on_device with ReplicationMode::per_worker");
  EXPECT_PRED2(holds, from({.replication = ReplicationMode::per_replica, .place_dataset_on_device = true}),
               "place_dataset_on_device with fetch_to_device");
  EXPECT_PRED2(holds,
               refusal(
                   [&] {
                     (void)strategy->distribute(dataset, {.weights = ReplicaWeights({1, 2, 3, 4, 5, 6, 7})});
                   },
                   Code::usage),
               "7 weights");
}

INSTANTIATE_TEST_SUITE_P(All, Datasets, testing::ValuesIn(layouts()), [](const auto& each) { return each.param.name; });

}  // namespace
}  // namespace lockstep::test
