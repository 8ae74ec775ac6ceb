// SPDX-License-Identifier: Apache-2.0
// What threads of a GPU do to elements, done by the host: every type, operation, order, number of parts and place,
// bit for bit as the reference has it.
#include <gtest/gtest.h>

#include <array>
#include <memory>

#include "collectives/algorithms/algorithms.hpp"
#include "collectives/gpu/packing.hpp"
#include "collectives/types.hpp"
#include "tests/collectives/kernels/kernels_data.hpp"
#include "tests/collectives/kernels/reference.hpp"
#include "topology/base/text.hpp"

namespace lockstep::test {
namespace {

struct Shape {
  int parts;
  std::size_t count;
  std::size_t shift;  // in elements' own alignment, from what vectors need
  int outputs;
  bool in_place;
};

std::ostream& operator<<(std::ostream& out, const Shape& shape) {
  return out << shape.parts << " parts of " << shape.count << ", shifted by " << shape.shift << ", into "
             << shape.outputs << (shape.in_place ? " in place" : "");
}

// Of the members [first, last).
Bytes by_tree(const Reference& reference, ReduceOp op, const std::vector<Bytes>& parts, int first, int last) {
  if (last - first == 1) return parts[static_cast<std::size_t>(first)];
  const int middle = balanced_middle(first, last);
  return reference.reduce(op,
                          {by_tree(reference, op, parts, first, middle), by_tree(reference, op, parts, middle, last)});
}

// A whole grid of threads, one after the other.
void run(DataType type, const gpu::CombineArguments& all) {
  constexpr std::size_t threads = 5;
  const bool known = gpu::with_format(type, [&]<class F>(F) {
    for (std::size_t thread = threads; thread-- > 0;) gpu::combine_thread<F>(all, thread, threads);
  });
  EXPECT_TRUE(known);
}

class Combination {
 public:
  Combination(DataType type, ReduceOp op, const Shape& shape, Random& random)
      : type_(type), op_(op), shape_(shape), reference_(reference_of(type)) {
    const std::size_t bytes = shape.count * size_of(type);
    for (int part = 0; part < shape.parts; ++part) {
      parts_.push_back(reference_.any_values(random, shape.count, 4U * static_cast<unsigned>(shape.parts)));
      inputs_.push_back(std::make_unique<Place>(bytes, shape.shift));
      inputs_.back()->fill(parts_.back());
      all_.inputs[part] = inputs_.back()->data();
      all_.factors[part] = part % 3 == 2 ? -0.75 : 1.5 * part;
    }
    for (int i = 0; i < shape.outputs; ++i) {
      outputs_.push_back(std::make_unique<Place>(bytes, shape.shift));
      const bool in_place = shape.in_place && i < shape.parts;
      all_.outputs[i] = in_place ? inputs_[static_cast<std::size_t>(i)]->data() : outputs_.back()->data();
    }
    all_.input_count = shape.parts;
    all_.output_count = shape.outputs;
    all_.count = shape.count;
    all_.op = op;
    all_.is_aligned = shape.shift == 0;
  }

  void check(bool tree) {
    all_.by_tree = tree;
    std::vector<Bytes> parts = parts_;
    if (op_ == ReduceOp::premul_sum) {
      all_.scales = true;
      for (std::size_t i = 0; i < parts.size(); ++i) parts[i] = reference_.scale(parts[i], all_.factors[i]);
    }
    Bytes right = tree ? by_tree(reference_, op_, parts, 0, shape_.parts) : reference_.reduce(op_, parts);
    if (op_ == ReduceOp::avg) {
      all_.divisor = shape_.parts;
      right = reference_.divide(right, shape_.parts);
    }
    run(type_, all_);
    for (int i = 0; i < shape_.outputs; ++i) {
      Place& place = shape_.in_place && i < shape_.parts ? *inputs_[static_cast<std::size_t>(i)]
                                                         : *outputs_[static_cast<std::size_t>(i)];
      EXPECT_TRUE(place.holds(right)) << to_string(op_) << " of " << to_string(type_) << ", " << shape_
                                      << (tree ? ", by the tree" : "") << ", output " << i;
      EXPECT_TRUE(place.is_guarded());
    }
  }

 private:
  DataType type_;
  ReduceOp op_;
  Shape shape_;
  Reference reference_;
  std::vector<Bytes> parts_;
  std::vector<std::unique_ptr<Place>> inputs_;
  std::vector<std::unique_ptr<Place>> outputs_;
  gpu::CombineArguments all_{};
};

// Where an element may lie: at multiples of its numbers.
std::size_t alignment_of(DataType type) {
  const bool is_pair = type == DataType::c64 || type == DataType::c128 ||
                       (type >= DataType::located_i32 && type <= DataType::located_f64);
  return is_pair ? size_of(type) / 2 : size_of(type);
}

class GpuKernels : public testing::TestWithParam<DataType> {};

INSTANTIATE_TEST_SUITE_P(Types, GpuKernels, testing::ValuesIn(all_types()),
                         [](const auto& each) { return std::string(to_string(each.param)); });

TEST_P(GpuKernels, GiveTheBitsOfTheReference) {
  Random random(20261123);
  int checked = 0;
  for (int op = 0; op < reduce_op_count - 1; ++op) {
    const auto which = static_cast<ReduceOp>(op);
    if (!is_defined(which, GetParam())) continue;
    for (const int parts : {1, 2, 3, 4, 5, 7, 8, 13, 64}) {
      for (const std::size_t count : {0UL, 1UL, 7UL, 200UL}) {
        for (const std::size_t shift : {0UL, alignment_of(GetParam())}) {
          const int outputs = 1 + (parts + static_cast<int>(count)) % parts;
          const Shape shape{parts, count, shift, outputs, (parts + op) % 2 == 0};
          for (const bool tree : {false, true}) Combination(GetParam(), which, shape, random).check(tree);
          ++checked;
        }
      }
    }
  }
  EXPECT_GT(checked, 70);
}

TEST(GpuPacking, MovesEveryByteOfEveryPieceAndNoOther) {
  Random random(7);
  for (int round = 0; round < 300; ++round) {
    gpu::PackArguments all;
    std::vector<std::unique_ptr<Place>> places;
    std::vector<Bytes> pieces;
    Bytes right;
    all.count = 1 + static_cast<int>(random() % gpu::most_pieces);
    all.begins[0] = 0;
    for (int i = 0; i < all.count; ++i) {
      const std::size_t unit = std::size_t{1} << random() % 5;
      const std::size_t bytes = random() % 3 == 0 ? 0 : random() % 40 * unit;
      places.push_back(std::make_unique<Place>(bytes, random() % 2 * unit));
      pieces.emplace_back(bytes);
      for (auto& byte : pieces.back()) byte = static_cast<std::uint8_t>(random());
      places.back()->fill(pieces.back());
      right.insert(right.end(), pieces.back().begin(), pieces.back().end());
      all.pieces[i] = reinterpret_cast<std::byte*>(places.back()->data());
      all.begins[i + 1] = right.size();
    }
    Place whole(right.size(), 0);
    all.whole = reinterpret_cast<std::byte*>(whole.data());
    for (std::size_t thread = 0; thread < 3; ++thread) gpu::pack_thread<gpu::PlainCopy>(all, true, thread, 3);
    EXPECT_TRUE(whole.holds(right));
    EXPECT_TRUE(whole.is_guarded());
    for (const auto& place : places) place->spoil();
    for (std::size_t thread = 0; thread < 3; ++thread) gpu::pack_thread<gpu::PlainCopy>(all, false, thread, 3);
    for (std::size_t i = 0; i < places.size(); ++i) {
      EXPECT_TRUE(places[i]->holds(pieces[i])) << "piece " << i;
      EXPECT_TRUE(places[i]->is_guarded());
    }
  }
}

// As the host's own conversions have it; what happens on the way happens in the wider of the two types.
template <class From, class To>
Bytes recast(const Bytes& values, bool scales, double factor, std::int64_t divisor) {
  constexpr bool is_wide = std::is_same_v<From, double> || std::is_same_v<To, double>;
  using Wide = std::conditional_t<is_wide, double, float>;
  Bytes result(values.size() / sizeof(From) * sizeof(To));
  for (std::size_t i = 0; i < values.size() / sizeof(From); ++i) {
    From value;
    std::memcpy(&value, &values[i * sizeof value], sizeof value);
    Wide wide = static_cast<Wide>(value);
    if (scales) wide = reference::scale(wide, factor);
    if (divisor != 0) wide = reference::divide(wide, divisor);
    To stored;
    if constexpr (is_wide)
      stored = static_cast<To>(wide);
    else
      stored = To(wide);
    std::memcpy(&result[i * sizeof stored], &stored, sizeof stored);
  }
  return result;
}

using Recasting = Bytes (*)(const Bytes& values, bool scales, double factor, std::int64_t divisor);

struct Sides {
  DataType from;
  DataType to;
  Recasting recast = nullptr;  // of one type: the reference of it

  Bytes right(const Bytes& values, bool scales, double factor, std::int64_t divisor) const {
    if (recast != nullptr) return recast(values, scales, factor, divisor);
    const Reference reference = reference_of(from);
    Bytes result = scales ? reference.scale(values, factor) : values;
    return divisor != 0 ? reference.divide(result, divisor) : result;
  }
};

const std::vector<Sides>& all_sides() {
  static const std::vector<Sides> all = [] {
    std::vector<Sides> made = {
        {DataType::f16, DataType::f32, recast<f16, float>},    {DataType::f32, DataType::f16, recast<float, f16>},
        {DataType::bf16, DataType::f32, recast<bf16, float>},  {DataType::f32, DataType::bf16, recast<float, bf16>},
        {DataType::f64, DataType::f32, recast<double, float>}, {DataType::f32, DataType::f64, recast<float, double>}};
    for (const DataType type : all_types()) {
      if (is_defined(ReduceOp::avg, type)) made.push_back({type, type});
    }
    return made;
  }();
  return all;
}

// Some pieces on one side, and the whole on the other, at any places.
class PackingOfTypes {
 public:
  PackingOfTypes(const Sides& sides, bool packs, bool is_aligned, std::size_t longest, Random& random)
      : sides_(sides), packs_(packs), is_aligned_(is_aligned) {
    all_.in_pieces = packs ? sides.from : sides.to;
    all_.in_whole = packs ? sides.to : sides.from;
    all_.count = 1 + static_cast<int>(random() % 9);
    all_.begins[0] = 0;
    for (int i = 0; i < all_.count; ++i) {
      const std::size_t count = random() % 4 == 0 ? 0 : random() % longest;
      given_.push_back(reference_of(sides.from).any_values(random, count, 4));
      places_.push_back(std::make_unique<Place>(count * size_of(all_.in_pieces), shift(random)));
      all_.pieces[i] = reinterpret_cast<std::byte*>(places_.back()->data());
      all_.factors[i] = i % 3 == 2 ? 1e-40 : 0.3 * i - 1;
      all_.begins[i + 1] = all_.begins[i] + count * size_of(all_.in_whole);
    }
    whole_ = std::make_unique<Place>(all_.begins[all_.count], shift(random));
    all_.whole = reinterpret_cast<std::byte*>(whole_->data());
  }

  void check(bool scales, std::int64_t divisor) {
    all_.scales = scales;
    all_.divisor = divisor;
    Bytes all_given;
    Bytes right;
    std::vector<Bytes> right_pieces;
    for (std::size_t i = 0; i < given_.size(); ++i) {
      right_pieces.push_back(sides_.right(given_[i], scales, all_.factors[i], divisor));
      all_given.insert(all_given.end(), given_[i].begin(), given_[i].end());
      right.insert(right.end(), right_pieces[i].begin(), right_pieces[i].end());
      if (packs_)
        places_[i]->fill(given_[i]);
      else
        places_[i]->spoil();
    }
    if (packs_)
      whole_->spoil();
    else
      whole_->fill(all_given);
    const bool is_known = gpu::with_copier(all_, packs_, [&]<class Copier>(Copier) {
      const std::size_t threads = 1 + gpu::threads_of<Copier>(all_, packs_) / 2;
      for (std::size_t thread = threads; thread-- > 0;) gpu::pack_thread<Copier>(all_, packs_, thread, threads);
    });
    ASSERT_TRUE(is_known) << what();
    EXPECT_TRUE(!packs_ || whole_->holds(right)) << what();
    EXPECT_TRUE(whole_->is_guarded()) << what();
    for (std::size_t i = 0; i < places_.size(); ++i) {
      EXPECT_TRUE(packs_ || places_[i]->holds(right_pieces[i])) << what() << ", piece " << i;
      EXPECT_TRUE(places_[i]->is_guarded()) << what() << ", piece " << i;
    }
  }

 private:
  std::size_t shift(Random& random) const { return is_aligned_ ? 0 : random() % gpu::vector_bytes; }
  std::string what() const {
    return text(packs_ ? "packing " : "unpacking ", to_string(sides_.from), " to ", to_string(sides_.to),
                is_aligned_ ? ", aligned" : "", all_.scales ? ", scaled" : "", ", divided by ", all_.divisor);
  }

  Sides sides_;
  bool packs_;
  bool is_aligned_;
  gpu::PackArguments all_;
  std::vector<Bytes> given_;
  std::vector<std::unique_ptr<Place>> places_;
  std::unique_ptr<Place> whole_;
};

TEST(GpuPacking, ChangesElementsOnTheWayAsTheReferenceDoes) {
  Random random(11);
  for (const Sides& sides : all_sides()) {
    for (int round = 0; round < 150; ++round) {
      for (const bool packs : {true, false}) {
        // Sometimes so much that a thread moves two vectors of one piece at once.
        const std::size_t longest = round % 30 == 0 ? 12'000 : 70;
        PackingOfTypes packing(sides, packs, round % 4 == 0, longest, random);
        for (const bool scales : {false, true}) {
          for (const std::int64_t divisor : {0, 3, 8}) packing.check(scales, divisor);
        }
      }
    }
  }
}

template <class T, class Bits>
void expect_quotients(std::int64_t divisor, Bits first, Bits step, std::size_t count) {
  const auto by = gpu::divisor_of<T>(divisor);
  for (std::size_t i = 0; i < count; ++i) {
    const T value = gpu::bits_as<T>(static_cast<Bits>(first + i * step));
    const T found = gpu::over(value, by);
    const T right = value / static_cast<T>(divisor);
    if (right != right && found != found) continue;
    ASSERT_EQ(gpu::bits_as<Bits>(found), gpu::bits_as<Bits>(right)) << value << " by " << divisor;
  }
}

// The quotient that is found by a reciprocal is the one that a division rounds to.
TEST(GpuQuotients, HaveTheBitsOfADivision) {
  constexpr std::size_t all_fractions = std::size_t{1} << 23U;
  for (const std::int64_t divisor : {3, 7, 48, 641, 1'048'575})
    expect_quotients<float>(divisor, std::uint32_t{0x3f800000}, std::uint32_t{1}, all_fractions);
  for (std::int64_t divisor = 1; divisor < 2000; ++divisor) {
    expect_quotients<float>(divisor, std::uint32_t{0}, std::uint32_t{1'000'003}, 4295);  // every exponent and sign
    expect_quotients<double>(divisor, std::uint64_t{0}, std::uint64_t{9'000'000'000'000'003}, 2049);
    expect_quotients<double>(divisor, std::uint64_t{0x3ff0000000000000}, std::uint64_t{7'000'000'000'003}, 643);
  }
  for (const std::int64_t divisor : {std::int64_t{-3}, std::int64_t{1} << 21U, std::int64_t{1} << 40U})
    expect_quotients<float>(divisor, std::uint32_t{0}, std::uint32_t{1'000'003}, 4295);
}

// One where both sides are aligned, and as many threads as there are vectors.
TEST(GpuPacking, MovesVectorsOfTheWiderSideAtOnce) {
  const auto lanes_of = [](DataType from, DataType to, bool packs) {
    gpu::PackArguments all;
    all.in_pieces = packs ? from : to;
    all.in_whole = packs ? to : from;
    alignas(gpu::vector_bytes) std::array<std::byte, gpu::vector_bytes> in{};
    alignas(gpu::vector_bytes) std::array<std::byte, gpu::vector_bytes> out{};
    std::size_t lanes = 0;
    gpu::with_copier(all, packs, [&]<class Copier>(Copier) {
      lanes = Copier::some(out.data(), in.data(), Copier::lanes, typename Copier::Scaling{});
      EXPECT_EQ(lanes, Copier::lanes);
    });
    return lanes;
  };
  for (const bool packs : {true, false}) {
    EXPECT_EQ(lanes_of(DataType::f32, DataType::bf16, packs), 4U);
    EXPECT_EQ(lanes_of(DataType::f16, DataType::f32, packs), 4U);
    EXPECT_EQ(lanes_of(DataType::f32, DataType::f64, packs), 2U);
    EXPECT_EQ(lanes_of(DataType::i8, DataType::i8, packs), 16U);
  }
}

TEST(GpuPacking, HasNoWayBetweenTypesThatDoNotConvert) {
  gpu::PackArguments all;
  const auto is_known = [&](DataType from, DataType to) {
    all.in_pieces = from;
    all.in_whole = to;
    return gpu::with_copier(all, true, [](auto) {});
  };
  EXPECT_FALSE(is_known(DataType::i32, DataType::f32));
  EXPECT_FALSE(is_known(DataType::f32, DataType::c64));
  EXPECT_FALSE(is_known(DataType::f64, DataType::f16));
  EXPECT_TRUE(is_known(DataType::boolean, DataType::boolean));
  all.scales = true;
  EXPECT_FALSE(is_known(DataType::boolean, DataType::boolean));
  EXPECT_FALSE(is_known(DataType::opaque, DataType::opaque));
}

// Every 16-bit float there and back, and every rounding that a carry can go through.
TEST(GpuFormats, Of16BitsConvertAsTheHostsDo) {
  for (std::uint32_t bits = 0; bits < 1U << 16U; ++bits) {
    const auto stored = static_cast<std::uint16_t>(bits);
    ASSERT_EQ(std::bit_cast<std::uint32_t>(gpu::HalfBits::widen(stored)),
              std::bit_cast<std::uint32_t>(detail::half_to_float(stored)));
    ASSERT_EQ(std::bit_cast<std::uint32_t>(gpu::BrainBits::widen(stored)),
              std::bit_cast<std::uint32_t>(detail::bfloat_to_float(stored)));
    for (const std::uint32_t low : {0x0000U, 0x0001U, 0x0fffU, 0x1000U, 0x1001U, 0x7fffU, 0x8000U, 0x8001U, 0xffffU}) {
      const auto value = std::bit_cast<float>(bits << 16U | low);
      ASSERT_EQ(gpu::HalfBits::narrow(value), detail::half_from_float(value)) << bits << ' ' << low;
      ASSERT_EQ(gpu::BrainBits::narrow(value), detail::bfloat_from_float(value)) << bits << ' ' << low;
    }
  }
}

// Floats of every magnitude and NaN of every kind, and what lies between two of them.
TEST(GpuFormats, Of32And64BitsConvertAsTheHostsDo) {
  for (std::uint32_t bits = 0; bits < 1U << 16U; ++bits) {
    for (const std::uint32_t low : {0x0000U, 0x0001U, 0x7fffU, 0xffffU}) {
      const auto value = std::bit_cast<float>(bits << 16U | low);
      const auto wide = std::bit_cast<std::uint64_t>(static_cast<double>(value));
      ASSERT_EQ(std::bit_cast<std::uint64_t>(gpu::to_double(value)), wide) << bits << ' ' << low;
      for (const std::uint32_t more : {0x0U, 0x1U, 0x0fffffffU, 0x10000000U, 0x10000001U, 0x1fffffffU}) {
        const auto between = std::bit_cast<double>(wide | more);
        ASSERT_EQ(std::bit_cast<std::uint32_t>(gpu::to_float(between)),
                  std::bit_cast<std::uint32_t>(static_cast<float>(between)))
            << bits << ' ' << low << ' ' << more;
      }
    }
  }
  for (const double large : {1e39, -1e39, 1e-46, -1e-300, 3.4028235677973366e38})
    ASSERT_EQ(std::bit_cast<std::uint32_t>(gpu::to_float(large)),
              std::bit_cast<std::uint32_t>(static_cast<float>(large)));
}

}  // namespace
}  // namespace lockstep::test
