// SPDX-License-Identifier: Apache-2.0
// Virtual replicas, and values of a process, under every layout.
#include <gtest/gtest.h>

#include <cmath>
#include <sstream>

#include "runtime/virtual_replicas.hpp"
#include "tests/runtime/gradients.hpp"
#include "tests/runtime/layouts.hpp"
#include "tests/support/refusal.hpp"

namespace lockstep::test {
namespace {

class VirtualReplicas : public EveryLayout {};
INSTANTIATE_TEST_SUITE_P(All, VirtualReplicas, testing::ValuesIn(layouts()),
                         [](const auto& each) { return each.param.name; });

// Of one of them: numbers of many sizes, whose sum has other bits in another order.
Tensor<float> gradient_of(int which) {
  Tensor<float> all(TensorShape{97});
  for (std::size_t i = 0; i < all.size(); ++i)
    all[i] = std::sin(static_cast<float>(which * 131 + static_cast<int>(i) * 17)) *
             std::pow(10.0F, static_cast<float>((which * 7 + static_cast<int>(i)) % 9) - 4.0F);
  return all;
}

// By the balanced tree, written down: the largest power of two is a branch.
Tensor<float> tree(int first, int number) {
  if (number == 1) return gradient_of(first);
  int half = 1;
  while (half * 2 < number) half *= 2;
  Tensor<float> left = tree(first, half);
  const Tensor<float> right = tree(first + half, number - half);
  for (std::size_t i = 0; i < left.size(); ++i) left[i] += right[i];
  return left;
}

TEST_P(VirtualReplicas, HaveTheSameBitsForAnyNumberOfReplicas) {
  for (const int each : {1, 2, 4, 8}) {
    const int number = each * size();
    const auto sums = strategy->run([&](ReplicaContext& replica) {
      Tensor<float> all = sum_of_virtual_replicas(replica, number, gradient_of);
      replica.all_reduce(all, sum);
      return all;
    });
    const Tensor<float> wanted = tree(0, number);
    for (const Tensor<float>& got : strategy->local_results(sums)) EXPECT_EQ(got, wanted) << number;
  }
  // Which is no matter of course.
  Tensor<float> from_left = gradient_of(0);
  for (int which = 1; which < 8; ++which) {
    const Tensor<float> next = gradient_of(which);
    for (std::size_t i = 0; i < next.size(); ++i) from_left[i] += next[i];
  }
  EXPECT_NE(from_left, tree(0, 8));
}

TEST_P(VirtualReplicas, HaveTheSameBitsThroughAGradientReducer) {
  GradientReducer reducer(*strategy, floats_of({97, 97}), {.first_bytes = 1, .counts = 1});
  const int number = size() == 1 || size() == 2 || size() == 4 ? 8 : 4 * size();  // of the same parts for all of these
  for (int step = 0; step < 3; ++step) {
    const auto sums = strategy->run([&](ReplicaContext& replica) {
      std::int64_t parts = 0;
      auto all = sum_of_virtual_replicas(replica, number, [&](int which) {
        ++parts;
        return std::pair(gradient_of(which), gradient_of(which + number));
      });
      GradientReducer::BackwardPass pass(reducer, replica);
      pass.ready(1, all.second);
      pass.ready(0, all.first);
      pass.add_counts(std::span(&parts, 1));
      pass.finish();
      EXPECT_EQ(parts, number);
      return all;
    });
    for (const auto& got : strategy->local_results(sums)) {
      EXPECT_EQ(std::get<0>(got), tree(0, number)) << step;
      EXPECT_EQ(std::get<1>(got), tree(number, number)) << step;
    }
  }
}

TEST_P(VirtualReplicas, CountOverAllReplicasAndFoldStructures) {
  const int number = 4 * size();
  const auto all = strategy->run([&](ReplicaContext& replica) {
    std::vector<int> seen;
    auto folded = sum_of_virtual_replicas(replica, number, [&](int which) {
      seen.push_back(which);
      return std::pair(Tensor<double>({2}, {1.0, static_cast<double>(which)}), which);
    });
    const int first = 4 * replica.replica_id_in_sync_group();
    EXPECT_EQ(seen, (std::vector<int>{first, first + 1, first + 2, first + 3}));
    replica.all_reduce(folded, sum);
    return folded.second;
  });
  for (const int each : strategy->local_results(all)) EXPECT_EQ(each, number * (number - 1) / 2);
}

TEST_P(VirtualReplicas, AreRefusedWhereTheyCannotBeSharedOut) {
  strategy->run([&](ReplicaContext& replica) {
    const auto sum_of = [&](int number) {
      return refusal([&] { sum_of_virtual_replicas(replica, number, gradient_of); }, Code::usage);
    };
    EXPECT_NE(sum_of(3 * size()).find(text(3 * size(), " virtual replicas on ", size())), std::string::npos);
    sum_of(0);
    sum_of(-4);
    if (size() > 1) sum_of(size() + 1);
    refusal([&] { sum_of_virtual_replicas(replica, 2 * size(), [](int) { return Tensor<bf16>(TensorShape{1}); }); },
            Code::usage);
    refusal(
        [&] {
          sum_of_virtual_replicas(replica, 2 * size(), [](int which) { return Tensor<float>(TensorShape{1 + which}); });
        },
        Code::usage);
  });
}

TEST_P(VirtualReplicas, SeeValuesOfTheirProcess) {
  const int mine = 100 + first();
  const PerWorker<int> number(mine);
  const auto seen = strategy->run(
      [](ReplicaContext& replica, const int& value, const std::pair<int, Tensor<float>>& both) {
        EXPECT_EQ(both.first, value);
        return value + 1000 * replica.local_id() + static_cast<int>(both.second[0]);
      },
      number, std::pair(number, PerWorker(Tensor<float>({1}, {7.0F}))));
  int local = 0;
  for (const int each : strategy->local_results(seen)) EXPECT_EQ(each, mine + 7 + 1000 * local++);
  std::ostringstream out;
  out << number;
  EXPECT_EQ(out.str(), text("PerWorker:{", mine, '}'));
}

}  // namespace
}  // namespace lockstep::test
