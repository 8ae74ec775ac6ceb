// SPDX-License-Identifier: Apache-2.0
// Measures the trainer's kernels on one thread, with the shapes of TensorFlow's tutorial: a convolution of 28 x 28
// images in batches of 64 with 32 filters of 3 x 3, and a dense layer from 21632 to 128. Products of matrices take
// turns with oneDNN's sgemm: it prints the median ratio with its interval of 95 %, with --json as one line of JSON.
// Times are the thread's processor time. The exit code is 3 if a product of the dense layer or the convolution has a
// ratio below 0.9. Without oneDNN it measures its own kernels alone.
#include <time.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <iostream>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "bench/onednn.hpp"
#include "bench/statistics.hpp"
#include "runtime/train/compute/convolution.hpp"
#include "runtime/train/compute/element_wise.hpp"
#include "runtime/train/compute/matrix_product.hpp"
#include "runtime/train/compute/max_pooling.hpp"
#include "topology/base/error.hpp"
#include "topology/base/text.hpp"

namespace {

using namespace lockstep;
using namespace lockstep::train::compute;

constexpr double least_ratio = 0.9;
constexpr int turns = 31;
constexpr double least_seconds = 2e-3;  // of a sample, so that reading the clock does not count

using Numbers = std::vector<float>;

Numbers random_numbers(std::size_t count) {
  std::minstd_rand engine(1);
  std::uniform_real_distribution<float> draw(-1, 1);
  Numbers numbers(count);
  for (float& number : numbers) number = draw(engine);
  return numbers;
}

// Returns the processor time of this thread, so that other programs' turns do not count.
double thread_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

double seconds(const std::function<void()>& way, int calls) {
  const double begin = thread_seconds();
  for (int i = 0; i < calls; ++i) way();
  return std::max((thread_seconds() - begin) / calls, 1e-9);
}

int calls_per_sample(const std::function<void()>& way) {
  way();
  return std::max(1, static_cast<int>(least_seconds / seconds(way, 1)));
}

// Is one line of the output: milliseconds, and the ratio if there is a rival.
struct Row {
  std::string name;
  std::string title;
  bench::Summary ours;
  bench::Summary theirs;
  bench::Ratio ratio;
  bool has_rival = false;
  bool is_judged = false;
  double operations = 0;  // of one call; 0: not counted
};

// Measures a way that has no rival.
Row alone(std::string name, std::string title, const std::function<void()>& way) {
  const int calls = calls_per_sample(way);
  std::vector<double> took(static_cast<std::size_t>(turns));
  for (double& each : took) each = 1e3 * seconds(way, calls);
  return {.name = std::move(name), .title = std::move(title), .ours = bench::summarize(took)};
}

// Measures two ways in turns, so that both see the same neighbours. Each goes first in every second turn.
Row in_turns(std::string name, std::string title, const std::function<void()>& ours,
             const std::function<void()>& theirs) {
  const int calls = calls_per_sample(ours);
  calls_per_sample(theirs);
  std::vector<double> our_times;
  std::vector<double> their_times;
  std::vector<bench::PairedBlock> pairs;
  for (int turn = 0; turn < turns; ++turn) {
    bench::PairedBlock pair;
    if (turn % 2 == 0) pair.ours = 1e3 * seconds(ours, calls);
    pair.theirs = 1e3 * seconds(theirs, calls);
    if (turn % 2 != 0) pair.ours = 1e3 * seconds(ours, calls);
    our_times.push_back(pair.ours);
    their_times.push_back(pair.theirs);
    pairs.push_back(pair);
  }
  return {.name = std::move(name),
          .title = std::move(title),
          .ours = bench::summarize(our_times),
          .theirs = bench::summarize(their_times),
          .ratio = bench::ratio_of_blocks(pairs),
          .has_rival = true};
}

// Is a product to measure.
struct ProductCase {
  std::string name;
  std::string title;
  ProductShape shape;
  bool left_is_transposed = false;
  bool right_is_transposed = false;
  bool is_judged = false;
};

const std::vector<ProductCase> products{
    {"dense_forward", "dense layer, forward", {64, 128, 21632}, false, false, true},
    {"dense_weights", "dense layer, gradient of the weights", {21632, 128, 64}, true, false, true},
    {"dense_input", "dense layer, gradient of the input", {64, 21632, 128}, false, true, true},
    {"patches_forward", "convolution as a product, forward", {std::size_t{64} * 26 * 26, 32, 9}, false, false, true},
    {"patches_weights",
     "convolution as a product, gradient of the kernel",
     {9, 32, std::size_t{64} * 26 * 26},
     true,
     false,
     true},
    {"logits", "last layer, forward", {64, 10, 128}, false, false, false},
    {"square", "square", {512, 512, 512}, false, false, false},
};

Row measure(const ProductCase& given) {
  const std::size_t rows = given.shape.rows;
  const std::size_t columns = given.shape.columns;
  const std::size_t depth = given.shape.depth;
  const Numbers left = random_numbers(rows * depth);
  const Numbers right = random_numbers(depth * columns);
  Numbers target(rows * columns);
  Numbers other(rows * columns);
  const ProductOperand<float> from_left{left.data(), given.left_is_transposed ? rows : depth, given.left_is_transposed};
  const ProductOperand<float> from_right{right.data(), given.right_is_transposed ? depth : columns,
                                         given.right_is_transposed};
  const auto ours = [&] { matrix_product(given.shape, from_left, from_right, {target.data(), target.size() / rows}); };
  const auto theirs = [&] {
    bench::onednn_product(given.shape, from_left, from_right, {other.data(), other.size() / rows});
  };
  const std::string title = text(given.title, ", ", rows, " x ", columns, " x ", depth);
  Row row =
      bench::onednn_version().empty() ? alone(given.name, title, ours) : in_turns(given.name, title, ours, theirs);
  row.is_judged = given.is_judged;
  row.operations = 2.0 * static_cast<double>(rows) * static_cast<double>(columns) * static_cast<double>(depth);
  return row;
}

// Measures the parts of the tutorial's step that are no products, and both gradients of the convolution.
std::vector<Row> measure_step() {
  const ConvolutionShape shape{{64, 28, 28, 1}, {3, 3, 1, 1, Padding::valid}, 32};
  const MaxPoolShape pool{shape.output(), {2, 2, 2, 2, Padding::valid}};
  const std::size_t outputs = shape.output().size();
  const Numbers image = random_numbers(shape.image.size());
  const Numbers kernel = random_numbers(shape.kernel_size());
  const Numbers gradient = random_numbers(outputs);
  Numbers bias = random_numbers(shape.filters);
  Numbers output(outputs), image_gradient(image.size()), kernel_gradient(kernel.size()), output_gradient(outputs);
  Numbers pooled(pool.output().size());
  std::vector<std::uint32_t> positions(pooled.size());
  const auto forward = [&] { convolve(shape, image.data(), kernel.data(), output.data(), {bias.data(), true}); };
  const auto to_kernel = [&] {
    convolution_kernel_gradient(shape, image.data(), gradient.data(), kernel_gradient.data());
  };
  const auto to_image = [&] {
    convolution_image_gradient(shape, gradient.data(), kernel.data(), image_gradient.data());
  };
  return {alone("convolution", "Conv2D with bias and relu", forward),
          alone("convolution_kernel", "Conv2D, gradient of the kernel", to_kernel),
          alone("convolution_image", "Conv2D, gradient of the image", to_image),
          alone("relu_gradient", "relu, gradient of 1.4 M numbers",
                [&] { relu_gradient(output.data(), gradient.data(), output_gradient.data(), outputs); }),
          alone("bias_gradient", "gradient of the bias of 32 filters",
                [&] { column_sums(gradient.data(), outputs / shape.filters, shape.filters, bias.data()); }),
          alone("max_pool", "MaxPool 2 x 2", [&] { max_pool(pool, output.data(), pooled.data(), positions.data()); }),
          alone("max_pool_gradient", "MaxPool 2 x 2, gradient",
                [&] { max_pool_gradient(pool, pooled.data(), positions.data(), output_gradient.data()); })};
}

std::string words(const Row& row) {
  std::string line = text(row.title, ": ", with_decimals(row.ours.median, 3), " ms [",
                          with_decimals(row.ours.ci.low, 3), ", ", with_decimals(row.ours.ci.high, 3), "]");
  if (row.operations > 0) line += text(", ", with_decimals(row.operations / row.ours.median / 1e6, 1), " Gflop/s");
  if (!row.has_rival) return line;
  return line + text("; oneDNN ", with_decimals(row.theirs.median, 3), " ms, ratio ", with_decimals(row.ratio.value, 3),
                     " [", with_decimals(row.ratio.ci.low, 3), ", ", with_decimals(row.ratio.ci.high, 3), "]");
}

std::string json(const std::vector<Row>& all) {
  std::string line = text(R"({"vectors": ")", product_target_name(), R"(", "rival": ")", bench::onednn_version(), '"');
  for (const Row& row : all) {
    line += text(R"(, ")", row.name, R"(": {"unit": "ms", "low": )", row.ours.ci.low, R"(, "median": )",
                 row.ours.median, R"(, "high": )", row.ours.ci.high);
    if (row.has_rival)
      line += text(R"(, "rival": )", row.theirs.median, R"(, "ratio": )", row.ratio.value, R"(, "ratio_low": )",
                   row.ratio.ci.low, R"(, "ratio_high": )", row.ratio.ci.high);
    line += '}';
  }
  return line + '}';
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const bool is_for_programs = argc > 1 && std::string_view(argv[1]) == "--json";
    bench::use_one_onednn_thread();
    const std::string rival = bench::onednn_version();
    if (!is_for_programs) {
      std::cout << "# processor time of one thread, vectors " << product_target_name() << ", " << turns << " turns; "
                << (rival.empty() ? "oneDNN is absent: install libdnnl-dev to compare" : "rival " + rival) << std::endl;
    }
    std::vector<Row> all;
    const auto keep = [&](Row row) {
      if (!is_for_programs) std::cout << words(row) << std::endl;
      all.push_back(std::move(row));
    };
    for (const ProductCase& each : products) keep(measure(each));
    for (Row& row : measure_step()) keep(std::move(row));
    if (is_for_programs) std::cout << json(all) << std::endl;
    const auto is_slow = [](const Row& row) { return row.has_rival && row.is_judged && row.ratio.value < least_ratio; };
    return std::ranges::any_of(all, is_slow) ? 3 : 0;
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
}
