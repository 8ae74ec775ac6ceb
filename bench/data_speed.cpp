// SPDX-License-Identifier: Apache-2.0
// Measures the rates of data sets in one thread: numbers in batches, numbers through a map, and rows of 3136 bytes that
// are shuffled and batched. In turns with these it copies the same rows in order with memcpy, batch by batch into one
// buffer. The rows are 188 MB, so they come from memory. It also measures a step of a data set that is distributed to
// two replicas, less a memcpy of the step's rows. It prints medians and quartiles, with --json as one line of JSON. The
// exit code is 3 if shuffled rows come at less than 0.6 of the rate of memcpy.
#include <algorithm>
#include <chrono>
#include <cstring>
#include <functional>
#include <iostream>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/data/dataset.hpp"
#include "runtime/distributed_dataset.hpp"
#include "runtime/start.hpp"
#include "runtime/strategy.hpp"
#include "topology/base/text.hpp"

namespace {

using namespace lockstep;
using Clock = std::chrono::steady_clock;

constexpr double least_of_memcpy = 0.6;
constexpr int turns = 11;
constexpr std::int64_t batch_size = 64;
constexpr std::int64_t numbers = 2'000'000;
constexpr std::int64_t rows = 60'000;
constexpr std::int64_t row_elements = 784;
constexpr std::int64_t small_row_elements = 16;

// Holds the median and the quartiles of a figure.
struct Quartiles {
  double low = 0, median = 0, high = 0;
};
Quartiles spread_of(std::vector<double> figures) {
  std::ranges::sort(figures);
  const auto at = [&](std::size_t quarter) { return figures[(figures.size() - 1) * quarter / 4]; };
  return {at(1), at(2), at(3)};
}

// Is one line of the output.
struct Row {
  std::string name;
  std::string title;
  std::string unit;
  Quartiles figure;
};

std::int64_t rows_in(const auto& batch) { return batch.shape()[0]; }
template <class T>
std::int64_t rows_in(const PerReplica<T>& batch) {
  std::int64_t all = 0;
  for (const T& piece : batch.local()) all += rows_in(piece);
  return all;
}

// Reads a whole data set. Throws Error if it has another number of rows.
void read_all(const auto& batches, std::int64_t expected) {
  std::int64_t found = 0;
  for (const auto& batch : batches) found += rows_in(batch);
  if (found != expected) throw Error(Code::internal, text(batches.describe(), " gave ", found, " rows"));
}

// Copies rows in order with memcpy, batch by batch into one buffer.
void copy_all(const Tensor<float>& from, std::vector<float>& buffer) {
  const auto at_once = static_cast<std::size_t>(batch_size) * from.shape().inside(0);
  for (std::size_t begin = 0; begin < from.size(); begin += at_once) {
    std::memcpy(buffer.data(), from.data() + begin, std::min(at_once, from.size() - begin) * sizeof(float));
    asm volatile("" : : "r"(buffer.data()) : "memory");  // Keeps the compiler from leaving the copy out.
  }
}

double seconds(const std::function<void()>& way) {
  const auto begin = Clock::now();
  way();
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// Runs the ways in turns, so that all see the same neighbours. Returns the seconds of each.
std::vector<std::vector<double>> in_turns(const std::vector<std::function<void()>>& ways) {
  std::vector<std::vector<double>> took(ways.size());
  for (const auto& way : ways) way();
  for (int i = 0; i < turns; ++i) {
    for (std::size_t way = 0; way < ways.size(); ++way) took[way].push_back(seconds(ways[way]));
  }
  return took;
}

Quartiles rate(double amount, std::vector<double> took) {
  for (double& each : took) each = amount / each;
  return spread_of(std::move(took));
}
// Combines the times of two ways, turn by turn.
template <class F>
Quartiles combined(std::vector<double> a, const std::vector<double>& b, F&& combine) {
  for (std::size_t i = 0; i < a.size(); ++i) a[i] = combine(a[i], b[i]);
  return spread_of(std::move(a));
}

std::vector<Row> measure() {
  const Tensor<float> images({rows, row_elements}, 1.0F);
  const Tensor<float> small({rows, small_row_elements}, 1.0F);
  std::vector<float> buffer(static_cast<std::size_t>(batch_size * row_elements));
  const auto slices = data::from_tensor_slices(images.rows(0, rows));
  const auto counted = data::range(numbers).batch(batch_size);
  const auto doubled = data::range(numbers).map([](std::int64_t x) { return x * 2; }).batch(batch_size);
  const auto shuffled = slices.shuffle(6000, {.seed = 1}).batch(batch_size);
  const auto permuted = slices.shuffle(rows, {.seed = 1}).batch(batch_size);
  MirroredStrategy strategy(2);
  const auto distributed = strategy.distribute(data::from_tensor_slices(small.rows(0, rows)).batch(batch_size));
  const std::vector<std::vector<double>> took = in_turns({
      [&] { read_all(counted, numbers); },
      [&] { read_all(doubled, numbers); },
      [&] { copy_all(images, buffer); },
      [&] { read_all(shuffled, rows); },
      [&] { copy_all(images, buffer); },
      [&] { read_all(permuted, rows); },
      [&] { copy_all(small, buffer); },
      [&] { read_all(distributed, rows); },
  });
  constexpr auto bytes = static_cast<double>(rows * row_elements * std::int64_t{sizeof(float)});
  const auto steps = static_cast<double>(distributed.length());
  const auto of_memcpy = [](double copy, double shuffle) { return copy / shuffle; };
  return {{"range", counted.describe(), "elements/s", rate(numbers, took[0])},
          {"map", doubled.describe(), "elements/s", rate(numbers, took[1])},
          {"memcpy", "memcpy of the same rows in order", "B/s", rate(bytes, took[2])},
          {"shuffle", shuffled.describe(), "B/s", rate(bytes, took[3])},
          {"shuffle_of_memcpy", "its rate divided by that of memcpy", "", combined(took[2], took[3], of_memcpy)},
          {"shuffle_all", permuted.describe(), "B/s", rate(bytes, took[5])},
          {"shuffle_all_of_memcpy", "its rate divided by that of memcpy", "", combined(took[4], took[5], of_memcpy)},
          {"distributed", "a step of 64 rows for 2 replicas, less their copy", "us",
           combined(took[6], took[7], [&](double copy, double all) { return 1e6 * (all - copy) / steps; })}};
}

std::string words(const Row& row) {
  const bool is_rate = row.unit.ends_with("/s");
  const auto figure = [&](double value) { return with_decimals(is_rate ? value / 1e6 : value, is_rate ? 1 : 3); };
  const std::string unit = row.unit.empty() ? "" : text(is_rate ? " M" : " ", row.unit);
  return text(row.title, ": ", figure(row.figure.median), unit, " [", figure(row.figure.low), ", ",
              figure(row.figure.high), "]");
}

std::string json(const std::vector<Row>& all) {
  std::string line = "{";
  for (const Row& row : all) {
    line += text(line.size() > 1 ? ", " : "", '"', row.name, R"(": {"unit": ")", row.unit, R"(", "low": )",
                 row.figure.low, R"(, "median": )", row.figure.median, R"(, "high": )", row.figure.high, '}');
  }
  return line + '}';
}

}  // namespace

int main(int argc, char** argv) {
  try {
    Session session = start(argc, argv);
    const bool is_for_programs = argc > 1 && std::string_view(argv[1]) == "--json";
    const std::vector<Row> all = measure();
    if (is_for_programs) {
      std::cout << json(all) << std::endl;
    } else {
      std::cout << "# one thread; medians and quarters of " << turns << " turns" << std::endl;
      for (const Row& row : all) std::cout << words(row) << std::endl;
    }
    const auto shuffle = std::ranges::find(all, "shuffle_of_memcpy", &Row::name);
    return shuffle->figure.median < least_of_memcpy ? 3 : 0;
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
}
