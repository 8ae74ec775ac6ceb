// SPDX-License-Identifier: Apache-2.0
// Members in a grid: how it is cut, who is beside whom, and faces that neighbours exchange.
#include "collectives/communicator/cartesian.hpp"

#include <gtest/gtest.h>

#include <functional>

#include "tests/collectives/communicator/members.hpp"

namespace lockstep::test {
namespace {

TEST(Grids, AreAsSquareAsTheirMembersLetThem) {
  EXPECT_EQ(even_grid(1, 3), (std::vector{1, 1, 1}));
  EXPECT_EQ(even_grid(7, 2), (std::vector{7, 1}));
  EXPECT_EQ(even_grid(24, 2), (std::vector{6, 4}));
  EXPECT_EQ(even_grid(64, 3), (std::vector{4, 4, 4}));
  EXPECT_EQ(even_grid(360, 3), (std::vector{10, 6, 6}));
  EXPECT_THROW(even_grid(0, 2), Error);
  EXPECT_THROW(even_grid(4, 0), Error);
}

TEST(Grids, ThatDoNotFitAreRefusedWithTheReason) {
  with_members(6, [](Communicator& world) {
    const auto why = [](const std::function<void()>& wrong) {
      try {
        wrong();
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), Code::usage);
        return std::string(error.what());
      }
      return std::string("nothing was refused");
    };
    const auto has = [&](const std::function<void()>& wrong, std::string_view words) {
      const std::string said = why(wrong);
      EXPECT_NE(said.find(words), std::string::npos) << said;
    };
    has([&] { CartesianGrid(world, {2, 2}, {false, false}); }, "a grid of 4 places for 6 members");
    has([&] { CartesianGrid(world, {6, 0}, {false, false}); }, "an extent of 0");
    has([&] { CartesianGrid(world, {3, 2}, {false}); }, "1 periodic flags for 2 dimensions");
    const CartesianGrid grid(world, {3, 2}, {false, true});
    has([&] { static_cast<void>(grid.rank_at(std::vector{1})); }, "1 coordinates in 2 dimensions");
    has([&] { static_cast<void>(grid.neighbour(2, GridSide::upper)); }, "dimension 2 of 2");
    EXPECT_EQ(grid.rank_at(std::vector{3, 0}), std::nullopt) << "beyond an end";
    EXPECT_EQ(grid.rank_at(std::vector{1, 2}), 2) << "around";
  });
}

TEST(Grids, ExchangeWithTheirNeighbours) {
  with_members(6, [](Communicator& world) {
    CartesianGrid grid(world, {3, 2}, {false, true});
    constexpr int n = 4;
    std::vector<int> field((n + 2) * (n + 2), world.rank());
    const auto at = [&](int i, int j) { return field.data() + i * (n + 2) + j; };
    const std::vector<Face<int>> faces = {
        {0, GridSide::lower, {at(1, 1), 1, 0, n}, {at(0, 1), 1, 0, n}},
        {0, GridSide::upper, {at(n, 1), 1, 0, n}, {at(n + 1, 1), 1, 0, n}},
        {1, GridSide::lower, {at(1, 1), n, n + 2}, {at(1, 0), n, n + 2}},
        {1, GridSide::upper, {at(1, n), n, n + 2}, {at(1, n + 1), n, n + 2}},
    };
    grid.exchange<int>(faces);
    const auto expected = [&](int dimension, GridSide side) {
      return grid.neighbour(dimension, side).value_or(world.rank());
    };
    EXPECT_EQ(*at(0, 2), expected(0, GridSide::lower));
    EXPECT_EQ(*at(n + 1, 2), expected(0, GridSide::upper));
    EXPECT_EQ(*at(2, 0), expected(1, GridSide::lower));
    EXPECT_EQ(*at(2, n + 1), expected(1, GridSide::upper));
  });
}

}  // namespace
}  // namespace lockstep::test
