// SPDX-License-Identifier: Apache-2.0
// Calls of members with a GPU each whose counts only their members know: NCCL is entered when they are known to fit.
#include <gtest/gtest.h>

#include <atomic>

#include "tests/collectives/gpu/own_gpus.hpp"

namespace lockstep::test {
namespace {

using Counts = std::vector<std::size_t>;

// What member i gives member j in a turn; nothing at times.
std::size_t given(int i, int j, int turn) { return static_cast<std::size_t>((3 * i + 2 * j + turn) % 5) * 100; }

// What is at place k of it.
int value_of(int i, int j, std::size_t k) { return 100'000 * i + 10'000 * j + static_cast<int>(k); }

// Blocks with 7 elements between them.
Counts offsets_of(const Counts& counts) {
  Counts offsets;
  std::size_t next = 7;
  for (const std::size_t each : counts) {
    offsets.push_back(next);
    next += each + 7;
  }
  return offsets;
}

std::size_t extent_of(const Counts& counts) {
  return std::accumulate(counts.begin(), counts.end(), 7 * (counts.size() + 1));
}

struct Exchanged {
  Exchanged(int size, int rank, int turn) {
    for (int i = 0; i < size; ++i) {
      send_counts.push_back(given(rank, i, turn));
      receive_counts.push_back(given(i, rank, turn));
    }
    in.assign(extent_of(send_counts), -1);
    out.assign(extent_of(receive_counts), -2);
    for (int i = 0; i < size; ++i) {
      const auto at = static_cast<std::size_t>(i);
      for (std::size_t k = 0; k < send_counts[at]; ++k) in[offsets_of(send_counts)[at] + k] = value_of(rank, i, k);
      for (std::size_t k = 0; k < receive_counts[at]; ++k)
        out[offsets_of(receive_counts)[at] + k] = value_of(i, rank, k);
    }
  }
  Counts send_counts;
  Counts receive_counts;
  std::vector<int> in;
  std::vector<int> out;  // as it has to be, with -2 where nothing is written
};

// Other counts in every call; what lies between the blocks stays.
TEST_F(OwnGpus, ExchangeByCountsOfTheirOwn) {
  for (const int members : {1, 2, 5}) {
    with_members(members, [&](Communicator& world) {
      for (int turn = 0; turn < 5; ++turn) {
        const Exchanged data(world.size(), world.rank(), turn);
        const DeviceVector<int> in(data.in, world.rank());
        DeviceVector<int> out(std::vector<int>(data.out.size(), -2), world.rank());
        world.all_to_all_v(in, data.send_counts, out, data.receive_counts, offsets_of(data.send_counts),
                           offsets_of(data.receive_counts));
        EXPECT_EQ(on_host(out), data.out) << turn;
      }
    });
  }
  EXPECT_EQ(gpus().pinnings(), 0);
  EXPECT_EQ(nccl().operations(), 5 * (2 + 5));  // of one alone nothing is sent
}

TEST_F(OwnGpus, ExchangeInPlaceByCountsOfTheirOwn) {
  with_members(3, [&](Communicator& world) {
    const int rank = world.rank();
    // Member i and member j give each other as much.
    Counts counts;
    for (int i = 0; i < 3; ++i) counts.push_back(static_cast<std::size_t>(100 * (i + rank) + 50));
    std::vector<int> in(extent_of(counts), -1);
    std::vector<int> out = in;
    const Counts offsets = offsets_of(counts);
    for (std::size_t i = 0; i < 3; ++i) {
      for (std::size_t k = 0; k < counts[i]; ++k) {
        in[offsets[i] + k] = value_of(rank, static_cast<int>(i), k);
        out[offsets[i] + k] = value_of(static_cast<int>(i), rank, k);
      }
    }
    DeviceVector<int> data(in, rank);
    world.all_to_all_v(data, counts, data, counts, offsets, offsets);
    EXPECT_EQ(on_host(data), out);
  });
  EXPECT_EQ(gpus().pinnings(), 0);
  EXPECT_EQ(nccl().operations(), 3);
}

// A plan's later starts ask nobody: one member alone can start it.
TEST_F(OwnGpus, RepeatAPlanWithCountsOfItsOwn) {
  with_members(2, [&](Communicator& world) {
    const Stream stream(gpus(), world.rank());
    const Exchanged data(2, world.rank(), 1);
    const DeviceVector<int> in(data.in, world.rank());
    DeviceVector<int> out(std::vector<int>(data.out.size(), -2), world.rank());
    PreparedCall plan = world.on(stream.get())
                            .plan_all_to_all_v(in, data.send_counts, out, data.receive_counts,
                                               offsets_of(data.send_counts), offsets_of(data.receive_counts));
    plan.run();
    EXPECT_EQ(plan.algorithm(), "nccl");
    stream.wait();
    out.copy_from(std::vector<int>(data.out.size(), -2));
    expect_started_alone(world, plan);
    stream.wait();
    EXPECT_EQ(on_host(out), data.out);
  });
  EXPECT_EQ(nccl().operations(), 4);
}

// All members say the same, in that call, and the ones whose counts do fit as well.
TEST_F(OwnGpus, RefuseUnequalCountsBeforeNccl) {
  for (const bool is_gather : {false, true}) {
    std::atomic<int> refused = 0;
    with_members(3, [&](Communicator& world) {
      const int rank = world.rank();
      DeviceVector<int> warm(std::vector<int>(count, 1), rank);
      world.all_reduce(warm, sum);
      const std::size_t more = rank == 1 ? 1 : 0;  // member 1 gives member 2 one more than it takes
      const Counts send_counts = {100, 100, 100 + more};
      const Counts receive_counts = {100, 100, 100};
      const DeviceVector<int> in(std::vector<int>(is_gather ? 100 + more : 300 + more, 1), rank);
      DeviceVector<int> out(std::vector<int>(300, -1), rank);
      try {
        if (is_gather)
          world.gather_v(in, out, receive_counts, 2);
        else
          world.all_to_all_v(in, send_counts, out, receive_counts);
        ADD_FAILURE();
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), Code::mismatch) << error.what();
        EXPECT_TRUE(error.detail().starts_with("rank 1 sent 404 bytes to rank 2, which receives 400 ->"))
            << error.what();
        ++refused;
      }
      EXPECT_EQ(on_host(out), std::vector<int>(300, -1));
    });
    EXPECT_EQ(refused, 3);
  }
  EXPECT_EQ(nccl().operations(), 2 * 3);
}

}  // namespace
}  // namespace lockstep::test
