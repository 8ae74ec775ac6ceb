// SPDX-License-Identifier: Apache-2.0
// Measures the cost of a strategy above its parts. It runs an empty function. It sums ResNet-50's 161 gradients through
// the replica's context, in turns with three others: a bare batch of the communicator, buckets, and a strategy with
// fast order. It steps 1000 variables of 1 KiB, and measures the memory of variables. With --variables it runs only
// their step. Replicas are ranks under mpirun, otherwise two threads. It prints medians, quartiles and the ratio. The
// exit code is 3 if the sum through the strategy takes more than 1.1 times as long.
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <iostream>
#include <memory>
#include <vector>

#include "bench/gradients.hpp"
#include "bench/number_text.hpp"
#include "runtime/gradient_reducer.hpp"
#include "runtime/start.hpp"
#include "runtime/strategy.hpp"
#include "runtime/variable.hpp"
#include "topology/base/text.hpp"
#include "topology/machine/session.hpp"

namespace {

using namespace lockstep;
using Clock = std::chrono::steady_clock;

constexpr double most_more = 1.1;
constexpr double most_for_order = 1.3;  // the reproducible order may take this much longer and still be the default

std::vector<Tensor<float>> resnet50() {
  std::vector<Tensor<float>> all;
  for (const std::size_t count : bench::counts_of_model("resnet50"))
    all.emplace_back(TensorShape({static_cast<std::int64_t>(count)}), 1e-3F);
  return all;
}

// Holds the median and the quartiles of times in microseconds.
struct Quartiles {
  double low = 0, median = 0, high = 0;
};
Quartiles spread_of(std::vector<double> times) {
  std::ranges::sort(times);
  const auto at = [&](std::size_t quarter) { return times[(times.size() - 1) * quarter / 4]; };
  return {at(1), at(2), at(3)};
}

std::string words(const Quartiles& spread) {
  return text(with_decimals(spread.median, 2), " us [", with_decimals(spread.low, 2), ", ",
              with_decimals(spread.high, 2), "]");
}

double microseconds(const std::function<void()>& what) {
  const auto begin = Clock::now();
  what();
  return std::chrono::duration<double, std::micro>(Clock::now() - begin).count();
}

// Runs the ways in turns, so that all see the same neighbours.
std::vector<Quartiles> in_turns(int times, const std::vector<std::function<void()>>& ways) {
  std::vector<std::vector<double>> taken(ways.size());
  for (const auto& way : ways) way();
  for (int i = 0; i < times; ++i) {
    for (std::size_t way = 0; way < ways.size(); ++way) taken[way].push_back(microseconds(ways[way]));
  }
  std::vector<Quartiles> all;
  all.reserve(taken.size());
  for (auto& each : taken) all.push_back(spread_of(std::move(each)));
  return all;
}

class StrategyBench {
 public:
  StrategyBench(Strategy& strategy, Strategy& fast, bool speaks) : strategy_(strategy), fast_(fast), speaks_(speaks) {}

  // Runs only the part that is compared with TensorFlow's (tools/peers variables).
  int only_variables() {
    variables(200);
    return 0;
  }

  int all() {
    say(text("# ", strategy_.describe(), "; medians and quarters"));
    const auto empty = in_turns(2000, {[&] { strategy_.run([] {}); }});
    say(text("run of an empty function: ", words(empty[0])));
    variables(5);
    memory();
    return gradients();
  }

 private:
  void say(const std::string& line) const {
    if (speaks_) std::cout << line << std::endl;
  }

  void variables(int times) {
    const Scope scope = strategy_.scope();
    constexpr int number = 1000;
    std::vector<Variable<float>> all;
    all.reserve(number);
    for (int i = 0; i < number; ++i)
      all.emplace_back(Tensor<float>(TensorShape{256}), VariableOptions{.aggregation = Aggregation::sum});
    const Tensor<float> gradient(TensorShape{256}, 1.0F);
    const auto step = in_turns(times, {[&] {
                                         strategy_.run([&] {
                                           for (Variable<float>& each : all) each.assign_sub(gradient);
                                         });
                                       },
                                       [&] { together(all, gradient); }});
    say(text("1000 variables of 1 KiB, each assigned by itself: ", words(step[0])));
    say(text("1000 variables of 1 KiB, gradients summed at once: ", words(step[1])));
  }

  void together(std::vector<Variable<float>>& all, const Tensor<float>& gradient) {
    strategy_.run([&](ReplicaContext& replica) {
      std::vector<Tensor<float>> gradients(all.size(), gradient);
      replica.all_reduce(gradients, sum);
      for (std::size_t i = 0; i < all.size(); ++i) {
        const auto part = all[i].local();
        for (std::size_t j = 0; j < part.size(); ++j) part[j] -= gradients[i][j];
      }
    });
  }

  // Measures the memory of variables of 100 MB beyond their own size. It is the process's high-water mark after all of
  // them were created, summed into and read; the process has one replica, or several.
  void memory() {
    constexpr std::int64_t elements = 1 << 20;
    constexpr int number = 25;
    const Tensor<float> gradient(TensorShape{elements}, 1.0F);
    strategy_.run([] {});
    const double before = most_memory();
    const Scope scope = strategy_.scope();
    std::vector<Variable<float>> all;
    all.reserve(number);
    for (int i = 0; i < number; ++i)
      all.emplace_back(Tensor<float>(TensorShape{elements}), VariableOptions{.aggregation = Aggregation::sum});
    for (int step = 0; step < 2; ++step) {
      strategy_.run([&] {
        for (Variable<float>& each : all) each.assign_sub(gradient);
      });
    }
    const double needed = static_cast<double>(strategy_.num_local_replicas()) * number * elements * sizeof(float);
    say(text("25 variables of 4 MiB, changed by sums: ", with_decimals((most_memory() - before - needed) / needed, 3),
             " copies of them beyond the one that each replica needs"));
  }

  // Returns the process's high-water mark.
  static double most_memory() {
    rusage used{};
    getrusage(RUSAGE_SELF, &used);
    return 1024.0 * static_cast<double>(used.ru_maxrss);
  }

  int gradients() {
    std::vector<std::vector<Tensor<float>>> lists(static_cast<std::size_t>(strategy_.num_local_replicas()), resnet50());
    const auto mine = [&](ReplicaContext & replica) -> auto& {
      return lists[static_cast<std::size_t>(replica.local_id())];
    };
    const auto through_of = [&](Strategy& strategy) {
      return [&] { strategy.run([&](ReplicaContext& replica) { replica.all_reduce(mine(replica), avg); }); };
    };
    const auto bare = [&] {
      strategy_.run([&](ReplicaContext& replica) {
        Batch batch(replica.communicator());
        for (Tensor<float>& each : mine(replica)) batch.all_reduce(each, avg);
        batch.run();
      });
    };
    std::vector<GradientSpec> specs;
    for (const Tensor<float>& each : lists.front()) specs.push_back({"", DataType::f32, each.size()});
    GradientReducer reducer(strategy_, std::move(specs), {.op = avg});
    const auto in_buckets = [&] {
      strategy_.run([&](ReplicaContext& replica) {
        GradientReducer::BackwardPass step(reducer, replica);
        auto& list = mine(replica);
        for (std::size_t i = list.size(); i-- > 0;) step.ready(static_cast<int>(i), list[i]);
        step.finish();
      });
    };
    const auto times = in_turns(15, {through_of(strategy_), bare, in_buckets, through_of(fast_)});
    const double ratio = times[0].median / times[1].median;
    say(text("ResNet-50's gradients through the strategy: ", words(times[0])));
    say(text("the same as one bare batch:                 ", words(times[1]), ", ratio ", with_decimals(ratio, 3),
             ", at most ", most_more));
    say(text("the same in buckets, as they become ready:   ", words(times[2]), ", ratio ",
             with_decimals(times[2].median / times[1].median, 3)));
    say(text("the same through a strategy of Order::fast:  ", words(times[3]), "; the reproducible order takes ",
             with_decimals(times[0].median / times[3].median, 3), " times as long, at most ", most_for_order));
    return ratio > most_more ? 3 : 0;
  }

  Strategy& strategy_;
  Strategy& fast_;
  bool speaks_;
};

std::unique_ptr<Strategy> make(Session& session, Order order) {
  const StrategyOptions options{.order = order};
  if (session.size() > 1) return std::make_unique<MultiWorkerMirroredStrategy>(session, options);
  return std::make_unique<MirroredStrategy>(2, options);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    Session session = start(argc, argv);
    const auto strategy = make(session, Order::reproducible);
    const auto fast = make(session, Order::fast);
    StrategyBench bench(*strategy, *fast, session.rank() == 0);
    const bool is_short = argc > 1 && std::string_view(argv[1]) == "--variables";
    return is_short ? bench.only_variables() : bench.all();
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
}
