// SPDX-License-Identifier: Apache-2.0
// Held against the MPI library's own collectives, for every type and operation that both have, with data for which
// every order gives the same bits; and for floats where it does not, within a bound: the error of a sum of P numbers
// is at most P - 1 roundings, so the two differ by at most 2 (P - 1) units in the last place of the sum of magnitudes.
#include <gtest/gtest.h>
#include <mpi.h>

#include <cmath>
#include <complex>

#include "collectives/communicator/communicator.hpp"
#include "tests/support/mpi_test.hpp"

namespace lockstep::test {
namespace {

constexpr std::size_t count = 1237;

Communicator& group() { return session().world(); }

template <class T>
T typed(int value) {
  if constexpr (std::is_arithmetic_v<T>)
    return static_cast<T>(value);
  else
    return T(static_cast<typename T::value_type>(value));
}

template <class T>
std::vector<T> data_of(int rank, int range) {
  std::vector<T> all(count);
  for (std::size_t i = 0; i < count; ++i)
    all[i] =
        typed<T>(static_cast<int>((i * 31 + static_cast<std::size_t>(rank) * 17) % static_cast<std::size_t>(range)));
  return all;
}

template <class T, class Op>
void compare(MPI_Datatype type, Op op, MPI_Op theirs, int range) {
  Communicator& world = group();
  const auto mine = data_of<T>(world.rank(), range);
  const int n = static_cast<int>(count);
  std::vector<T> ours(count);
  std::vector<T> right(count);
  const auto same = [&](const char* what) {
    EXPECT_EQ(std::memcmp(ours.data(), right.data(), count * sizeof(T)), 0)
        << what << ' ' << to_string(data_type_of<T>) << ' ' << to_string(Op::op);
  };
  world.all_reduce(mine, ours, op);
  MPI_Allreduce(mine.data(), right.data(), n, type, theirs, MPI_COMM_WORLD);
  same("all_reduce");
  world.scan(mine, ours, op);
  MPI_Scan(mine.data(), right.data(), n, type, theirs, MPI_COMM_WORLD);
  same("scan");
  const int root = world.size() - 1;
  std::ranges::fill(ours, T{});
  std::ranges::fill(right, T{});
  world.reduce(mine, ours, op, root);
  MPI_Reduce(mine.data(), right.data(), n, type, theirs, root, MPI_COMM_WORLD);
  if (world.rank() == root) {
    same("reduce");
  }
}

template <class T>
void compare_integers(MPI_Datatype type) {
  compare<T>(type, sum, MPI_SUM, 15);  // of 8 members still an i8: beyond that, libraries saturate or wrap around
  compare<T>(type, prod, MPI_PROD, 2);
  compare<T>(type, min, MPI_MIN, 100);
  compare<T>(type, max, MPI_MAX, 100);
  compare<T>(type, bit_and, MPI_BAND, 128);
  compare<T>(type, bit_or, MPI_BOR, 128);
  compare<T>(type, bit_xor, MPI_BXOR, 128);
  compare<T>(type, logical_and, MPI_LAND, 3);
  compare<T>(type, logical_or, MPI_LOR, 3);
  compare<T>(type, logical_xor, MPI_LXOR, 3);
}

template <class T>
void compare_floats(MPI_Datatype type) {
  compare<T>(type, sum, MPI_SUM, 100);
  compare<T>(type, prod, MPI_PROD, 3);
  compare<T>(type, min, MPI_MIN, 100);
  compare<T>(type, max, MPI_MAX, 100);
}

TEST(Differential, Integers) {
  compare_integers<std::int8_t>(MPI_INT8_T);
  compare_integers<std::int16_t>(MPI_INT16_T);
  compare_integers<std::int32_t>(MPI_INT32_T);
  compare_integers<std::int64_t>(MPI_INT64_T);
  compare_integers<std::uint8_t>(MPI_UINT8_T);
  compare_integers<std::uint16_t>(MPI_UINT16_T);
  compare_integers<std::uint32_t>(MPI_UINT32_T);
  compare_integers<std::uint64_t>(MPI_UINT64_T);
}

TEST(Differential, FloatsAndComplex) {
  compare_floats<float>(MPI_FLOAT);
  compare_floats<double>(MPI_DOUBLE);
  compare<std::complex<float>>(MPI_C_FLOAT_COMPLEX, sum, MPI_SUM, 100);
  compare<std::complex<float>>(MPI_C_FLOAT_COMPLEX, prod, MPI_PROD, 3);
  compare<std::complex<double>>(MPI_C_DOUBLE_COMPLEX, sum, MPI_SUM, 100);
  compare<std::complex<double>>(MPI_C_DOUBLE_COMPLEX, prod, MPI_PROD, 3);
}

TEST(Differential, LocatedValues) {
  Communicator& world = group();
  std::vector<Located<float>> mine(count);
  for (std::size_t i = 0; i < count; ++i)
    mine[i] = {static_cast<float>((i + static_cast<std::size_t>(world.rank()) * 3) % 5), world.rank()};
  auto ours = mine;
  auto right = mine;
  for (const bool largest : {false, true}) {
    if (largest)
      world.all_reduce(mine, ours, max);
    else
      world.all_reduce(mine, ours, min);
    MPI_Allreduce(mine.data(), right.data(), static_cast<int>(count), MPI_FLOAT_INT, largest ? MPI_MAXLOC : MPI_MINLOC,
                  MPI_COMM_WORLD);
    EXPECT_EQ(ours, right);
  }
}

TEST(Differential, MovingData) {
  Communicator& world = group();
  const auto n = static_cast<std::size_t>(world.size());
  const auto mine = data_of<std::int32_t>(world.rank(), 1000);
  const int each = static_cast<int>(count);
  std::vector<std::int32_t> ours(count * n);
  std::vector<std::int32_t> right(count * n);
  world.all_gather(mine, ours);
  MPI_Allgather(mine.data(), each, MPI_INT32_T, right.data(), each, MPI_INT32_T, MPI_COMM_WORLD);
  EXPECT_EQ(ours, right);
  auto all = right;
  for (auto& one : all) one += world.rank() * 1000;
  world.all_to_all(all, ours);
  MPI_Alltoall(all.data(), each, MPI_INT32_T, right.data(), each, MPI_INT32_T, MPI_COMM_WORLD);
  EXPECT_EQ(ours, right);
  std::vector<std::int32_t> part(count);
  std::vector<std::int32_t> right_part(count);
  world.reduce_scatter(all, part, sum);
  MPI_Reduce_scatter_block(all.data(), right_part.data(), each, MPI_INT32_T, MPI_SUM, MPI_COMM_WORLD);
  EXPECT_EQ(part, right_part);
}

TEST(Differential, SumsOfFloatsAreWithinTheBoundOfRounding) {
  Communicator& world = group();
  std::vector<double> mine(count);
  std::vector<double> magnitude(count);
  for (std::size_t i = 0; i < count; ++i) {
    mine[i] = std::sin(static_cast<double>(i * 7919 + static_cast<std::size_t>(world.rank()) * 104729)) *
              std::pow(10, static_cast<double>(i % 9));
    magnitude[i] = std::abs(mine[i]);
  }
  std::vector<double> ours(count);
  std::vector<double> right(count);
  world.all_reduce(mine, ours, sum);
  MPI_Allreduce(mine.data(), right.data(), static_cast<int>(count), MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
  world.all_reduce(magnitude, sum);
  for (std::size_t i = 0; i < count; ++i) {
    const double unit = std::nextafter(magnitude[i], INFINITY) - magnitude[i];
    EXPECT_LE(std::abs(ours[i] - right[i]), 2 * (world.size() - 1) * unit) << i;
  }
}

}  // namespace
}  // namespace lockstep::test
