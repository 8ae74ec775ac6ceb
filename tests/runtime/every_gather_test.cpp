// SPDX-License-Identifier: Apache-2.0
// Tensors one behind the other along every axis, under every strategy and layout: gathered outside of replicas and by
// the replicas themselves, alone and in structures; and what does not fit together.
#include "tests/runtime/layouts.hpp"
#include "tests/support/lacks.hpp"
#include "tests/support/refusal.hpp"
#include "topology/base/text.hpp"

namespace lockstep::test {
namespace {

// A replica's tensor: its elements count on from ten times its number.
template <class T>
Tensor<T> counted(const TensorShape& shape, int replica) {
  Tensor<T> all(shape);
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<T>(10 * replica + static_cast<int>(i));
  return all;
}

struct Case {
  std::string_view name;
  TensorShape (*shape)(std::int64_t replica);
  int axis;
  TensorShape (*whole)(std::int64_t replicas);
};

const Case cases[] = {
    {"a list", [](std::int64_t) { return TensorShape{3}; }, 0, [](std::int64_t n) { return TensorShape{3 * n}; }},
    {"rows",
     [](std::int64_t) {
       return TensorShape{1, 3};
     },
     0,
     [](std::int64_t n) {
       return TensorShape{n, 3};
     }},
    {"three axes",
     [](std::int64_t) {
       return TensorShape{1, 2, 2};
     },
     0,
     [](std::int64_t n) {
       return TensorShape{n, 2, 2};
     }},
    {"the middle of three",
     [](std::int64_t) {
       return TensorShape{1, 2, 2};
     },
     1,
     [](std::int64_t n) {
       return TensorShape{1, 2 * n, 2};
     }},
    {"the last of three",
     [](std::int64_t) {
       return TensorShape{1, 2, 2};
     },
     2,
     [](std::int64_t n) {
       return TensorShape{1, 2, 2 * n};
     }},
    {"the last, counted from behind",
     [](std::int64_t) {
       return TensorShape{2, 2, 1};
     },
     -1,
     [](std::int64_t n) {
       return TensorShape{2, 2, n};
     }},
    {"more and more rows",
     [](std::int64_t i) {
       return TensorShape{i + 1, 1};
     },
     0,
     [](std::int64_t n) {
       return TensorShape{n * (n + 1) / 2, 1};
     }},
    {"more and more columns",
     [](std::int64_t i) {
       return TensorShape{2, i};
     },
     1,
     [](std::int64_t n) {
       return TensorShape{2, n * (n - 1) / 2};
     }},
};

class Gathers : public EveryLayout {
 protected:
  // Of all replicas' tensors, by walking over the whole one in its own order.
  template <class T>
  Tensor<T> expected(const Case& each) const {
    std::vector<T> elements;
    for (std::size_t before = 0; before < each.shape(0).outside(each.axis); ++before) {
      for (int id = 0; id < size(); ++id) {
        const TensorShape shape = each.shape(id);
        const Tensor<T> mine = counted<T>(shape, id);
        const std::size_t piece = shape.count() / shape.outside(each.axis);
        for (std::size_t i = 0; i < piece; ++i) elements.push_back(mine[before * piece + i]);
      }
    }
    return Tensor<T>(each.whole(size()), elements);
  }
  template <class T>
  void gather_both_ways(const Case& each) {
    const Tensor<T> whole = expected<T>(each);
    const auto mine = strategy->distribute_values_from([&](ValueContext at) {
      return counted<T>(each.shape(at.replica_id_in_sync_group), at.replica_id_in_sync_group);
    });
    EXPECT_EQ(strategy->gather(mine, each.axis), whole) << each.name;
    const auto in_replicas = strategy->run(
        [&](ReplicaContext& context, const Tensor<T>& own) { return context.all_gather(own, each.axis); }, mine);
    for (const auto& all : in_replicas.local()) EXPECT_EQ(all, whole) << each.name << ", in replicas";
  }
  Tensor<float> gather_of_ones() {
    return strategy->gather(strategy->distribute_values_from([](ValueContext) { return row({1.F, 1.F}); }), 0);
  }
  // By each replica itself, which goes on.
  void are_refused(TensorShape (*shape)(int replica), std::string_view words) {
    const auto said = strategy->run([&](ReplicaContext& context) {
      return refusal(
          [&] { (void)context.all_gather(Tensor<float>(shape(context.replica_id_in_sync_group()), 1.F), 0); },
          Code::usage);
    });
    for (const std::string& each : said.local()) EXPECT_NE(each.find(words), std::string::npos) << each;
  }
};

TEST_P(Gathers, AreOneBehindTheOtherAlongAnyAxis) {
  for (const Case& each : cases) {
    gather_both_ways<int>(each);
    gather_both_ways<float>(each);
  }
}

TEST_P(Gathers, TakeStructuresLeafByLeaf) {
  const auto results = strategy->run([](ReplicaContext& context) {
    const std::int64_t id = context.replica_id_in_sync_group();
    return std::tuple(
        context.all_gather(std::tuple(Tensor<float>(TensorShape{1, id + 1}, 1.F), Tensor<int>({1, 2, 2}, {1, 2, 1, 2})),
                           1),
        context.all_gather(std::vector{row({1, 2, 3}), row({4, 5})}));
  });
  const auto& [nested, lists] = results;
  std::vector<int> all[2];
  for (int i = 0; i < size(); ++i) {
    all[0].insert(all[0].end(), {1, 2, 3});
    all[1].insert(all[1].end(), {4, 5});
  }
  for (int i = 0; i < strategy->num_local_replicas(); ++i) {
    EXPECT_EQ(std::get<0>(nested)[i], Tensor<float>(TensorShape{1, size() * (size() + 1) / 2}, 1.F));
    EXPECT_EQ(std::get<1>(nested)[i].shape(), (TensorShape{1, 2 * size(), 2}));
    ASSERT_EQ(lists.size(), 2U);
    EXPECT_EQ(lists[0][i], row(all[0]));
    EXPECT_EQ(lists[1][i], row(all[1]));
  }
}

// Integers and floats of equal size travel alike, but must not be mixed.
TEST_P(Gathers, OfOtherTypesAreAMismatch) {
  if (is_in_one_process()) GTEST_SKIP() << lacks("two processes, of which one gathers integers");
  const auto gather = [&]<class T>(T one) {
    const auto mine = strategy->distribute_values_from([&](ValueContext) { return row({one, one}); });
    return refusal([&] { (void)strategy->gather(mine, 0); }, Code::mismatch);
  };
  end_calls();
  const std::string said = first() == 0 ? gather(1) : gather(1.F);
  EXPECT_NE(said.find("E016"), std::string::npos) << said;
  EXPECT_EQ(gather_of_ones(), Tensor<float>(TensorShape{2 * size()}, 1.F)) << "and all go on";
}

TEST_P(Gathers, TakeVectorsOfNumbers) {
  const auto results = strategy->run([](ReplicaContext& context) {
    const int id = context.replica_id_in_sync_group();
    const std::vector<int> mine(static_cast<std::size_t>(id), id);
    const auto [same, one] = context.all_gather(std::pair(mine, row({1.F})));
    EXPECT_EQ(one.size(), static_cast<std::size_t>(context.num_replicas_in_sync()));
    EXPECT_EQ(same, context.all_gather(mine));
    return same;
  });
  std::vector<int> all;
  for (int i = 0; i < size(); ++i) all.insert(all.end(), static_cast<std::size_t>(i), i);
  for (const std::vector<int>& each : results.local()) EXPECT_EQ(each, all);
}

TEST_P(Gathers, InReplicasOfUnequalShapesAreRefused) {
  if (size() == 1) GTEST_SKIP() << lacks("two replicas, of which one may not fit");
  are_refused(
      [](int id) {
        return TensorShape{1, id + 1};
      },
      "gather along axis 0: replica 1 has the shape (1, 2), replica 0 (1, 1)");
  are_refused([](int id) { return TensorShape(std::vector<std::int64_t>(static_cast<std::size_t>(id) + 1, 1)); },
              "gather along axis 0: replica 1 has the shape (1, 1), replica 0 (1,)");
  EXPECT_EQ(strategy->run([](ReplicaContext& context) { return context.all_gather(row({1}), 0); })[0].size(),
            static_cast<std::size_t>(size()))
      << "and all go on";
}

template <class V>
constexpr bool is_gathered = requires(Strategy& all, PerReplica<V> value) {
  all.gather(value, 0);
};
template <class V>
constexpr bool is_gathered_in_replicas = requires(ReplicaContext& replica, V value) {
  replica.all_gather(value, 0);
};
// Slices are combined by reductions.
static_assert(is_gathered<Tensor<float>> && !is_gathered<IndexedSlices<float>>);
static_assert(is_gathered_in_replicas<Tensor<float>> && !is_gathered_in_replicas<IndexedSlices<float>>);

INSTANTIATE_TEST_SUITE_P(, Gathers, testing::ValuesIn(layouts()), [](const auto& one) { return one.param.name; });

}  // namespace
}  // namespace lockstep::test
