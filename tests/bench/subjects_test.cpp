// SPDX-License-Identifier: Apache-2.0
// What a bench measures is checked: right results are right, and one wrong bit or one lost contribution is seen.
#include <algorithm>

#include "bench/buffers.hpp"
#include "collectives/communicator/communicator_core.hpp"
#include "tests/collectives/communicator/members.hpp"

namespace lockstep::bench {
namespace {

using test::with_members;

void exchange(Communicator& world, Buffers& buffers) {
  world.sendrecv(buffers.input_bytes(), (world.rank() + 1) % world.size(), buffers.output_bytes(),
                 (world.rank() + world.size() - 1) % world.size());
}

// Every collective, every type that it has, every operation: right results are right, and one wrong bit is seen.
TEST(Subjects, AreCheckedExactly) {
  with_members(3, [](Communicator& world) {
    int checked = 0;
    for (int collective = 0; collective < collective_count; ++collective) {
      for (int type = 0; type < static_cast<int>(DataType::boolean); ++type) {
        for (int op = 0; op < static_cast<int>(ReduceOp::premul_sum); ++op) {
          for (const bool in_place : {false, true}) {
            const Subject subject{.collective = static_cast<Collective>(collective),
                                  .type = static_cast<DataType>(type),
                                  .op = static_cast<ReduceOp>(op),
                                  .root = 1,
                                  .in_place = in_place,
                                  .count = 7};
            if (!why_not(subject).empty() || (op > 0 && !reduces(subject.collective))) continue;
            Buffers buffers(subject, 3, world.rank());
            buffers.fill();
            if (subject.collective == Collective::sendrecv)
              exchange(world, buffers);
            else
              world.core()->run(buffers.request());
            std::uint64_t bits = 0;
            EXPECT_EQ(buffers.count_wrong(bits), 0U) << to_string(subject.collective) << ' ' << to_string(subject.type)
                                                     << ' ' << to_string(subject.op) << (in_place ? " in place" : "");
            ++checked;
            if (buffers.output_count() == 0 || (subject.collective == Collective::exscan && world.rank() == 0))
              continue;
            std::uint64_t other_bits = 0;
            *static_cast<std::byte*>(buffers.output()) ^= std::byte{1};
            EXPECT_EQ(buffers.count_wrong(other_bits), 1U);
            EXPECT_NE(bits, other_bits);
          }
        }
      }
    }
    EXPECT_GT(checked, 500);
  });
}

// Random data within a bound that holds whatever the order, and that one lost contribution is beyond.
TEST(Subjects, AreCheckedWithRandomData) {
  with_members(5, [](Communicator& world) {
    int checked = 0;
    for (int collective = 0; collective < collective_count; ++collective) {
      for (int type = 0; type < static_cast<int>(DataType::boolean); ++type) {
        for (int op = 0; op <= static_cast<int>(ReduceOp::avg); ++op) {
          const Subject subject{.collective = static_cast<Collective>(collective),
                                .type = static_cast<DataType>(type),
                                .op = static_cast<ReduceOp>(op),
                                .root = 1,
                                .count = 301};
          if (!why_not(subject).empty() || (op > 0 && !reduces(subject.collective))) continue;
          Buffers buffers(subject, 5, world.rank());
          if (!buffers.takes_random()) continue;
          buffers.fill_randomly(9);
          if (subject.collective == Collective::sendrecv)
            exchange(world, buffers);
          else
            world.core()->run(buffers.request());
          EXPECT_EQ(buffers.count_beyond(9), 0U)
              << to_string(subject.collective) << ' ' << to_string(subject.type) << ' ' << to_string(subject.op);
          ++checked;
          if (buffers.output_count() == 0 || (subject.collective == Collective::exscan && world.rank() == 0)) continue;
          EXPECT_GT(buffers.count_beyond(8), buffers.output_count() / 2)
              << "data of another seed are others: " << to_string(subject.collective) << ' ' << to_string(subject.type)
              << ' ' << to_string(subject.op);
          auto* const first = static_cast<std::byte*>(buffers.output());
          if (reduces(subject.collective))
            std::fill_n(first, size_of(subject.type), std::byte{0xff});  // no number
          else
            *first ^= std::byte{1};
          EXPECT_EQ(buffers.count_beyond(9), 1U);
        }
      }
    }
    EXPECT_GT(checked, 150);
  });
}

TEST(Subjects, OfUnequalCountsHoldAsMuchAsEqualOnes) {
  for (const int members : {1, 2, 3, 4, 5}) {
    for (const Collective collective : {Collective::all_gather_v, Collective::scatter_v, Collective::all_to_all_v}) {
      const Subject subject{.collective = collective, .count = 7};
      std::size_t total = 0;
      for (int peer = 0; peer < members; ++peer)
        total += collective == Collective::all_gather_v ? subject.count_between(peer, 0, members)
                                                        : subject.count_between(0, peer, members);
      EXPECT_EQ(total, 7U * static_cast<std::size_t>(members)) << to_string(collective) << ' ' << members;
    }
  }
  const Subject cross{.collective = Collective::all_to_all_v, .count = 8};
  EXPECT_EQ(cross.count_between(0, 1, 2), 12U);
  EXPECT_EQ(cross.count_between(1, 0, 2), 12U);
  EXPECT_EQ(cross.count_between(1, 1, 2), 4U);
}

TEST(Sizes, AreThoseOfNcclTests) {
  EXPECT_EQ(count_of(Collective::all_reduce, DataType::f32, 1024, 4), 256U);
  EXPECT_EQ(count_of(Collective::all_gather, DataType::f32, 1024, 4), 64U);
  EXPECT_EQ(count_of(Collective::all_gather, DataType::f64, 8, 4), 0U);
  EXPECT_DOUBLE_EQ(bus_factor(Collective::all_reduce, 4), 1.5);
  EXPECT_DOUBLE_EQ(bus_factor(Collective::reduce_scatter, 4), 0.75);
  EXPECT_DOUBLE_EQ(bus_factor(Collective::broadcast, 4), 1);
}

}  // namespace
}  // namespace lockstep::bench
