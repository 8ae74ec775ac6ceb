// SPDX-License-Identifier: Apache-2.0
// Shapes, tensors, slices and structures, without any strategy.
#include <gtest/gtest.h>

#include <cmath>
#include <complex>
#include <limits>
#include <sstream>
#include <variant>

#include "runtime/values/fold.hpp"
#include "runtime/values/slices.hpp"
#include "runtime/values/structure.hpp"
#include "runtime/values/tensor_arithmetic.hpp"
#include "runtime/values/tensor_spec.hpp"
#include "tests/support/refusal.hpp"

namespace lockstep {

struct Losses {
  float total = 0;
  Tensor<double> each = {};
};
template <>
struct Fields<Losses> {
  static auto of(auto& losses) { return std::tie(losses.total, losses.each); }
};

// Its fields can have other types.
template <class Total, class Each>
struct LossesOf {
  Total total;
  Each each;
};
template <class Total, class Each>
struct Fields<LossesOf<Total, Each>> {
  static auto of(auto& losses) { return std::tie(losses.total, losses.each); }
};

namespace {

using test::refusal;

template <class T>
std::string printed(const T& value) {
  std::ostringstream out;
  out << value;
  return out.str();
}

TEST(Shapes, KnowTheirAxes) {
  const TensorShape shape{2, 3, 4};
  EXPECT_EQ(shape.count(), 24U);
  EXPECT_EQ(shape[-1], 4);
  EXPECT_EQ(shape.find(-3), 0);
  EXPECT_EQ(shape.inside(1), 4U);
  EXPECT_EQ(shape.outside(1), 2U);
  EXPECT_EQ(shape.with(1, 7), (TensorShape{2, 7, 4}));
  EXPECT_EQ(shape.without(-2), (TensorShape{2, 4}));
  EXPECT_EQ(shape.to_string() + TensorShape{5}.to_string() + TensorShape{}.to_string(), "(2, 3, 4)(5,)()");
  EXPECT_EQ(TensorShape{}.count(), 1U);
  EXPECT_EQ((TensorShape{3, 0}).count(), 0U);
}

TEST(Shapes, ThatCannotBeAreRefused) {
  EXPECT_NE(refusal([] { TensorShape{-1}; }, Code::usage).find("there is no shape (-1,)"), std::string::npos);
  refusal([] { TensorShape({std::int64_t{1} << 40U, std::int64_t{1} << 40U}); }, Code::usage);
  refusal([] { TensorShape(std::vector<std::int64_t>(17, 1)); }, Code::usage);
  constexpr std::int64_t large = std::int64_t{1} << 40U;
  refusal([] { TensorShape({0, large, large}); }, Code::usage);
  refusal([] { TensorShape({large, large, 0}); }, Code::usage);
  EXPECT_EQ(to_string(Tensor<int>(TensorShape{large, 0})), "[]");
  EXPECT_EQ(join<int>({Tensor<int>(TensorShape{large, 0}), Tensor<int>(TensorShape{large, 0})}, 0).shape()[0],
            2 * large);
  EXPECT_NE(refusal(
                [] {
                  (void)TensorShape({2, 2}).find(2);
                },
                Code::usage)
                .find("axes are -2 to 1"),
            std::string::npos);
  EXPECT_NE(refusal([] { (void)TensorShape().find(0); }, Code::usage).find("a scalar has no axes"), std::string::npos);
}

TEST(Tensors, AreValuesWithAShape) {
  Tensor<float> a({2, 2}, {1, 2, 3, 4});
  const Tensor<float> b = a;
  a[3] = 9;
  EXPECT_EQ(b[3], 4);
  EXPECT_NE(a, b);
  EXPECT_NE(b, row({1.F, 2.F, 3.F, 4.F}));
  EXPECT_EQ(Tensor<int>(7).item(), 7);
  EXPECT_EQ(Tensor<bool>({3}, true)[2], true);
  EXPECT_EQ(Tensor<float>(TensorShape{0}).data(), nullptr);
  EXPECT_NE(refusal(
                [] {
                  Tensor<int>({2}, {1, 2, 3});
                },
                Code::usage)
                .find("3 values for a tensor of shape (2,)"),
            std::string::npos);
  refusal([&] { (void)b.item(); }, Code::usage);
}

TEST(Tensors, HaveTheTextOfNumpy) {
  EXPECT_EQ(to_string(Tensor<float>(1)), "1.0");
  EXPECT_EQ(to_string(Tensor<float>(0.1F)), "0.1");
  EXPECT_EQ(to_string(Tensor<double>(1e-5)), "1e-05");
  EXPECT_EQ(to_string(Tensor<double>(1e20)), "1e+20");
  EXPECT_EQ(to_string(Tensor<double>(-std::numeric_limits<double>::infinity())), "-inf");
  EXPECT_EQ(to_string(Tensor<bool>(true)), "True");
  EXPECT_EQ(to_string(Tensor<std::int8_t>(std::int8_t{7})), "7");
  EXPECT_EQ(to_string(Tensor<f16>(f16(0.5F))), "0.5");
  EXPECT_EQ(to_string(row({1.F, 2.5F})), "[1., 2.5]");
  EXPECT_EQ(to_string(Tensor<int>({2, 2}, {1, 2, 3, 4})), "[[1, 2],\n [3, 4]]");
  EXPECT_EQ(to_string(Tensor<int>({2, 1, 2}, {1, 2, 3, 4})), "[[[1, 2]],\n\n [[3, 4]]]");
  EXPECT_EQ(to_string(Tensor<int>({2000}, 5)), "[5, 5, 5, ..., 5, 5, 5]");
  EXPECT_EQ(to_string(Tensor<int>(TensorShape{0})), "[]");
}

// The first one is a line of the reference's guide.
TEST(Tensors, ArePrintedAsInTheDocuments) {
  EXPECT_EQ(printed(Tensor<float>(0.2875447F)), "tf.Tensor(0.2875447, shape=(), dtype=float32)");
  EXPECT_EQ(printed(Tensor<double>(1)), "tf.Tensor(1.0, shape=(), dtype=float64)");
  EXPECT_EQ(printed(row({1.F, 2.5F})), "tf.Tensor([1. 2.5], shape=(2,), dtype=float32)");
  EXPECT_EQ(printed(Tensor<int>({2, 2}, {1, 2, 3, 4})), "tf.Tensor(\n[[1 2]\n [3 4]], shape=(2, 2), dtype=int32)");
  EXPECT_EQ(printed(Tensor<bool>({2}, true)), "tf.Tensor([True True], shape=(2,), dtype=bool)");
  EXPECT_EQ(printed(Tensor<bf16>(TensorShape{0})), "tf.Tensor([], shape=(0,), dtype=bfloat16)");
  EXPECT_EQ(
      printed(PerReplica<Tensor<float>>{0.25F, 0.5F}),
      "PerReplica:{\n  0: tf.Tensor(0.25, shape=(), dtype=float32),\n  1: tf.Tensor(0.5, shape=(), dtype=float32)\n}");
  EXPECT_EQ(printed(PerReplica<float>{0.2875447F, 1.F}), "PerReplica:{\n  0: 0.2875447,\n  1: 1.0\n}");
}

TEST(Tensors, AreJoinedAlongAnAxis) {
  const Tensor<int> a({2, 1}, {1, 2});
  const Tensor<int> b({2, 2}, {3, 4, 5, 6});
  EXPECT_EQ(join<int>({a, b}, 1), Tensor<int>({2, 3}, {1, 3, 4, 2, 5, 6}));
  EXPECT_EQ(join<int>({b, b}, -2), Tensor<int>({4, 2}, {3, 4, 5, 6, 3, 4, 5, 6}));
  EXPECT_EQ(join<int>({Tensor<int>(TensorShape{2, 0}), a}, 1), a);
}

TEST(Tensors, AreFoldedAlongAxes) {
  const Tensor<int> t({2, 3}, {1, 2, 3, 4, 5, 6});
  EXPECT_EQ(detail::fold(ReduceOp::sum, t, 0), row({5, 7, 9}));
  EXPECT_EQ(detail::fold(ReduceOp::prod, t, 1), row({6, 120}));
  EXPECT_EQ(detail::fold<int>(ReduceOp::max, t, {0, -1}), Tensor<int>(6));
  EXPECT_EQ(detail::fold<int>(ReduceOp::min, t, {1, 0}), Tensor<int>(1));
  EXPECT_EQ(detail::fold<int>(ReduceOp::sum, t, std::vector<int>{}), t);
  EXPECT_EQ(detail::number_folded(t.shape(), {0, -2, 1}), 6U);
  const Tensor<float> empty(TensorShape{0, 2});
  EXPECT_EQ(detail::fold(ReduceOp::sum, empty, 0), row({0.F, 0.F}));
  EXPECT_EQ(detail::fold(ReduceOp::min, empty, 0)[1], std::numeric_limits<float>::infinity());
  EXPECT_EQ(detail::fold(ReduceOp::max, Tensor<int>(TensorShape{0}), 0).item(), std::numeric_limits<int>::lowest());
  EXPECT_EQ(detail::fold(ReduceOp::sum, Tensor<f16>({3}, f16(0.5F)), 0).item(), f16(1.5F));
}

TEST(Slices, MustFitAndAreScatteredInOrder) {
  const IndexedSlices<int> rows(Tensor<int>({3, 2}, {1, 2, 3, 4, 5, 6}), {0, 2, 0}, {3, 2});
  Tensor<int> whole({3, 2});
  rows.scatter(whole, [](int& element, int by) { element += by; });
  EXPECT_EQ(whole, Tensor<int>({3, 2}, {6, 8, 0, 0, 3, 4}));
  rows.scatter(whole, [](int& element, int by) { element = by; });
  EXPECT_EQ(whole, Tensor<int>({3, 2}, {5, 6, 0, 0, 3, 4}));
  EXPECT_NE(refusal(
                [] {
                  IndexedSlices<int>(Tensor<int>(TensorShape{1, 2}), {0, 1}, {3, 2});
                },
                Code::usage)
                .find("give values of shape (2, 2)"),
            std::string::npos);
  EXPECT_NE(refusal(
                [] {
                  IndexedSlices<int>(Tensor<int>(TensorShape{1, 2}), {3}, {3, 2});
                },
                Code::usage)
                .find("there is no row 3"),
            std::string::npos);
  refusal([] { IndexedSlices<int>(Tensor<int>(TensorShape{1, 2}), {-1}, {3, 2}); }, Code::usage);
  refusal([] { IndexedSlices<int>(Tensor<int>(1), {}, {}); }, Code::usage);
}

TEST(Arithmetic, OfEveryType) {
  using detail::changed;
  using detail::UpdateOp;
  EXPECT_EQ(changed(UpdateOp::add, 2, 3), 5);
  EXPECT_EQ(changed(UpdateOp::subtract, f16(2), f16(3)), f16(-1));
  EXPECT_EQ(changed(UpdateOp::divide, 7, 2), 3);
  EXPECT_EQ(changed(UpdateOp::min, 2.F, 3.F), 2.F);
  EXPECT_EQ(changed(UpdateOp::max, bf16(2), bf16(3)), bf16(3));
  EXPECT_EQ(changed(UpdateOp::multiply, std::complex<float>(0, 1), std::complex<float>(0, 1)),
            std::complex<float>(-1, 0));
  EXPECT_TRUE(changed(UpdateOp::assign, false, true));
  // Integers wrap around, and nothing is undefined.
  constexpr int least = std::numeric_limits<int>::lowest();
  EXPECT_EQ(changed(UpdateOp::subtract, least, 1), std::numeric_limits<int>::max());
  EXPECT_EQ(changed(UpdateOp::divide, least, -1), least);
  EXPECT_EQ(changed(UpdateOp::multiply, std::uint16_t{65535}, std::uint16_t{65535}), std::uint16_t{1});
  EXPECT_EQ(changed(UpdateOp::divide, std::int8_t{-7}, std::int8_t{2}), std::int8_t{-3});
  const float none = std::numeric_limits<float>::quiet_NaN();
  EXPECT_TRUE(std::isnan(changed(UpdateOp::min, 1.F, none)) && std::isnan(changed(UpdateOp::max, none, 1.F)));
  EXPECT_TRUE(std::isnan(static_cast<float>(changed(UpdateOp::max, f16(1), f16(none)))));
  EXPECT_TRUE(std::signbit(changed(UpdateOp::min, 0.F, -0.F)) && !std::signbit(changed(UpdateOp::max, -0.F, 0.F)));
  EXPECT_EQ(detail::divided(std::int8_t{-100}, 200), std::int8_t{0});
  EXPECT_EQ(detail::divided(std::uint8_t{200}, 256), std::uint8_t{0});
  refusal([] { detail::divided(0, 0); }, Code::usage);
  refusal([] { changed(UpdateOp::add, true, true); }, Code::usage);
  refusal([] { changed(UpdateOp::divide, 1, 0); }, Code::usage);
  refusal([] { changed(UpdateOp::min, std::complex<double>(), std::complex<double>()); }, Code::usage);
}

TEST(Tensors, CalculateElementByElement) {
  const Tensor<float> a({2, 2}, {1, 2, 3, 4});
  const Tensor<float> b({2, 2}, {4, 3, 2, 0.5F});
  EXPECT_EQ(a + b, Tensor<float>({2, 2}, {5, 5, 5, 4.5F}));
  EXPECT_EQ(a - b, Tensor<float>({2, 2}, {-3, -1, 1, 3.5F}));
  EXPECT_EQ(a * b, Tensor<float>({2, 2}, {4, 6, 6, 2}));
  EXPECT_EQ(a / b, Tensor<float>({2, 2}, {0.25F, 2.F / 3, 1.5F, 8}));
  EXPECT_EQ(0.5F * a + 1, Tensor<float>({2, 2}, {1.5F, 2, 2.5F, 3}));
  EXPECT_TRUE(std::signbit((-Tensor<float>(0.F)).item()));
  EXPECT_EQ(2 * Tensor<f16>(f16(0.5F)) - f16(3), Tensor<f16>(f16(-2)));
  EXPECT_EQ(Tensor<std::complex<float>>(std::complex<float>(0, 1)) * std::complex<float>(0, 1) + 1,
            Tensor<std::complex<float>>(std::complex<float>(0, 0)));
  EXPECT_EQ(-row({std::uint8_t{1}}), row({std::uint8_t{255}}));
  EXPECT_EQ(row({7, -7}) / 2, row({3, -3}));
  Tensor<float> c = a;
  ((c += b) -= 1) *= a;
  EXPECT_EQ(c / a, a + b - 1);
  Tensor<int> whole = row({6, 8});
  EXPECT_NE(refusal(
                [&] {
                  whole /= row({2, 0});
                },
                Code::usage)
                .find("division of an integer by zero"),
            std::string::npos);
  EXPECT_EQ(whole, row({6, 8}));
  EXPECT_EQ(cast<int>(row({1.5F, -1.5F})), row({1, -1}));
}

TEST(Tensors, OfOtherShapesAreRepeatedAsByNumpy) {
  const Tensor<int> column({2, 1}, {10, 20});
  EXPECT_EQ(column + row({1, 2, 3}), Tensor<int>({2, 3}, {11, 12, 13, 21, 22, 23}));
  EXPECT_EQ(row({1, 2, 3}) - column, Tensor<int>({2, 3}, {-9, -8, -7, -19, -18, -17}));
  const Tensor<int> deep({2, 1, 2}, {1, 2, 3, 4});
  EXPECT_EQ(deep * Tensor<int>({3, 1}, {1, 10, 100}),
            Tensor<int>({2, 3, 2}, {1, 2, 10, 20, 100, 200, 3, 4, 30, 40, 300, 400}));
  EXPECT_EQ((deep + Tensor<int>({1, 1}, 1)).shape(), deep.shape());
  EXPECT_EQ((Tensor<int>(TensorShape{0, 3}) + row({1, 2, 3})).shape(), (TensorShape{0, 3}));
  EXPECT_EQ((Tensor<int>(TensorShape{3, 0}) + Tensor<int>({1, 1}, 1)).size(), 0U);
  Tensor<int> changed({2, 3}, {1, 2, 3, 4, 5, 6});
  changed += row({10, 20, 30});
  EXPECT_EQ(changed, Tensor<int>({2, 3}, {11, 22, 33, 14, 25, 36}));
  const std::string words = refusal(
      [] {
        Tensor<int>(TensorShape{2, 3}) + Tensor<int>(TensorShape{3, 2});
      },
      Code::usage);
  EXPECT_NE(words.find("a + b of the shapes (2, 3) and (3, 2): 3 and 2 elements along axis -1"), std::string::npos)
      << words;
  const std::string grows = refusal([] { Tensor<int>(1) *= row({1, 2}); }, Code::usage);
  EXPECT_NE(grows.find("a *= b would change the shape of a from () to (2,)"), std::string::npos) << grows;
}

TEST(Tensors, ShareTheirRows) {
  Tensor<int> whole({3, 2}, {1, 2, 3, 4, 5, 6});
  const Tensor<int>& same = whole;
  const TensorSpan<int> last = whole.rows(1, 2);
  EXPECT_EQ(last.shape(), (TensorShape{2, 2}));
  EXPECT_EQ(last.data(), whole.data() + 2);
  last[0] = 30;
  EXPECT_EQ(same.rows(1, 1).copy(), Tensor<int>({1, 2}, {30, 4}));
  EXPECT_EQ(last.rows(1, 1).copy(), Tensor<int>({1, 2}, {5, 6}));
  whole.rows(0, 1) += same.rows(2, 1);
  EXPECT_EQ(whole, Tensor<int>({3, 2}, {6, 8, 30, 4, 5, 6}));
  whole.rows(1, 2) -= same.rows(0, 2);  // The rows overlap, so the operand is as it was.
  EXPECT_EQ(whole, Tensor<int>({3, 2}, {6, 8, 24, -4, -25, 2}));
  whole -= same.rows(0, 1);
  EXPECT_EQ(whole, Tensor<int>({3, 2}, {0, 0, 18, -12, -31, -6}));
  EXPECT_EQ(whole.rows(3, 0).size(), 0U);
  for (const auto& [first, number] : {std::pair(2, 2), {-1, 1}, {4, 0}, {1, -1}}) {
    const std::string words = refusal([&, from = first, rows = number] { whole.rows(from, rows); }, Code::usage);
    EXPECT_NE(words.find("within the 3 of the first axis"), std::string::npos) << words;
  }
  Tensor<int> scalar(1);
  refusal([&] { scalar.rows(0, 1); }, Code::usage);
}

TEST(TensorSpecs, AreComparedAndPrinted) {
  constexpr std::int64_t unknown = TensorSpec::unknown;
  const TensorSpec batches({unknown, 3}, DataType::f32, "x");
  EXPECT_EQ(TensorSpec({unknown, 3}, DataType::f32).to_string(),
            "TensorSpec(shape=(None, 3), dtype=tf.float32, name=None)");
  EXPECT_EQ(batches.to_string(), "TensorSpec(shape=(None, 3), dtype=tf.float32, name='x')");
  EXPECT_EQ(TensorSpec(DataType::boolean).to_string(), "TensorSpec(shape=<unknown>, dtype=tf.bool, name=None)");
  EXPECT_EQ(printed(TensorSpec(row({1, 2}))), "TensorSpec(shape=(2,), dtype=tf.int32, name=None)");
  EXPECT_TRUE(batches.is_compatible_with(Tensor<float>(TensorShape{7, 3})));
  EXPECT_TRUE(batches.is_compatible_with(TensorSpec({2, unknown}, DataType::f32)));
  EXPECT_TRUE(batches.is_compatible_with(TensorSpec(DataType::f32)));
  EXPECT_FALSE(batches.is_compatible_with(Tensor<float>(TensorShape{7, 4})));
  EXPECT_FALSE(batches.is_compatible_with(Tensor<float>(TensorShape{3})));
  EXPECT_FALSE(batches.is_compatible_with(Tensor<double>(TensorShape{7, 3})));
  EXPECT_FALSE(batches.is_fully_defined());
  EXPECT_TRUE(TensorSpec(row({1, 2})).is_fully_defined());
  const std::string words = refusal([&] { batches.check(TensorSpec(row({1.F})), "batch 3"); }, Code::usage);
  EXPECT_NE(words.find("batch 3 is TensorSpec(shape=(1,), dtype=tf.float32, name=None), which does not fit"),
            std::string::npos)
      << words;
  refusal([] { TensorSpec({-2}, DataType::f32); }, Code::usage);
  refusal([] { TensorSpec(std::vector<std::int64_t>(17, TensorSpec::unknown), DataType::f32); }, Code::usage);
}

TEST(Structures, GiveAReplicaItsPart) {
  const PerReplica<int> own{10, 20};
  const std::map<std::string, std::tuple<PerReplica<int>, float>> nested{{"a", {own, 0.5F}}};
  const auto part = select_replica(1, nested);
  static_assert(std::is_same_v<decltype(part), const std::map<std::string, std::tuple<int, float>>>);
  EXPECT_EQ(part.at("a"), std::tuple(20, 0.5F));
  EXPECT_EQ(select_replica(0, std::vector{own, own}), (std::vector{10, 10}));
  EXPECT_EQ(select_replica(1, std::array{own, own}), (std::array{20, 20}));
  EXPECT_EQ(select_replica(1, std::pair(own, std::vector{1.F})), std::pair(20, std::vector{1.F}));
  EXPECT_EQ(select_replica(1, 7), 7);
  EXPECT_NE(refusal([&] { select_replica(2, own); }, Code::usage).find("no replica 2 in a PerReplica of 2"),
            std::string::npos);
  int parts = 0;
  detail::for_each_number_of_parts(std::pair(nested, std::array{own}), [&](int number) { parts += number; });
  EXPECT_EQ(parts, 4);
}

TEST(Structures, OfReplicasBecomeOneOfTheSameForm) {
  using Each = std::map<std::string, std::tuple<int, std::monostate, std::vector<Tensor<int>>>>;
  const auto one = [](int i) { return Each{{"k", {i, {}, {Tensor<int>(i), Tensor<int>(-i)}}}}; };
  const auto whole = detail::regroup(std::deque<Each>{one(1), one(2)});
  const auto& [number, nothing, list] = whole.at("k");
  EXPECT_EQ(number, (PerReplica<int>{1, 2}));
  EXPECT_EQ(nothing, std::monostate());
  ASSERT_EQ(list.size(), 2U);
  EXPECT_EQ(list[1], (PerReplica<Tensor<int>>{Tensor<int>(-1), Tensor<int>(-2)}));
  EXPECT_EQ(select_replica(0, whole), one(1));
  const auto numbers = detail::regroup(std::deque{std::vector{1.F, 2.F}, std::vector{3.F}});
  static_assert(std::is_same_v<decltype(numbers), const PerReplica<std::vector<float>>>);
  const auto nested = detail::regroup(std::deque{std::make_tuple(std::tuple(1)), std::make_tuple(std::tuple(2))});
  EXPECT_EQ(std::get<0>(std::get<0>(nested)), (PerReplica<int>{1, 2}));
}

TEST(Structures, OfDifferentFormsAreRefused) {
  const auto lists = [] { detail::regroup(std::deque{std::vector{Tensor<int>()}, std::vector<Tensor<int>>{}}); };
  EXPECT_NE(refusal(lists, Code::usage).find("replicas returned lists of 1 and 0 values"), std::string::npos);
  const auto maps = [] { detail::regroup(std::deque{std::map<int, int>{{1, 1}}, std::map<int, int>{{2, 1}}}); };
  EXPECT_NE(refusal(maps, Code::usage).find("maps with different keys"), std::string::npos);
  refusal([] { detail::regroup(std::deque{std::map<int, int>{{1, 1}}, std::map<int, int>{}}); }, Code::usage);
}

TEST(Structures, OfFieldsOfAnyTypeHaveAFieldForAllReplicas) {
  using Each = LossesOf<float, std::vector<Tensor<int>>>;
  const auto whole = detail::regroup(std::deque{Each{0.5F, {row({1})}}, Each{0.25F, {row({2})}}});
  EXPECT_EQ(whole.total, (PerReplica<float>{0.5F, 0.25F}));
  ASSERT_EQ(whole.each.size(), 1U);
  EXPECT_EQ(whole.each[0], (PerReplica<Tensor<int>>{row({1}), row({2})}));
  const Each second = select_replica(1, whole);
  EXPECT_EQ(second.total, 0.25F);
  EXPECT_EQ(second.each[0], row({2}));
  int parts = 0;
  detail::for_each_number_of_parts(whole, [&](int number) { parts += number; });
  EXPECT_EQ(parts, 4);
  // Of a struct of fixed types, each field is asked for.
  const PerReplica<Losses> fixed{{1.F, row({1.0})}, {2.F, row({2.0})}};
  EXPECT_EQ(fixed.field(&Losses::total), (PerReplica<float>{1.F, 2.F}));
}

TEST(Structures, WithoutAValueInAnyReplicaHaveNone) {
  using Maybe = std::optional<std::tuple<int, Tensor<int>>>;
  EXPECT_FALSE(detail::regroup(std::deque<Maybe>(3)).has_value());
  const auto whole = detail::regroup(std::deque<Maybe>{{{1, row({1})}}, {{2, row({2})}}});
  EXPECT_EQ(std::get<0>(whole.value()), (PerReplica<int>{1, 2}));
  EXPECT_EQ(select_replica(1, whole), (Maybe{{2, row({2})}}));
  const std::string words = refusal([] { detail::regroup(std::deque<std::optional<int>>{{}, 7}); }, Code::usage);
  EXPECT_NE(words.find("an empty optional in 1 of 2 replicas"), std::string::npos) << words;
}

TEST(Structures, PointersToOneObjectAreThatPointer) {
  const auto shared = std::make_shared<std::string>("model");
  std::string other = "another";
  const auto same = detail::regroup(std::deque{shared, shared});
  const std::shared_ptr<std::string> plain = same;
  EXPECT_EQ(plain, shared);
  EXPECT_EQ(same->size(), 5U);
  EXPECT_EQ(*select_replica(1, same), "model");
  const auto different = detail::regroup(std::deque{shared.get(), &other});
  EXPECT_EQ(different[1], &other);
  EXPECT_FALSE(different.is_common());
  EXPECT_NE(refusal([&] { (void)different->size(); }, Code::usage).find("different pointers"), std::string::npos);
}

TEST(Structures, OfAProgramsOwnStructsHaveLeaves) {
  Losses losses{1, Tensor<double>({2}, 3.0)};
  std::pair<Losses, std::vector<float>> both{losses, {4, 5}};
  std::size_t leaves = 0;
  detail::for_each_leaf(both, [&](auto& leaf) {
    ++leaves;
    if constexpr (std::is_same_v<decltype(leaf), float&>) leaf = 8;
  });
  EXPECT_EQ(leaves, 3U);
  EXPECT_EQ(both.first.total, 8);
}

}  // namespace
}  // namespace lockstep
