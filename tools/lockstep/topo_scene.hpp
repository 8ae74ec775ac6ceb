// SPDX-License-Identifier: Apache-2.0
// Holds a drawing as a list of shapes in layers, and writes it as self-contained SVG with the viewer's own fonts. It
// keeps rank labels beside the text, so that a test can check that no two overlap.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::command {

// Name the colours of important and of secondary words.
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

// Returns the place of a thing in a grid that fills row by row. `x` is the number of things to its left, `y` the number
// of rows above.
inline ScenePoint grid_place(std::size_t number, std::size_t columns) {
  const std::size_t row = number / columns;
  return {static_cast<double>(number - row * columns), static_cast<double>(row)};
}

// Orders the layers from back to front.
enum class SceneLayer : std::uint8_t { boxes, cells, ring, dots };

// Holds the colours and lines of a shape.
struct Paint {
  std::string_view fill = "none";
  std::string_view stroke = "none";
  double stroke_width = 1;
  double opacity = 1;          // of the fill
  std::string_view dash = {};  // such as "4 3"; empty: a solid line
};

struct Font {
  double size = 12;
  std::string_view fill = "#0f172a";
  bool bold = false;
  std::string_view anchor = "start";  // or "middle", "end"
};

// Holds the box of a rank's label.
struct RankLabel {
  int rank = 0;
  SceneBox box;
};

// Collects shapes in pixels from the upper left corner.
class Scene {
 public:
  // Add shapes. A browser shows `tip` when the pointer rests there.
  void rectangle(SceneLayer layer, const SceneBox& box, double radius, const Paint& paint, std::string_view tip = {});
  void words(SceneLayer layer, ScenePoint at, std::string_view words, const Font& font);
  // Draws straight pieces with rounded corners.
  void line(const std::vector<ScenePoint>& points, const Paint& paint);
  void add_label(const RankLabel& label) { labels_.push_back(label); }

  const std::vector<RankLabel>& labels() const { return labels_; }
  std::string svg(double width, double height, std::string_view title) const;

 private:
  std::string& in(SceneLayer layer) { return layers_.at(static_cast<std::size_t>(layer)); }

  std::array<std::string, 4> layers_;
  std::vector<RankLabel> labels_;
};

// Returns the width of the words in a wide font of this size; a guess on the safe side.
double text_width(std::string_view words, double size, bool bold = false);
// Returns the words, cut to that width.
std::string fitted(std::string_view words, double size, double width, bool bold = false);

}  // namespace lockstep::command
