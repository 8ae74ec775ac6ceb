// SPDX-License-Identifier: Apache-2.0
// How loops over distributed data sets begin, go on, end and fail, under every strategy and layout.
#include <numeric>

#include "runtime/data/files/files.hpp"
#include "tests/runtime/begun_calls.hpp"
#include "tests/runtime/datasets.hpp"
#include "tests/support/holds.hpp"
#include "tests/support/lacks.hpp"
#include "tests/support/refusal.hpp"

namespace lockstep::test {
namespace {

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

TEST_P(Datasets, OfProcessesThatDifferAreAMismatch) {
  if (is_in_one_process()) GTEST_SKIP() << lacks("two processes, of which one has another batch size");
  end_calls();
  const std::string words =
      refusal([&] { (void)strategy->distribute(data::range(9).batch(first() == 0 ? 2 : 3)).open(); }, Code::mismatch);
  EXPECT_PRED2(holds, words, "processes loop over different data sets");
  const InputOptions options{.division = first() == 0 ? BatchDivision::even : BatchDivision::fixed_size};
  refusal([&] { (void)strategy->distribute(data::range(9).batch(3), options).open(); }, Code::mismatch);
  const auto shuffled = data::range(9).shuffle(2);
  refusal([&] { (void)strategy->distribute((first() == 0 ? shuffled.shuffle(3) : shuffled).batch(3)).open(); },
          Code::mismatch);
  refusal(
      [&] {
        (void)strategy
            ->distribute(data::from_tensor_slices(std::vector<std::int64_t>(first() == 0 ? 6 : 7, 1)).batch(3))
            .open();
      },
      Code::mismatch);
  EXPECT_EQ(batches_of(data::range(9).batch(3)).size(), 3U) << "and all go on";
}

// The function makes another data set in each process, of another length. All replicas step until nobody has data.
TEST_P(Datasets, OfTheProgramsFunctionsEndWithTheLongest) {
  for (const bool is_known : {true, false}) {
    std::int64_t longest = 0;
    std::int64_t own_rows = 0;
    const auto dataset = strategy->distribute_from([&](const InputContext& context) {
      EXPECT_EQ(context.num_replicas_in_sync, size());
      EXPECT_EQ(context.num_input_pipelines, strategy->channel(Channel::input).size());
      EXPECT_EQ(context.input_pipeline_id, strategy->channel(Channel::input).rank());
      longest = context.num_input_pipelines * strategy->num_local_replicas();
      const std::int64_t elements = (context.input_pipeline_id + 1) * strategy->num_local_replicas();
      own_rows = 3 * elements;
      const auto all = data::range(own_rows);
      return is_known ? all.batch(3) : all.filter([](std::int64_t) { return true; }).batch(3);
    });
    std::int64_t rows = 0;
    std::int64_t steps = 0;
    std::int64_t rows_told = 0;
    auto batches = dataset.open();
    while (const auto batch = batches.next()) {
      ++steps;
      rows += strategy->reduce(sum, strategy->run([](const Array& mine) { return mine.shape()[0]; }, *batch));
      if (batches.global_rows()) rows_told += *batches.global_rows();
    }
    EXPECT_FALSE(batches.next()) << "and stays at the end";
    EXPECT_EQ(steps * strategy->num_local_replicas(), longest);
    EXPECT_EQ(rows, sum_of_processes(own_rows));
    if (!is_known || is_in_one_process()) {
      EXPECT_EQ(rows_told, rows);
    }
  }
}

TEST_P(Datasets, OfOneFunctionForEachReplicaHaveTheirOwnElements) {
  int calls = 0;
  const auto dataset = strategy->distribute_from(
      [&](const InputContext& context) {
        return data::range(4).map([own = calls++, seed = context.seed_for(7)](std::int64_t x) {
          return std::tuple(Array(TensorShape{1}, 100 * own + x), Tensor<std::uint64_t>(TensorShape{1}, seed));
        });
      },
      {.replication = ReplicationMode::per_replica});
  EXPECT_EQ(calls, strategy->num_local_replicas());
  auto batches = dataset.open();
  batches.next();
  const Bytes position = batches.position();
  std::int64_t step = 1;
  for (; const auto batch = batches.next(); ++step) {
    for (int local = 0; local < strategy->num_local_replicas(); ++local)
      EXPECT_EQ(std::get<0>(*batch)[local], Array(TensorShape{1}, 100 * local + step));
  }
  EXPECT_EQ(step, 4);
  auto later = dataset.open();
  later.seek(position);
  EXPECT_EQ(std::get<0>(*later.next())[0], Array(TensorShape{1}, 1));
  const InputContext first_context{.num_input_pipelines = 2, .input_pipeline_id = 0, .num_replicas_in_sync = 4};
  const InputContext second_context{.num_input_pipelines = 2, .input_pipeline_id = 1, .num_replicas_in_sync = 4};
  EXPECT_EQ(first_context.seed_for(7), first_context.seed_for(7));
  EXPECT_NE(first_context.seed_for(7), second_context.seed_for(7));
  EXPECT_EQ(first_context.get_per_replica_batch_size(12), 3);
  EXPECT_PRED2(holds, refusal([&] { (void)first_context.get_per_replica_batch_size(10); }, Code::usage),
               "a global batch of 10 for 4 replicas");
  EXPECT_EQ(strategy->global_batch(64), 64 * size());
}

// A thread reads ahead. Elements, positions and ends are those without it.
TEST_P(Datasets, ReadAheadAreTheSame) {
  const auto in_memory = data::range(200).shuffle(300, {.seed = 3}).batch(6);
  const auto filtered = data::range(200).filter([](std::int64_t x) { return x % 3 != 0; }).shuffle(90).batch(5);
  for (const auto& dataset : {in_memory, filtered}) {
    for (const int prefetch : {0, 1, 3}) {
      const auto distributed = strategy->distribute(dataset, {.prefetch = prefetch});
      auto batches = distributed.open();
      batches_of(batches, 9);
      const Bytes position = batches.position();
      const std::vector<Array> rest = batches_of(batches);
      EXPECT_EQ(std::ssize(rest), dataset.length() < 0 ? 18 : dataset.length() - 9);
      auto later = distributed.open();
      later.seek(position);
      EXPECT_EQ(batches_of(later), rest);
      batches.seek(position);
      EXPECT_EQ(batches_of(batches), rest) << "an iterator that had ended";
    }
  }
  refusal([&] { (void)strategy->distribute(in_memory, {.prefetch = -1}); }, Code::usage);
}

// What processes tell one another travels with the gradients: the input channel is silent after the first step.
TEST_P(Datasets, OfUnknownLengthTravelWithTheGradients) {
  constexpr std::int64_t examples = 1007;
  const auto dataset = strategy->distribute_from([&](const InputContext& context) {
    return data::range(examples)
        .shard(context.num_input_pipelines, context.input_pipeline_id)
        .filter([](std::int64_t) { return true; })
        .batch(8);
  });
  for (const std::size_t counts : {0U, 1U}) {
    GradientReducer reducer(*strategy, {{"w", DataType::f64, 1}}, {.counts = counts});
    auto batches = dataset.open();
    GradientReducer other_reducer(*strategy, {{"v", DataType::f64, 1}});
    if (counts > 0) batches.travel_with(other_reducer);
    batches.travel_with(reducer);
    double mean = 0;
    std::int64_t rows = 0;
    for (bool is_first = true;; is_first = false) {
      const std::uint64_t before = begun_calls();
      const auto batch = batches.next();
      if (!is_first) {
        EXPECT_EQ(begun_calls(), before);
      }
      if (!batch) break;
      const PerReplica<double> totals = strategy->run(
          [&](ReplicaContext& replica, const Array& mine) {
            std::vector<double> total{static_cast<double>(std::accumulate(mine.begin(), mine.end(), std::int64_t{0}))};
            std::vector<std::int64_t> number(counts, mine.shape()[0]);
            GradientReducer::BackwardPass pass(reducer, replica);
            pass.ready(0, std::span(total));
            if (counts > 0) pass.add_counts(number);
            pass.finish();
            EXPECT_EQ(counts == 0 ? *batches.global_rows() : number[0], *batches.global_rows());
            return total[0];
          },
          *batch);
      mean += totals[0];
      rows += *batches.global_rows();
    }
    EXPECT_EQ(rows, examples);
    EXPECT_EQ(mean / static_cast<double>(rows), (examples - 1) / 2.0);
    auto begun = dataset.open();
    begun.next();
    const Bytes position = begun.position();
    begun.travel_with(reducer);  // A sum is on its way already.
    std::int64_t rest = 0;
    while (begun.next()) rest += *begun.global_rows();
    begun.seek(position);
    while (begun.next()) rest -= *begun.global_rows();
    EXPECT_EQ(rest, 0);
  }
}

// Several processes hear the words of the one whose source throws, or ends before the others.
TEST_P(Datasets, ThatFailInOneProcessFailInAll) {
  if (is_in_one_process()) GTEST_SKIP() << lacks("two processes, of which one has a source that throws");
  const auto throws_late = [&](std::int64_t x) {
    if (first() == 0 && x == 7 * size()) throw std::runtime_error("the disk is gone");
    return x;
  };
  const auto known = data::range(100 * size()).map(throws_late).batch(size());
  const auto unknown = data::range(100 * size()).map(throws_late).filter([](std::int64_t) { return true; });
  for (const auto& dataset : {known, unknown.batch(size())}) {
    end_calls();
    int steps = 0;
    const std::string words = refusal(
        [&] {
          for (const auto& batch : strategy->distribute(dataset)) {
            strategy->run(
                [](ReplicaContext& replica, const Array& mine) { return replica.all_reduce(std::ssize(mine), sum); },
                batch);
            ++steps;
          }
        },
        Code::replica_failed);
    EXPECT_PRED2(holds, words, "the disk is gone");
    EXPECT_PRED2(holds, words, text("process 0 reads element 7 of ", dataset.describe(), ", counted from 0"));
    EXPECT_EQ(steps, 7);
  }
  end_calls();
  const auto ends_early = data::range(100 * size())
                              .map(throws_late)
                              .filter([&](std::int64_t x) { return first() == 0 || x < 5 * size(); })
                              .batch(size());
  int steps = 0;
  const std::string words = refusal(
      [&] {
        for (const auto& batch : strategy->distribute(ends_early)) steps += batch.size() > 0 ? 1 : 0;
      },
      Code::replica_failed);
  EXPECT_PRED2(holds, words, "its data ends here, and other processes have more");
  EXPECT_EQ(steps, 5);
  end_calls();
  EXPECT_EQ(batches_of(data::range(9).batch(3)).size(), 3U) << "and all go on";
}

TEST_P(Datasets, ThatOneProcessCannotOpenFailInAll) {
  if (is_in_one_process()) GTEST_SKIP() << lacks("two processes, of which one cannot open its files");
  end_calls();
  const auto dataset = strategy->distribute_from([&](const InputContext& context) {
    if (context.input_pipeline_id == 0) (void)data::glob("/no/such/folder/*");
    return data::range(4).batch(2);
  });
  const std::string words = refusal([&] { (void)dataset.open(); }, Code::replica_failed);
  EXPECT_PRED2(holds, words, "process 0 begins a loop over distribute_from()");
  EXPECT_PRED2(holds, words, "/no/such/folder");
  end_calls();
  EXPECT_EQ(batches_of(data::range(9).batch(3)).size(), 3U) << "and all go on";
}

// A memory cache that one process has filled by itself has another order than the loop of all.
TEST_P(Datasets, WithCachesOfDifferentOrdersAreAMismatch) {
  if (is_in_one_process()) GTEST_SKIP() << lacks("two processes, of which one has filled its cache before");
  end_calls();
  const auto dataset = data::range(30).shuffle(30).cache().batch(3);
  if (first() == 0) {
    EXPECT_EQ(all_of(dataset).size(), 10U);
  }
  const std::string words = refusal([&] { (void)strategy->distribute(dataset).open(); }, Code::mismatch);
  EXPECT_PRED2(holds, words, "have caches with elements in different orders");
  end_calls();
  const auto filled_by_all = data::range(30).shuffle(30).cache().batch(3);
  const std::vector<Array> lap = batches_of(filled_by_all);
  EXPECT_EQ(batches_of(filled_by_all), lap);
}

TEST_P(Datasets, StayAtTheirPlaceIfAPositionIsRefused) {
  const auto unknown = data::range(60).filter([](std::int64_t x) { return x % 2 == 0; }).batch(3);
  const auto known = data::range(30).map([](std::int64_t x) { return 2 * x; }).batch(3);
  for (const auto& dataset : {unknown, known}) {
    for (const int prefetch : {0, 2}) {
      auto batches = strategy->distribute(dataset, {.prefetch = prefetch}).open();
      batches_of(batches, 2);
      Bytes position = batches.position();
      Bytes damaged = position;
      damaged.back() ^= std::byte{1};
      refusal([&] { batches.seek(damaged); }, Code::bad_message);
      const std::vector<Array> rest = batches_of(batches);
      ASSERT_EQ(rest.size(), 8U);
      EXPECT_EQ(rest[0][0], 12);
    }
  }
}

TEST_P(Datasets, WithoutRowsInTheirElementsAreRefused) {
  const auto scalars = data::range(3).map([](std::int64_t x) { return Array(x); });
  auto iterator = strategy->distribute(scalars).open();
  const Code code = is_in_one_process() ? Code::usage : Code::replica_failed;
  EXPECT_PRED2(holds, refusal([&] { iterator.next(); }, code), "call batch(size of the global batch)");
}

}  // namespace
}  // namespace lockstep::test
