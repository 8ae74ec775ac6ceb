// SPDX-License-Identifier: Apache-2.0
// Solves the five-point Laplace equation on a square grid of n x n points by conjugate gradients. The ranks form a grid
// of two dimensions, and each has a rectangle of points. Every step exchanges the rectangle's edges with up to four
// neighbours, and sums two dot products over all ranks. conjugate_gradient_mpi.cpp is the same program in plain MPI.
//
//   mpirun -n 4 conjugate_gradient 128        128 x 128 points
//   mpirun -n 4 conjugate_gradient 128 20     solved 20 times; the time is the median
#include <lockstep.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <vector>

namespace {

using lockstep::CartesianGrid;
using lockstep::Face;
using lockstep::GridSide;

constexpr double tolerance = 1e-6;  // of the residual, by that of the first step

// Holds this rank's rectangle of a field, with a border of one point for the neighbours' edges.
struct Field {
  Field(std::size_t rows_given, std::size_t columns_given)
      : rows(rows_given), columns(columns_given), values((rows + 2) * (columns + 2)) {}
  double* row(std::size_t i) { return values.data() + i * (columns + 2); }
  const double* row(std::size_t i) const { return values.data() + i * (columns + 2); }
  std::size_t rows;
  std::size_t columns;
  std::vector<double> values;
};

// Returns the four edges of a field, and the border that receives each neighbour's.
std::vector<Face<double>> faces_of(Field& field) {
  const std::size_t stride = field.columns + 2;
  const auto row = [&](std::size_t i) {
    return lockstep::StridedBuffer<double>{field.row(i) + 1, 1, 0, field.columns};
  };
  const auto column = [&](std::size_t j) {
    return lockstep::StridedBuffer<double>{field.row(1) + j, field.rows, stride};
  };
  const auto sent = [](const lockstep::StridedBuffer<double>& buffer) {
    return lockstep::StridedBuffer<const double>{buffer.first, buffer.blocks, buffer.stride, buffer.block};
  };
  return {{0, GridSide::lower, sent(row(1)), row(0)},
          {0, GridSide::upper, sent(row(field.rows)), row(field.rows + 1)},
          {1, GridSide::lower, sent(column(1)), column(0)},
          {1, GridSide::upper, sent(column(field.columns)), column(field.columns + 1)}};
}

// Returns the first of n points that part `index` of `parts` has.
std::size_t first_of(std::size_t n, int index, int parts) {
  return n * static_cast<std::size_t>(index) / static_cast<std::size_t>(parts);
}

// This and the next two are not inlined, so that both programs have the same loops, and differ in their calls only.
[[gnu::noinline]] double dot(const Field& a, const Field& b) {
  double sum = 0;
  for (std::size_t i = 1; i <= a.rows; ++i)
    for (std::size_t j = 1; j <= a.columns; ++j) sum += a.row(i)[j] * b.row(i)[j];
  return sum;
}

// Writes 4 x[i][j] minus the four neighbours of each point into `result`.
[[gnu::noinline]] void apply(const Field& x, Field& result) {
  for (std::size_t i = 1; i <= x.rows; ++i) {
    const double* const above = x.row(i - 1);
    const double* const here = x.row(i);
    const double* const below = x.row(i + 1);
    double* const out = result.row(i);
    for (std::size_t j = 1; j <= x.columns; ++j) out[j] = 4 * here[j] - above[j] - below[j] - here[j - 1] - here[j + 1];
  }
}

// Adds factor * b to a.
[[gnu::noinline]] void add(Field& a, double factor, const Field& b) {
  for (std::size_t i = 1; i <= a.rows; ++i)
    for (std::size_t j = 1; j <= a.columns; ++j) a.row(i)[j] += factor * b.row(i)[j];
}

struct Solution {
  int steps;
  double residual;
};

// Solves A x = 1 with x = 0 at the edges of the whole grid.
Solution solve(CartesianGrid& grid, std::size_t n) {
  lockstep::Communicator& world = grid.communicator();
  const std::vector<int> here = grid.coordinates();
  const auto length = [&](std::size_t d) {
    return first_of(n, here[d] + 1, grid.extents()[d]) - first_of(n, here[d], grid.extents()[d]);
  };
  Field x(length(0), length(1));
  Field residual = x;
  Field direction = x;
  Field product = x;
  for (std::size_t i = 1; i <= x.rows; ++i) std::fill_n(residual.row(i) + 1, x.columns, 1.0);
  add(direction, 1, residual);
  const std::vector<Face<double>> faces = faces_of(direction);
  double norm = world.all_reduce(dot(residual, residual), lockstep::sum);
  const double enough = tolerance * tolerance * norm;
  const int max_steps = 10 * static_cast<int>(n);
  int steps = 0;
  for (; steps < max_steps && norm > enough; ++steps) {
    grid.exchange<double>(faces);
    apply(direction, product);
    const double alpha = norm / world.all_reduce(dot(direction, product), lockstep::sum);
    add(x, alpha, direction);
    add(residual, -alpha, product);
    const double before = norm;
    norm = world.all_reduce(dot(residual, residual), lockstep::sum);
    for (std::size_t i = 1; i <= x.rows; ++i)
      for (std::size_t j = 1; j <= x.columns; ++j)
        direction.row(i)[j] = residual.row(i)[j] + norm / before * direction.row(i)[j];
  }
  return {steps, std::sqrt(norm)};
}

}  // namespace

int main(int argc, char** argv) {
  try {
    lockstep::Session session = lockstep::start(argc, argv);
    const int n = argc > 1 ? std::atoi(argv[1]) : 128;
    const int times = argc > 2 ? std::atoi(argv[2]) : 1;
    if (n < session.size() || times < 1) {
      if (session.rank() == 0) std::fprintf(stderr, "use: conjugate_gradient N [TIMES], with N at least the ranks\n");
      return 1;
    }
    CartesianGrid grid(session.world(), lockstep::even_grid(session.size(), 2), {false, false});
    Solution solution{};
    std::vector<double> us_of_step;
    for (int i = 0; i < times; ++i) {
      session.world().barrier();
      const auto begin = std::chrono::steady_clock::now();
      solution = solve(grid, static_cast<std::size_t>(n));
      const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - begin;
      us_of_step.push_back(took.count() / solution.steps);
    }
    std::sort(us_of_step.begin(), us_of_step.end());
    if (session.rank() == 0)
      std::printf("%d x %d: %d steps, residual %.6e, %.3f us a step\n", n, n, solution.steps, solution.residual,
                  us_of_step[us_of_step.size() / 2]);
    return 0;
  } catch (const lockstep::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return static_cast<int>(exit_of(error.code()));
  }
}
