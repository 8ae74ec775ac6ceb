// SPDX-License-Identifier: Apache-2.0
// Every collective as users call it, by threads as members: blocking, async, planned and in batches, in place and
// not, for small and large sizes.
#include <gtest/gtest.h>

#include <algorithm>
#include <complex>
#include <numeric>

#include "tests/collectives/communicator/members.hpp"

namespace lockstep::test {
namespace {

// What member `rank` has at position i.
int value(int rank, std::size_t i) { return (rank + 1) * 1000 + static_cast<int>(i); }

std::vector<int> values(int rank, std::size_t count, std::size_t from = 0) {
  std::vector<int> all(count);
  for (std::size_t i = 0; i < count; ++i) all[i] = value(rank, from + i);
  return all;
}

std::vector<int> sums(int first, int last, std::size_t count, std::size_t from = 0) {
  std::vector<int> all(count, 0);
  for (int rank = first; rank < last; ++rank) {
    for (std::size_t i = 0; i < count; ++i) all[i] += value(rank, from + i);
  }
  return all;
}

std::vector<int> everybody(int size, std::size_t each) {
  std::vector<int> all;
  for (int rank = 0; rank < size; ++rank) {
    const auto part = values(rank, each);
    all.insert(all.end(), part.begin(), part.end());
  }
  return all;
}

class Sizes : public testing::TestWithParam<std::tuple<int, std::size_t>> {
 protected:
  int members() const { return std::get<0>(GetParam()); }
  std::size_t count() const { return std::get<1>(GetParam()); }
};

INSTANTIATE_TEST_SUITE_P(All, Sizes,
                         testing::Combine(testing::Values(1, 2, 3, 4, 5, 8), testing::Values(0, 1, 7, 100, 5000)));

TEST_P(Sizes, AllReduce) {
  with_members(members(), [&](Communicator& world) {
    const auto mine = values(world.rank(), count());
    const auto right = sums(0, members(), count());
    std::vector<int> out(count());
    world.all_reduce(mine, out, sum);
    EXPECT_EQ(out, right);
    auto data = mine;
    world.all_reduce(data, sum);
    EXPECT_EQ(data, right);
    data = mine;
    world.all_reduce_async(data, sum).wait();
    EXPECT_EQ(data, right);
    auto plan = world.plan_all_reduce(mine, out, max);
    for (int turn = 0; turn < 3; ++turn) {
      std::ranges::fill(out, -1);
      plan.run();
      EXPECT_EQ(out, values(members() - 1, count()));
    }
  });
}

TEST_P(Sizes, Reduce) {
  with_members(members(), [&](Communicator& world) {
    for (int root = 0; root < members(); ++root) {
      auto data = values(world.rank(), count());
      std::vector<int> out(world.rank() == root ? count() : 0);
      world.reduce(data, out, sum, root);
      if (world.rank() == root) {
        EXPECT_EQ(out, sums(0, members(), count()));
      }
      world.reduce(data, sum, root);
      EXPECT_EQ(data, world.rank() == root ? sums(0, members(), count()) : values(world.rank(), count()));
    }
  });
}

TEST_P(Sizes, ReduceScatter) {
  with_members(members(), [&](Communicator& world) {
    const auto me = static_cast<std::size_t>(world.rank());
    const std::size_t whole = count() * static_cast<std::size_t>(members());
    auto data = values(world.rank(), whole);
    std::vector<int> out(count());
    world.reduce_scatter(data, out, sum);
    const auto right = sums(0, members(), count(), me * count());
    EXPECT_EQ(out, right);
    world.reduce_scatter(data, sum);
    EXPECT_TRUE(std::equal(right.begin(), right.end(), data.begin() + static_cast<std::ptrdiff_t>(me * count())));
  });
}

TEST_P(Sizes, AllGather) {
  with_members(members(), [&](Communicator& world) {
    const auto me = static_cast<std::size_t>(world.rank());
    const auto mine = values(world.rank(), count());
    std::vector<int> out(count() * static_cast<std::size_t>(members()));
    world.all_gather(mine, out);
    EXPECT_EQ(out, everybody(members(), count()));
    std::ranges::fill(out, -1);
    std::ranges::copy(mine, out.begin() + static_cast<std::ptrdiff_t>(me * count()));
    world.all_gather(out);
    EXPECT_EQ(out, everybody(members(), count()));
  });
}

TEST_P(Sizes, Broadcast) {
  with_members(members(), [&](Communicator& world) {
    for (int root = 0; root < members(); ++root) {
      auto data = world.rank() == root ? values(root, count()) : std::vector<int>(count(), -1);
      world.broadcast(data, root);
      EXPECT_EQ(data, values(root, count()));
    }
  });
}

TEST_P(Sizes, GatherAndScatter) {
  with_members(members(), [&](Communicator& world) {
    for (int root = 0; root < members(); ++root) {
      std::vector<int> all(world.rank() == root ? count() * static_cast<std::size_t>(members()) : 0);
      world.gather(values(world.rank(), count()), all, root);
      if (world.rank() == root) {
        EXPECT_EQ(all, everybody(members(), count()));
      }
      std::vector<int> mine(count());
      world.scatter(all, mine, root);
      EXPECT_EQ(mine, values(world.rank(), count()));
    }
  });
}

TEST_P(Sizes, AllToAll) {
  with_members(members(), [&](Communicator& world) {
    std::vector<int> in;
    std::vector<int> right;
    for (int peer = 0; peer < members(); ++peer) {
      for (std::size_t i = 0; i < count(); ++i) {
        in.push_back(value(world.rank(), i) * 100 + peer);
        right.push_back(value(peer, i) * 100 + world.rank());
      }
    }
    std::vector<int> out(in.size());
    world.all_to_all(in, out);
    EXPECT_EQ(out, right);
    world.all_to_all(in);
    EXPECT_EQ(in, right);
  });
}

TEST_P(Sizes, Scans) {
  with_members(members(), [&](Communicator& world) {
    std::vector<int> out(count());
    world.scan(values(world.rank(), count()), out, sum);
    EXPECT_EQ(out, sums(0, world.rank() + 1, count()));
    auto data = values(world.rank(), count());
    world.exscan(data, sum);
    EXPECT_EQ(data, world.rank() == 0 ? values(0, count()) : sums(0, world.rank(), count()));
  });
}

TEST_P(Sizes, UnequalForms) {
  with_members(members(), [&](Communicator& world) {
    const auto n = static_cast<std::size_t>(members());
    const auto me = static_cast<std::size_t>(world.rank());
    std::vector<std::size_t> counts(n);
    std::vector<std::size_t> offsets(n);
    for (std::size_t i = 0; i < n; ++i) counts[i] = i % 3 == 1 ? 0 : count() / (i + 1);
    std::size_t next = 5;  // with gaps, from the end
    for (std::size_t i = n; i-- > 0;) {
      offsets[i] = next;
      next += counts[i] + 2;
    }
    const auto mine = values(world.rank(), counts[me]);
    std::vector<int> out(next, -1);
    world.all_gather_v(mine, out, counts, offsets);
    const auto check = [&] {
      for (std::size_t i = 0; i < n; ++i) {
        for (std::size_t j = 0; j < counts[i]; ++j)
          ASSERT_EQ(out[offsets[i] + j], value(static_cast<int>(i), j)) << i << ' ' << j;
        EXPECT_EQ(out[offsets[i] + counts[i]], -1);
      }
    };
    check();
    const int root = members() / 2;
    std::ranges::fill(out, -1);
    world.gather_v(mine, out, counts, root, offsets);
    if (world.rank() == root) check();
    std::vector<int> back(counts[me]);
    world.scatter_v(out, back, counts, root, offsets);
    EXPECT_EQ(back, mine);
    const std::size_t total = std::accumulate(counts.begin(), counts.end(), std::size_t{0});
    const std::size_t before = std::accumulate(counts.begin(), counts.begin() + world.rank(), std::size_t{0});
    std::vector<int> part(counts[me]);
    world.reduce_scatter_v(values(world.rank(), total), part, counts, sum);
    EXPECT_EQ(part, sums(0, members(), counts[me], before));
  });
}

TEST_P(Sizes, AllToAllV) {
  with_members(members(), [&](Communicator& world) {
    const auto n = static_cast<std::size_t>(members());
    const auto me = static_cast<std::size_t>(world.rank());
    const auto amount = [&](std::size_t from, std::size_t to) {
      return (from * 3 + to) % 4 == 0 ? 0 : count() / (to + 1) + from;
    };
    std::vector<std::size_t> gives(n);
    std::vector<std::size_t> takes(n);
    std::vector<int> in;
    std::vector<int> right;
    for (std::size_t i = 0; i < n; ++i) {
      gives[i] = amount(me, i);
      takes[i] = amount(i, me);
      for (std::size_t j = 0; j < gives[i]; ++j) in.push_back(value(world.rank(), j) + static_cast<int>(i) * 100000);
      for (std::size_t j = 0; j < takes[i]; ++j) right.push_back(value(static_cast<int>(i), j) + world.rank() * 100000);
    }
    std::vector<int> out(right.size());
    world.all_to_all_v(in, gives, out, takes);
    EXPECT_EQ(out, right);
    // In place what comes lies where something else has still to be given.
    std::vector<int> same = in;
    same.resize(std::max(in.size(), right.size()));
    world.all_to_all_v(std::span(same).first(in.size()), gives, std::span(same).first(right.size()), takes);
    same.resize(right.size());
    EXPECT_EQ(same, right);
  });
}

TEST(Communicator, ScalarsAndBarrier) {
  with_members(5, [](Communicator& world) {
    EXPECT_EQ(world.all_reduce(world.rank() + 1, sum), 15);
    EXPECT_DOUBLE_EQ(world.all_reduce(world.rank() * 0.5, max), 2.0);
    EXPECT_EQ(world.broadcast(world.rank() * 7, 3), 21);
    world.barrier();
  });
}

TEST(Communicator, Operations) {
  with_members(4, [](Communicator& world) {
    const float r = static_cast<float>(world.rank());
    std::vector<float> data = {r, -r, r * r};
    world.all_reduce(data, avg);
    EXPECT_EQ(data, (std::vector<float>{1.5F, -1.5F, 3.5F}));
    data = {1, 2, 3};
    world.all_reduce(data, premul_sum(r));
    EXPECT_EQ(data, (std::vector<float>{6, 12, 18}));
    std::vector<std::complex<double>> turns = {{0, 1}};
    world.all_reduce(turns, prod);
    EXPECT_EQ(turns[0], std::complex<double>(1, 0));
    std::vector<Located<double>> best = {{world.rank() == 2 ? 9.0 : 1.0, world.rank()}};
    world.all_reduce(best, max);
    EXPECT_EQ(best[0], (Located<double>{9.0, 2}));
    std::array<bool, 2> words = {world.rank() == 1, true};
    world.all_reduce(words, logical_or);
    EXPECT_TRUE(words[0] && words[1]);
    std::vector<bf16> small = {bf16(r)};
    world.all_reduce(small, sum);
    EXPECT_EQ(static_cast<float>(small[0]), 6.0F);
  });
}

// Also what nothing is added to, and what is not written stays.
TEST(Communicator, FactorsCountWhereDataStaysInItsPlace) {
  const auto body = [](Communicator& world) {
    const int me = world.rank();
    std::vector<int> data = {10, 20, 30};
    world.scan(data, premul_sum(me + 2));
    EXPECT_EQ(data[2], 30 * (me + 1) * (me + 4) / 2);
    data = {10, 20, 30};
    world.exscan(data, premul_sum(me + 2));
    EXPECT_EQ(data[2], me == 0 ? 30 : 30 * me * (me + 3) / 2);
    data = {10, 20, 30};
    world.reduce(data, premul_sum(2), world.size() - 1);
    EXPECT_EQ(data[2], me == world.size() - 1 ? 60 * world.size() : 30);
    if (world.size() > 1) return;
    data = {10, 20, 30};
    world.reduce_scatter(data, data, premul_sum(2));
    EXPECT_EQ(data[2], 60);
  };
  for (const bool node_memory : {true, false}) {
    for (const int size : {1, 3}) with_members(size, body, {.node_memory = node_memory});
  }
}

struct Affine {
  std::uint32_t factor;
  std::uint32_t plus;
  bool operator==(const Affine&) const = default;
};
Affine then_apply(const Affine& first, const Affine& second) {
  return {first.factor * second.factor, first.plus * second.factor + second.plus};
}

TEST(Communicator, OwnFunctionsKeepTheOrderOfTheMembers) {
  for (const int size : {1, 2, 3, 5, 8}) {
    with_members(size, [&](Communicator& world) {
      const auto mine = [](int rank) {
        return Affine{static_cast<std::uint32_t>(2 * rank + 3), static_cast<std::uint32_t>(rank + 7)};
      };
      Affine right = mine(0);
      for (int rank = 1; rank < size; ++rank) right = then_apply(right, mine(rank));
      std::vector<Affine> data(33, mine(world.rank()));
      world.all_reduce(data, ordered(then_apply));
      EXPECT_EQ(data, std::vector<Affine>(33, right));
      const int bias = world.size() > 0 ? 1 : 0;
      std::vector<int> plain = {world.rank()};
      world.all_reduce(plain, commutative([bias](int a, int b) { return std::max(a, b) * bias; }));
      EXPECT_EQ(plain[0], size - 1);
    });
  }
}

TEST(Communicator, ManyAtOnceEndInAnyOrder) {
  with_members(3, [](Communicator& world) {
    std::vector<std::vector<int>> data;
    std::vector<Request> requests;
    for (int i = 0; i < 50; ++i) data.push_back(values(world.rank(), static_cast<std::size_t>(i * 37)));
    for (auto& each : data) requests.push_back(world.all_reduce_async(each, sum));
    for (std::size_t i = 0; i < requests.size(); ++i) {
      auto& request = requests[(i * 7 + static_cast<std::size_t>(world.rank())) % 50];
      request.wait();
    }
    for (const auto& each : data) EXPECT_EQ(each, sums(0, 3, each.size()));
  });
}

TEST(Communicator, BatchesPackTensorsOfDifferentTypes) {
  with_members(3, [](Communicator& world) {
    std::vector<float> weights(10, 1.0F);
    std::vector<float> bias(3, 2.0F);
    std::vector<int> steps = {world.rank()};
    std::vector<double> config(4, world.rank() == 1 ? 5.0 : 0.0);
    Batch batch(world);
    batch.all_reduce(weights, sum).all_reduce(steps, max).all_reduce(bias, sum).broadcast(config, 1);
    batch.run();
    EXPECT_EQ(weights, std::vector<float>(10, 3.0F));
    EXPECT_EQ(bias, std::vector<float>(3, 6.0F));
    EXPECT_EQ(steps[0], 2);
    EXPECT_EQ(config, std::vector<double>(4, 5.0));
    batch.run();
    EXPECT_EQ(weights, std::vector<float>(10, 9.0F));
  });
}

TEST(Communicator, SplitAndDuplicate) {
  with_members(6, [](Communicator& world) {
    auto part = world.split(world.rank() % 2 == 0 ? 0 : -1, -world.rank());
    ASSERT_EQ(part.has_value(), world.rank() % 2 == 0);
    auto copy = world.duplicate("copy");
    EXPECT_EQ(copy.name(), "copy");
    if (part) {
      EXPECT_EQ(part->size(), 3);
      EXPECT_EQ(part->rank(), 2 - world.rank() / 2);
      EXPECT_EQ(part->ranks(), (std::vector<int>{4, 2, 0}));
      EXPECT_EQ(part->all_reduce(world.rank(), sum), 6);
    }
    EXPECT_EQ(copy.all_reduce(1, sum), 6);
  });
}

}  // namespace
}  // namespace lockstep::test
