// SPDX-License-Identifier: Apache-2.0
// Tapes: which tensors they follow, and what gradients they give.
#include "runtime/train/tape.hpp"

#include <gtest/gtest.h>

#include "runtime/train/ops.hpp"
#include "tests/support/refusal.hpp"

namespace lockstep::train {
namespace {

using lockstep::test::refusal;

Tensor<float> numbers(std::initializer_list<float> all) { return row(all); }

TEST(Tapes, FollowWatchedTensors) {
  const TapeTensor x = numbers({1, 2, 3});
  const TapeTensor stranger = numbers({1, 1, 1});
  Tape tape({.persistent = true});
  tape.watch(x);
  const TapeTensor y = x * x * x + stranger;
  EXPECT_EQ(tape.gradient(y, x).to<float>(), numbers({3, 12, 27}));
  EXPECT_FALSE(tape.gradient(y, stranger).has_value());
  EXPECT_EQ(tape.gradient(y, y).to<float>(), numbers({1, 1, 1}));
}

TEST(Tapes, FollowTrainableVariables) {
  Variable v(numbers({2, 5}));
  Variable fixed(numbers({1, 1}), {.trainable = false});
  Tape tape({.persistent = true});
  const TapeTensor x = v;
  const TapeTensor y = x * v + x * fixed;
  EXPECT_EQ(tape.gradient(y, v).to<float>(), numbers({5, 11}));
  EXPECT_FALSE(tape.gradient(y, fixed).has_value());
  tape.watch(fixed);
  EXPECT_EQ(tape.gradient(square(TapeTensor(fixed)), fixed).to<float>(), numbers({2, 2}));
}

TEST(Tapes, LeaveVariablesOutIfAskedTo) {
  Variable v(numbers({2, 5}));
  Variable w(numbers({3, 4}));
  Tape tape({.persistent = true, .watch_variables = false});
  tape.watch(w);
  const TapeTensor y = TapeTensor(v) * w;
  EXPECT_FALSE(tape.gradient(y, v).has_value());
  EXPECT_EQ(tape.gradient(y, w).to<float>(), numbers({2, 5}));
}

TEST(Tapes, SumGradientsOverRepeatedElements) {
  const TapeTensor matrix = Tensor<float>({2, 2}, {1, 2, 3, 4});
  const TapeTensor one_row = numbers({10, 20});
  const TapeTensor scalar = 2.F;
  Tape tape({.persistent = true});
  for (const TapeTensor& each : {matrix, one_row, scalar}) tape.watch(each);
  const TapeTensor y = matrix * one_row / scalar;
  EXPECT_EQ(tape.gradient(y, matrix).to<float>(), Tensor<float>({2, 2}, {5, 10, 5, 10}));
  EXPECT_EQ(tape.gradient(y, one_row).to<float>(), numbers({2, 3}));
  EXPECT_EQ(tape.gradient(y, scalar).to<float>().item(), -40);  // -(10 + 40 + 30 + 80) / 2^2
}

TEST(Tapes, GiveGradientsOnce) {
  const TapeTensor x = 2.F;
  Tape tape;
  tape.watch(x);
  const TapeTensor y = x * x;
  EXPECT_EQ(tape.gradient(y, x).to<float>().item(), 4);
  EXPECT_NE(
      refusal([&] { tape.gradient(y, x); }, Code::usage).find("a second gradient() of a tape that is not persistent"),
      std::string::npos);
}

TEST(Tapes, PauseAndStop) {
  const TapeTensor x = 2.F;
  Tape tape({.persistent = true});
  tape.watch(x);
  const TapeTensor y = x * stop_gradient(x);
  EXPECT_EQ(tape.gradient(y, x).to<float>().item(), 2);
  TapeTensor unseen;
  {
    const Tape::Pause pause;
    unseen = x * x;
  }
  EXPECT_FALSE(tape.gradient(unseen, x).has_value());
}

TEST(Tapes, Nest) {
  const TapeTensor x = 3.F;
  Tape outer;
  outer.watch(x);
  {
    Tape inner;
    inner.watch(x);
    EXPECT_EQ(inner.gradient(square(x), x).to<float>().item(), 6);
  }
  EXPECT_EQ(outer.gradient(x * x * x, x).to<float>().item(), 27);
}

struct Received final : GradientReceiver {
  explicit Received(std::vector<Tensor<float>>& memory) : memory_(memory) {}
  void begin(const std::vector<bool>& has_gradient) override { present = has_gradient; }
  AnyTensor memory(std::size_t which) override { return AnyTensor::view_of(memory_[which]); }
  void take(std::size_t which, Gradient gradient) override {
    EXPECT_EQ(gradient.dense().view().data, memory_[which].data());
    order.push_back(which);
  }
  std::vector<bool> present;
  std::vector<std::size_t> order;

 private:
  std::vector<Tensor<float>>& memory_;
};

TEST(Tapes, HandGradientsOnFromTheLastOne) {
  Variable first(2.F);
  Variable unused(2.F);
  Variable last(3.F);
  Variable both(4.F);
  Tape tape;
  const TapeTensor y = (TapeTensor(first) + both) * last + both;
  std::vector<Tensor<float>> memory(4);
  Received received(memory);
  tape.gradient(y, {first, unused, last, both}, received);
  EXPECT_EQ(received.present, (std::vector<bool>{true, false, true, true}));
  EXPECT_EQ(received.order, (std::vector<std::size_t>{2, 0, 3}));
  EXPECT_EQ(memory[0].item(), 3);
  EXPECT_EQ(memory[2].item(), 6);
  EXPECT_EQ(memory[3].item(), 4);
}

TEST(Tapes, TensorsReturnTheirMemoryToThePool) {
  const std::size_t before = pooled_bytes();
  void* first = nullptr;
  {
    const AnyTensor tensor = uninitialized_tensor(DataType::f32, {1000});
    first = tensor.view().data;
  }
  EXPECT_GE(pooled_bytes(), before);
  EXPECT_EQ(uninitialized_tensor(DataType::f32, {1000}).view().data, first);
}

}  // namespace
}  // namespace lockstep::train
