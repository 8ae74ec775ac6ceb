// SPDX-License-Identifier: Apache-2.0
// What threads of a GPU do to elements, done by the host: every type, operation, order, number of parts and place,
// bit for bit as the reference has it.
#include <gtest/gtest.h>

#include <memory>

#include "collectives/algorithms/algorithms.hpp"
#include "collectives/gpu/packing.hpp"
#include "collectives/types.hpp"
#include "tests/collectives/kernels_data.hpp"
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
void run(DataType type, const gpu::Combining& all) {
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
  gpu::Combining all_{};
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

TEST_P(GpuKernels, give_the_bits_of_the_reference) {
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

TEST(GpuPacking, moves_every_byte_of_every_piece_and_no_other) {
  Random random(7);
  for (int round = 0; round < 300; ++round) {
    gpu::Packing all;
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
    for (std::size_t thread = 0; thread < 3; ++thread) gpu::pack_thread<true>(all, thread, 3);
    EXPECT_TRUE(whole.holds(right));
    EXPECT_TRUE(whole.is_guarded());
    for (const auto& place : places) place->spoil();
    for (std::size_t thread = 0; thread < 3; ++thread) gpu::pack_thread<false>(all, thread, 3);
    for (std::size_t i = 0; i < places.size(); ++i) {
      EXPECT_TRUE(places[i]->holds(pieces[i])) << "piece " << i;
      EXPECT_TRUE(places[i]->is_guarded());
    }
  }
}

// Every 16-bit float there and back, and every rounding that a carry can go through.
TEST(GpuFormats, of_16_bits_convert_as_the_hosts_do) {
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

}  // namespace
}  // namespace lockstep::test
