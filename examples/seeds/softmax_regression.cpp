// SPDX-License-Identifier: Apache-2.0
// Runs the softmax regression of the question on clusters in one process: zeros at the start, one-hot labels, 1,000
// steps of 100 examples with the rate 0.5. It prints the share of right answers.
#include <lockstep.hpp>
#include <lockstep/data.hpp>
#include <lockstep/train.hpp>

#include <algorithm>
#include <cstdio>

namespace {

using namespace lockstep;
using namespace lockstep::train;

// Returns pictures as rows of 784 numbers from 0 to 1.
Tensor<float> as_rows(const Tensor<std::uint8_t>& images) {
  Tensor<float> x(TensorShape{images.shape()[0], 784});
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(images[i]) / 255;
  return x;
}

Tensor<float> one_hot(const Tensor<std::uint8_t>& labels) {
  Tensor<float> y(TensorShape{labels.shape()[0], 10});
  for (std::size_t i = 0; i < labels.size(); ++i) y[10 * i + labels[i]] = 1;
  return y;
}

// Returns the share of rows in which the largest number is where the label has its 1.
double accuracy(const Tensor<float>& labels, const Tensor<float>& y) {
  const auto rows = static_cast<std::size_t>(y.shape()[0]);
  std::size_t right = 0;
  for (std::size_t i = 0; i < rows; ++i) {
    const float* const row_of_y = y.data() + 10 * i;
    const auto guess = static_cast<std::size_t>(std::max_element(row_of_y, row_of_y + 10) - row_of_y);
    right += labels[10 * i + guess] == 1 ? 1U : 0U;
  }
  return static_cast<double>(right) / static_cast<double>(rows);
}

int run() {
  const data::Digits train_digits = data::synthetic_digits(6000, 1);
  const data::Digits test_digits = data::synthetic_digits(1000, 2);
  const auto examples =
      data::from_tensor_slices(std::tuple(as_rows(train_digits.images), one_hot(train_digits.labels)));

  Variable w(Tensor<float>({784, 10}), {.name = "W"});
  Variable b(Tensor<float>(TensorShape{10}), {.name = "b"});
  const auto predict = [&](const TapeTensor& x) { return softmax(matmul(x, w) + b); };
  SGD train_step({.learning_rate = 0.5F});

  auto batches = examples.shuffle(6000, {.seed = 1}).repeat().batch(100).open();
  for (int step = 0; step < 1000; ++step) {
    const auto [batch_xs, batch_ys] = *batches.next();
    Tape tape;
    const TapeTensor y = predict(batch_xs);
    const TapeTensor cross_entropy = reduce_mean(-reduce_sum(batch_ys * log(y), {.axes = {1}}));
    train_step.minimize(tape, cross_entropy, {w, b});
  }
  const Tensor<float> y = predict(as_rows(test_digits.images)).to<float>();
  std::printf("accuracy %.4f\n", accuracy(one_hot(test_digits.labels), y));
  return 0;
}

}  // namespace

int main() {
  try {
    return run();
  } catch (const lockstep::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return static_cast<int>(lockstep::exit_of(error.code()));
  }
}
