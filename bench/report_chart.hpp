// SPDX-License-Identifier: Apache-2.0
// A chart over sizes as inline SVG, both axes logarithmic: curves with bands of confidence, or intervals about the
// line at 1. Colours come from the page's style by class, so that the same picture serves light and dark pages.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "bench/report_groups.hpp"

namespace lockstep::bench {

struct Curve {
  std::string name;  // for the legend
  std::string look;  // class: "ours", "theirs0" to "theirs3", "earlier", "limit"
  int shape = -1;    // of its points: circle, square, triangle, diamond; -1: a line without points
  std::vector<CurvePoint> points;
};

enum class ChartUnit : std::uint8_t { time, bandwidth, ratio };

struct Chart {
  std::string title;  // said to those who cannot see it
  ChartUnit unit = ChartUnit::time;
  std::vector<Curve> curves;
};

// Empty where there is no point to draw. Intervals instead of bands, and the line at 1, where the unit is a ratio.
std::string svg_of(const Chart& chart);

// A small sample of a curve, for the legend.
std::string sample_of(const Curve& curve);

// At powers of two with equal distances, `most` at most; those of eight where not all have room.
std::vector<double> size_ticks(double low, double high, std::size_t most);
// At 1, 2, 5 of each decade, or closer, or further apart.
std::vector<double> value_ticks(double low, double high);

}  // namespace lockstep::bench
