// SPDX-License-Identifier: Apache-2.0
// Solves the five-point Laplace equation on a square grid of n x n points by conjugate gradients. The ranks form a grid
// of two dimensions, and each has a rectangle of points. Every step exchanges the rectangle's edges with up to four
// neighbours, and sums two dot products over all ranks. conjugate_gradient.cpp is the same program with Lockstep.
//
//   mpirun -n 4 conjugate_gradient_mpi 128        128 x 128 points
//   mpirun -n 4 conjugate_gradient_mpi 128 20     solved 20 times; the time is the median
#include <mpi.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <vector>

namespace {

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

// Holds the communicator of the grid, this rank's place on it, and its neighbours: lower and upper of each dimension.
// A neighbour beyond an end is MPI_PROC_NULL.
struct Grid {
  MPI_Comm comm = MPI_COMM_NULL;
  int extents[2] = {0, 0};
  int here[2] = {0, 0};
  int neighbours[4] = {0, 0, 0, 0};
};

Grid make_grid() {
  Grid grid;
  int size = 0;
  int rank = 0;
  const int periodic[2] = {0, 0};
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  MPI_Dims_create(size, 2, grid.extents);
  MPI_Cart_create(MPI_COMM_WORLD, 2, grid.extents, periodic, 0, &grid.comm);
  MPI_Comm_rank(grid.comm, &rank);
  MPI_Cart_coords(grid.comm, rank, 2, grid.here);
  MPI_Cart_shift(grid.comm, 0, 1, &grid.neighbours[0], &grid.neighbours[1]);
  MPI_Cart_shift(grid.comm, 1, 1, &grid.neighbours[2], &grid.neighbours[3]);
  return grid;
}

// Sends the four edges of a field to the neighbours, and receives theirs into its border.
void exchange(const Grid& grid, Field& field, MPI_Datatype column) {
  const int columns = static_cast<int>(field.columns);
  MPI_Request requests[8];
  MPI_Irecv(field.row(0) + 1, columns, MPI_DOUBLE, grid.neighbours[0], 1, grid.comm, &requests[0]);
  MPI_Irecv(field.row(field.rows + 1) + 1, columns, MPI_DOUBLE, grid.neighbours[1], 0, grid.comm, &requests[1]);
  MPI_Irecv(field.row(1), 1, column, grid.neighbours[2], 3, grid.comm, &requests[2]);
  MPI_Irecv(field.row(1) + columns + 1, 1, column, grid.neighbours[3], 2, grid.comm, &requests[3]);
  MPI_Isend(field.row(1) + 1, columns, MPI_DOUBLE, grid.neighbours[0], 0, grid.comm, &requests[4]);
  MPI_Isend(field.row(field.rows) + 1, columns, MPI_DOUBLE, grid.neighbours[1], 1, grid.comm, &requests[5]);
  MPI_Isend(field.row(1) + 1, 1, column, grid.neighbours[2], 2, grid.comm, &requests[6]);
  MPI_Isend(field.row(1) + columns, 1, column, grid.neighbours[3], 3, grid.comm, &requests[7]);
  MPI_Waitall(8, requests, MPI_STATUSES_IGNORE);
}

double sum_of_all(const Grid& grid, double value) {
  MPI_Allreduce(MPI_IN_PLACE, &value, 1, MPI_DOUBLE, MPI_SUM, grid.comm);
  return value;
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
Solution solve(const Grid& grid, std::size_t n) {
  const auto length = [&](std::size_t d) {
    return first_of(n, grid.here[d] + 1, grid.extents[d]) - first_of(n, grid.here[d], grid.extents[d]);
  };
  Field x(length(0), length(1));
  Field residual = x;
  Field direction = x;
  Field product = x;
  for (std::size_t i = 1; i <= x.rows; ++i) std::fill_n(residual.row(i) + 1, x.columns, 1.0);
  add(direction, 1, residual);
  MPI_Datatype column = MPI_DATATYPE_NULL;
  MPI_Type_vector(static_cast<int>(x.rows), 1, static_cast<int>(x.columns + 2), MPI_DOUBLE, &column);
  MPI_Type_commit(&column);
  double norm = sum_of_all(grid, dot(residual, residual));
  const double enough = tolerance * tolerance * norm;
  const int max_steps = 10 * static_cast<int>(n);
  int steps = 0;
  for (; steps < max_steps && norm > enough; ++steps) {
    exchange(grid, direction, column);
    apply(direction, product);
    const double alpha = norm / sum_of_all(grid, dot(direction, product));
    add(x, alpha, direction);
    add(residual, -alpha, product);
    const double before = norm;
    norm = sum_of_all(grid, dot(residual, residual));
    for (std::size_t i = 1; i <= x.rows; ++i)
      for (std::size_t j = 1; j <= x.columns; ++j)
        direction.row(i)[j] = residual.row(i)[j] + norm / before * direction.row(i)[j];
  }
  MPI_Type_free(&column);
  return {steps, std::sqrt(norm)};
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank = 0;
  int size = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  const int n = argc > 1 ? std::atoi(argv[1]) : 128;
  const int times = argc > 2 ? std::atoi(argv[2]) : 1;
  if (n < size || times < 1) {
    if (rank == 0) std::fprintf(stderr, "use: conjugate_gradient_mpi N [TIMES], with N at least the ranks\n");
    MPI_Finalize();
    return 1;
  }
  Grid grid = make_grid();
  Solution solution{};
  std::vector<double> us_of_step;
  for (int i = 0; i < times; ++i) {
    MPI_Barrier(grid.comm);
    const auto begin = std::chrono::steady_clock::now();
    solution = solve(grid, static_cast<std::size_t>(n));
    const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - begin;
    us_of_step.push_back(took.count() / solution.steps);
  }
  std::sort(us_of_step.begin(), us_of_step.end());
  if (rank == 0)
    std::printf("%d x %d: %d steps, residual %.6e, %.3f us a step\n", n, n, solution.steps, solution.residual,
                us_of_step[us_of_step.size() / 2]);
  MPI_Comm_free(&grid.comm);
  MPI_Finalize();
  return 0;
}
