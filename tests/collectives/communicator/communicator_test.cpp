// SPDX-License-Identifier: Apache-2.0
// Every collective as users call it, by threads as members: blocking, async and planned, in place and not, for small
// and large sizes; and batches.
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

using Counts = std::vector<std::size_t>;

constexpr int anything = -2;  // in what is expected
constexpr int untouched = -1;

// The buffers of one member for one call.
struct Buffers {
  Buffers(Communicator& world, std::size_t count_given)
      : me(world.rank()), n(world.size()), root(n / 2), count(count_given), own(static_cast<std::size_t>(me)) {
    const auto amount = [&](std::size_t from, std::size_t to) {
      return (from * 3 + to) % 4 == 0 ? 0 : count / (to + 1) + from;
    };
    std::size_t next = 5;  // from the end, with gaps
    for (std::size_t i = members(); i-- > 0;) {
      const std::size_t each = i % 3 == 1 ? 0 : count / (i + 1);
      counts.insert(counts.begin(), each);
      offsets.insert(offsets.begin(), next);
      next += each + 2;
    }
    for (std::size_t i = 0; i < members(); ++i) {
      send_counts.push_back(amount(own, i));
      receive_counts.push_back(amount(i, own));
    }
    extent = next;
  }
  std::size_t members() const { return static_cast<std::size_t>(n); }
  std::size_t total(std::size_t first, std::size_t last) const {
    return std::accumulate(counts.begin() + static_cast<std::ptrdiff_t>(first),
                           counts.begin() + static_cast<std::ptrdiff_t>(last), std::size_t{0});
  }
  // What lies at the offsets when all have given their blocks.
  std::vector<int> placed() const {
    std::vector<int> all(extent, untouched);
    for (std::size_t i = 0; i < members(); ++i)
      std::ranges::copy(values(static_cast<int>(i), counts[i]), all.begin() + static_cast<std::ptrdiff_t>(offsets[i]));
    return all;
  }
  // What this member gives to all others, or takes from them.
  std::vector<int> exchanged(const Counts& amounts, bool takes_it) const {
    std::vector<int> all;
    for (int peer = 0; peer < n; ++peer) {
      for (std::size_t i = 0; i < amounts[static_cast<std::size_t>(peer)]; ++i)
        all.push_back(takes_it ? value(peer, i) + me * 100'000 : value(me, i) + peer * 100'000);
    }
    return all;
  }
  std::vector<int> at_root(std::vector<int> all) const {
    return me == root ? all : std::vector<int>(all.size(), untouched);
  }

  int me;
  int n;
  int root;
  std::size_t count;
  std::size_t own;
  std::size_t extent = 0;
  Counts counts;
  Counts offsets;
  Counts send_counts;
  Counts receive_counts;
  std::vector<int> in = {};
  std::vector<int> out = {};
};

// One collective in its three forms: what the buffers have before, and what `out` has afterwards.
struct Form {
  std::string_view name;
  void (*blocking)(Communicator&, Buffers&);
  Request (*async)(Communicator&, Buffers&);
  PreparedCall (*planned)(Communicator&, Buffers&);
  void (*fill)(Buffers&);
  std::vector<int> (*expected)(const Buffers&);
};

// NOLINTBEGIN(cppcoreguidelines-macro-usage): the three forms have names of their own
#define FORM(name, ...) \
#name, [](Communicator& world, [[maybe_unused]] Buffers& b) { world.name(__VA_ARGS__); },             \
      [](Communicator& world, [[maybe_unused]] Buffers& b) { return world.name##_async(__VA_ARGS__); }, \
      [](Communicator& world, [[maybe_unused]] Buffers& b) { return world.plan_##name(__VA_ARGS__); }
// NOLINTEND(cppcoreguidelines-macro-usage)

std::vector<int> all_sums(const Buffers& b) { return sums(0, b.n, b.count); }
std::vector<int> block_of_sums(const Buffers& b) { return sums(0, b.n, b.count, b.own * b.count); }
std::vector<int> all_blocks(const Buffers& b) { return everybody(b.n, b.count); }
std::vector<int> before_this(const Buffers& b) {
  return b.me == 0 ? std::vector<int>(b.count, untouched) : sums(0, b.me, b.count);
}
std::vector<int> equal_exchange(const Buffers& b) { return b.exchanged(Counts(b.members(), b.count), true); }
std::vector<int> unequal_exchange(const Buffers& b) { return b.exchanged(b.receive_counts, true); }
void apart(Buffers& b) {
  b.in = values(b.me, b.count);
  b.out.assign(b.count, untouched);
}
void in_place(Buffers& b) { b.out = values(b.me, b.count); }
void to_all_blocks(Buffers& b) {
  b.in = values(b.me, b.count);
  b.out.assign(b.count * b.members(), untouched);
}
void to_placed(Buffers& b) {
  b.in = values(b.me, b.counts[b.own]);
  b.out.assign(b.extent, untouched);
}

const Form forms[] = {
    {FORM(all_reduce, b.in, b.out, sum), apart, all_sums},
    {FORM(all_reduce, b.out, sum), in_place, all_sums},
    {FORM(reduce, b.in, b.out, sum, b.root), apart, [](const Buffers& b) { return b.at_root(all_sums(b)); }},
    {FORM(reduce, b.out, sum, b.root), in_place,
     [](const Buffers& b) { return b.me == b.root ? all_sums(b) : values(b.me, b.count); }},
    {FORM(reduce_scatter, b.in, b.out, sum),
     [](Buffers& b) {
       b.in = values(b.me, b.count * b.members());
       b.out.assign(b.count, untouched);
     },
     block_of_sums},
    {FORM(reduce_scatter, b.out, sum), [](Buffers& b) { b.out = values(b.me, b.count * b.members()); },
     [](const Buffers& b) {
       std::vector<int> all(b.count * b.members(), anything);
       std::ranges::copy(block_of_sums(b), all.begin() + static_cast<std::ptrdiff_t>(b.own * b.count));
       return all;
     }},
    {FORM(reduce_scatter_v, b.in, b.out, b.counts, sum),
     [](Buffers& b) {
       b.in = values(b.me, b.total(0, b.members()));
       b.out.assign(b.counts[b.own], untouched);
     },
     [](const Buffers& b) { return sums(0, b.n, b.counts[b.own], b.total(0, b.own)); }},
    {FORM(all_gather, b.in, b.out), to_all_blocks, all_blocks},
    {FORM(all_gather, b.out),
     [](Buffers& b) {
       b.out.assign(b.count * b.members(), untouched);
       std::ranges::copy(values(b.me, b.count), b.out.begin() + static_cast<std::ptrdiff_t>(b.own * b.count));
     },
     all_blocks},
    {FORM(all_gather_v, b.in, b.out, b.counts, b.offsets), to_placed, [](const Buffers& b) { return b.placed(); }},
    {FORM(broadcast, b.out, b.root), in_place, [](const Buffers& b) { return values(b.root, b.count); }},
    {FORM(gather, b.in, b.out, b.root), to_all_blocks, [](const Buffers& b) { return b.at_root(all_blocks(b)); }},
    {FORM(gather_v, b.in, b.out, b.counts, b.root, b.offsets), to_placed,
     [](const Buffers& b) { return b.at_root(b.placed()); }},
    {FORM(scatter, b.in, b.out, b.root),
     [](Buffers& b) {
       b.in = all_blocks(b);
       b.out.assign(b.count, untouched);
     },
     [](const Buffers& b) { return values(b.me, b.count); }},
    {FORM(scatter_v, b.in, b.out, b.counts, b.root, b.offsets),
     [](Buffers& b) {
       b.in = b.placed();
       b.out.assign(b.counts[b.own], untouched);
     },
     [](const Buffers& b) { return values(b.me, b.counts[b.own]); }},
    {FORM(all_to_all, b.in, b.out),
     [](Buffers& b) {
       b.in = b.exchanged(Counts(b.members(), b.count), false);
       b.out.assign(b.in.size(), untouched);
     },
     equal_exchange},
    {FORM(all_to_all, b.out), [](Buffers& b) { b.out = b.exchanged(Counts(b.members(), b.count), false); },
     equal_exchange},
    {FORM(all_to_all_v, b.in, b.send_counts, b.out, b.receive_counts),
     [](Buffers& b) {
       b.in = b.exchanged(b.send_counts, false);
       b.out.assign(unequal_exchange(b).size(), untouched);
     },
     unequal_exchange},
    // What comes lies where something else has still to be given.
    {FORM(all_to_all_v, std::span(b.out).first(b.exchanged(b.send_counts, false).size()), b.send_counts,
          std::span(b.out).first(unequal_exchange(b).size()), b.receive_counts),
     [](Buffers& b) {
       b.out = b.exchanged(b.send_counts, false);
       b.out.resize(std::max(b.out.size(), unequal_exchange(b).size()));
     },
     unequal_exchange},
    {FORM(scan, b.in, b.out, sum), apart, [](const Buffers& b) { return sums(0, b.me + 1, b.count); }},
    {FORM(scan, b.out, sum), in_place, [](const Buffers& b) { return sums(0, b.me + 1, b.count); }},
    {FORM(exscan, b.in, b.out, sum), apart, before_this},
    {FORM(exscan, b.out, sum), in_place,
     [](const Buffers& b) { return b.me == 0 ? values(0, b.count) : before_this(b); }},
    {FORM(barrier), [](Buffers&) {}, [](const Buffers&) { return std::vector<int>(); }},
};

void check_form(Communicator& world, const Form& form, std::size_t count) {
  Buffers given(world, count);
  form.fill(given);
  const std::vector<int> right = form.expected(given);
  Buffers buffers = given;
  const auto check = [&](std::string_view how) {
    for (std::size_t i = 0; i < right.size(); ++i)
      ASSERT_TRUE(right[i] == anything || right[i] == buffers.out[i]) << form.name << ' ' << how << " at " << i;
    std::ranges::copy(given.in, buffers.in.begin());
    std::ranges::copy(given.out, buffers.out.begin());
  };
  form.blocking(world, buffers);
  check("blocking");
  form.async(world, buffers).wait();
  check("async");
  PreparedCall plan = form.planned(world, buffers);
  for (int turn = 0; turn < 2; ++turn) {
    plan.run();
    check("planned");
    plan.start().wait();
    check("started");
  }
}

class Sizes : public testing::TestWithParam<std::tuple<int, std::size_t>> {};

INSTANTIATE_TEST_SUITE_P(All, Sizes, testing::Combine(testing::Values(1, 2, 3, 5, 8), testing::Values(0, 1, 7, 5000)));

TEST_P(Sizes, EveryCollectiveInEveryForm) {
  const auto [members, count] = GetParam();
  with_members(members, [count = count](Communicator& world) {
    for (const Form& form : forms) check_form(world, form, count);
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

// Calls that hardly differ: the same total with other counts, other offsets, and the same buffer in another place.
TEST(Communicator, RepeatedUnequalCallsWithOtherCountsAreOtherCalls) {
  with_members(2, [](Communicator& world) {
    const auto me = static_cast<std::size_t>(world.rank());
    std::vector<int> all(40);
    for (int turn = 0; turn < 6; ++turn) {
      for (const Counts& counts : {Counts{3, 5}, Counts{5, 3}, Counts{8, 0}}) {
        for (const Counts& offsets : {Counts{0, counts[0]}, Counts{20, 9}}) {
          const std::vector<int> mine(counts[me], world.rank() + turn);
          const auto check = [&](const char* name, bool is_whole) {
            for (std::size_t m = 0; m < 2 && is_whole; ++m) {
              for (std::size_t i = 0; i < counts[m]; ++i)
                ASSERT_EQ(all[offsets[m] + i], static_cast<int>(m) + turn) << name << ' ' << counts[0] << ' ' << i;
            }
            std::ranges::fill(all, -1);
          };
          world.all_gather_v(mine, all, counts, offsets);
          check("all_gather_v", true);
          std::ranges::copy(mine, all.begin() + static_cast<std::ptrdiff_t>(offsets[me]));
          world.all_gather_v(std::span(all).subspan(offsets[me], counts[me]), all, counts, offsets);
          check("all_gather_v in place", true);
          world.gather_v(mine, all, counts, 1, offsets);
          check("gather_v", me == 1);
          world.all_to_all_v(std::vector<int>(counts[0] * 2, world.rank() + turn), Counts{counts[0], counts[0]}, all,
                             Counts{counts[0], counts[0]});
          for (std::size_t i = 0; i < 2 * counts[0]; ++i)
            ASSERT_EQ(all[i], (i < counts[0] ? 0 : 1) + turn) << "all_to_all_v " << i;
        }
      }
    }
  });
}

// The member with other counts fails, and so does the one that knows nothing of them; also after calls that fitted. The
// root's counts differ, or the sender's, while the other member repeats its call.
TEST(Communicator, RepeatedUnequalCallsStillCompareCounts) {
  for (const std::size_t count : {std::size_t{2}, std::size_t{300}, std::size_t{300'000}}) {
    for (const int other : {0, 1}) {
      std::atomic<int> told = 0;
      with_members(2, [&](Communicator& world) {
        std::vector<int> all(count * 3);
        const std::vector<int> mine(count + 1);
        const bool differs = world.rank() == other;
        const auto gather = [&](std::size_t sent, std::size_t received) {
          world.gather_v(std::span(mine).first(sent), all, std::vector<std::size_t>{count, received}, 0);
        };
        for (int turn = 0; turn < 3; ++turn) gather(count, count);
        try {
          gather(differs && other == 1 ? count + 1 : count, differs && other == 0 ? count + 1 : count);
          world.barrier();
        } catch (const Error& error) {
          if (std::string_view(error.what()).find("sent") != std::string_view::npos) ++told;
        }
      });
      EXPECT_EQ(told, 2) << count << " numbers, member " << other;
    }
  }
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
