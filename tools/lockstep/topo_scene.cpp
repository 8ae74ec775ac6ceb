// SPDX-License-Identifier: Apache-2.0
// Writes shapes as SVG elements.
#include "tools/lockstep/topo_scene.hpp"

#include <algorithm>
#include <cmath>

#include "bench/html_text.hpp"
#include "tools/lockstep/topo_members.hpp"
#include "topology/base/text.hpp"

namespace lockstep::command {
namespace {

using bench::html::coordinate;

std::string attributes(const Paint& paint) {
  std::string all = text(" fill=\"", paint.fill, "\"");
  if (paint.opacity < 1) all += text(" fill-opacity=\"", paint.opacity, "\"");
  if (paint.stroke != "none")
    all += text(" stroke=\"", paint.stroke, "\" stroke-width=\"", coordinate(paint.stroke_width), "\"");
  if (!paint.dash.empty()) all += text(" stroke-dasharray=\"", paint.dash, "\"");
  return all;
}

// Returns the point `distance` away from `corner` on the way to `to`, at most half of the way.
ScenePoint towards(ScenePoint corner, ScenePoint to, double distance) {
  const double length = std::hypot(to.x - corner.x, to.y - corner.y);
  if (length == 0) return corner;
  const double part = std::min(distance / length, 0.5);
  return {corner.x + (to.x - corner.x) * part, corner.y + (to.y - corner.y) * part};
}

std::string pair(ScenePoint point) { return text(coordinate(point.x), " ", coordinate(point.y)); }

}  // namespace

void Scene::rectangle(SceneLayer layer, const SceneBox& box, double radius, const Paint& paint, std::string_view tip) {
  std::string& all = in(layer);
  all += text("<rect x=\"", coordinate(box.x), "\" y=\"", coordinate(box.y), "\" width=\"", coordinate(box.width),
              "\" height=\"", coordinate(box.height), "\" rx=\"", coordinate(radius), "\"", attributes(paint));
  all += tip.empty() ? "/>\n" : text("><title>", xml_escaped(tip), "</title></rect>\n");
}

void Scene::words(SceneLayer layer, ScenePoint at, std::string_view words, const Font& font) {
  std::string& all = in(layer);
  all += text("<text x=\"", coordinate(at.x), "\" y=\"", coordinate(at.y), "\" font-size=\"", coordinate(font.size),
              "\" fill=\"", font.fill, "\"");
  if (font.bold) all += " font-weight=\"600\"";
  if (font.anchor != "start") all += text(" text-anchor=\"", font.anchor, "\"");
  all += text(">", xml_escaped(words), "</text>\n");
}

void Scene::line(const std::vector<ScenePoint>& points, const Paint& paint) {
  if (points.size() < 2) return;
  constexpr double radius = 6;
  std::string path = text("M", pair(points.front()));
  for (std::size_t i = 1; i + 1 < points.size(); ++i) {
    path += text(" L", pair(towards(points[i], points[i - 1], radius)), " Q", pair(points[i]), " ",
                 pair(towards(points[i], points[i + 1], radius)));
  }
  path += text(" L", pair(points.back()));
  in(SceneLayer::ring) += text("<path d=\"", path, "\" stroke-linecap=\"round\"", attributes(paint), "/>\n");
}

std::string Scene::svg(double width, double height, std::string_view title) const {
  std::string all =
      text("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"", coordinate(width), "\" height=\"", coordinate(height),
           "\" viewBox=\"0 0 ", coordinate(width), " ", coordinate(height),
           "\" font-family=\"system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif\">\n");
  all += text("<title>", xml_escaped(title), "</title>\n");
  all += text("<rect width=\"", coordinate(width), "\" height=\"", coordinate(height), "\" fill=\"#f5f7fa\"/>\n");
  for (const std::string& layer : layers_) all += text("<g>\n", layer, "</g>\n");
  return all + "</svg>\n";
}

double text_width(std::string_view words, double size, bool bold) {
  return static_cast<double>(screen_width(words)) * size * (bold ? 0.66 : 0.6);
}

std::string fitted(std::string_view words, double size, double width, bool bold) {
  const double letters = width / text_width("x", size, bold);
  return cut(words, static_cast<std::size_t>(std::max(1.0, letters)));
}

}  // namespace lockstep::command
