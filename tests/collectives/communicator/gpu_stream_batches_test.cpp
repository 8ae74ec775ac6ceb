// SPDX-License-Identifier: Apache-2.0
// Many tensors as one operation in the order of a stream: the host only brings it there.
#include <atomic>

#include "tests/collectives/communicator/shared_batches.hpp"
#include "tests/support/holds.hpp"

namespace lockstep::test {
namespace {

class BatchesInStreams : public SharedBatches {
 protected:
  // Where a call that the host takes part in would wait for ever.
  static CommunicatorOptions impatient() { return {.timeout = std::chrono::seconds(20)}; }
};

// All have returned, and are gone, before any stream goes on.
TEST_F(BatchesInStreams, HaveTheirPlaceThereWithoutTheHost) {
  std::atomic<int> by_host = 0;
  gpus().before_copies([&](FakeGpus::Way way, std::size_t) { by_host += way == FakeGpus::Way::within ? 0 : 1; });
  for (const bool is_mean : {false, true}) {
    for (int late = 0; late < 3; ++late) {
      with_members(
          3,
          [&](Communicator& world) {
            Communicator same = world.reproducible();
            const OwnStream stream(gpus());
            Tensors tensors(300, world.rank(), 0);
            DeviceVector<int> number(counting(5, world.rank()));
            const auto right = tensors.right(same, is_mean);
            std::vector<std::vector<float>> found;
            Gate gate;
            gate.hold(stream);
            for (int turn = 0; turn < 3; ++turn) {
              stream.put([&] { tensors.fill(); });
              Batch batch(same.on(stream.get()));
              tensors.add_to(batch, is_mean);
              batch.all_reduce(number, sum);  // by a call of its own
              batch.run();
              stream.put([&] { found = tensors.found(); });
            }
            world.barrier();
            EXPECT_TRUE(found.empty());
            if (world.rank() == late) std::this_thread::sleep_for(std::chrono::milliseconds(2));
            gate.open();
            stream.wait();
            EXPECT_EQ(found, right);
            EXPECT_EQ(on_host(number)[4], 9 * (3 * 4 + 3));
          },
          impatient());
    }
  }
  EXPECT_EQ(by_host, 0);
  EXPECT_EQ(gpus().pinnings(), 0);
}

TEST_F(BatchesInStreams, AreWaitedForByRequests) {
  with_members(
      2,
      [&](Communicator& world) {
        const OwnStream stream(gpus());
        Tensors tensors(200, world.rank(), 0);
        Batch batch(world.on(stream.get()));
        tensors.add_to(batch, true);
        Gate gate;
        gate.hold(stream);
        Request request = batch.start();
        world.barrier();
        EXPECT_FALSE(request.test());
        gate.open();
        request.wait();
        EXPECT_EQ(tensors.found(), tensors.right(world, true));
        batch.start();  // need not be waited for
        stream.wait();
      },
      impatient());
}

// What is under way when a communicator ends is done before, and its memory is there as long.
TEST_F(BatchesInStreams, EndBeforeTheirCommunicator) {
  const OwnStream first(gpus());
  const OwnStream second(gpus());
  const std::array<const OwnStream*, 2> streams = {&first, &second};
  std::array<Tensors, 2> tensors = {Tensors(200, 0, 0), Tensors(200, 1, 0)};
  std::vector<std::vector<float>> right;
  with_members(2, [&](Communicator& world) {
    const auto me = static_cast<std::size_t>(world.rank());
    auto mine = tensors[me].right(world, true);
    if (me == 0) right = std::move(mine);
    streams[me]->put([] { std::this_thread::sleep_for(std::chrono::milliseconds(3)); });
    Batch batch(world.on(streams[me]->get()));
    tensors[me].add_to(batch, true);
    batch.run();
  });
  for (const Tensors& each : tensors) EXPECT_EQ(each.found(), right);
}

TEST_F(BatchesInStreams, AreStartedByAllMembersAlike) {
  for (const bool has_nccl : {false, true}) {
    std::atomic<int> refused = 0;
    with_members(2,
                 [&](Communicator& world) {
                   const OwnStream stream(gpus());
                   Tensors tensors(200, world.rank(), 0);
                   Batch batch = world.rank() == 0 ? Batch(world.on(stream.get())) : Batch(world);
                   tensors.add_to(batch, true);
                   try {
                     batch.run();
                   } catch (const Error& error) {
                     EXPECT_EQ(error.code(), Code::mismatch) << error.what();
                     EXPECT_PRED2(holds, error.what(), "in a stream");
                     ++refused;
                   }
                 },
                 {.nccl = has_nccl});
    EXPECT_EQ(refused, 2);
  }
}

}  // namespace
}  // namespace lockstep::test
