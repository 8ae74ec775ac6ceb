// SPDX-License-Identifier: Apache-2.0
// Draws pictures of digits, so that programs can learn without files. It calculates with integers alone, so all
// machines draw the same bytes. Pure.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "runtime/data/random.hpp"
#include "runtime/values/tensor.hpp"
#include "topology/base/error.hpp"
#include "topology/base/text.hpp"

namespace lockstep::data {

// Holds pictures of white digits on black, number x 28 x 28, and the digit in each of them.
struct Digits {
  Tensor<std::uint8_t> images;
  Tensor<std::uint8_t> labels;
};

namespace drawing {

constexpr int picture_side = 28;
constexpr int pixel = 64;  // Is the length of a pixel in the units of the plane.
using Picture = std::span<std::uint8_t, std::size_t{picture_side} * picture_side>;

struct Point {
  int x = 0;
  int y = 0;
};

// Returns the points of a digit's line, which is 70 wide and 100 high.
inline std::span<const Point> line_of_digit(std::size_t digit) {
  static constexpr Point zero[] = {{35, 0},  {58, 12}, {70, 35}, {70, 65}, {58, 88}, {35, 100},
                                   {12, 88}, {0, 65},  {0, 35},  {12, 12}, {35, 0}};
  static constexpr Point one[] = {{14, 22}, {38, 0}, {38, 100}};
  static constexpr Point two[] = {{2, 25},  {12, 7},  {35, 0},  {58, 8},  {66, 28},
                                  {56, 50}, {30, 75}, {0, 100}, {70, 100}};
  static constexpr Point three[] = {{4, 10},  {30, 0},  {56, 6},  {66, 25},  {56, 43}, {28, 49},
                                    {58, 54}, {70, 74}, {58, 94}, {32, 100}, {2, 90}};
  static constexpr Point four[] = {{50, 100}, {50, 0}, {0, 68}, {70, 68}};
  static constexpr Point five[] = {{64, 0},  {12, 0},  {6, 45},   {34, 38}, {60, 46},
                                   {70, 68}, {60, 91}, {32, 100}, {2, 90}};
  static constexpr Point six[] = {{56, 2},  {26, 20}, {6, 50},  {2, 76},  {14, 94}, {36, 100},
                                  {60, 92}, {68, 72}, {58, 54}, {36, 48}, {12, 58}, {3, 72}};
  static constexpr Point seven[] = {{0, 0}, {70, 0}, {45, 45}, {28, 100}};
  static constexpr Point eight[] = {{35, 47},  {12, 38}, {6, 22},  {14, 6},  {35, 0}, {56, 6},
                                    {64, 22},  {58, 38}, {35, 47}, {10, 58}, {0, 76}, {10, 94},
                                    {35, 100}, {60, 94}, {70, 76}, {60, 58}, {35, 47}};
  static constexpr Point nine[] = {{66, 28}, {54, 46}, {32, 50}, {10, 44}, {2, 26},  {12, 8},
                                   {34, 0},  {58, 6},  {66, 28}, {64, 60}, {52, 86}, {30, 100}};
  static constexpr std::array<std::span<const Point>, 10> all{zero, one, two,   three, four,
                                                              five, six, seven, eight, nine};
  return all[digit];
}

// Draws the numbers of one picture, one after the other.
class PictureDraws {
 public:
  PictureDraws(std::uint64_t seed, std::int64_t picture) : key_{seed, static_cast<std::uint64_t>(picture)} {}
  int between(int low, int high) {
    return low + static_cast<int>(random_below(key_, counter_++,
                                               static_cast<std::uint64_t>(high) - static_cast<std::uint64_t>(low) + 1));
  }
  std::uint64_t bits() { return random_bits(key_, counter_++); }

 private:
  RandomKey key_;
  std::uint64_t counter_ = 0;
};

// Measures the squared distance of pixels from a line.
class DistanceField {
 public:
  using Squares = std::array<std::int64_t, std::size_t{picture_side} * picture_side>;

  // Distances stop at `limit`.
  explicit DistanceField(int limit) : limit_(limit) { squares_.fill(std::int64_t{limit} * limit); }
  const Squares& squares() const { return squares_; }
  void add(const Point& from, const Point& to) {
    const Segment segment(from, to);
    const auto [first_row, last_row] = pixels_near(from.y, to.y);
    const auto [first, last] = pixels_near(from.x, to.x);
    for (int row = first_row; row <= last_row; ++row) {
      for (int column = first; column <= last; ++column) {
        std::int64_t& square =
            squares_[static_cast<std::size_t>(row) * std::size_t{picture_side} + static_cast<std::size_t>(column)];
        square = std::min(square, segment.square_of_distance(middle_of(column), middle_of(row)));
      }
    }
  }

 private:
  // Is the part of a line between two points.
  class Segment {
   public:
    Segment(const Point& from, const Point& to) : from_(from), x_(to.x - from.x), y_(to.y - from.y) {
      if (length() > 0) inverse_ = (std::int64_t{1} << fraction) / length();
    }
    std::int64_t square_of_distance(int at_x, int at_y) const {
      const std::int64_t x = at_x - from_.x;
      const std::int64_t y = at_y - from_.y;
      const std::int64_t along = x * x_ + y * y_;
      if (along <= 0) return x * x + y * y;
      if (along >= length()) return (x - x_) * (x - x_) + (y - y_) * (y - y_);
      const std::int64_t across = x * y_ - y * x_;
      return (across * across * inverse_) >> fraction;
    }

   private:
    static constexpr int fraction = 32;
    std::int64_t length() const { return x_ * x_ + y_ * y_; }  // Is squared.

    Point from_;
    std::int64_t x_;
    std::int64_t y_;
    std::int64_t inverse_ = 0;
  };

  static int middle_of(int number) { return number * pixel + pixel / 2; }
  // Returns the first and the last pixel that may be nearer than the limit.
  std::pair<int, int> pixels_near(int a, int b) const {
    const int first = (std::min(a, b) - limit_) / pixel;
    const int last = (std::max(a, b) + limit_) / pixel;
    return {std::clamp(first, 0, picture_side), std::clamp(last, -1, picture_side - 1)};
  }

  int limit_;
  Squares squares_;
};

// Returns the digit's line, moved, scaled, slanted, tilted and shaken.
inline std::vector<Point> drawn_line(std::size_t digit, PictureDraws& draws) {
  const int width = draws.between(440, 700);  // Scales are in 1/64 of the plane's units.
  const int height = draws.between(560, 760);
  const int slant = draws.between(-190, 130);
  const int tilt = draws.between(-80, 80);
  const Point middle{picture_side * pixel / 2 + draws.between(-100, 100),
                     picture_side * pixel / 2 + draws.between(-100, 100)};
  std::vector<Point> line;
  for (const Point& each : line_of_digit(digit)) {
    const int x = each.x - 35;
    const int y = each.y - 50;
    line.push_back({middle.x + ((x * width - y * slant) >> 6) + draws.between(-50, 50),
                    middle.y + ((y * height + x * tilt) >> 6) + draws.between(-50, 50)});
  }
  return line;
}

inline void draw_digit(std::size_t digit, PictureDraws draws, Picture picture) {
  const std::vector<Point> line = drawn_line(digit, draws);
  const int thickness = draws.between(60, 120);
  const int ink = draws.between(170, 255);
  constexpr int edge = 32;  // Pixels fade over this distance on both sides.
  constexpr int noise = 32;
  DistanceField field(thickness + edge);
  for (std::size_t i = 1; i < line.size(); ++i) field.add(line[i - 1], line[i]);
  const std::int64_t outside = std::int64_t{thickness + edge} * (thickness + edge);
  const std::int64_t inside = std::int64_t{thickness - edge} * (thickness - edge);
  std::uint64_t bits = 0;
  for (std::size_t i = 0; i < picture.size(); ++i) {
    bits = i % 8 == 0 ? draws.bits() : bits >> 8U;
    const std::int64_t depth = outside - field.squares()[i];
    const std::int64_t shade = depth == 0 ? 0 : std::min<std::int64_t>(ink, ink * depth / (outside - inside));
    const auto noisy = shade + static_cast<int>(bits % noise) - noise / 2;
    picture[i] = static_cast<std::uint8_t>(std::clamp<std::int64_t>(noisy, 0, 255));
  }
}

}  // namespace drawing

// Returns drawn digits from 0 to 9, which a small network can learn. Each ten have all of them, in an order of the
// seed. A picture depends on the seed and its place alone, so fewer digits are the first of more. 60,000 take 0.5 s
// (measured on one core).
inline Digits synthetic_digits(std::int64_t number, std::uint64_t seed) {
  if (number < 0) throw Error(Code::usage, text("synthetic_digits(", number, ')'), "give 0 or more");
  constexpr std::int64_t digits = 10;
  constexpr std::uint64_t orders = std::uint64_t{1} << 63U;  // Separates the orders' streams from those of pictures.
  constexpr std::int64_t side = drawing::picture_side;
  Digits all{Tensor<std::uint8_t>({number, side, side}), Tensor<std::uint8_t>(TensorShape{number})};
  for (std::int64_t first = 0; first < number; first += digits) {
    const Permutation order({seed, orders | static_cast<std::uint64_t>(first)}, digits);
    for (std::int64_t i = first; i < std::min(number, first + digits); ++i) {
      const std::uint64_t digit = order(static_cast<std::uint64_t>(i - first));
      all.labels[static_cast<std::size_t>(i)] = static_cast<std::uint8_t>(digit);
      const drawing::Picture picture(all.images.data() + i * side * side, std::size_t{side * side});
      drawing::draw_digit(static_cast<std::size_t>(digit), drawing::PictureDraws(seed, i), picture);
    }
  }
  return all;
}

}  // namespace lockstep::data
