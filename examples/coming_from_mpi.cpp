// SPDX-License-Identifier: Apache-2.0
// What MPI programs need, in Lockstep's words, in a program that starts MPI itself. docs/coming-from-mpi.md shows each
// function.
#include <mpi.h>
#include <lockstep.hpp>
#include <lockstep_mpi.hpp>

#include <cstdint>
#include <iostream>
#include <optional>
#include <vector>

namespace {

struct Moments {
  double sum;
  double squares;
  std::int64_t count;
};

Moments moments_of_all(lockstep::Communicator& world, const std::vector<double>& values) {
  Moments moments{};
  for (const double value : values) {
    moments.sum += value;
    moments.squares += value * value;
    ++moments.count;
  }
  const auto add = [](const Moments& a, const Moments& b) {
    return Moments{a.sum + b.sum, a.squares + b.squares, a.count + b.count};
  };
  world.all_reduce(std::span(&moments, 1), lockstep::commutative(add));
  return moments;
}

// The smallest value of all ranks, and its index in the array that the ranks share.
lockstep::Located<double> smallest_of_all(lockstep::Communicator& world, const std::vector<double>& values,
                                          std::int64_t first_index) {
  lockstep::Located<double> smallest{values.front(), first_index};
  for (std::size_t i = 1; i < values.size(); ++i) {
    if (values[i] < smallest.value) smallest = {values[i], first_index + static_cast<std::int64_t>(i)};
  }
  world.all_reduce(std::span(&smallest, 1), lockstep::min);
  return smallest;
}

// x -> factor * x + shift, on every rank; the result applies rank 0's first.
struct Line {
  double factor;
  double shift;
};

Line compose_all(lockstep::Communicator& world, Line mine) {
  const auto then = [](const Line& first, const Line& second) {
    return Line{second.factor * first.factor, second.factor * first.shift + second.shift};
  };
  world.all_reduce(std::span(&mine, 1), lockstep::ordered(then));
  return mine;
}

// Rows of a periodic field: row 0 and row `rows` + 1 are copies of the neighbours' nearest rows.
void update_halo(lockstep::CartesianGrid& grid, std::vector<double>& field, std::size_t rows, std::size_t columns) {
  const auto row = [&](std::size_t i) { return lockstep::StridedBuffer<double>{&field[i * columns], 1, 0, columns}; };
  const auto sent = [&](std::size_t i) {
    return lockstep::StridedBuffer<const double>{&field[i * columns], 1, 0, columns};
  };
  const std::vector<lockstep::Face<double>> faces = {
      {0, lockstep::GridSide::lower, sent(1), row(0)},
      {0, lockstep::GridSide::upper, sent(rows), row(rows + 1)},
  };
  grid.exchange<double>(faces);
}

// The sum among the ranks with the same parity, by a communicator that ends with its variable.
int sum_by_parity(lockstep::Communicator& world, int value) {
  std::optional<lockstep::Communicator> half = world.split(world.rank() % 2);
  return half->all_reduce(value, lockstep::sum);
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  {
    lockstep::Session session = lockstep::session_over(MPI_COMM_WORLD);
    lockstep::Communicator& world = session.world();
    const int rank = world.rank();

    const std::vector<double> values = {1.0 + rank, 2.0 - rank};
    const Moments moments = moments_of_all(world, values);
    const auto smallest = smallest_of_all(world, values, 2 * rank);
    const Line line = compose_all(world, {2, static_cast<double>(rank)});
    lockstep::CartesianGrid grid(world, {world.size()}, {true});
    std::vector<double> field(3 * 4, rank);
    update_halo(grid, field, 1, 4);
    const int parity = sum_by_parity(world, rank);
    if (rank == 0) {
      std::cout << "sum " << moments.sum << ", squares " << moments.squares << ", count " << moments.count << "\n"
                << "smallest " << smallest.value << " at " << smallest.index << "\n"
                << "line " << line.factor << " * x + " << line.shift << "\n"
                << "halo " << field.front() << " " << field.back() << "\n"
                << "even ranks " << parity << "\n";
    }
  }
  MPI_Finalize();
}
