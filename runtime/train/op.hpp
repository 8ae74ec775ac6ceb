// SPDX-License-Identifier: Apache-2.0
// Describes a differentiable op: its name, the shape of its result, the function, and its derivative. Each op is one
// constant of type Op, and a function in ops.hpp that calls apply(). The tape needs nothing else.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "runtime/train/memory_pool.hpp"
#include "runtime/train/tape_tensor.hpp"
#include "runtime/values/slices.hpp"

namespace lockstep {
class ReplicaContext;
}

namespace lockstep::train {

// Holds the parameters of an op besides tensors.
struct OpAttributes {
  std::vector<std::int64_t> integers = {};  // Are axes, strides, flags.
  double number = 0;                        // Is a factor, or a lower limit.
  double upper = 0;                         // Is an upper limit.
  ReplicaContext* replica = nullptr;        // Is the replica that calls, for ops that send messages.
};

// Is one call of an op.
struct OpCall {
  const OpAttributes& attributes;
  std::span<const AnyTensor> inputs;
  AnyTensor output;              // Has memory of the shape that the op's rule gives, for forward() to fill.
  std::vector<AnyTensor> saved;  // Holds results for backward() besides the output; forward() fills it.
};

// Holds the gradient of a tensor: elements, rows of it, or nothing.
class Gradient {
 public:
  Gradient() = default;
  explicit Gradient(AnyTensor elements) : dense_(std::move(elements)) {}
  explicit Gradient(IndexedSlices<float> rows) : rows_(std::move(rows)) {}

  // True if the target depends on the tensor.
  bool has_value() const { return dense_.has_value() || rows_.has_value(); }
  // True if the gradient has only some rows, as that of gather() has.
  bool is_sparse() const { return rows_.has_value(); }
  // Returns the elements; rows are added up to a whole tensor. Throws Error usage if there is no gradient.
  AnyTensor dense() const;
  // Takes the elements out: the gradient has none afterwards.
  AnyTensor take_dense() {
    AnyTensor elements = dense_ ? std::move(*dense_) : dense();
    *this = Gradient();
    return elements;
  }
  // Returns the rows. Throws Error usage if the gradient is not sparse.
  const IndexedSlices<float>& rows() const;
  // Returns a copy of the elements.
  template <class T>
  Tensor<T> to() const {
    return dense().to<T>();
  }
  // Adds another gradient of the same tensor, to the elements themselves if `in_place`. Rows stay rows if both are
  // sparse.
  void add(Gradient other, bool in_place = false);

 private:
  std::optional<AnyTensor> dense_;
  std::optional<IndexedSlices<float>> rows_;
};

// Is the derivative of one call. An op's backward() gives the gradients of the inputs that are wanted.
class BackwardCall {
 public:
  BackwardCall(const OpCall& call, const AnyTensor& gradient)
      : call_(call), gradient_(gradient), places_(call.inputs.size()) {}
  const OpAttributes& attributes() const { return call_.attributes; }
  const AnyTensor& input(std::size_t i) const { return call_.inputs[i]; }
  std::size_t inputs() const { return call_.inputs.size(); }
  const AnyTensor& output() const { return call_.output; }
  const AnyTensor& saved(std::size_t i) const { return call_.saved[i]; }
  // Returns the gradient of the output. It is never changed.
  const AnyTensor& gradient() const { return gradient_; }
  // True if the gradient of this input is needed.
  bool wants(std::size_t i) const { return places_[i].is_wanted; }
  // Returns memory without values, of the input's shape, for its gradient. The op fills it.
  const AnyTensor& into(std::size_t i);
  // Gives a tensor as the gradient. It may share memory with gradient().
  void give(std::size_t i, AnyTensor gradient) { places_[i].given = Gradient(std::move(gradient)); }
  void give(std::size_t i, IndexedSlices<float> rows) { places_[i].given = Gradient(std::move(rows)); }

  // Are for the tape: it names the wanted gradients, perhaps with memory for them, and takes them.
  void want(std::size_t i, std::optional<AnyTensor> memory) {
    places_[i].is_wanted = true;
    places_[i].memory = std::move(memory);
  }
  // True if the gradient has memory that nothing else refers to.
  bool is_own(std::size_t i) const { return places_[i].is_filled; }
  Gradient take(std::size_t i) {
    return is_own(i) ? Gradient(std::move(*places_[i].memory)) : std::move(places_[i].given);
  }

 private:
  struct Place {
    bool is_wanted = false;
    bool is_filled = false;  // True once into() named the memory.
    std::optional<AnyTensor> memory;
    Gradient given;
  };
  const OpCall& call_;
  const AnyTensor& gradient_;
  std::vector<Place> places_;
};

// Is a row of the table of ops. Only apply() and the tape call its functions, so they are the place to choose by
// devices and layouts: kernels for GPUs and for tensors that a mesh divides become further functions of a row. `shape`
// returns the shape of the result; it throws Error usage for inputs that don't fit. A null `forward` means that the
// result has the elements and the memory of the first input. A null `backward` ends every gradient.
struct Op {
  std::string_view name;
  TensorShape (*shape)(const OpAttributes&, std::span<const AnyTensor>);
  void (*forward)(OpCall&);
  void (*backward)(BackwardCall&);
  // Returns the type of the result. Null means that of the first input.
  DataType (*type)(const OpAttributes&, std::span<const AnyTensor>) = nullptr;
};

// Calls an op. All tapes of this thread that follow one of the inputs follow the result. Throws Error usage for
// tensors in the memory of a GPU, for which ops have no kernels yet.
TapeTensor apply(const Op& op, std::span<const TapeTensor> inputs, OpAttributes attributes = {});
inline TapeTensor apply(const Op& op, std::initializer_list<TapeTensor> inputs, OpAttributes attributes = {}) {
  return apply(op, std::span(inputs.begin(), inputs.size()), std::move(attributes));
}

// Throws Error usage about an op's inputs.
[[noreturn]] void refuse_inputs(std::string_view op, std::string_view fault, std::string_view remedy);

// Calls `function(T{})` with T float or double, as the type says. Throws Error usage for another type.
template <class F>
void with_float_type(std::string_view op, DataType type, F&& function) {
  if (type == DataType::f32)
    function(float{});
  else if (type == DataType::f64)
    function(double{});
  else
    refuse_inputs(op, "it computes with f32 and f64", "convert the tensor: cast<float>(tensor)");
}

}  // namespace lockstep::train
