// SPDX-License-Identifier: Apache-2.0
// Measures how much of an all_reduce is hidden if its caller computes meanwhile, by IMB's formula. It times the call
// alone, the computation alone, and both at once; the hidden part is the time saved, relative to the shorter one. It
// does so with calls that progress only while their caller waits, and with a progress thread. They take turns, under
// mpirun:
//   overlap [BYTES [TURNS]]
// The computation takes as long as the all_reduce, and uses no memory bandwidth. It prints medians, minima and maxima.
#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <iostream>
#include <optional>
#include <vector>

#include "collectives/communicator/communicator.hpp"
#include "runtime/start.hpp"
#include "topology/base/text.hpp"
#include "topology/machine/session.hpp"

namespace {

using namespace lockstep;
using Clock = std::chrono::steady_clock;

double ms_since(Clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
}

// Computes eight chains of products that stay near 1.
double compute(long long steps) {
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

class OverlapMeasurement {
 public:
  OverlapMeasurement(Communicator& world, bool progress_thread, std::size_t count)
      : name_(progress_thread ? "with a progress thread" : "without one"), data_(count, 1.F), steps_(1'000'000) {
    CommunicatorOptions options = world.options();
    options.progress_thread = progress_thread;
    options.name = name_;
    own_.emplace(world.duplicate(std::move(options)));
  }

  void calibrate() {
    for (int i = 0; i < 3; ++i) alone();
    Times reductions;
    for (int i = 0; i < 5; ++i) reductions.all.push_back(alone());
    for (int i = 0; i < 3; ++i) {
      std::array<double, 2> mine{reductions.median(), computed()};
      own_->all_reduce(mine, max);  // the same value on all ranks
      steps_ = std::max(1LL, std::llround(static_cast<double>(steps_) * mine[0] / mine[1]));
    }
  }
  void turn() {
    reduction_.all.push_back(slowest(alone()));
    computing_.all.push_back(slowest(computed()));
    both_.all.push_back(slowest(together()));
  }
  void say() {
    const double reduction = reduction_.median();
    const double computing = computing_.median();
    const double both = both_.median();
    const double hidden = (reduction + computing - both) / std::min(reduction, computing);
    std::cout << text(name_, ": the reduction ", reduction, " ms, the computing ", computing, " ms, both ", both,
                      " ms (", both_.least(), " to ", both_.most(), "): hidden ", std::clamp(hidden, 0.0, 1.0), '\n');
  }

 private:
  double alone() {
    own_->barrier();
    const auto begin = Clock::now();
    own_->all_reduce_async(data_, max).wait();
    return ms_since(begin);
  }
  double computed() {
    own_->barrier();
    const auto begin = Clock::now();
    kept_ = compute(steps_);
    return ms_since(begin);
  }
  double together() {
    own_->barrier();
    const auto begin = Clock::now();
    Request request = own_->all_reduce_async(data_, max);
    kept_ = compute(steps_);
    request.wait();
    return ms_since(begin);
  }
  double slowest(double mine) {
    own_->all_reduce(std::span(&mine, 1), max);
    return mine;
  }

  std::string name_;
  std::optional<Communicator> own_;
  std::vector<float> data_;
  long long steps_;
  volatile double kept_ = 0;  // keeps the compiler from removing the computation
  Times reduction_;
  Times computing_;
  Times both_;
};

int run(int argc, char** argv) {
  const std::size_t bytes = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : std::size_t{16} << 20U;
  const int turns = argc > 2 ? std::atoi(argv[2]) : 9;
  if (bytes < sizeof(float) || turns < 1) {
    std::cerr << "overlap [BYTES [TURNS]]: numbers above 0 are wanted\n";
    return 1;
  }
  Session session = start(argc, argv);
  Communicator& world = session.world();
  std::array<OverlapMeasurement, 2> ways{OverlapMeasurement(world, false, bytes / sizeof(float)),
                                         OverlapMeasurement(world, true, bytes / sizeof(float))};
  for (OverlapMeasurement& way : ways) way.calibrate();
  for (int i = 0; i < turns; ++i) {
    for (OverlapMeasurement& way : ways) way.turn();
  }
  if (world.rank() != 0) return 0;
  std::cout << text("all_reduce of ", bytes, " bytes by ", world.size(), " members on ",
                    session.topology().node_count(), " nodes, ", turns, " turns\n");
  for (OverlapMeasurement& way : ways) way.say();
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
