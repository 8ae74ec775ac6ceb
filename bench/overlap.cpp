// SPDX-License-Identifier: Apache-2.0
// Measures how much of an all_reduce is hidden if its caller computes meanwhile, by IMB's formula. It times the call
// alone, the computation alone, and both at once; the hidden part is the time saved, relative to the shorter one. It
// does so with calls that progress only while their caller waits, and with a progress thread. They take turns, under
// mpirun:
//   overlap [BYTES [TURNS]]
// The computation takes as long as the all_reduce, and uses no memory bandwidth. It prints medians, minima and maxima.
//   overlap --training [TURNS]
// also measures training steps of eight dense layers of 1024 units and a batch of 512 examples. There the gradients
// travel while the backward pass runs. The all_reduces have as many bytes, and take turns with the steps.
#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "collectives/communicator/communicator.hpp"
#include "runtime/gradient_reducer.hpp"
#include "runtime/start.hpp"
#include "runtime/train/layers.hpp"
#include "runtime/train/ops.hpp"
#include "runtime/train/optimizer.hpp"
#include "topology/base/text.hpp"
#include "topology/machine/session.hpp"

namespace {

using namespace lockstep;
using Clock = std::chrono::steady_clock;

double ms_since(Clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
}

// Computes eight chains of products that stay near 1.
double products(long long steps) {
  std::array<double, 8> all{1, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.7};
  for (long long i = 0; i < steps; ++i) {
    for (double& each : all) each = each * 0.999999 + 0.000001;
  }
  double sum = 0;
  for (const double each : all) sum += each;
  return sum;
}

struct Times {
  std::vector<double> all;
  double median() {
    const auto middle = all.begin() + static_cast<std::ptrdiff_t>(all.size() / 2);
    std::ranges::nth_element(all, middle);
    return *middle;
  }
  double least() const { return *std::ranges::min_element(all); }
  double most() const { return *std::ranges::max_element(all); }
};

// Is a way to compute and to exchange at once. All members use it alike.
class Way {
 public:
  Way(Communicator& world, std::string name, std::string exchange)
      : world_(world), name_(std::move(name)), exchange_(std::move(exchange)) {}
  Way(const Way&) = delete;
  Way& operator=(const Way&) = delete;
  virtual ~Way() = default;

  void turn() {
    exchanging_.all.push_back(slowest(timed([&] { exchange(); })));
    computing_.all.push_back(slowest(timed([&] { compute(); })));
    both_.all.push_back(slowest(timed([&] { do_both(); })));
  }
  // Returns the hidden part of the shorter one, and that of the exchange.
  double hidden() { return saved() / std::min(exchanging_.median(), hiding() * computing_.median()); }
  double hidden_exchange() { return saved() / exchanging_.median(); }
  void say() {
    std::cout << text(name_, ": ", exchange_, ' ', exchanging_.median(), " ms, the computing ", computing_.median(),
                      " ms, both ", both_.median(), " ms (", both_.least(), " to ", both_.most(), "): hidden ",
                      std::clamp(hidden(), 0.0, 1.0), ", of the exchange ", std::clamp(hidden_exchange(), 0.0, 1.0),
                      '\n');
  }

 protected:
  virtual void exchange() = 0;
  virtual void compute() = 0;
  virtual void do_both() = 0;
  // Returns the share of the computing that can hide something.
  virtual double hiding() const { return 1; }
  template <class F>
  double timed(F&& function) {
    world_.barrier();
    const auto begin = Clock::now();
    function();
    return ms_since(begin);
  }
  double slowest(double mine) {
    world_.all_reduce(std::span(&mine, 1), max);
    return mine;
  }

 private:
  double saved() { return exchanging_.median() + computing_.median() - both_.median(); }

  Communicator& world_;
  std::string name_;
  std::string exchange_;
  Times exchanging_;
  Times computing_;
  Times both_;
};

// Computes beside one call of all_reduce for as long as that takes.
class ReductionWay final : public Way {
 public:
  ReductionWay(Communicator& world, bool progress_thread, std::size_t count)
      : Way(world, progress_thread ? "with a progress thread" : "without one", "the reduction"), data_(count, 1.F) {
    CommunicatorOptions options = world.options();
    options.progress_thread = progress_thread;
    options.name = progress_thread ? "with a progress thread" : "without one";
    own_.emplace(world.duplicate(std::move(options)));
    calibrate();
  }

 private:
  void calibrate() {
    for (int i = 0; i < 3; ++i) exchange();
    Times reductions;
    for (int i = 0; i < 5; ++i) reductions.all.push_back(timed([&] { exchange(); }));
    for (int i = 0; i < 3; ++i) {
      std::array<double, 2> mine{reductions.median(), timed([&] { compute(); })};
      own_->all_reduce(mine, max);  // the same value on all ranks
      steps_ = std::max(1LL, std::llround(static_cast<double>(steps_) * mine[0] / mine[1]));
    }
  }
  void exchange() override { own_->all_reduce_async(data_, max).wait(); }
  void compute() override { kept_ = products(steps_); }
  void do_both() override {
    Request request = own_->all_reduce_async(data_, max);
    compute();
    request.wait();
  }

  std::optional<Communicator> own_;
  std::vector<float> data_;
  long long steps_ = 1'000'000;
  volatile double kept_ = 0;  // keeps the compiler from removing the computation
};

// Trains dense layers. Its exchange alone is that of all gradients, which are ready from the beginning.
class TrainingWay final : public Way {
 public:
  static constexpr int layers = 8;
  static constexpr std::int64_t units = 1024;
  static constexpr std::int64_t examples = 512;
  static constexpr std::size_t gradient_bytes = layers * (units + 1) * units * sizeof(float);

  TrainingWay(Communicator& world, Strategy& strategy)
      : Way(world, "training steps", "the gradients"), strategy_(strategy), batch_(TensorShape{examples, units}, 0.5F) {
    const Scope scope = strategy_.scope();
    for (int i = 0; i < layers; ++i) network_.add(train::Dense(units, {.activation = train::relu}));
    network_.build(TensorShape{units});
    variables_ = network_.trainable_variables();
    std::vector<GradientSpec> specs;
    for (const AnyVariable& each : variables_) {
      specs.push_back({each.path(), each.type(), each.shape().count()});
      gradients_.emplace_back(each.shape().count(), 1.F);
    }
    reducer_.emplace(strategy_, std::move(specs), BucketOptions{.tag = "alone"});
    for (int i = 0; i < 3; ++i) {
      exchange();
      compute();
      do_both();
    }
  }

 private:
  void exchange() override {
    strategy_.run([&](ReplicaContext& replica) {
      GradientReducer::BackwardPass pass(*reducer_, replica);
      for (std::size_t i = gradients_.size(); i-- > 0;) pass.ready(static_cast<int>(i), std::span(gradients_[i]));
      pass.finish();
    });
  }
  void compute() override {
    strategy_.run([&] {
      train::Tape tape;
      const train::TapeTensor loss = loss_of_batch();
      optimizer_.apply(tape.gradient(loss, variables_), {.aggregate = false});
    });
  }
  void do_both() override {
    strategy_.run([&] {
      train::Tape tape;
      const train::TapeTensor loss = loss_of_batch();
      optimizer_.minimize(tape, loss, variables_);
    });
  }
  // The backward pass has two products for each one of the forward pass.
  double hiding() const override { return 2.0 / 3; }
  train::TapeTensor loss_of_batch() { return reduce_mean(square(network_(batch_, true))); }

  Strategy& strategy_;
  Tensor<float> batch_;
  train::Sequential network_;
  train::SGD optimizer_{0.001F};
  std::vector<AnyVariable> variables_;
  std::vector<std::vector<float>> gradients_;
  std::optional<GradientReducer> reducer_;
};

int run(int argc, char** argv) {
  const bool trains = argc > 1 && std::string_view(argv[1]) == "--training";
  const std::size_t bytes = trains     ? TrainingWay::gradient_bytes
                            : argc > 1 ? std::strtoull(argv[1], nullptr, 10)
                                       : std::size_t{16} << 20U;
  const int turns = argc > 2 ? std::atoi(argv[2]) : 9;
  if (bytes < sizeof(float) || turns < 1) {
    std::cerr << "overlap [BYTES | --training [TURNS]]: numbers above 0 are wanted\n";
    return 1;
  }
  Session session = start(argc, argv);
  Communicator& world = session.world();
  std::vector<std::unique_ptr<Way>> ways;
  for (const bool progress_thread : {false, true})
    ways.push_back(std::make_unique<ReductionWay>(world, progress_thread, bytes / sizeof(float)));
  std::optional<MultiWorkerMirroredStrategy> strategy;
  if (trains) ways.push_back(std::make_unique<TrainingWay>(world, strategy.emplace(session)));
  for (int i = 0; i < turns; ++i) {
    for (const auto& way : ways) way->turn();
  }
  if (world.rank() != 0) return 0;
  std::cout << text("all_reduce of ", bytes, " bytes by ", world.size(), " members on ",
                    session.topology().node_count(), " nodes, ", turns, " turns\n");
  for (const auto& way : ways) way->say();
  if (trains)
    std::cout << text("hidden by training, as a share of the reduction with a progress thread: ",
                      ways[2]->hidden() / ways[1]->hidden(), '\n');
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const Error& error) {
    std::cerr << error.what() << '\n';
    return static_cast<int>(exit_of(error.code()));
  }
}
