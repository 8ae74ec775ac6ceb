// SPDX-License-Identifier: Apache-2.0
// Draws charts in a small frame. They need no shrinking on a phone, and three of them fit in a row on a desktop.
#include "bench/report_chart.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "bench/html_text.hpp"
#include "topology/base/text.hpp"

namespace lockstep::bench {
namespace {

using html::coordinate;

constexpr double width = 380;
constexpr double height = 250;
constexpr double left = 52;
constexpr double right = width - 12;
constexpr double top = 12;
constexpr double bottom = height - 26;
constexpr double least_range = 1.5;  // keeps noise of nearly equal values from filling a chart
constexpr double most_reach = 4;     // an interval is drawn up to this multiple beyond all values

struct AxisRange {
  double low = std::numeric_limits<double>::infinity();
  double high = 0;
  void take(double value) {
    if (!(value > 0) || !std::isfinite(value)) return;
    low = std::min(low, value);
    high = std::max(high, value);
  }
  bool empty() const { return !(low <= high); }
};

// Maps values to places on a logarithmic axis.
class Axis {
 public:
  Axis(const AxisRange& range, double from, double to)
      : low_(std::log(range.low)), scale_((to - from) / (std::log(range.high) - low_)), from_(from) {}
  double at(double value) const { return from_ + (std::log(value) - low_) * scale_; }

 private:
  double low_;
  double scale_;
  double from_;
};

AxisRange widened(AxisRange range, double least, double margin) {
  const double missing = least / (range.high / range.low);
  const double factor = std::sqrt(std::max(missing, 1.0)) * std::pow(std::max(range.high / range.low, least), margin);
  return {range.low / factor, range.high * factor};
}

// Size 0 has no logarithm. It stands two steps before the smallest other size.
double place_of(std::uint64_t bytes, double least) { return bytes == 0 ? least / 4 : static_cast<double>(bytes); }

struct PlotArea {
  AxisRange sizes;
  AxisRange values;
  double least = 1;       // the smallest size above zero
  bool has_none = false;  // true if there is a point of size zero
  double slot = 14;       // distance between neighbouring sizes, at most
  Axis x() const { return {sizes, left, right}; }
  Axis y() const { return {values, bottom, top}; }
};

PlotArea plot_area_of(const Chart& chart) {
  PlotArea frame;
  AxisRange sizes;
  std::vector<std::uint64_t> all;
  for (const Curve& curve : chart.curves) {
    for (const CurvePoint& point : curve.points) {
      sizes.take(static_cast<double>(point.bytes));
      frame.values.take(point.value);
      all.push_back(point.bytes);
    }
  }
  if (frame.values.empty()) return frame;
  const AxisRange plain = frame.values;
  for (const Curve& curve : chart.curves) {
    for (const CurvePoint& point : curve.points) {
      frame.values.take(std::max(point.interval.low, plain.low / most_reach));
      frame.values.take(std::min(point.interval.high, plain.high * most_reach));
    }
  }
  if (chart.unit == ChartUnit::ratio) frame.values.take(1);
  frame.values = widened(frame.values, least_range, 0.06);
  frame.least = sizes.empty() ? 4 : sizes.low;
  frame.has_none = std::ranges::find(all, 0U) != all.end();
  if (frame.has_none) sizes.take(place_of(0, frame.least));
  frame.sizes = widened(sizes, 4, 0.04);
  std::ranges::sort(all);
  const Axis x = frame.x();
  for (std::size_t i = 1; i < all.size(); ++i) {
    if (all[i] == all[i - 1]) continue;
    frame.slot =
        std::min(frame.slot, 0.8 * (x.at(place_of(all[i], frame.least)) - x.at(place_of(all[i - 1], frame.least))));
  }
  return frame;
}

std::string svg_line(double x1, double y1, double x2, double y2, std::string_view look) {
  return text("<line class=\"", look, "\" x1=\"", coordinate(x1), "\" y1=\"", coordinate(y1), "\" x2=\"",
              coordinate(x2), "\" y2=\"", coordinate(y2), "\"/>");
}

std::string words(double x, double y, std::string_view look, std::string_view all) {
  return text("<text class=\"", look, "\" x=\"", coordinate(x), "\" y=\"", coordinate(y), "\">", html::escaped(all),
              "</text>");
}

std::string tick_word(ChartUnit unit, double value) {
  return unit == ChartUnit::time ? html::time_word(value) : html::short_number(value);
}

std::string axes(const PlotArea& frame, ChartUnit unit) {
  std::string all;
  const Axis x = frame.x();
  const Axis y = frame.y();
  const double first = frame.has_none ? frame.least / 1.01 : frame.sizes.low;
  for (const double size : size_ticks(first, frame.sizes.high, 9)) {
    all += svg_line(x.at(size), top, x.at(size), bottom, "grid");
    all += words(x.at(size), bottom + 16, "tick x", html::size_word(static_cast<std::uint64_t>(size)));
  }
  for (const double value : value_ticks(frame.values.low, frame.values.high)) {
    all +=
        svg_line(left, y.at(value), right, y.at(value), unit == ChartUnit::ratio && value == 1 ? "grid one" : "grid");
    all += words(left - 6, y.at(value) + 3.5, "tick y", tick_word(unit, value));
  }
  if (frame.has_none) all += words(x.at(place_of(0, frame.least)), bottom + 16, "tick x", "0");
  return text(all, svg_line(left, bottom, right, bottom, "axis"), '\n');
}

std::string shape_of(int shape, double x, double y, std::string_view look, std::string_view title) {
  const std::string inner = title.empty() ? std::string() : html::element("title", "", html::escaped(title));
  constexpr double r = 3.2;
  const auto path = [&](std::string_view steps) {
    return text("<path class=\"dot", look, "\" d=\"M", coordinate(x), ' ', coordinate(y), steps, "\">", inner,
                "</path>");
  };
  switch (shape % 4) {
    case 1:
      return path("m-3-3h6v6h-6z");
    case 2:
      return path("m0-4.2l4 7h-8z");
    case 3:
      return path("m0-4.4l4.2 4.4l-4.2 4.4l-4.2-4.4z");
    default:
      return text("<circle class=\"dot", look, "\" cx=\"", coordinate(x), "\" cy=\"", coordinate(y), "\" r=\"",
                  coordinate(r), "\">", inner, "</circle>");
  }
}

std::string value_word(ChartUnit unit, double value) {
  switch (unit) {
    case ChartUnit::time:
      return text(html::number(value), " µs");
    case ChartUnit::bandwidth:
      return text(html::number(value), " GB/s");
    case ChartUnit::ratio:
      break;
  }
  return html::ratio(value);
}

std::string point_title(const Curve& curve, const CurvePoint& point, ChartUnit unit) {
  const Interval& band = point.interval;
  std::string all = text(curve.name, ", ", html::size_word(point.bytes), ": ", value_word(unit, point.value));
  if (band.low < band.high) all += text(" [", value_word(unit, band.low), ", ", value_word(unit, band.high), ']');
  if (point.launches > 1) all += text(", ", point.launches, " launches");
  return all;
}

std::string path_of(const Curve& curve, const PlotArea& frame, double shift) {
  std::string steps;
  for (const CurvePoint& point : curve.points) {
    steps += text(steps.empty() ? "M" : "L", coordinate(frame.x().at(place_of(point.bytes, frame.least)) + shift), ' ',
                  coordinate(frame.y().at(point.value)));
  }
  return text("<path class=\"curve\" d=\"", steps, "\"/>");
}

double inside(double y) { return std::isfinite(y) ? std::clamp(y, top, bottom) : y > 0 ? bottom : top; }

// Returns the part of an interval that is in the frame.
Interval drawn(const CurvePoint& point, const PlotArea& frame) {
  const Axis y = frame.y();
  return {point.interval.low > 0 ? inside(y.at(point.interval.low)) : bottom, inside(y.at(point.interval.high))};
}

std::string band_of(const Curve& curve, const PlotArea& frame) {
  std::string up;
  std::string down;
  for (const CurvePoint& point : curve.points) {
    const Interval ends = drawn(point, frame);
    const std::string x = coordinate(frame.x().at(place_of(point.bytes, frame.least)));
    up += text(up.empty() ? "M" : "L", x, ' ', coordinate(ends.high));
    down = text('L', x, ' ', coordinate(ends.low), down);
  }
  return text("<path class=\"band\" d=\"", up, down, "Z\"/>");
}

std::string curve_of(const Curve& curve, const PlotArea& frame, ChartUnit unit) {
  std::string all = text("<g class=\"", curve.look, "\">");
  if (curve.shape >= 0 && curve.points.size() > 1) all += band_of(curve, frame);
  if (curve.points.size() > 1 || curve.shape < 0) all += path_of(curve, frame, 0);
  for (const CurvePoint& point : curve.points) {
    const bool marked = curve.shape >= 0 || curve.points.size() == 1;
    all += shape_of(std::max(curve.shape, 0), frame.x().at(place_of(point.bytes, frame.least)),
                    frame.y().at(point.value), marked ? "" : " hidden", point_title(curve, point, unit));
  }
  return all + "</g>\n";
}

// Draws an interval for each size, beside those of the other curves. If it holds 1, its column is shaded.
std::string ratios_of(const Curve& curve, const PlotArea& frame, double shift, double slot) {
  std::string shades;
  std::string boxes;
  std::string dots;
  for (const CurvePoint& point : curve.points) {
    const double x = frame.x().at(place_of(point.bytes, frame.least)) + shift;
    const Interval ends = drawn(point, frame);
    const bool equal = point.interval.holds(1);
    const auto box = [&](std::string_view look, double from, double to, double broad) {
      return text("<rect class=\"", look, "\" x=\"", coordinate(x - broad / 2), "\" y=\"", coordinate(from),
                  "\" width=\"", coordinate(broad), "\" height=\"", coordinate(std::max(to - from, 0.5)), "\"/>");
    };
    if (equal) shades += box("same", top, bottom, slot);
    boxes += box("reach", ends.high, ends.low, slot * 0.6);
    dots += shape_of(curve.shape, x, frame.y().at(point.value), equal ? " hollow" : "",
                     text(point_title(curve, point, ChartUnit::ratio), equal ? ", no difference shown" : ""));
  }
  return text("<g class=\"", curve.look, "\">", shades, boxes,
              curve.points.size() > 1 ? path_of(curve, frame, shift) : "", dots, "</g>\n");
}

std::string all_ratios(const Chart& chart, const PlotArea& frame) {
  std::string all;
  const auto count = static_cast<double>(chart.curves.size());
  const double slot = std::max(2.0, std::min(frame.slot / count, 10.0));
  for (std::size_t i = 0; i < chart.curves.size(); ++i) {
    all += ratios_of(chart.curves[i], frame, (static_cast<double>(i) - (count - 1) / 2) * slot, slot);
  }
  return all;
}

}  // namespace

std::vector<double> size_ticks(double low, double high, std::size_t most) {
  std::vector<double> ticks;
  for (const int step : {1, 3, 6, 9, 12, 18}) {
    ticks.clear();
    const auto first = static_cast<int>(std::ceil(std::log2(low) / step)) * step;
    for (int power = std::max(first, 0); power < 64 && std::exp2(power) <= high; power += step)
      ticks.push_back(std::exp2(power));
    if (ticks.size() <= most) break;
  }
  return ticks;
}

std::vector<double> value_ticks(double low, double high) {
  if (!(low > 0) || !std::isfinite(high)) return {};
  const double decades = std::log10(high / low);
  std::vector<double> steps = {1};
  if (decades < 2.2) steps = {1, 2, 5};
  if (decades < 0.9) steps = {1, 1.5, 2, 3, 4, 6, 8};
  if (decades < 0.4) steps = {1, 1.1, 1.2, 1.3, 1.4, 1.6, 1.8, 2, 2.5, 3, 3.5, 4, 5, 6, 7, 8, 9};
  const int apart = std::max(1, static_cast<int>(std::ceil(decades / 7)));
  std::vector<double> ticks;
  for (auto decade = static_cast<int>(std::floor(std::log10(low))); std::pow(10, decade) <= high; ++decade) {
    if (decade % apart != 0) continue;
    for (const double step : steps) {
      // Below one it divides, because 0.1 is then the nearest number to the exact value.
      const double value = decade < 0 ? step / std::pow(10, -decade) : step * std::pow(10, decade);
      if (low <= value && value <= high) ticks.push_back(value);
    }
  }
  return ticks;
}

std::string svg_of(const Chart& chart) {
  const PlotArea frame = plot_area_of(chart);
  if (frame.values.empty()) return {};
  std::string inner = axes(frame, chart.unit);
  if (chart.unit == ChartUnit::ratio)
    inner += all_ratios(chart, frame);
  else
    for (const Curve& curve : chart.curves) inner += curve_of(curve, frame, chart.unit);
  return text("<svg class=\"chart\" viewBox=\"0 0 ", coordinate(width), ' ', coordinate(height),
              "\" role=\"img\" aria-label=\"", html::escaped(chart.title), "\">\n", inner, "</svg>\n");
}

std::string sample_of(const Curve& curve) {
  const std::string dot = curve.shape < 0 ? "" : shape_of(curve.shape, 14, 6, "", "");
  return text("<svg class=\"sample ", curve.look,
              "\" viewBox=\"0 0 28 12\" aria-hidden=\"true\"><path class=\"curve\" ", "d=\"M1 6H27\"/>", dot, "</svg>");
}

}  // namespace lockstep::bench
