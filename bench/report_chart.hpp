// SPDX-License-Identifier: Apache-2.0
// Draws a chart over sizes as inline SVG with two logarithmic axes: curves with bands of confidence, or intervals about
// the line at 1. The page's style gives the colours by class, so that the same picture serves light and dark pages.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "bench/report_groups.hpp"

namespace lockstep::bench {

// Holds one line of a chart and its look.
struct Curve {
  std::string name;  // for the legend
  std::string look;  // CSS class: "ours", "theirs0" to "theirs3", "limit"
  int shape = -1;    // of the points: circle, square, triangle, diamond; -1: a line without points
  std::vector<CurvePoint> points;
};

enum class ChartUnit : std::uint8_t { time, bandwidth, ratio };

struct Chart {
  std::string title;  // read aloud by screen readers
  ChartUnit unit = ChartUnit::time;
  std::vector<Curve> curves;
};

// Returns an SVG element; an empty string if there is no point to draw. If the unit is a ratio, it draws intervals
// instead of bands, and the line at 1.
std::string svg_of(const Chart& chart);

// Returns a small sample of a curve, for the legend.
std::string sample_of(const Curve& curve);

// Returns at most `most` ticks at powers of two with equal distances. If not all have room, they are powers of eight.
std::vector<double> size_ticks(double low, double high, std::size_t most);
// Returns ticks at 1, 2, 5 of each decade, or closer, or further apart.
std::vector<double> value_ticks(double low, double high);

}  // namespace lockstep::bench
