// SPDX-License-Identifier: Apache-2.0
// Reads batches of arrays: a data set of row numbers is divided, and each replica's rows are copied.
#include "runtime/train/model_data.hpp"

#include <cstring>

#include "runtime/train/memory_pool.hpp"
#include "topology/base/error.hpp"
#include "topology/base/text.hpp"

namespace lockstep::train {
namespace {

using RowNumbers = Tensor<std::int64_t>;

// Returns copies of some rows.
AnyTensor copied_rows(const AnyTensor& array, const RowNumbers& rows) {
  const TensorShape shape = array.shape().with(0, static_cast<std::int64_t>(rows.size()));
  AnyTensor copy = uninitialized_tensor(array.type(), shape);
  const std::size_t bytes = shape.inside(0) * size_of(array.type());
  auto* to = static_cast<std::byte*>(copy.view().data);
  const auto* const from = static_cast<const std::byte*>(array.view().data);
  for (const std::int64_t row : rows) {
    std::memcpy(to, from + static_cast<std::size_t>(row) * bytes, bytes);
    to += bytes;
  }
  return copy;
}

class ArrayReader final : public PieceReader {
 public:
  ArrayReader(std::unique_ptr<PieceReader> numbers, Piece arrays)
      : numbers_(std::move(numbers)), arrays_(std::move(arrays)) {}
  bool next(std::vector<Piece>& pieces) override {
    if (!numbers_->next(pieces)) return false;
    for (Piece& piece : pieces) {
      const RowNumbers rows = piece.front().to<std::int64_t>();
      piece.clear();
      for (const AnyTensor& array : arrays_) piece.push_back(copied_rows(array, rows));
    }
    return true;
  }
  std::optional<std::int64_t> global_rows() const override { return numbers_->global_rows(); }
  std::int64_t steps() const override { return numbers_->steps(); }
  void travel_with(GradientReducer& reducer) override { numbers_->travel_with(reducer); }

 private:
  std::unique_ptr<PieceReader> numbers_;
  Piece arrays_;
};

class ArraySource final : public PieceSource {
 public:
  ArraySource(std::unique_ptr<PieceSource> numbers, Piece arrays)
      : numbers_(std::move(numbers)), arrays_(std::move(arrays)) {}
  std::unique_ptr<PieceReader> open() override { return std::make_unique<ArrayReader>(numbers_->open(), arrays_); }

 private:
  std::unique_ptr<PieceSource> numbers_;
  Piece arrays_;
};

}  // namespace

void ModelData::check_strategies(const Strategy& of_model, const Strategy& of_data) {
  if (&of_model == &of_data) return;
  throw Error(Code::usage,
              text("the data were divided by ", of_data.describe(), ", and the model belongs to ", of_model.describe()),
              "give fit() the data set itself, which it divides, or make the model in the scope of that strategy");
}

std::int64_t rows_of_arrays(const Piece& arrays) {
  std::string sizes;
  bool differ = false;
  for (const AnyTensor& each : arrays) {
    if (each.shape().rank() == 0)
      throw Error(Code::usage, "a scalar was given as an array of examples",
                  "give tensors with a row for each example");
    differ = differ || each.shape()[0] != arrays.front().shape()[0];
    sizes += text(sizes.empty() ? "" : ", ", each.shape()[0]);
  }
  if (differ)
    throw Error(Code::usage, text("Data cardinality is ambiguous: the arrays have ", sizes, " rows"),
                "make sure that all arrays contain the same number of samples");
  return arrays.front().shape()[0];
}

std::unique_ptr<PieceSource> divide_arrays(Strategy& strategy, Piece arrays, const ArrayOptions& options,
                                           const InputOptions& input) {
  if (options.batch_size < 1) throw Error(Code::usage, text("a batch size of ", options.batch_size), "give 1 or more");
  auto numbers = data::range(options.first_row, options.end_row);
  if (options.is_shuffled && options.end_row > options.first_row)
    numbers = numbers.shuffle(options.end_row - options.first_row, {.seed = options.seed});
  auto divided = strategy.distribute(numbers.batch(options.batch_size), input);
  return std::make_unique<ArraySource>(std::make_unique<DatasetSource<RowNumbers>>(strategy, std::move(divided)),
                                       std::move(arrays));
}

}  // namespace lockstep::train
