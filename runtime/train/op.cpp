// SPDX-License-Identifier: Apache-2.0
// Implements gradients, and what ops share.
#include "runtime/train/op.hpp"

#include <algorithm>

#include "runtime/train/accumulate.hpp"
#include "topology/base/error.hpp"
#include "topology/base/text.hpp"

namespace lockstep::train {

void refuse_inputs(std::string_view op, std::string_view fault, std::string_view remedy) {
  throw Error(Code::usage, text(op, ": ", fault), std::string(remedy));
}

AnyTensor filled(DataType type, TensorShape shape, double value) {
  AnyTensor result = uninitialized_tensor(type, std::move(shape));
  with_float_type("fill", type,
                  [&]<class T>(T /*type*/) { std::ranges::fill(result.span<T>(), static_cast<T>(value)); });
  return result;
}

void add_in_place(const AnyTensor& to, const AnyTensor& from) {
  with_float_type("add", to.type(), [&]<class T>(T /*type*/) {
    T* const sum = to.span<T>().data();
    const T* const more = from.span<T>().data();
    for (std::size_t i = 0; i < to.size(); ++i) sum[i] += more[i];
  });
}

AnyTensor Gradient::dense() const {
  if (dense_) return *dense_;
  if (rows_) return AnyTensor(rows_->dense());
  throw Error(Code::usage, "the gradient of a tensor on which the target does not depend",
              "ask has_value() first, or compute the target from the tensor while the tape records");
}

const IndexedSlices<float>& Gradient::rows() const {
  if (!rows_) throw Error(Code::usage, "rows() of a gradient that is not sparse", "use dense(), or ask is_sparse()");
  return *rows_;
}

void Gradient::add(Gradient other, bool in_place) {
  if (rows_ && other.rows_) {
    std::vector<std::int64_t> indices = rows_->indices();
    indices.insert(indices.end(), other.rows_->indices().begin(), other.rows_->indices().end());
    rows_ = IndexedSlices<float>(join<float>({rows_->values(), other.rows_->values()}, 0), std::move(indices),
                                 rows_->dense_shape());
    return;
  }
  if (in_place && dense_ && other.dense_) return add_in_place(*dense_, *other.dense_);
  const AnyTensor ours = dense();
  AnyTensor sum = ours;
  if (!in_place || rows_) {
    sum = uninitialized_tensor(ours.type(), ours.shape());
    sum.assign(ours);
  }
  add_in_place(sum, other.dense());
  rows_.reset();
  dense_ = std::move(sum);
}

const AnyTensor& BackwardCall::into(std::size_t i) {
  Place& place = places_[i];
  if (!place.memory) place.memory = uninitialized_tensor(input(i).type(), input(i).shape());
  place.is_filled = true;
  return *place.memory;
}

}  // namespace lockstep::train
