// SPDX-License-Identifier: Apache-2.0
// Cases of TensorFlow's tests of distributed input that every_dataset_test.cpp leaves out, under every strategy and
// layout.
#include <algorithm>

#include "runtime/default_strategy.hpp"
#include "runtime/distributed_dataset.hpp"
#include "tests/runtime/layouts.hpp"
#include "tests/runtime/variable_case.hpp"
#include "tests/support/holds.hpp"
#include "tests/support/lacks.hpp"
#include "tests/support/refusal.hpp"

namespace lockstep::test {
namespace {

using Array = Tensor<std::int64_t>;

// Are an element in an element, as TensorFlow's nested extension types.
template <class Part>
struct Inner {
  Part tensor;
};
template <class Part>
struct Outer {
  Part inner;
};

}  // namespace
}  // namespace lockstep::test

template <class Part>
struct lockstep::Fields<lockstep::test::Inner<Part>> {
  static auto of(auto& element) { return std::tie(element.tensor); }
};
template <class Part>
struct lockstep::Fields<lockstep::test::Outer<Part>> {
  static auto of(auto& element) { return std::tie(element.inner); }
};

namespace lockstep::test {
namespace {

class Inputs : public EveryLayout {
 protected:
  Scope scope = strategy->scope();
  int processes() const { return strategy->channel(Channel::input).size(); }
  std::vector<Array> batches_of(const DistributedDataset<Array>& dataset) {
    std::vector<Array> all;
    for (const auto& batch : dataset) all.push_back(strategy->gather(batch, 0));
    return all;
  }
  Dataset<Tensor<float>> numbers(std::vector<float> values, std::int64_t batch_size) {
    return data::from_tensor_slices(std::move(values)).batch(batch_size);
  }
  static Tensor<float> square(const Tensor<float>& x) { return x * x; }
};

Array numbers_from(std::int64_t first, std::int64_t count) {
  Array all(TensorShape{count});
  for (std::int64_t i = 0; i < count; ++i) all[static_cast<std::size_t>(i)] = first + i;
  return all;
}

// Each replica of a process takes a whole batch of its function's data set, in any loop and with any options.
TEST_P(Inputs, OfFunctionsAreDealtToReplicasInTurns) {
  const std::int64_t local_replicas = strategy->num_local_replicas();
  for (const bool drop_remainder : {false, true}) {
    const std::int64_t whole = drop_remainder ? 4 : 5;
    for (const InputOptions& options : {InputOptions{}, {.prefetch = 2}, {.prefetch = 2, .fetch_to_device = false}}) {
      const auto dataset = strategy->distribute_from(
          [&](const InputContext&) {
            return data::range(9)
                .map([](std::int64_t x) { return std::tuple(x, x * x); })
                .batch(2, {.drop_remainder = drop_remainder});
          },
          options);
      for (int loop = 0; loop < 2; ++loop) {
        std::int64_t number = 0;
        for (const auto& [x, squares] : dataset) {
          for (int local = 0; local < local_replicas; ++local, ++number) {
            const std::int64_t rows = number >= whole ? 0 : std::min<std::int64_t>(2, 9 - 2 * number);
            const Array expected = numbers_from(2 * number, rows);
            EXPECT_EQ(x[local], expected);
            EXPECT_EQ(squares[local], expected * expected);
          }
        }
        EXPECT_GE(number, whole);
        if (is_in_one_process()) {
          EXPECT_LT(number - local_replicas, whole);
        }
      }
    }
  }
}

// TensorFlow's function has another number in each replica, and so other rows if it shards by it.
TEST_P(Inputs, OfOneFunctionForEachReplicaKnowTheirReplica) {
  for (const bool is_on_device : {false, true}) {
    const auto dataset = strategy->distribute_from(
        [&](const InputContext& context) {
          EXPECT_EQ(context.num_input_pipelines, size());
          return data::range(std::int64_t{9} * size())
              .shard(context.num_input_pipelines, context.input_pipeline_id)
              .map([factor = context.input_pipeline_id + 1](std::int64_t x) { return std::tuple(x, x * factor); })
              .batch(1);
        },
        {.replication = ReplicationMode::per_replica,
         .fetch_to_device = !is_on_device,
         .place_dataset_on_device = is_on_device});
    EXPECT_EQ(dataset.spec()[1].to_string(), "TensorSpec(shape=(None,), dtype=tf.int64, name=None)");
    std::int64_t step = 0;
    for (const auto& [x, products] : dataset) {
      for (int local = 0; local < strategy->num_local_replicas(); ++local) {
        const std::int64_t replica = first() + local;
        EXPECT_EQ(x[local], Array(TensorShape{1}, step * size() + replica));
        EXPECT_EQ(products[local], x[local] * (replica + 1));
      }
      ++step;
    }
    EXPECT_EQ(step, 9);
  }
}

// TensorFlow's processes divide by the rows that a batch has, as BatchDivision::even does.
TEST_P(Inputs, HaveTheRowsOfTensorFlowsTwoProcesses) {
  if (size() != 2) return;
  const auto rows_of = [&](const DistributedDataset<Array>& dataset) {
    std::vector<std::vector<Array>> all(2);
    for (const auto& batch : dataset) {
      for (int local = 0; local < batch.size(); ++local)
        all[static_cast<std::size_t>(first() + local)].push_back(batch[local]);
    }
    return all;
  };
  const auto expect_rows = [&](const DistributedDataset<Array>& dataset, const std::vector<std::vector<Array>>& both) {
    const auto found = rows_of(dataset);
    for (std::size_t replica = 0; replica < 2; ++replica) {
      if (!found[replica].empty() || is_in_one_process()) {
        EXPECT_EQ(found[replica], both[replica]);
      }
    }
  };
  const InputOptions even{.division = BatchDivision::even};
  expect_rows(strategy->distribute(data::range(14).batch(8), even),
              {{numbers_from(0, 4), numbers_from(8, 3)}, {numbers_from(4, 4), numbers_from(11, 3)}});
  expect_rows(strategy->distribute(data::range(8).batch(3), even),
              {{numbers_from(0, 2), numbers_from(3, 2), numbers_from(6, 1)},
               {numbers_from(2, 1), numbers_from(5, 1), numbers_from(7, 1)}});
  const std::vector<std::vector<Array>> whole{
      {numbers_from(0, 1), numbers_from(2, 1), numbers_from(4, 1), numbers_from(6, 1)},
      {numbers_from(1, 1), numbers_from(3, 1), numbers_from(5, 1), numbers_from(7, 1)}};
  expect_rows(strategy->distribute(data::range(9).batch(2, {.drop_remainder = true})), whole);
  const auto from_function = [](const InputContext& context) {
    return data::range(14)
        .batch(context.get_per_replica_batch_size(8))
        .shard(context.num_input_pipelines, context.input_pipeline_id);
  };
  expect_rows(strategy->distribute_from(from_function),
              {{numbers_from(0, 4), numbers_from(8, 4)}, {numbers_from(4, 4), numbers_from(12, 2)}});
}

TEST_P(Inputs, AreInTheOrderOfTheLastLoopIfTheyShall) {
  const auto kept = strategy->distribute(data::range(16).shuffle(16).cache().batch(4));
  EXPECT_EQ(batches_of(kept), batches_of(kept));
  for (const bool reshuffle : {false, true}) {
    const auto shuffled = data::range(12).shuffle(12, {.seed = 5, .reshuffle_each_iteration = reshuffle}).batch(4);
    const auto dataset = strategy->distribute(shuffled);
    const std::vector<Array> lap = batches_of(dataset);
    EXPECT_EQ(lap == batches_of(dataset), !reshuffle);
  }
}

TEST_P(Inputs, WithoutAnEndHaveWholePieces) {
  const std::int64_t size = this->size();
  const auto examples = data::from_tensor_slices(
      std::tuple(Tensor<float>(TensorShape{2 * size, 10}, 1.F), Tensor<float>(TensorShape{2 * size}, 1.F)));
  const auto dataset = strategy->distribute(examples.batch(2 * size, {.drop_remainder = true}).repeat());
  EXPECT_EQ(dataset.length(), data::infinite);
  EXPECT_EQ(dataset.spec()[0].to_string(), "TensorSpec(shape=(None, 10), dtype=tf.float32, name=None)");
  auto batches = dataset.open();
  for (int step = 0; step < 5; ++step) {
    const auto batch = batches.next();
    ASSERT_TRUE(batch);
    const auto& [features, labels] = *batch;
    for (int local = 0; local < features.size(); ++local) {
      EXPECT_EQ(features[local].shape(), (TensorShape{2, 10}));
      EXPECT_EQ(labels[local].shape(), TensorShape{2});
    }
  }
}

TEST_P(Inputs, AreReducedOverAllTheirRows) {
  auto batches = strategy->distribute(numbers({5, 6, 7}, 4)).open();
  const auto batch = batches.next();
  EXPECT_EQ(strategy->reduce(avg, *batch, 0).item(), 6.F);
  const auto rows = strategy->run([](const Tensor<float>& mine) { return mine.shape()[0]; }, *batch);
  EXPECT_EQ(strategy->reduce(sum, rows), 3);
  auto wide = strategy->distribute(data::from_tensor_slices(Tensor<float>(TensorShape{3, 2}, 1.F)).batch(4)).open();
  EXPECT_EQ(strategy->reduce(avg, *wide.next(), 0), row({1.F, 1.F}));
  float product = 2;
  for (const auto& each : strategy->distribute(numbers({5, 6, 7, 8}, 2)))
    product *= strategy->reduce(avg, each, 0).item();
  EXPECT_EQ(product, 2 * 5.5F * 7.5F);
}

// Replicas without rows add 0, and the loop ends once for all.
TEST_P(Inputs, AddUpInVariables) {
  Variable total(0.F, written(Aggregation::sum));
  Variable steps(1.F, written(Aggregation::only_first_replica));
  auto batches = strategy->distribute(numbers({0, 1, 2, 3, 4, 5, 6, 7, 8, 9}, 4)).open();
  std::vector<Tensor<float>> results;
  for (; const auto batch = batches.next();) {
    const auto shifted = strategy->run(
        [&](const Tensor<float>& mine) {
          float squares = 0;
          for (const float each : mine) squares += each * each;
          total.assign_add(squares);
          steps.assign_add(1.F);
          return square(mine) + steps.read();
        },
        *batch);
    results.push_back(strategy->gather(shifted, 0));
  }
  EXPECT_FALSE(batches.next());
  EXPECT_EQ(total.read().item(), 285.F);
  EXPECT_EQ(steps.read().item(), 4.F);
  EXPECT_EQ(results, (std::vector{row({2.F, 3.F, 6.F, 11.F}), row({19.F, 28.F, 39.F, 52.F}), row({68.F, 85.F})}));
}

// Results of a fixed shape stand beside others that have as many rows as the piece.
TEST_P(Inputs, MayLeaveReplicasWithoutRows) {
  auto batches = strategy->distribute(numbers({5}, 2)).open();
  const auto batch = batches.next();
  const auto [fixed, squares] = strategy->run(
      [](const Tensor<float>& mine) { return std::tuple(Tensor<float>(TensorShape{3}), square(mine)); }, *batch);
  for (int local = 0; local < fixed.size(); ++local) {
    EXPECT_EQ(fixed[local].shape(), TensorShape{3});
    EXPECT_EQ(squares[local], first() + local == 0 ? row({25.F}) : Tensor<float>(TensorShape{0}));
  }
}

TEST_P(Inputs, MayHaveAnotherShapeInEachReplicaAndBeNested) {
  const auto dataset = strategy->distribute_from([](const InputContext&) {
    return data::range(4)
        .map([](std::int64_t x) { return Outer<Inner<Array>>{{Array(TensorShape{x / 2 + 2}, x)}}; })
        .batch(2);
  });
  std::int64_t number = 0;
  for (const auto& batch : dataset) {
    for (int local = 0; local < strategy->num_local_replicas(); ++local, ++number) {
      const Array& piece = batch.inner.tensor[local];
      if (number >= 2) {
        EXPECT_EQ(piece.shape()[0], 0);
        continue;
      }
      EXPECT_EQ(piece.shape(), (TensorShape{2, number + 2}));
      EXPECT_EQ(piece[0], 2 * number);
    }
  }
  EXPECT_GE(number, 2);
}

TEST_P(Inputs, AreNotReadInAReplica) {
  auto batches = strategy->distribute(data::range(10).batch(2)).open();
  end_calls();
  EXPECT_PRED2(holds, refusal([&] { strategy->run([&] { (void)batches.next(); }); }, Code::replica_failed),
               "next requires being in cross-replica context");
  end_calls();
  EXPECT_EQ(strategy->gather(*batches.next(), 0), numbers_from(0, 2)) << "and the loop is at its beginning";
}

// TensorFlow would guess a size from each batch. Without sharding, pieces need the size of the global batch.
TEST_P(Inputs, OfUnknownBatchSizesAreRefusedWithoutSharding) {
  if (is_in_one_process()) GTEST_SKIP() << lacks("two processes, which would read alike");
  const auto dataset = data::range(2).map([](std::int64_t x) { return numbers_from(8 * x, 8 - 4 * x); });
  EXPECT_PRED2(holds,
               refusal([&] { (void)strategy->distribute(dataset, {.sharding = data::Sharding::off}); }, Code::usage),
               "call batch(size of the global batch) last");
}

TEST(InputContexts, DescribeTheirProcess) {
  const InputContext context{.num_input_pipelines = 2, .input_pipeline_id = 1, .num_replicas_in_sync = 6};
  EXPECT_EQ(testing::PrintToString(context), "InputContext(input pipeline id: 1, total: 2)");
  EXPECT_EQ(context.get_per_replica_batch_size(12), 2);
  refusal([&] { (void)context.get_per_replica_batch_size(13); }, Code::usage);
  const InputContext alone;
  EXPECT_EQ(alone.num_replicas_in_sync, 1);
  EXPECT_EQ(alone.input_pipeline_id, 0);
}

TEST(InputContexts, OfTheDefaultStrategyAreOfOneProcess) {
  Strategy& strategy = default_strategy();
  const auto dataset = strategy.distribute_from([](const InputContext& context) {
    EXPECT_EQ(context.num_input_pipelines, 1);
    EXPECT_EQ(context.input_pipeline_id, 0);
    EXPECT_EQ(context.num_replicas_in_sync, 1);
    return data::range(10).batch(2).repeat();
  });
  auto batches = dataset.open();
  const auto same = strategy.run([](const Array& mine) { return mine; }, *batches.next());
  EXPECT_EQ(same[0], numbers_from(0, 2));
}

INSTANTIATE_TEST_SUITE_P(All, Inputs, testing::ValuesIn(layouts()), [](const auto& each) { return each.param.name; });

}  // namespace
}  // namespace lockstep::test
