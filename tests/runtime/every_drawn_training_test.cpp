// SPDX-License-Identifier: Apache-2.0
// Holds the master identity: a training of replicas equals that of one replica with the whole batches, for any model,
// batch size, bucket and division of the data. Under every strategy and layout, with drawn cases.
#include <chrono>
#include <cmath>

#include "runtime/data/random.hpp"
#include "runtime/default_strategy.hpp"
#include "runtime/train/layers.hpp"
#include "runtime/train/model.hpp"
#include "runtime/train/optimizer.hpp"
#include "tests/runtime/layouts.hpp"
#include "tests/runtime/quick.hpp"

namespace lockstep::test {
namespace {

using namespace train;
using Floats = Tensor<float>;

// Draws numbers that follow from a seed.
class CaseDrawer {
 public:
  explicit CaseDrawer(std::uint64_t seed) : seed_(seed) {}
  // Returns a number from `low` to `high`.
  std::int64_t number(std::int64_t low, std::int64_t high) {
    return low + static_cast<std::int64_t>(data::random_bits({seed_, 1}, next_++) %
                                           static_cast<std::uint64_t>(high - low + 1));
  }

 private:
  std::uint64_t seed_;
  std::uint64_t next_ = 0;
};

// Is what one training is made of.
struct DrawnTraining {
  explicit DrawnTraining(std::uint64_t case_seed) : seed(case_seed) {
    CaseDrawer draw(case_seed);
    inputs = draw.number(1, 5);
    for (auto layers = draw.number(0, 2); layers > 0; --layers) widths.push_back(draw.number(1, 7));
    rows = draw.number(1, 40);
    batch = draw.number(1, 17);
    epochs = draw.number(1, 3);
    optimizer = draw.number(0, 3);
    bucket_bytes = std::size_t{1} << static_cast<unsigned>(draw.number(2, 12));
    division = draw.number(0, 1) == 0 ? BatchDivision::fixed_size : BatchDivision::even;
    knows_length = draw.number(0, 1) == 0;
  }
  std::uint64_t seed;
  std::int64_t inputs = 1;
  std::vector<std::int64_t> widths;  // Are those of the hidden layers.
  std::int64_t rows = 1;
  std::int64_t batch = 1;
  std::int64_t epochs = 1;
  std::int64_t optimizer = 0;
  std::size_t bucket_bytes = 1;
  BatchDivision division = BatchDivision::fixed_size;
  bool knows_length = true;
};
std::ostream& operator<<(std::ostream& out, const DrawnTraining& each) {
  return out << "seed " << each.seed << ": " << each.rows << " rows of " << each.inputs << " in batches of "
             << each.batch << ", " << each.widths.size() << " hidden layers, optimizer " << each.optimizer
             << ", buckets of " << each.bucket_bytes << " bytes, " << each.epochs << " epochs"
             << (each.knows_length ? "" : ", of unknown length");
}

Optimizer drawn_optimizer(const DrawnTraining& each) {
  const OptimizerOptions options{.bucket_bytes = each.bucket_bytes, .first_bucket_bytes = each.bucket_bytes / 2};
  switch (each.optimizer) {
    case 0:
      return SGD({.learning_rate = 0.05F}, options);
    case 1:
      return SGD({.learning_rate = 0.05F, .momentum = 0.5F, .nesterov = true}, options);
    case 2:
      return Adagrad({.learning_rate = 0.05F}, options);
    default:
      return SGD({.learning_rate = 0.02F, .weight_decay = 0.01F}, options);
  }
}

// Returns the losses of all epochs, and all weights behind them.
std::vector<float> train_drawn(Strategy& strategy, const DrawnTraining& each) {
  const Scope scope = strategy.scope();
  set_random_seed(each.seed);
  Sequential model(InputLayer({each.inputs}));
  for (const std::int64_t width : each.widths) model.add(Dense(width, tanh));
  model.add(Dense(2));
  model.compile("mse", drawn_optimizer(each));
  const Floats x = random_uniform({.low = -1, .high = 1, .seed = each.seed + 1})({each.rows, each.inputs});
  const Floats y = random_uniform({.low = -1, .high = 1, .seed = each.seed + 2})({each.rows, 2});
  auto dataset = data::from_tensor_slices(std::tuple(x, y)).batch(each.batch);
  if (!each.knows_length) dataset = dataset.filter([](const Floats&, const Floats&) { return true; });
  const History history =
      model.fit(dataset, {.epochs = each.epochs, .input = {.division = each.division}, .verbose = Verbose::silent});
  std::vector<float> all;
  for (const double loss : history["loss"]) all.push_back(static_cast<float>(loss));
  for (const AnyVariable& variable : model.variables()) {
    variable.check_sync();
    const Floats value = variable.as<float>().read();
    all.insert(all.end(), value.begin(), value.end());
  }
  return all;
}

class DrawnTrainings : public EveryLayout {
 protected:
  // Returns the same seed in all processes.
  std::uint64_t drawn_seed() const {
    auto seed = static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
    strategy->channel(Channel::checkpoints).broadcast(std::span(&seed, 1), 0);
    return seed;
  }
};

TEST_P(DrawnTrainings, EqualOneReplicaWithTheWholeBatches) {
  const std::uint64_t seed = drawn_seed();
  for (std::uint64_t i = 0; i < 6; ++i) {
    const DrawnTraining each(seed + 1000 * i);
    const std::vector<float> one = train_drawn(default_strategy(), each);
    const std::vector<float> here = train_drawn(*strategy, each);
    ASSERT_EQ(here.size(), one.size()) << each;
    for (std::size_t at = 0; at < one.size(); ++at)
      EXPECT_NEAR(here[at], one[at], 5e-6F * (1 + std::abs(one[at]))) << each << ", number " << at;
    if (strategy->describe().find("Central") != std::string::npos) continue;
    MirroredStrategy together(size(), quick());
    EXPECT_EQ(here, train_drawn(together, each)) << each;
  }
}

INSTANTIATE_TEST_SUITE_P(All, DrawnTrainings, testing::ValuesIn(layouts()),
                         [](const auto& each) { return each.param.name; });

}  // namespace
}  // namespace lockstep::test
