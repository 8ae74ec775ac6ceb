// SPDX-License-Identifier: Apache-2.0
// A drawing as a list of shapes in layers, and its SVG: self-contained, with the viewer's own fonts.
// Rank labels are kept beside the text, so that a test can ask whether two of them overlap.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::command {

// Colours of words and of what stands back.
inline constexpr std::string_view ink = "#0f172a";
inline constexpr std::string_view pale = "#64748b";

struct SceneBox {
  double x = 0;
  double y = 0;
  double width = 0;
  double height = 0;
  double right() const { return x + width; }
  double bottom() const { return y + height; }
  double middle_x() const { return x + width / 2; }
  double middle_y() const { return y + height / 2; }
  bool overlaps(const SceneBox& other) const {
    return x < other.right() && other.x < right() && y < other.bottom() && other.y < bottom();
  }
};

struct ScenePoint {
  double x = 0;
  double y = 0;
};

// Of the thing with this number where things stand row after row: how many are to its left, and how many rows above.
inline ScenePoint grid_place(std::size_t number, std::size_t columns) {
  const std::size_t row = number / columns;
  return {static_cast<double>(number - row * columns), static_cast<double>(row)};
}

// From back to front.
enum class SceneLayer : std::uint8_t { boxes, cells, ring, dots };

struct Paint {
  std::string_view fill = "none";
  std::string_view stroke = "none";
  double stroke_width = 1;
  double opacity = 1;          // of the fill
  std::string_view dash = {};  // "4 3"
};

struct Font {
  double size = 12;
  std::string_view fill = "#0f172a";
  bool bold = false;
  std::string_view anchor = "start";  // or "middle", "end"
};

struct RankLabel {
  int rank = 0;
  SceneBox box;
};

class Scene {
 public:
  // `tip` is what a browser shows when the pointer rests there.
  void rectangle(SceneLayer layer, const SceneBox& box, double radius, const Paint& paint, std::string_view tip = {});
  void words(SceneLayer layer, ScenePoint at, std::string_view words, const Font& font);
  // Straight pieces with rounded corners.
  void line(const std::vector<ScenePoint>& points, const Paint& paint);
  void add_label(const RankLabel& label) { labels_.push_back(label); }

  const std::vector<RankLabel>& labels() const { return labels_; }
  std::string svg(double width, double height, std::string_view title) const;

 private:
  std::string& in(SceneLayer layer) { return layers_.at(static_cast<std::size_t>(layer)); }

  std::array<std::string, 4> layers_;
  std::vector<RankLabel> labels_;
};

// What the words take in a wide font of this size; a guess on the safe side.
double text_width(std::string_view words, double size, bool bold = false);
// The words, cut where they would be wider.
std::string fitted(std::string_view words, double size, double width, bool bold = false);

}  // namespace lockstep::command
