// SPDX-License-Identifier: Apache-2.0
// Has the ops that work element by element. A function of one tensor is a struct with its value and its slope; one of
// two tensors has two slopes.
#include <algorithm>
#include <cmath>

#include "runtime/data/random.hpp"
#include "runtime/train/broadcast.hpp"
#include "runtime/train/compute/element_wise.hpp"
#include "runtime/train/op.hpp"
#include "runtime/train/ops.hpp"
#include "runtime/train/sums.hpp"
#include "topology/base/text.hpp"

namespace lockstep::train {
namespace {

TensorShape same_shape(const OpAttributes& /*none*/, std::span<const AnyTensor> inputs) { return inputs[0].shape(); }

// Loops run over pointers: spans check their indices, which keeps the compiler from using vectors.
// Makes an op of a struct with value(x), and slope(x, y) for the value y.
template <class F>
void unary_forward(OpCall& call) {
  with_float_type(F::name, call.output.type(), [&]<class T>(T /*type*/) {
    const T* const x = call.inputs[0].span<T>().data();
    T* const y = call.output.span<T>().data();
    for (std::size_t i = 0; i < call.output.size(); ++i) y[i] = F::value(x[i]);
  });
}
template <class F>
void unary_backward(BackwardCall& call) {
  with_float_type(F::name, call.output().type(), [&]<class T>(T /*type*/) {
    const T* const x = call.input(0).span<T>().data();
    const T* const y = call.output().span<T>().data();
    const T* const dy = call.gradient().span<T>().data();
    T* const dx = call.into(0).span<T>().data();
    for (std::size_t i = 0; i < call.output().size(); ++i) dx[i] = dy[i] * F::slope(x[i], y[i]);
  });
}
template <class F>
constexpr Op unary_op = {F::name, same_shape, unary_forward<F>, unary_backward<F>};

// Makes an op of a struct with value(a, b), and the slopes by a and by b.
template <class F>
TensorShape binary_shape(const OpAttributes& /*none*/, std::span<const AnyTensor> inputs) {
  if (inputs[0].type() != inputs[1].type())
    refuse_inputs(F::name, text("tensors of ", to_string(inputs[0].type()), " and ", to_string(inputs[1].type())),
                  "convert one of them: cast<float>(tensor)");
  return combined_shape(inputs[0].shape(), inputs[1].shape(), F::symbol);
}
template <class F>
void binary_forward(OpCall& call) {
  with_float_type(F::name, call.output.type(), [&]<class T>(T /*type*/) {
    const T* const a = call.inputs[0].span<T>().data();
    const T* const b = call.inputs[1].span<T>().data();
    T* const y = call.output.span<T>().data();
    for_each_pair(call.inputs[0].shape(), call.inputs[1].shape(),
                  [=](std::size_t to, std::size_t at_a, std::size_t at_b) { y[to] = F::value(a[at_a], b[at_b]); });
  });
}
// Writes the sums of dy * slope over the elements along which an input is repeated.
template <class F, std::size_t which, class T>
void sum_slopes(BackwardCall& call) {
  const T* const a = call.input(0).span<T>().data();
  const T* const b = call.input(1).span<T>().data();
  const T* const dy = call.gradient().span<T>().data();
  const TensorShape& shape = call.output().shape();
  const TensorShape& mine = call.input(which).shape();
  const bool other_is_whole = call.input(1 - which).shape() == shape;
  const std::span<T> result = call.into(which).span<T>();
  const auto at = [=](std::size_t to, std::size_t at_a, std::size_t at_b) {
    return dy[to] * (which == 0 ? F::slope_a(a[at_a], b[at_b]) : F::slope_b(a[at_a], b[at_b]));
  };
  const auto at_my = [=](std::size_t i, std::size_t j) { return which == 0 ? at(i, j, i) : at(i, i, j); };
  if (mine == shape) {
    for_each_pair(call.input(0).shape(), call.input(1).shape(),
                  [=, to_mine = result.data()](std::size_t to, std::size_t at_a, std::size_t at_b) {
                    to_mine[to] = at(to, at_a, at_b);
                  });
  } else if (other_is_whole && mine.count() == 1) {
    result[0] = sum_of<T>(shape.count(), [=](std::size_t i) { return at_my(i, 0); });
  } else if (other_is_whole && is_repeated_row(mine, shape)) {
    sum_columns<T>(shape.count() / std::max<std::size_t>(1, result.size()), result, at_my);
  } else {
    std::ranges::fill(result, T{});
    for_each_pair(call.input(0).shape(), call.input(1).shape(),
                  [=, to_mine = result.data()](std::size_t to, std::size_t at_a, std::size_t at_b) {
                    to_mine[which == 0 ? at_a : at_b] += at(to, at_a, at_b);
                  });
  }
}
template <class F, std::size_t which>
void give_slopes(BackwardCall& call) {
  if (!call.wants(which)) return;
  if (F::passes(which) && call.input(which).shape() == call.output().shape()) return call.give(which, call.gradient());
  with_float_type(F::name, call.output().type(), [&]<class T>(T /*type*/) { sum_slopes<F, which, T>(call); });
}
template <class F>
void binary_backward(BackwardCall& call) {
  give_slopes<F, 0>(call);
  give_slopes<F, 1>(call);
}
template <class F>
constexpr Op binary_op = {F::name, binary_shape<F>, binary_forward<F>, binary_backward<F>};

struct Add {
  static constexpr auto name = "add";
  static constexpr auto symbol = "+";
  static constexpr bool passes(std::size_t /*which*/) { return true; }  // True if the slope is 1 everywhere.
  static auto value(auto a, auto b) { return a + b; }
  static auto slope_a(auto a, auto /*b*/) { return decltype(a){1}; }
  static auto slope_b(auto a, auto /*b*/) { return decltype(a){1}; }
};
struct Subtract {
  static constexpr auto name = "subtract";
  static constexpr auto symbol = "-";
  static constexpr bool passes(std::size_t which) { return which == 0; }
  static auto value(auto a, auto b) { return a - b; }
  static auto slope_a(auto a, auto /*b*/) { return decltype(a){1}; }
  static auto slope_b(auto a, auto /*b*/) { return decltype(a){-1}; }
};
struct Multiply {
  static constexpr auto name = "multiply";
  static constexpr auto symbol = "*";
  static constexpr bool passes(std::size_t /*which*/) { return false; }
  static auto value(auto a, auto b) { return a * b; }
  static auto slope_a(auto /*a*/, auto b) { return b; }
  static auto slope_b(auto a, auto /*b*/) { return a; }
};
struct Divide {
  static constexpr auto name = "divide";
  static constexpr auto symbol = "/";
  static constexpr bool passes(std::size_t /*which*/) { return false; }
  static auto value(auto a, auto b) { return a / b; }
  static auto slope_a(auto /*a*/, auto b) { return 1 / b; }
  static auto slope_b(auto a, auto b) { return -a / b / b; }
};
struct Negate {
  static constexpr auto name = "negate";
  static auto value(auto x) { return -x; }
  static auto slope(auto x, auto /*y*/) { return decltype(x){-1}; }
};
struct Square {
  static constexpr auto name = "square";
  static auto value(auto x) { return x * x; }
  static auto slope(auto x, auto /*y*/) { return 2 * x; }
};
struct Exp {
  static constexpr auto name = "exp";
  static auto value(auto x) { return std::exp(x); }
  static auto slope(auto /*x*/, auto y) { return y; }
};
struct Log {
  static constexpr auto name = "log";
  static auto value(auto x) { return std::log(x); }
  static auto slope(auto x, auto /*y*/) { return 1 / x; }
};
struct Sqrt {
  static constexpr auto name = "sqrt";
  static auto value(auto x) { return std::sqrt(x); }
  static auto slope(auto x, auto y) { return decltype(x){0.5F} / y; }
};
struct Tanh {
  static constexpr auto name = "tanh";
  static auto value(auto x) { return std::tanh(x); }
  static auto slope(auto /*x*/, auto y) { return 1 - y * y; }
};
// Never takes the exponential of a positive number, so it does not overflow.
struct Sigmoid {
  static constexpr auto name = "sigmoid";
  static auto value(auto x) {
    const auto small = std::exp(-std::abs(x));
    return (x >= 0 ? 1 : small) / (1 + small);
  }
  static auto slope(auto /*x*/, auto y) { return y * (1 - y); }
};
struct Softplus {
  static constexpr auto name = "softplus";
  static auto value(auto x) { return std::max(x, decltype(x){0}) + std::log1p(std::exp(-std::abs(x))); }
  static auto slope(auto x, auto /*y*/) { return Sigmoid::value(x); }
};

void relu_forward(OpCall& call) {
  with_float_type("relu", call.output.type(), [&]<class T>(T /*type*/) {
    compute::relu(call.inputs[0].span<T>().data(), call.output.span<T>().data(), call.output.size());
  });
}
void relu_backward(BackwardCall& call) {
  with_float_type("relu", call.output().type(), [&]<class T>(T /*type*/) {
    compute::relu_gradient(call.output().span<T>().data(), call.gradient().span<T>().data(),
                           call.into(0).span<T>().data(), call.output().size());
  });
}
constexpr Op relu_op = {"relu", same_shape, relu_forward, relu_backward};

// Limits to attributes.number and attributes.upper.
void clip_forward(OpCall& call) {
  with_float_type("clip", call.output.type(), [&]<class T>(T /*type*/) {
    const std::span<const T> x = call.inputs[0].span<T>();
    const std::span<T> y = call.output.span<T>();
    const T low = static_cast<T>(call.attributes.number);
    const T high = static_cast<T>(call.attributes.upper);
    for (std::size_t i = 0; i < y.size(); ++i) y[i] = x[i] < low ? low : x[i] > high ? high : x[i];
  });
}
void clip_backward(BackwardCall& call) {
  with_float_type("clip", call.output().type(), [&]<class T>(T /*type*/) {
    const std::span<const T> x = call.input(0).span<T>();
    const std::span<const T> dy = call.gradient().span<T>();
    const std::span<T> dx = call.into(0).span<T>();
    const T low = static_cast<T>(call.attributes().number);
    const T high = static_cast<T>(call.attributes().upper);
    for (std::size_t i = 0; i < dx.size(); ++i) dx[i] = x[i] < low || x[i] > high ? T{} : dy[i];
  });
}
constexpr Op clip_op = {"clip", same_shape, clip_forward, clip_backward};

// Saves 1 for each element that is kept. Two neighbours share the 64 bits of one draw.
void draw_kept(const OpAttributes& attributes, std::span<std::uint8_t> kept) {
  const data::RandomKey key{static_cast<std::uint64_t>(attributes.integers[0]),
                            static_cast<std::uint64_t>(attributes.integers[1])};
  const auto limit = static_cast<std::uint64_t>(std::ldexp(attributes.number, 32));
  for (std::size_t i = 0; i < kept.size(); i += 2) {
    const std::uint64_t bits = data::random_bits(key, i / 2);
    kept[i] = (bits & 0xFFFFFFFFU) >= limit ? 1 : 0;
    if (i + 1 < kept.size()) kept[i + 1] = (bits >> 32U) >= limit ? 1 : 0;
  }
}
void keep(const OpAttributes& attributes, const AnyTensor& kept, const AnyTensor& from, const AnyTensor& to) {
  with_float_type("dropout", to.type(), [&]<class T>(T /*type*/) {
    const T factor = static_cast<T>(1 / (1 - attributes.number));
    const std::uint8_t* const is_kept = kept.span<std::uint8_t>().data();
    const T* const x = from.span<T>().data();
    T* const y = to.span<T>().data();
    for (std::size_t i = 0; i < to.size(); ++i) {
      const T scaled = x[i] * factor;
      y[i] = is_kept[i] != 0 ? scaled : T{};
    }
  });
}
void dropout_forward(OpCall& call) {
  call.saved = {uninitialized_tensor(DataType::u8, call.output.shape())};
  draw_kept(call.attributes, call.saved[0].span<std::uint8_t>());
  keep(call.attributes, call.saved[0], call.inputs[0], call.output);
}
void dropout_backward(BackwardCall& call) { keep(call.attributes(), call.saved(0), call.gradient(), call.into(0)); }
constexpr Op dropout_op = {"dropout", same_shape, dropout_forward, dropout_backward};

}  // namespace

TapeTensor operator+(const TapeTensor& a, const TapeTensor& b) { return apply(binary_op<Add>, {a, b}); }
TapeTensor operator-(const TapeTensor& a, const TapeTensor& b) { return apply(binary_op<Subtract>, {a, b}); }
TapeTensor operator*(const TapeTensor& a, const TapeTensor& b) { return apply(binary_op<Multiply>, {a, b}); }
TapeTensor operator/(const TapeTensor& a, const TapeTensor& b) { return apply(binary_op<Divide>, {a, b}); }
TapeTensor operator-(const TapeTensor& x) { return apply(unary_op<Negate>, {x}); }
TapeTensor square(const TapeTensor& x) { return apply(unary_op<Square>, {x}); }
TapeTensor exp(const TapeTensor& x) { return apply(unary_op<Exp>, {x}); }
TapeTensor log(const TapeTensor& x) { return apply(unary_op<Log>, {x}); }
TapeTensor sqrt(const TapeTensor& x) { return apply(unary_op<Sqrt>, {x}); }
TapeTensor tanh(const TapeTensor& x) { return apply(unary_op<Tanh>, {x}); }
TapeTensor sigmoid(const TapeTensor& x) { return apply(unary_op<Sigmoid>, {x}); }
TapeTensor softplus(const TapeTensor& x) { return apply(unary_op<Softplus>, {x}); }
TapeTensor relu(const TapeTensor& x) { return apply(relu_op, {x}); }

TapeTensor clip(const TapeTensor& x, double low, double high) {
  if (!(low <= high)) refuse_inputs("clip", text("the limits ", low, " and ", high), "give the lower limit first");
  return apply(clip_op, {x}, {.number = low, .upper = high});
}

TapeTensor dropout(const TapeTensor& x, double rate, const DropoutKey& key) {
  if (!(rate >= 0 && rate < 1))
    refuse_inputs("dropout", text("a rate of ", rate), "give the share of the elements to drop, from 0 to below 1");
  return apply(
      dropout_op, {x},
      {.integers = {static_cast<std::int64_t>(key.seed), static_cast<std::int64_t>(key.stream)}, .number = rate});
}

}  // namespace lockstep::train
