// SPDX-License-Identifier: Apache-2.0
// Ops: gradients against differences of values, both against TensorFlow, and refusals.
#include "runtime/train/ops.hpp"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <cmath>
#include <fstream>
#include <functional>
#include <map>
#include <numeric>
#include <regex>

#include "runtime/context.hpp"
#include "runtime/data/random.hpp"
#include "runtime/replica_context.hpp"
#include "runtime/train/tape.hpp"
#include "runtime/values/tensor_arithmetic.hpp"
#include "tests/runtime/train/goldens.hpp"
#include "tests/support/refusal.hpp"

namespace lockstep::train {
namespace {

using lockstep::test::expect_near;
using lockstep::test::golden_cases;
using lockstep::test::GoldenCase;
using lockstep::test::refusal;

using Inputs = std::span<const TapeTensor>;
using Function = std::function<TapeTensor(Inputs)>;

// Is an op with drawn inputs. All of them are differentiable; labels and the like are part of the function.
struct DrawnOp {
  std::vector<Tensor<double>> inputs;
  Function function;
};

std::int64_t drawn(std::int64_t first, std::int64_t last) { return *rc::gen::inRange<std::int64_t>(first, last + 1); }
bool drawn_bool() { return *rc::gen::arbitrary<bool>(); }

// Returns different numbers between -2 and 2 in a drawn order, all far from 0 and from each other.
Tensor<double> drawn_tensor(TensorShape shape, double offset = 0) {
  Tensor<double> tensor(std::move(shape));
  if (tensor.size() == 0) return tensor;
  const data::Permutation order({static_cast<std::uint64_t>(drawn(0, 1'000'000)), 1}, tensor.size());
  for (std::size_t i = 0; i < tensor.size(); ++i)
    tensor[i] = (static_cast<double>(order(i)) + 0.4) / static_cast<double>(tensor.size()) * 4 - 2 + offset;
  return tensor;
}
TensorShape drawn_shape(int least_rank = 0, int most_rank = 3, std::int64_t longest = 4) {
  std::vector<std::int64_t> lengths(static_cast<std::size_t>(drawn(least_rank, most_rank)));
  for (std::int64_t& each : lengths) each = drawn(1, longest);
  return TensorShape(std::move(lengths));
}
// Returns a shape that broadcasting makes `shape` of, together with it.
TensorShape repeated_shape(const TensorShape& shape) {
  std::vector<std::int64_t> lengths = shape.lengths();
  lengths.erase(lengths.begin(), lengths.begin() + drawn(0, shape.rank()));
  for (std::int64_t& each : lengths) each = drawn_bool() ? each : 1;
  return TensorShape(std::move(lengths));
}
Padding drawn_padding() { return drawn_bool() ? Padding::same : Padding::valid; }
template <class T>
Tensor<T> drawn_classes(const TensorShape& shape, std::int64_t classes) {
  Tensor<T> tensor(shape);
  for (T& each : tensor) each = static_cast<T>(drawn(0, classes - 1));
  return tensor;
}

template <class F>
std::function<DrawnOp()> unary(F function, double offset = 0) {
  return [=] { return DrawnOp{{drawn_tensor(drawn_shape(), offset)}, [=](Inputs x) { return function(x[0]); }}; };
}
template <class F>
std::function<DrawnOp()> binary(F function, double offset = 0) {
  return [=] {
    const TensorShape shape = drawn_shape();
    std::vector<Tensor<double>> inputs{drawn_tensor(shape), drawn_tensor(repeated_shape(shape))};
    if (drawn_bool()) std::swap(inputs[0], inputs[1]);
    if (drawn_bool()) inputs[1] = drawn_tensor(repeated_shape(shape));
    for (double& each : inputs[1]) each += offset;
    return DrawnOp{inputs, [=](Inputs x) { return function(x[0], x[1]); }};
  };
}
template <class F>
std::function<DrawnOp()> reduction(F function) {
  return [=] {
    const TensorShape shape = drawn_shape(0, 4, 3);
    AxisOptions options{.keeps_axes = drawn_bool()};
    for (int axis = 0; axis < shape.rank(); ++axis) {
      if (drawn_bool()) options.axes.push_back(drawn_bool() ? axis : axis - shape.rank());
    }
    return DrawnOp{{drawn_tensor(shape)}, [=](Inputs x) { return function(x[0], options); }};
  };
}

DrawnOp drawn_matmul() {
  const MatrixOptions options{drawn_bool(), drawn_bool()};
  const std::int64_t rows = drawn(1, 4), depth = drawn(1, 4), columns = drawn(1, 4);
  return {{drawn_tensor(options.transpose_a ? TensorShape{depth, rows} : TensorShape{rows, depth}),
           drawn_tensor(options.transpose_b ? TensorShape{columns, depth} : TensorShape{depth, columns})},
          [=](Inputs x) { return matmul(x[0], x[1], options); }};
}
DrawnOp drawn_dense() {
  const TensorShape x = drawn_shape(1, 3);
  const std::int64_t units = drawn(1, 4);
  const auto activation = drawn_bool() ? FusedActivation::relu : FusedActivation::none;
  return {{drawn_tensor(x), drawn_tensor({x[-1], units}), drawn_tensor({units})},
          [=](Inputs in) { return dense(in[0], in[1], in[2], activation); }};
}
DrawnOp drawn_conv2d(bool has_bias) {
  const std::int64_t channels = drawn(1, 2), filters = drawn(1, 3);
  const ConvolutionOptions options{drawn(1, 2), drawn(1, 2), drawn_padding()};
  DrawnOp op{{drawn_tensor({drawn(1, 2), drawn(3, 4), drawn(3, 4), channels}),
              drawn_tensor({drawn(1, 3), drawn(1, 3), channels, filters})},
             [=](Inputs in) { return conv2d(in[0], in[1], options); }};
  if (!has_bias) return op;
  op.inputs.push_back(drawn_tensor({filters}));
  const auto activation = drawn_bool() ? FusedActivation::relu : FusedActivation::none;
  op.function = [=](Inputs in) { return conv2d(in[0], in[1], in[2], options, activation); };
  return op;
}
DrawnOp drawn_max_pool() {
  const PoolOptions options{drawn(1, 3), drawn(1, 3), drawn(1, 3), drawn(1, 3), drawn_padding()};
  return {{drawn_tensor({drawn(1, 2), drawn(3, 5), drawn(3, 5), drawn(1, 2)})},
          [=](Inputs in) { return max_pool(in[0], options); }};
}
DrawnOp drawn_reshape() {
  const TensorShape shape = drawn_shape(1);
  return {{drawn_tensor(shape)}, [=](Inputs in) { return reshape(in[0], {shape[-1], -1}); }};
}
DrawnOp drawn_transpose() {
  const TensorShape shape = drawn_shape();
  std::vector<int> axes(static_cast<std::size_t>(shape.rank()));
  const data::Permutation order({static_cast<std::uint64_t>(drawn(0, 1000)), 0}, std::max<std::size_t>(1, axes.size()));
  for (std::size_t i = 0; i < axes.size(); ++i) axes[i] = static_cast<int>(order(i));
  return {{drawn_tensor(shape)}, [=](Inputs in) { return transpose(in[0], axes); }};
}
DrawnOp drawn_concat() {
  const TensorShape shape = drawn_shape(1);
  const int axis = static_cast<int>(drawn(-shape.rank(), shape.rank() - 1));
  DrawnOp op{{}, [=](Inputs in) { return concat(in, axis); }};
  for (std::int64_t parts = drawn(1, 3); parts-- > 0;) op.inputs.push_back(drawn_tensor(shape.with(axis, drawn(1, 3))));
  return op;
}
DrawnOp drawn_slice() {
  const TensorShape shape = drawn_shape();
  std::vector<std::int64_t> first, lengths;
  for (const std::int64_t each : shape.lengths()) {
    first.push_back(drawn(0, each - 1));
    lengths.push_back(drawn_bool() ? -1 : drawn(1, each - first.back()));
  }
  return {{drawn_tensor(shape)}, [=](Inputs in) { return slice(in[0], first, lengths); }};
}
DrawnOp drawn_gather() {
  const TensorShape shape = drawn_shape(1);
  const TapeTensor indices = drawn_bool() ? TapeTensor(drawn_classes<std::int32_t>(drawn_shape(0, 2), shape[0]))
                                          : TapeTensor(drawn_classes<std::int64_t>(drawn_shape(0, 2), shape[0]));
  return {{drawn_tensor(shape)}, [=](Inputs in) { return gather(in[0], indices); }};
}
// Returns labels of the type of the logits.
TapeTensor labels_for(const TapeTensor& logits, const Tensor<double>& labels) {
  return logits.type() == DataType::f64 ? TapeTensor(labels) : TapeTensor(cast<float>(labels));
}
DrawnOp drawn_softmax_cross_entropy() {
  const TensorShape shape = drawn_shape(1);
  const Tensor<double> labels = softmax(drawn_tensor(shape)).to<double>();
  return {{drawn_tensor(shape)}, [=](Inputs in) { return softmax_cross_entropy(labels_for(in[0], labels), in[0]); }};
}
DrawnOp drawn_sparse_cross_entropy() {
  const TensorShape shape = drawn_shape(1);
  const TensorShape rows = shape.without(-1);
  const TapeTensor labels = drawn_bool()   ? TapeTensor(drawn_classes<std::int32_t>(rows, shape[-1]))
                            : drawn_bool() ? TapeTensor(drawn_classes<std::int64_t>(rows, shape[-1]))
                                           : TapeTensor(drawn_classes<std::uint8_t>(rows, shape[-1]));
  return {{drawn_tensor(shape)}, [=](Inputs in) { return sparse_softmax_cross_entropy(labels, in[0]); }};
}
DrawnOp drawn_sigmoid_cross_entropy() {
  const TensorShape shape = drawn_shape();
  const Tensor<double> labels = drawn_tensor(shape, 2);
  return {{drawn_tensor(shape)}, [=](Inputs in) { return sigmoid_cross_entropy(labels_for(in[0], labels), in[0]); }};
}
DrawnOp drawn_batch_norm(bool has_replica) {
  const TensorShape shape = drawn_shape(2, 3, 3).with(0, drawn(2, 4));
  return {{drawn_tensor(shape), drawn_tensor({shape[-1]}), drawn_tensor({shape[-1]})}, [=](Inputs in) {
            return has_replica ? batch_norm(*replica_context(), in[0], in[1], in[2], 0.1).result
                               : batch_norm(in[0], in[1], in[2], 0.1).result;
          }};
}
DrawnOp drawn_given_norm() {
  const TensorShape shape = drawn_shape(2, 3, 3);
  const TensorShape channels{shape[-1]};
  return {{drawn_tensor(shape), drawn_tensor(channels), drawn_tensor(channels), drawn_tensor(channels),
           drawn_tensor(channels, 3)},
          [=](Inputs in) { return batch_norm(in[0], in[1], in[2], in[3], in[4], 0.1); }};
}
DrawnOp drawn_dropout() {
  const DropoutKey key{static_cast<std::uint64_t>(drawn(0, 1000)), 7};
  const double rate = static_cast<double>(drawn(0, 9)) / 10;
  return {{drawn_tensor(drawn_shape())}, [=](Inputs in) { return dropout(in[0], rate, key); }};
}
DrawnOp drawn_all_gather() {
  const TensorShape shape = drawn_shape(1);
  const int axis = static_cast<int>(drawn(0, shape.rank() - 1));
  return {{drawn_tensor(shape)}, [=](Inputs in) { return all_gather(*replica_context(), in[0], axis); }};
}

// Has one row for each function that ops.hpp declares.
struct OpRow {
  std::string name;
  std::function<DrawnOp()> draw;
};
void PrintTo(const OpRow& row, std::ostream* out) { *out << row.name; }
std::vector<OpRow> table() {
  using Binary = TapeTensor (*)(const TapeTensor&, const TapeTensor&);
  using Unary = TapeTensor (*)(const TapeTensor&);
  return {{"operator+", binary(static_cast<Binary>(operator+))},
          {"operator-", binary(static_cast<Binary>(operator-))},
          {"operator*", binary(static_cast<Binary>(operator*))},
          {"operator/", binary(static_cast<Binary>(operator/), 3)},
          {"operator-", unary(static_cast<Unary>(operator-))},
          {"square", unary(square)},
          {"exp", unary(static_cast<Unary>(exp))},
          {"log", unary(static_cast<Unary>(log), 3)},
          {"sqrt", unary(static_cast<Unary>(sqrt), 3)},
          {"tanh", unary(static_cast<Unary>(tanh))},
          {"sigmoid", unary(sigmoid)},
          {"relu", unary(relu)},
          {"softplus", unary(softplus)},
          {"clip", unary([](const TapeTensor& x) { return clip(x, -0.701, 1.001); })},
          {"reduce_sum", reduction(reduce_sum)},
          {"reduce_mean", reduction(reduce_mean)},
          {"reduce_max", reduction(reduce_max)},
          {"matmul", drawn_matmul},
          {"dense", drawn_dense},
          {"conv2d", [] { return drawn_conv2d(false); }},
          {"conv2d", [] { return drawn_conv2d(true); }},
          {"max_pool", drawn_max_pool},
          {"reshape", drawn_reshape},
          {"transpose", drawn_transpose},
          {"concat", drawn_concat},
          {"slice", drawn_slice},
          {"gather", drawn_gather},
          {"softmax",
           [] {
             return DrawnOp{{drawn_tensor(drawn_shape(1))}, [](Inputs in) { return softmax(in[0]); }};
           }},
          {"log_softmax",
           [] {
             return DrawnOp{{drawn_tensor(drawn_shape(1))}, [](Inputs in) { return log_softmax(in[0]); }};
           }},
          {"softmax_cross_entropy", drawn_softmax_cross_entropy},
          {"sparse_softmax_cross_entropy", drawn_sparse_cross_entropy},
          {"sigmoid_cross_entropy", drawn_sigmoid_cross_entropy},
          {"batch_norm", [] { return drawn_batch_norm(false); }},
          {"batch_norm", [] { return drawn_batch_norm(true); }},
          {"batch_norm", drawn_given_norm},
          {"dropout", drawn_dropout},
          {"all_reduce_sum", unary([](const TapeTensor& x) { return all_reduce_sum(*replica_context(), x); })},
          {"all_reduce_mean", unary([](const TapeTensor& x) { return all_reduce_mean(*replica_context(), x); })},
          {"all_gather", drawn_all_gather}};
}

// Returns the sum of the elements of the result, each with a weight of its own.
template <class T>
TapeTensor weighted_sum(const TapeTensor& result) {
  Tensor<T> weights(result.shape());
  for (std::size_t i = 0; i < weights.size(); ++i) weights[i] = static_cast<T>(std::sin(static_cast<double>(i) + 1));
  return reduce_sum(result * weights);
}
template <class T>
std::vector<TapeTensor> inputs_of(const std::vector<Tensor<double>>& values) {
  std::vector<TapeTensor> inputs;
  for (const Tensor<double>& each : values) inputs.emplace_back(cast<T>(each));
  return inputs;
}
double value_at(const DrawnOp& op, const std::vector<Tensor<double>>& values) {
  return weighted_sum<double>(op.function(inputs_of<double>(values))).to<double>().item();
}
// Holds the value, and its gradients by the inputs.
template <class T>
struct Differentiated {
  double value = 0;
  std::vector<Tensor<T>> gradients;

  explicit Differentiated(const DrawnOp& op) {
    const std::vector<TapeTensor> inputs = inputs_of<T>(op.inputs);
    Tape tape;
    for (const TapeTensor& each : inputs) tape.watch(each);
    const TapeTensor target = weighted_sum<T>(op.function(inputs));
    value = static_cast<double>(target.to<T>().item());
    for (const Gradient& each : tape.gradient(target, inputs)) gradients.push_back(each.to<T>());
  }
};

class EveryOp : public testing::TestWithParam<OpRow> {};
TEST_P(EveryOp, HasTheGradientOfItsDifferences) {
  EXPECT_TRUE(rc::check([] {
    const DrawnOp op = GetParam().draw();
    const Differentiated<double> exact(op);
    const Differentiated<float> narrow(op);
    RC_ASSERT(std::abs(narrow.value - exact.value) <= 2e-5 * (1 + std::abs(exact.value)));
    for (std::size_t which = 0; which < op.inputs.size(); ++which) {
      for (std::size_t i = 0; i < op.inputs[which].size(); ++i) {
        constexpr double step = 1e-5;
        std::vector<Tensor<double>> moved = op.inputs;
        moved[which][i] += step;
        const double after = value_at(op, moved);
        moved[which][i] -= 2 * step;
        const double slope = (after - value_at(op, moved)) / (2 * step);
        const double found = exact.gradients[which][i];
        RC_LOG() << "input " << which << ", element " << i << ": " << found << " and " << slope << "\n";
        RC_ASSERT(std::abs(found - slope) <= 1e-6 * (1 + std::abs(slope)));
        RC_ASSERT(std::abs(double{narrow.gradients[which][i]} - found) <= 2e-5 * (1 + std::abs(found)));
      }
    }
  }));
}
INSTANTIATE_TEST_SUITE_P(, EveryOp, testing::ValuesIn(table()), [](const auto& row) {
  return std::to_string(row.index) + "_" + std::regex_replace(row.param.name, std::regex("[^a-z0-9_]"), "_");
});

TEST(Ops, AreAllInTheTable) {
  std::ifstream in(std::string(SOURCE_ROOT) + "/runtime/train/ops.hpp");
  const std::regex declaration("^(TapeTensor|NormalizedBatch) (operator.|[a-z_0-9]+)\\(.*");
  std::map<std::string, int> declared;
  for (std::string line; std::getline(in, line);) {
    std::smatch found;
    if (std::regex_match(line, found, declaration)) ++declared[found[2]];
  }
  std::map<std::string, int> rows;
  for (const OpRow& each : table()) ++rows[each.name];
  EXPECT_GT(declared.size(), 30U);
  EXPECT_EQ(rows, declared);
}

// Calculates golden cases, by TensorFlow's names. `x`, `y` and so on are inputs in the order of their names.
struct GoldenInputs {
  const GoldenCase& golden;
  std::map<std::string, TapeTensor> tensors;
  const TapeTensor& operator[](const std::string& name) const { return tensors.at(name); }
};
Padding golden_padding(const GoldenCase& golden) {
  return golden.word("padding") == "SAME" ? Padding::same : Padding::valid;
}
AxisOptions axes_of(const GoldenCase& golden) {
  AxisOptions options{.keeps_axes = golden.is_set("keepdims")};
  if (golden.word("axes") == "all") return options;
  for (const std::int64_t each : golden.integers("axes")) options.axes.push_back(static_cast<int>(each));
  return options;
}
TapeTensor golden_softmax(const GoldenInputs& in) {
  const auto axis = in.golden.integers("axes")[0];
  const int rank = in["x"].shape().rank();
  std::vector<int> order(static_cast<std::size_t>(rank));
  std::iota(order.begin(), order.end(), 0);
  std::swap(order[static_cast<std::size_t>(axis < 0 ? axis + rank : axis)], order.back());
  return transpose(softmax(transpose(in["x"], order)), order);
}
TapeTensor golden_transpose(const GoldenInputs& in) {
  std::vector<int> order;
  for (const std::int64_t each : in.golden.integers("order")) order.push_back(static_cast<int>(each));
  return transpose(in["x"], order);
}
TapeTensor golden_concat(const GoldenInputs& in) {
  std::vector<TapeTensor> parts{in["x"], in["y"]};
  if (in.tensors.contains("z")) parts.push_back(in["z"]);
  return concat(parts, static_cast<int>(in.golden.integers("axes")[0]));
}
TapeTensor golden_batch_norm(const GoldenInputs& in) {
  const double epsilon = in.golden.number("epsilon");
  if (!in.golden.is_set("training"))
    return batch_norm(in["x"], in["gamma"], in["beta"], in["mean"], in["variance"], epsilon);
  const NormalizedBatch batch = batch_norm(in["x"], in["gamma"], in["beta"], epsilon);
  expect_near(batch.mean.to<float>(), in.golden.tensor("mean"), 1e-6, 1e-6);
  expect_near(batch.variance.to<float>(), in.golden.tensor("variance"), 1e-6, 1e-6);
  return batch.result;
}
const std::map<std::string, std::function<TapeTensor(const GoldenInputs&)>>& golden_ops() {
  static const std::map<std::string, std::function<TapeTensor(const GoldenInputs&)>> ops = {
      {"add", [](auto& in) { return in["x"] + in["y"]; }},
      {"subtract", [](auto& in) { return in["x"] - in["y"]; }},
      {"multiply", [](auto& in) { return in["x"] * in["y"]; }},
      {"divide", [](auto& in) { return in["x"] / in["y"]; }},
      {"negative", [](auto& in) { return -in["x"]; }},
      {"square", [](auto& in) { return square(in["x"]); }},
      {"exp", [](auto& in) { return exp(in["x"]); }},
      {"log", [](auto& in) { return log(in["x"]); }},
      {"sqrt", [](auto& in) { return sqrt(in["x"]); }},
      {"tanh", [](auto& in) { return tanh(in["x"]); }},
      {"sigmoid", [](auto& in) { return sigmoid(in["x"]); }},
      {"relu", [](auto& in) { return relu(in["x"]); }},
      {"softplus", [](auto& in) { return softplus(in["x"]); }},
      {"softmax", golden_softmax},
      {"reduce_sum", [](auto& in) { return reduce_sum(in["x"], axes_of(in.golden)); }},
      {"reduce_mean", [](auto& in) { return reduce_mean(in["x"], axes_of(in.golden)); }},
      {"reduce_max", [](auto& in) { return reduce_max(in["x"], axes_of(in.golden)); }},
      {"matmul",
       [](auto& in) {
         return matmul(in["x"], in["y"], {in.golden.is_set("transpose_a"), in.golden.is_set("transpose_b")});
       }},
      {"conv2d",
       [](auto& in) {
         const std::vector<std::int64_t> strides = in.golden.integers("strides");
         return conv2d(in["x"], in["filters"], {strides[0], strides[1], golden_padding(in.golden)});
       }},
      {"max_pool",
       [](auto& in) {
         const std::vector<std::int64_t> window = in.golden.integers("window");
         const std::vector<std::int64_t> strides = in.golden.integers("strides");
         return max_pool(in["x"], {window[0], window[1], strides[0], strides[1], golden_padding(in.golden)});
       }},
      {"reshape", [](auto& in) { return reshape(in["x"], in.golden.integers("shape")); }},
      {"transpose", golden_transpose},
      {"concat", golden_concat},
      {"slice", [](auto& in) { return slice(in["x"], in.golden.integers("begin"), in.golden.integers("size")); }},
      {"gather", [](auto& in) { return gather(in["x"], in["indices"]); }},
      {"batch_norm", golden_batch_norm},
      {"softmax_cross_entropy_with_logits", [](auto& in) { return softmax_cross_entropy(in["labels"], in["logits"]); }},
      {"sparse_softmax_cross_entropy_with_logits",
       [](auto& in) { return sparse_softmax_cross_entropy(in["labels"], in["logits"]); }},
      {"sigmoid_cross_entropy_with_logits", [](auto& in) { return sigmoid_cross_entropy(in["labels"], in["logits"]); }},
  };
  return ops;
}

TEST(Ops, HaveTensorFlowsValuesAndGradients) {
  const std::vector<GoldenCase> cases = golden_cases("ops");
  EXPECT_GT(cases.size(), 100U);
  for (const GoldenCase& golden : cases) {
    SCOPED_TRACE(golden.name());
    const bool has_classes = golden.word("op").starts_with("sparse");
    GoldenInputs in{golden, {}};
    for (const std::string& name : golden.tensors_with("")) {
      const bool is_integer = name == "indices" || (name == "labels" && has_classes);
      if (is_integer)
        in.tensors.emplace(name, golden.tensor<std::int64_t>(name));
      else
        in.tensors.emplace(name, golden.tensor(name));
    }
    ASSERT_TRUE(golden_ops().contains(golden.word("op")));
    Tape tape;
    std::vector<std::string> names;
    std::vector<TapeTensor> sources;
    for (const std::string& name : golden.tensors_with("grad.")) {
      if (name == "labels") continue;  // Labels have no gradient here.
      names.push_back(name);
      sources.push_back(in[name]);
      tape.watch(sources.back());
    }
    const TapeTensor out = golden_ops().at(golden.word("op"))(in);
    expect_near(out.to<float>(), golden.tensor("out"), 1e-6, 1e-6);
    const std::vector<Gradient> gradients = tape.gradient(out * in["upstream"], sources);
    for (std::size_t i = 0; i < names.size(); ++i) {
      SCOPED_TRACE(names[i]);
      expect_near(gradients[i].to<float>(), golden.tensor("grad." + names[i]), 1e-6, 1e-6);
    }
  }
}

// Returns the largest difference from exact sums in f64.
double error_of(const Tensor<float>& found, const std::vector<double>& exact) {
  double largest = 0;
  for (std::size_t i = 0; i < exact.size(); ++i)
    largest = std::max(largest, std::abs(double{found[i]} - exact[i]) / std::abs(exact[i]));
  return largest;
}
TEST(Ops, SumManyElementsWithSmallErrors) {
  Tensor<float> x({500'000, 3});
  std::vector<double> exact(3);
  for (std::size_t i = 0; i < x.size(); ++i) {
    x[i] = 0.1F + static_cast<float>(i % 3);
    exact[i % 3] += double{x[i]};
  }
  const TapeTensor row = Tensor<float>({3}, {1, 1, 1});
  const TapeTensor one = 1.F;
  Tape tape({.persistent = true});
  tape.watch(row);
  tape.watch(one);
  const TapeTensor y = one * (TapeTensor(x) * row);
  EXPECT_LE(error_of(reduce_sum(x, {.axes = {0}}).to<float>(), exact), 1e-6);
  EXPECT_LE(error_of(tape.gradient(y, row).to<float>(), exact), 1e-6);
  const double all = std::accumulate(exact.begin(), exact.end(), 0.0);
  EXPECT_LE(error_of(reduce_sum(x).to<float>(), {all}), 1e-6);
  EXPECT_LE(error_of(tape.gradient(y, one).to<float>(), {all}), 1e-6);
}

// A replica may get no examples of the last batch. Its gradients are zeros.
TEST(Ops, TakeBatchesWithoutExamples) {
  Variable kernel(Tensor<float>({3, 3, 1, 2}, 1.F));
  Variable bias(Tensor<float>({2}, 1.F));
  Variable scale(Tensor<float>({2}, 1.F));
  Variable weights(Tensor<float>({8, 3}, 1.F));
  Variable units(Tensor<float>({3}, 1.F));
  const std::vector<AnyVariable> all{kernel, bias, scale, weights, units};
  Tape tape;
  const TapeTensor images = Tensor<float>({0, 6, 6, 1});
  const TapeTensor convolved = conv2d(images, kernel, bias, {}, FusedActivation::relu);
  const TapeTensor normal = batch_norm(max_pool(convolved), scale, bias, 1e-3).result;
  const TapeTensor logits = dense(dropout(reshape(normal, {-1, 8}), 0.5, {}), weights, units);
  const TapeTensor each = sparse_softmax_cross_entropy(Tensor<std::uint8_t>(TensorShape{0}), tanh(logits * units));
  EXPECT_EQ(each.shape(), TensorShape{0});
  const TapeTensor loss = reduce_sum(each);
  EXPECT_EQ(loss.item(), 0);
  for (const VariableGradient& gradient : tape.gradient(loss, all))
    EXPECT_EQ(gradient.gradient.to<float>(), Tensor<float>(gradient.variable.shape())) << gradient.variable;
}

TEST(Ops, GiveTheGradientOfATableAsRows) {
  const TapeTensor table = Tensor<float>({4, 2}, {0, 1, 2, 3, 4, 5, 6, 7});
  const TapeTensor indices = Tensor<std::int32_t>({3}, {2, 0, 2});
  Tape tape;
  tape.watch(table);
  const TapeTensor rows = gather(table, indices);
  const Gradient gradient = tape.gradient(rows * rows, table);
  ASSERT_TRUE(gradient.is_sparse());
  EXPECT_EQ(gradient.rows().indices(), (std::vector<std::int64_t>{2, 0, 2}));
  EXPECT_EQ(gradient.rows().values(), Tensor<float>({3, 2}, {8, 10, 0, 2, 8, 10}));
  EXPECT_EQ(gradient.to<float>(), Tensor<float>({4, 2}, {0, 2, 0, 0, 16, 20, 0, 0}));
}

TEST(Ops, GiveLabelsNoGradient) {
  const TapeTensor labels = Tensor<float>({1, 2}, {0.25F, 0.75F});
  const TapeTensor logits = Tensor<float>({1, 2}, {1, 2});
  Tape tape({.persistent = true});
  tape.watch(labels);
  tape.watch(logits);
  EXPECT_FALSE(tape.gradient(softmax_cross_entropy(labels, logits), labels).has_value());
  EXPECT_FALSE(tape.gradient(sigmoid_cross_entropy(labels, logits), labels).has_value());
}

TEST(Ops, DropByKeyAndPosition) {
  const TapeTensor x = Tensor<float>({100, 100}, 1.F);
  const Tensor<float> first = dropout(x, 0.3, {1, 2}).to<float>();
  EXPECT_EQ(dropout(x, 0.3, {1, 2}).to<float>(), first);
  EXPECT_NE(dropout(x, 0.3, {1, 3}).to<float>(), first);
  EXPECT_NE(dropout(x, 0.3, {2, 2}).to<float>(), first);
  const Tensor<float> part = dropout(Tensor<float>({7}, 1.F), 0.3, {1, 2}).to<float>();
  EXPECT_TRUE(std::equal(part.begin(), part.end(), first.begin()));
  const auto kept = std::ranges::count(first, 1 / (1 - 0.3F));
  EXPECT_EQ(std::ranges::count(first, 0.F), 10'000 - kept);
  EXPECT_NEAR(static_cast<double>(kept), 7000, 230) << "five deviations";
}

TEST(Ops, RefuseInputsThatDoNotFit) {
  const auto ones = [](TensorShape shape) { return TapeTensor(Tensor<float>(std::move(shape), 1.F)); };
  const auto integers = [](std::vector<std::int64_t> all) { return TapeTensor(lockstep::row(all)); };
  const TapeTensor m = ones({2, 3});
  const TapeTensor image = ones({1, 4, 4, 2});
  const TapeTensor wide = Tensor<double>({2, 3}, 1.);
  const TapeTensor scalar = 1.F;
  const std::vector<std::tuple<std::string, std::string, std::function<void()>>> table = {
      {"add: tensors of f32 and f64", "cast<float>", [&] { m + wide; }},
      {"a * b of the shapes (2, 3) and (2,)", "equal shape", [&] { m* ones({2}); }},
      {"exp: it computes with f32 and f64", "cast<float>", [&] { exp(integers({1})); }},
      {"clip: the limits 2 and 1", "lower limit first", [&] { clip(m, 2, 1); }},
      {"reduce_sum: axis 2 of a tensor of shape (2, 3)", "from -2 to 1", [&] { reduce_sum(m, {.axes = {2}}); }},
      {"reduce_max: axis -1 is named twice", "once",
       [&] {
         reduce_max(m, {.axes = {1, -1}});
       }},
      {"matmul: matrices of the shapes (2, 3) and (2, 3)", "3 columns", [&] { matmul(m, m); }},
      {"matmul: tensors of the shapes (2, 3) and ()", "two matrices", [&] { matmul(m, scalar); }},
      {"matmul: tensors of f32 and f64", "cast<float>", [&] { matmul(m, wide, {.transpose_b = true}); }},
      {"dense: rows of shape (2, 3) and weights of shape (2, 3)", "(length of a row, units)",
       [&] { dense(m, m, ones({3})); }},
      {"dense: a bias of shape (3,)", "shape (4,)",
       [&] {
         dense(m, ones({3, 4}), ones({3}));
       }},
      {"conv2d: images of shape (2, 3)", "batch, rows, columns", [&] { conv2d(m, image); }},
      {"conv2d: a kernel of shape (3, 3, 1, 5)", "with 2 channels",
       [&] {
         conv2d(image, ones({3, 3, 1, 5}));
       }},
      {"conv2d: a stride of 0 rows", "positive",
       [&] {
         conv2d(image, ones({3, 3, 2, 5}), {.stride_rows = 0});
       }},
      {"conv2d: a bias of shape (4,)", "shape (5,)",
       [&] {
         conv2d(image, ones({3, 3, 2, 5}), ones({4}));
       }},
      {"conv2d: a window of 5 x 5 elements", "Padding::same",
       [&] {
         conv2d(image, ones({5, 5, 2, 1}));
       }},
      {"max_pool: a window of -1 rows", "positive", [&] { max_pool(image, {.rows = -1}); }},
      {"max_pool: a window of 5 x 2 elements", "Padding::same", [&] { max_pool(image, {.rows = 5}); }},
      {"reshape: a tensor of shape (2, 3) cannot have the lengths (4, -1)", "product is 6",
       [&] {
         reshape(m, {4, -1});
       }},
      {"reshape: a tensor of shape (2, 3) cannot have the lengths (-2)", "from 0", [&] { reshape(m, {-2}); }},
      {"there is no shape (1099511627776, 1099511627776)", "63 bits",
       [&] {
         reshape(m, {1LL << 40, 1LL << 40});
       }},
      {"reshape: a tensor of shape (2, 3) cannot have the lengths (-1, -1)", "one of them",
       [&] {
         reshape(m, {-1, -1});
       }},
      {"transpose: 2 axes that are no permutation", "once",
       [&] {
         transpose(m, {0, 0});
       }},
      {"concat: no tensors", "one at least", [&] { concat(std::span<const TapeTensor>(), 0); }},
      {"concat: axis 2", "that axis",
       [&] {
         concat({m, m}, 2);
       }},
      {"concat: tensors of the shapes (2, 3) and (1, 4)", "axis 0 only",
       [&] {
         concat({m, ones({1, 4})}, 0);
       }},
      {"concat: tensors of f32 and f64", "cast<float>",
       [&] {
         concat({m, wide}, 0);
       }},
      {"slice: 2 elements from 2 on along axis 1, which has 3", "inside",
       [&] {
         slice(m, {0, 2}, {1, 2});
       }},
      {"slice: 1 positions and 2 lengths", "2 of each",
       [&] {
         slice(m, {0}, {1, 2});
       }},
      {"gather: index 1 is 2, and the table has 2 rows", "from 0 to 1",
       [&] {
         gather(m, integers({0, 2}));
       }},
      {"gather: index 0 is -1", "from 0", [&] { gather(m, integers({-1})); }},
      {"gather: indices of f32", "i32 or i64", [&] { gather(m, m); }},
      {"gather: the table is a scalar", "rows", [&] { gather(scalar, integers({0})); }},
      {"softmax: logits of shape ()", "one class", [&] { softmax(scalar); }},
      {"softmax_cross_entropy: labels of f32 of shape (3,)", "shape of the logits",
       [&] { softmax_cross_entropy(ones({3}), m); }},
      {"sparse_softmax_cross_entropy: row 1 has class 3, and the logits have 3 classes", "from 0 to 2",
       [&] {
         sparse_softmax_cross_entropy(integers({0, 3}), m);
       }},
      {"sparse_softmax_cross_entropy: row 0 has class -1", "from 0 to 2",
       [&] {
         sparse_softmax_cross_entropy(integers({-1, 0}), m);
       }},
      {"sparse_softmax_cross_entropy: labels of f32 of shape (2,)", "i32, i64 or u8, of shape (2,)",
       [&] { sparse_softmax_cross_entropy(ones({2}), m); }},
      {"sparse_softmax_cross_entropy: labels of i64 of shape (3,)", "of shape (2,)",
       [&] {
         sparse_softmax_cross_entropy(integers({0, 0, 0}), m);
       }},
      {"sigmoid_cross_entropy: labels of f64 of shape (2, 3)", "type", [&] { sigmoid_cross_entropy(wide, m); }},
      {"batch_norm: f32 of shape (2,) for f32 of shape (2, 3)", "shape (3,)",
       [&] { batch_norm(m, ones({2}), ones({3}), 0.1); }},
      {"batch_norm: a tensor of shape (3,)", "channels", [&] { batch_norm(ones({3}), ones({3}), ones({3}), 0.1); }},
      {"dropout: a rate of 1", "below 1", [&] { dropout(m, 1, {}); }},
      {"all_gather: a scalar has no axis", "reshape", [&] { all_gather(*replica_context(), scalar); }},
  };
  for (const auto& [fault, remedy, call] : table) {
    const std::string found = refusal(call, Code::usage);
    EXPECT_NE(found.find(fault), std::string::npos) << found << "\nlacks: " << fault;
    EXPECT_NE(found.find(remedy), std::string::npos) << found << "\nlacks: " << remedy;
  }
}

}  // namespace
}  // namespace lockstep::train
