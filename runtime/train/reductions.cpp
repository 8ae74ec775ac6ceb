// SPDX-License-Identifier: Apache-2.0
// Has the ops that combine elements along axes. Neighbouring axes are taken as one, so that each pass over the data
// combines the middle of three lengths; the last axes come first.
#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <utility>

#include "runtime/train/accumulate.hpp"
#include "runtime/train/op.hpp"
#include "runtime/train/ops.hpp"
#include "runtime/train/sums.hpp"
#include "topology/base/text.hpp"

namespace lockstep::train {
namespace {

// Is one pass: (before, along, after) becomes (before, after).
struct ReductionPass {
  std::size_t before = 1;
  std::size_t along = 1;
  std::size_t after = 1;
};

// Returns the axes as flags: attributes.integers has one for each axis, and then one that keeps axes.
std::vector<ReductionPass> passes_of(const TensorShape& shape, const OpAttributes& attributes) {
  std::vector<ReductionPass> passes;
  std::size_t after = 1;
  for (int axis = shape.rank(); axis-- > 0;) {
    const auto length = static_cast<std::size_t>(shape[axis]);
    if (attributes.integers[static_cast<std::size_t>(axis)] == 0) {
      after *= length;
      continue;
    }
    std::size_t along = length;
    for (; axis > 0 && attributes.integers[static_cast<std::size_t>(axis - 1)] != 0; --axis)
      along *= static_cast<std::size_t>(shape[axis - 1]);
    passes.push_back({axis == 0 ? 1 : shape.outside(axis), along, after});
  }
  if (passes.empty()) passes.push_back({1, 1, shape.count()});
  return passes;
}

TensorShape reduced_shape(const OpAttributes& attributes, std::span<const AnyTensor> inputs) {
  const TensorShape& shape = inputs[0].shape();
  std::vector<std::int64_t> lengths;
  const bool keeps_axes = attributes.integers.back() != 0;
  for (int axis = 0; axis < shape.rank(); ++axis) {
    if (attributes.integers[static_cast<std::size_t>(axis)] == 0)
      lengths.push_back(shape[axis]);
    else if (keeps_axes)
      lengths.push_back(1);
  }
  return TensorShape(std::move(lengths));
}

template <class T>
void sum_pass(const ReductionPass& pass, const T* from, T* to) {
  for (std::size_t i = 0; i < pass.before; ++i, from += pass.along * pass.after, to += pass.after) {
    if (pass.after == 1)
      *to = sum_of<T>(pass.along, [=](std::size_t k) { return from[k]; });
    else
      sum_columns<T>(pass.along, std::span(to, pass.after),
                     [=](std::size_t k, std::size_t /*column*/) { return from[k]; });
  }
}
template <class T>
void max_pass(const ReductionPass& pass, const T* from, T* to) {
  const auto larger = [](T best, T x) { return x > best || std::isnan(x) ? x : best; };
  for (std::size_t i = 0; i < pass.before; ++i, to += pass.after) {
    if (pass.after == 1) {
      *to = std::accumulate(from, from + pass.along, -std::numeric_limits<T>::infinity(), larger);
      from += pass.along;
      continue;
    }
    std::fill_n(to, pass.after, -std::numeric_limits<T>::infinity());
    for (std::size_t k = 0; k < pass.along; ++k, from += pass.after) {
      for (std::size_t j = 0; j < pass.after; ++j) to[j] = larger(to[j], from[j]);
    }
  }
}
template <class T>
void repeat_pass(const ReductionPass& pass, const T* from, T* to) {
  for (std::size_t i = 0; i < pass.before; ++i, from += pass.after) {
    if (pass.after == 1) {
      to = std::fill_n(to, pass.along, *from);
      continue;
    }
    for (std::size_t k = 0; k < pass.along; ++k, to += pass.after) std::copy_n(from, pass.after, to);
  }
}

// Makes all passes of one kind, through memory of the pool.
template <class T, class Pass>
void make_passes(std::span<const ReductionPass> passes, const AnyTensor& from, const AnyTensor& to, Pass&& pass,
                 bool is_backward) {
  AnyTensor source = from;
  for (std::size_t i = 0; i < passes.size(); ++i) {
    const ReductionPass& next = passes[is_backward ? passes.size() - 1 - i : i];
    const std::size_t size = next.before * next.after * (is_backward ? next.along : 1);
    const AnyTensor target =
        i + 1 == passes.size() ? to : uninitialized_tensor(to.type(), TensorShape{static_cast<std::int64_t>(size)});
    pass(next, source.span<T>().data(), target.span<T>().data());
    source = target;
  }
}
template <class T>
void sum_up(const OpAttributes& attributes, const AnyTensor& x, const AnyTensor& to) {
  make_passes<T>(passes_of(x.shape(), attributes), x, to, sum_pass<T>, false);
}
template <class T>
void repeat(const OpAttributes& attributes, const AnyTensor& dy, const AnyTensor& to) {
  make_passes<T>(passes_of(to.shape(), attributes), dy, to, repeat_pass<T>, true);
}

// Returns the number of elements that one result combines.
template <class T>
T elements_per_result(std::size_t all, std::size_t results) {
  return static_cast<T>(results == 0 ? 1 : all / results);
}

template <bool is_mean>
void sum_forward(OpCall& call) {
  with_float_type("reduce_sum", call.output.type(), [&]<class T>(T /*type*/) {
    sum_up<T>(call.attributes, call.inputs[0], call.output);
    if (!is_mean) return;
    const T divisor = elements_per_result<T>(call.inputs[0].size(), call.output.size());
    for (T& each : call.output.span<T>()) each /= divisor;
  });
}
template <bool is_mean>
void sum_backward(BackwardCall& call) {
  with_float_type("reduce_sum", call.output().type(), [&]<class T>(T /*type*/) {
    AnyTensor dy = call.gradient();
    if (is_mean) {
      const T divisor = elements_per_result<T>(call.input(0).size(), call.output().size());
      dy = uninitialized_tensor(dy.type(), dy.shape());
      std::ranges::transform(call.gradient().span<T>(), dy.span<T>().begin(), [=](T each) { return each / divisor; });
    }
    repeat<T>(call.attributes(), dy, call.into(0));
  });
}
constexpr Op sum_op = {"reduce_sum", reduced_shape, sum_forward<false>, sum_backward<false>};
constexpr Op mean_op = {"reduce_mean", reduced_shape, sum_forward<true>, sum_backward<true>};

void max_forward(OpCall& call) {
  with_float_type("reduce_max", call.output.type(), [&]<class T>(T /*type*/) {
    const AnyTensor& x = call.inputs[0];
    make_passes<T>(passes_of(x.shape(), call.attributes), x, call.output, max_pass<T>, false);
  });
}
// Shares the gradient equally among the elements that are the maximum.
void max_backward(BackwardCall& call) {
  with_float_type("reduce_max", call.output().type(), [&]<class T>(T /*type*/) {
    const AnyTensor& x = call.input(0);
    const AnyTensor& into = call.into(0);
    const AnyTensor is_max = uninitialized_tensor(x.type(), x.shape());
    repeat<T>(call.attributes(), call.output(), into);
    std::ranges::transform(x.span<T>(), into.span<T>(), is_max.span<T>().begin(),
                           [](T value, T maximum) { return value == maximum ? T{1} : T{}; });
    const AnyTensor share = uninitialized_tensor(x.type(), call.output().shape());
    sum_up<T>(call.attributes(), is_max, share);
    std::ranges::transform(call.gradient().span<T>(), share.span<T>(), share.span<T>().begin(), std::divides<T>());
    repeat<T>(call.attributes(), share, into);
    std::ranges::transform(into.span<T>(), is_max.span<T>(), into.span<T>().begin(), std::multiplies<T>());
  });
}
constexpr Op max_op = {"reduce_max", reduced_shape, max_forward, max_backward};

// Returns the axes as passes_of() takes them. Throws Error usage for axes that are not there.
OpAttributes axis_flags(std::string_view op, const TensorShape& shape, const AxisOptions& options) {
  std::vector<std::int64_t> flags(static_cast<std::size_t>(shape.rank()), options.axes.empty() ? 1 : 0);
  for (const int axis : options.axes) {
    const int from_start = axis < 0 ? axis + shape.rank() : axis;
    if (from_start < 0 || from_start >= shape.rank())
      refuse_inputs(op, text("axis ", axis, " of a tensor of shape ", shape.to_string()),
                    text("give axes from ", -shape.rank(), " to ", shape.rank() - 1));
    if (std::exchange(flags[static_cast<std::size_t>(from_start)], 1) != 0)
      refuse_inputs(op, text("axis ", axis, " is named twice"), "name each axis once");
  }
  flags.push_back(options.keeps_axes ? 1 : 0);
  return {.integers = std::move(flags)};
}
TapeTensor reduce(const Op& op, const TapeTensor& x, const AxisOptions& options) {
  return apply(op, {x}, axis_flags(op.name, x.shape(), options));
}

}  // namespace

TapeTensor reduce_sum(const TapeTensor& x, const AxisOptions& options) { return reduce(sum_op, x, options); }
TapeTensor reduce_mean(const TapeTensor& x, const AxisOptions& options) { return reduce(mean_op, x, options); }
TapeTensor reduce_max(const TapeTensor& x, const AxisOptions& options) { return reduce(max_op, x, options); }

}  // namespace lockstep::train
