// SPDX-License-Identifier: Apache-2.0
// Data that does not lie in one piece: packed before it is used, unpacked when all is done, also in place.
#include <numeric>

#include "tests/collectives/communicator/members.hpp"
#include "tests/support/holds.hpp"

namespace lockstep::test {
namespace {

TEST(Strided, ColumnsAndFaces) {
  with_members(2, [](Communicator& world) {
    std::vector<int> matrix(5 * 4);
    std::iota(matrix.begin(), matrix.end(), world.rank() * 100);
    const auto before = matrix;
    world.all_reduce(StridedBuffer<int>{matrix.data() + 1, 5, 4}, sum);
    for (std::size_t i = 0; i < matrix.size(); ++i) {
      const int at = static_cast<int>(i);
      EXPECT_EQ(matrix[i], i % 4 == 1 ? 2 * at + 100 : before[i]);
    }
    std::vector<int> got(10);
    const int other = 1 - world.rank();
    world.sendrecv(StridedBuffer<const int>{before.data() + 2, 5, 4, 2}, other, got, other);
    for (std::size_t i = 0; i < 10; ++i) EXPECT_EQ(got[i], other * 100 + static_cast<int>(i / 2 * 4 + 2 + i % 2));
  });
}

TEST(Strided, InPlaceItIsSharedOutByRuns) {
  with_members(3, [](Communicator& world) {
    // Six runs of two in rows of five: two runs are a member's.
    const auto at = [](int run, int place) { return static_cast<std::size_t>(5 * run + place); };
    std::vector<int> matrix(30, -1);
    for (int run = 2 * world.rank(); run < 2 * world.rank() + 2; ++run) {
      for (int place : {1, 2}) matrix[at(run, place)] = 10 * run + place;
    }
    world.all_gather(StridedBuffer<int>{matrix.data() + 1, 6, 5, 2});
    for (int run = 0; run < 6; ++run) {
      EXPECT_EQ(matrix[at(run, 0)], -1) << "what lies between stays";
      for (int place : {1, 2}) EXPECT_EQ(matrix[at(run, place)], 10 * run + place);
    }
    world.reduce_scatter(StridedBuffer<int>{matrix.data() + 1, 6, 5, 2}, sum);
    for (int run = 2 * world.rank(); run < 2 * world.rank() + 2; ++run)
      EXPECT_EQ(matrix[at(run, 2)], 3 * (10 * run + 2));
  });
  with_members(2, [](Communicator& world) {
    std::vector<int> matrix(12);
    try {
      world.all_gather(StridedBuffer<int>{matrix.data(), 3, 4, 2});
      ADD_FAILURE() << "three runs for two members";
    } catch (const Error& error) {
      EXPECT_PRED2(holds, error.what(), "cannot be shared out whole");
    }
  });
}

}  // namespace
}  // namespace lockstep::test
