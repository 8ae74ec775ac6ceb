// SPDX-License-Identifier: Apache-2.0
// Defines the sources of pipelines: numbers, the slices of arrays, one element, and a program's own function. Pure.
#pragma once

#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "runtime/data/gather_rows.hpp"
#include "runtime/data/stage.hpp"
#include "runtime/values/shared_tensor.hpp"

namespace lockstep::data {

// Counts from `first` in steps.
class RangeStage final : public Stage<Columns<std::int64_t>> {
 public:
  using C = Columns<std::int64_t>;
  RangeStage(std::int64_t first, std::int64_t end, std::int64_t step) : first_(first), end_(end), step_(step) {
    if (step == 0) throw Error(Code::usage, text(describe(), " has the step 0"), "give a step above or below 0");
    if (step > 0 ? end <= first : end >= first) return;
    // Unsigned, since the numbers may lie further apart than a signed one can say.
    const auto low = static_cast<std::uint64_t>(step > 0 ? first : end);
    const auto high = static_cast<std::uint64_t>(step > 0 ? end : first);
    const std::uint64_t stride = step > 0 ? static_cast<std::uint64_t>(step) : 0 - static_cast<std::uint64_t>(step);
    const std::uint64_t number = (high - low - 1) / stride + 1;
    if (number > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()))
      throw Error(Code::usage, text(describe(), " has too many numbers"), "give a larger step");
    length_ = static_cast<std::int64_t>(number);
  }
  std::unique_ptr<Cursor<C>> open(const Opening& /*opening*/) const override {
    return std::make_unique<IndexedCursor<C>>(*this);
  }
  std::int64_t length() const override { return length_; }
  std::string describe() const override { return text("range(", first_, ", ", end_, ", ", step_, ')'); }
  bool is_indexed() const override { return true; }
  void gather(std::span<const std::int64_t> numbers, C& out) const override {
    std::int64_t* to = std::get<0>(out).append(TensorShape(), numbers.size());
    for (const std::int64_t number : numbers) *to++ = at(number);
  }
  void gather_range(std::int64_t first, std::size_t number, C& out) const override {
    std::int64_t* const to = std::get<0>(out).append(TensorShape(), number);
    for (std::size_t i = 0; i < number; ++i) to[i] = at(first + static_cast<std::int64_t>(i));
  }

 private:
  // Calculates without a sign, since a step may lead from one end of the numbers to the other.
  std::int64_t at(std::int64_t number) const {
    return static_cast<std::int64_t>(static_cast<std::uint64_t>(first_) +
                                     static_cast<std::uint64_t>(number) * static_cast<std::uint64_t>(step_));
  }

  std::int64_t first_;
  std::int64_t end_;
  std::int64_t step_;
  std::int64_t length_ = 0;
};

// Refers to rows in a program's memory.
template <class T>
struct Slices {
  TensorShape row;
  const T* data = nullptr;
  std::int64_t rows = 0;
  std::shared_ptr<const void> owner = {};  // Keeps the memory; null if the program does.
};

// Gives the type of a slice, and the slices of a source of rows.
template <class S>
struct SlicesOf;
template <class T>
struct SlicesOf<std::vector<T>> {
  static_assert(!std::is_same_v<T, bool>, "lockstep: a std::vector<bool> has no rows in memory; use a Tensor<bool>");
  using Element = T;
  static std::tuple<Slices<T>> of(std::vector<T> values) {
    const auto kept = std::make_shared<const std::vector<T>>(std::move(values));
    return {Slices<T>{TensorShape(), kept->data(), static_cast<std::int64_t>(kept->size()), kept}};
  }
};
template <class T>
struct SlicesOf<std::span<T>> {
  using Element = std::remove_const_t<T>;
  static std::tuple<Slices<Element>> of(std::span<T> values) {
    return {Slices<Element>{TensorShape(), values.data(), static_cast<std::int64_t>(values.size())}};
  }
};
template <class T>
struct SlicesOf<TensorSpan<T>> {
  using Element = Tensor<std::remove_const_t<T>>;
  static std::tuple<Slices<std::remove_const_t<T>>> of(const TensorSpan<T>& values) {
    return {Slices<std::remove_const_t<T>>{row_of(values.shape()), values.data(), values.shape()[0]}};
  }
  static TensorShape row_of(const TensorShape& shape) {
    if (shape.rank() == 0)
      throw Error(Code::usage, "from_tensor_slices() of a scalar, which has no rows",
                  "give a tensor with an axis, or use from_tensors()");
    return shape.without(0);
  }
};
template <class T>
struct SlicesOf<SharedTensor<T>> {
  using Element = Tensor<T>;
  static std::tuple<Slices<T>> of(const SharedTensor<T>& values) {
    return {Slices<T>{SlicesOf<TensorSpan<T>>::row_of(values.shape()), values.data(), values.shape()[0],
                      values.elements()}};
  }
};
template <class T>
struct SlicesOf<Tensor<T>> {
  using Element = Tensor<T>;
  static std::tuple<Slices<T>> of(Tensor<T> values) {
    return SlicesOf<SharedTensor<T>>::of(SharedTensor<T>(std::move(values)));
  }
};
template <class... S>
struct SlicesOf<std::tuple<S...>> {
  using Element = std::tuple<typename SlicesOf<S>::Element...>;
  static auto of(std::tuple<S...> all) {
    return std::apply([](auto&... each) { return std::tuple_cat(SlicesOf<S>::of(std::move(each))...); }, all);
  }
};
template <class A, class B>
struct SlicesOf<std::pair<A, B>> {
  using Element = std::pair<typename SlicesOf<A>::Element, typename SlicesOf<B>::Element>;
  static auto of(std::pair<A, B> both) {
    return std::tuple_cat(SlicesOf<A>::of(std::move(both.first)), SlicesOf<B>::of(std::move(both.second)));
  }
};

// Reads rows in memory.
template <class... T>
class SlicesStage final : public Stage<std::tuple<Column<T>...>> {
 public:
  using C = std::tuple<Column<T>...>;
  explicit SlicesStage(std::tuple<Slices<T>...> slices) : slices_(std::move(slices)) {
    length_ = std::get<0>(slices_).rows;
    std::apply([&](const auto&... each) { (require_rows(each.rows), ...); }, slices_);
  }
  std::unique_ptr<Cursor<C>> open(const Opening& /*opening*/) const override {
    return std::make_unique<IndexedCursor<C>>(*this);
  }
  std::int64_t length() const override { return length_; }
  std::string describe() const override { return text("from_tensor_slices(", length_, " rows)"); }
  bool is_indexed() const override { return true; }
  void gather(std::span<const std::int64_t> numbers, C& out) const override {
    for_each_slices(out, [&](auto& column, const auto& from) { append_rows_of(from, numbers, column); });
  }
  void gather_range(std::int64_t first, std::size_t number, C& out) const override {
    for_each_slices(out, [&](auto& column, const auto& from) { append_range_of(from, first, number, column); });
  }

 private:
  void require_rows(std::int64_t rows) const {
    if (rows != length_)
      throw Error(Code::usage, text("from_tensor_slices() of ", length_, " and of ", rows, " rows"),
                  "give as many rows in each part");
  }
  template <class U>
  static void append_rows_of(const Slices<U>& from, std::span<const std::int64_t> numbers, Column<U>& column) {
    const std::size_t count = from.row.count();
    U* const to = column.append(from.row, numbers.size());
    if (count == 1) {
      for (std::size_t i = 0; i < numbers.size(); ++i) to[i] = from.data[numbers[i]];
    } else {
      gather_rows(from.data, count, numbers, to);
    }
  }
  template <class U>
  static void append_range_of(const Slices<U>& from, std::int64_t first, std::size_t number, Column<U>& column) {
    const std::size_t count = from.row.count();
    detail::copy_elements(from.data + static_cast<std::size_t>(first) * count, number * count,
                          column.append(from.row, number));
  }
  static void append_rows_of(const Slices<std::string>& from, std::span<const std::int64_t> numbers,
                             Column<std::string>& column) {
    for (const std::int64_t number : numbers) column.append_row(from.data[number]);
  }
  static void append_range_of(const Slices<std::string>& from, std::int64_t first, std::size_t number,
                              Column<std::string>& column) {
    for (std::size_t i = 0; i < number; ++i) column.append_row(from.data[static_cast<std::size_t>(first) + i]);
  }
  template <class F>
  void for_each_slices(C& out, F&& function) const {
    [&]<std::size_t... i>(std::index_sequence<i...> /*columns*/) {
      (function(std::get<i>(out), std::get<i>(slices_)), ...);
    }
    (std::index_sequence_for<T...>());
  }

  std::tuple<Slices<T>...> slices_;
  std::int64_t length_;
};

// Has one row.
template <class E>
class ElementStage final : public Stage<Columns<E>> {
 public:
  using C = Columns<E>;
  explicit ElementStage(E element) : element_(std::move(element)) {}
  std::unique_ptr<Cursor<C>> open(const Opening& /*opening*/) const override {
    return std::make_unique<IndexedCursor<C>>(*this);
  }
  std::int64_t length() const override { return 1; }
  std::string describe() const override { return "from_tensors"; }
  bool is_indexed() const override { return true; }
  void gather(std::span<const std::int64_t> numbers, C& out) const override {
    for (std::size_t i = 0; i < numbers.size(); ++i) append_element(out, element_);
  }

 private:
  E element_;
};

// Calls a copy of the program's function, which begins anew with every cursor, until it returns nothing.
template <class E, class F>
class FunctionStage final : public Stage<Columns<E>> {
 public:
  using C = Columns<E>;
  explicit FunctionStage(F function) : function_(std::move(function)) {}
  std::unique_ptr<Cursor<C>> open(const Opening& /*opening*/) const override {
    return std::make_unique<FunctionCursor>(function_);
  }
  std::int64_t length() const override { return unknown_length; }
  std::string describe() const override { return "from_function"; }
  bool needs_single_reads() const override { return true; }

 private:
  class FunctionCursor final : public Cursor<C> {
   public:
    explicit FunctionCursor(const F& function) : first_(function), function_(std::in_place, function) {}
    void save(Writer& to) const override { to.put(read_); }
    // Calls the function anew for the rows before the position.
    void seek(Reader& from) override {
      const auto position = from.get<std::uint64_t>();
      function_.emplace(first_);
      has_ended_ = false;
      read_ = 0;
      check_position(this->skip(position) == position);
    }

   private:
    void read_rows(C& out, std::size_t max_rows) override {
      for (std::size_t i = 0; i < max_rows && !has_ended_; ++i) {
        const std::optional<E> element = (*function_)();
        has_ended_ = !element;
        if (has_ended_) return;
        append_element(out, *element);
        ++read_;
      }
    }

    const F& first_;
    std::optional<F> function_;  // Lambdas have no assignment.
    std::uint64_t read_ = 0;
    bool has_ended_ = false;
  };

  F function_;
};

}  // namespace lockstep::data
