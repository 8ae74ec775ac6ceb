// SPDX-License-Identifier: Apache-2.0
// Solves the heat equation on a plate by Jacobi's method. Ranks form a grid; each has a part of the plate, with a rim
// of its neighbours' values. Each step has one exchange of faces and one all-reduce of the residual.
#include <lockstep/collectives.hpp>

#include <cmath>
#include <cstdlib>
#include <iostream>

namespace {

using lockstep::Face;
using lockstep::GridSide;

// A part of the plate with a rim of one on each side.
struct Field {
  Field(std::size_t height_given, std::size_t width_given)
      : height(height_given), width(width_given), values((height + 2) * (width + 2), 0.0) {}
  double* at(std::size_t row, std::size_t column) { return &values[row * (width + 2) + column]; }
  std::size_t height;
  std::size_t width;
  std::vector<double> values;
};

// Returns the number of rows or columns of part `i`, if `whole` of them are divided among `places` parts.
std::size_t share(std::size_t whole, int i, int places) {
  const auto n = static_cast<std::size_t>(places);
  return whole / n + (static_cast<std::size_t>(i) < whole % n ? 1 : 0);
}

std::vector<Face<double>> faces_of(Field& field) {
  const std::size_t h = field.height;
  const std::size_t w = field.width;
  return {
      {0, GridSide::lower, {field.at(1, 1), 1, 0, w}, {field.at(0, 1), 1, 0, w}},
      {0, GridSide::upper, {field.at(h, 1), 1, 0, w}, {field.at(h + 1, 1), 1, 0, w}},
      {1, GridSide::lower, {field.at(1, 1), h, w + 2}, {field.at(1, 0), h, w + 2}},
      {1, GridSide::upper, {field.at(1, w), h, w + 2}, {field.at(1, w + 1), h, w + 2}},
  };
}

// Computes one step from `old` to `next`. Returns the sum of the squared changes.
double relax(Field& old, Field& next) {
  double change = 0;
  for (std::size_t row = 1; row <= old.height; ++row) {
    for (std::size_t column = 1; column <= old.width; ++column) {
      const double around =
          *old.at(row - 1, column) + *old.at(row + 1, column) + *old.at(row, column - 1) + *old.at(row, column + 1);
      *next.at(row, column) = around / 4;
      change += std::pow(around / 4 - *old.at(row, column), 2);
    }
  }
  return change;
}

}  // namespace

int main(int argc, char** argv) {
  lockstep::Session session(argc, argv);
  // In the reproducible order the residual has the same bits in every run, and so the number of steps is the same.
  auto world = session.world().reproducible("plate");
  lockstep::CartesianGrid grid(world, lockstep::even_grid(world.size(), 2), {false, false});
  const std::size_t plate = argc > 1 ? std::strtoul(argv[1], nullptr, 10) : 48;
  const auto place = grid.coordinates();
  Field now(share(plate, place[0], grid.extents()[0]), share(plate, place[1], grid.extents()[1]));
  if (place[0] == 0) {  // the upper edge of the plate is hot
    for (std::size_t column = 0; column < now.width + 2; ++column) *now.at(0, column) = 1.0;
  }
  Field next = now;
  double residual = 1;
  int steps = 0;
  for (; residual > 1e-4 && steps < 10000; ++steps) {
    const auto faces = faces_of(now);
    grid.exchange<double>(faces);
    residual = std::sqrt(world.all_reduce(relax(now, next), lockstep::sum));
    std::swap(now, next);
  }
  double heat = 0;
  for (std::size_t row = 1; row <= now.height; ++row) {
    for (std::size_t column = 1; column <= now.width; ++column) heat += *now.at(row, column);
  }
  heat = world.all_reduce(heat, lockstep::sum);
  if (world.rank() == 0) std::cout << "steps " << steps << ", residual " << residual << ", heat " << heat << "\n";
}
