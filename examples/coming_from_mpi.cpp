// SPDX-License-Identifier: Apache-2.0
// Uses Lockstep in a program that starts MPI itself: reductions with functions of the program, minimum with its index,
// a halo exchange, and a split communicator. docs/coming-from-mpi.md names the MPI call that each one replaces.
#include <mpi.h>
#include <lockstep.hpp>
#include <lockstep_mpi.hpp>

#include <cstdint>
#include <iostream>
#include <optional>
#include <vector>

namespace {

// Any trivially copyable type can be reduced. It needs no MPI datatype.
struct Moments {
  double sum;
  double squares;
  std::int64_t count;
};

// Reduces with a function of the program, as MPI_Op_create does.
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

// Returns the smallest value of all ranks, and its index in the distributed array, as MPI_MINLOC does.
lockstep::Located<double> smallest_of_all(lockstep::Communicator& world, const std::vector<double>& values,
                                          std::int64_t first_index) {
  lockstep::Located<double> smallest{values.front(), first_index};
  for (std::size_t i = 1; i < values.size(); ++i) {
    if (values[i] < smallest.value) smallest = {values[i], first_index + static_cast<std::int64_t>(i)};
  }
  world.all_reduce(std::span(&smallest, 1), lockstep::min);
  return smallest;
}

// A Line is the function x -> factor * x + shift.
struct Line {
  double factor;
  double shift;
};

// Composes the functions of all ranks. Order matters, so the reduction is `ordered`: rank 0's function is applied
// first.
Line compose_all(lockstep::Communicator& world, Line mine) {
  const auto then = [](const Line& first, const Line& second) {
    return Line{second.factor * first.factor, second.factor * first.shift + second.shift};
  };
  world.all_reduce(std::span(&mine, 1), lockstep::ordered(then));
  return mine;
}

// Exchanges rows with both neighbours. Row 0 and row `rows` + 1 receive the neighbours' nearest rows.
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

// Sums among the ranks of the same parity, as after MPI_Comm_split. The communicator ends with its variable.
int sum_by_parity(lockstep::Communicator& world, int value) {
  std::optional<lockstep::Communicator> half = world.split(world.rank() % 2);
  return half->all_reduce(value, lockstep::sum);
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  {
    // The session must end before MPI_Finalize, so it has a scope of its own.
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
