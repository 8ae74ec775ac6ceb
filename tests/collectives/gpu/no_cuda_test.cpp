// SPDX-License-Identifier: Apache-2.0
// A build without CUDA and NCCL, whatever this build has: the files that it takes for them are compiled into this
// program. What is said there, word for word, and that the host goes on.
#include <gtest/gtest.h>

#include <vector>

#include "collectives/communicator/batch.hpp"
#include "collectives/gpu/memory.hpp"
#include "collectives/nccl/library.hpp"
#include "collectives/nccl/nccl_communicator.hpp"
#include "tests/collectives/communicator/members.hpp"
#include "tests/support/holds.hpp"
#include "topology/machine/device.hpp"

namespace lockstep::test {
namespace {

TEST(NoCuda, HasItsDocumentedText) {
  EXPECT_EQ(gpu::backend(), nullptr);
  EXPECT_EQ(gpu::why_none(), "this build has no CUDA: build it where the CUDA Toolkit is, with -Dcuda=enabled");
  EXPECT_EQ(nccl::library(), nullptr);
  std::string why_no_nccl;
  EXPECT_EQ(nccl::load(why_no_nccl), nullptr);
  EXPECT_EQ(why_no_nccl, "this build has no NCCL: build it where nccl.h is, with -Dnccl=enabled");
  const VisibleGpus devices = read_visible_gpus();
  EXPECT_FALSE(devices.built);
  EXPECT_TRUE(devices.gpus.empty());
  EXPECT_EQ(devices.why_none, "this build has no CUDA (meson setup -Dcuda=enabled builds with it)");
  EXPECT_EQ(cuda_version(), "not built in");
  EXPECT_EQ(nccl_version(), "not built in");
}

TEST(NoCuda, MemoryOfAGpuIsRefused) {
  try {
    const DeviceVector<int> there(10);
    ADD_FAILURE() << "there was some";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::device);
    EXPECT_PRED2(holds, error.what(),
                 "LOCKSTEP-E020 a GPU or its driver cannot be used: memory of GPU 0 was asked for, but this build "
                 "has no CUDA: build it where the CUDA Toolkit is, with -Dcuda=enabled");
  }
}

TEST(NoCuda, DataOfTheHostAreReduced) {
  with_members(3, [](Communicator& world) {
    std::vector<int> data(1000, world.rank());
    world.all_reduce(data, sum);
    EXPECT_EQ(data, std::vector<int>(1000, 3));
    EXPECT_EQ(gpu::where(data.data()), gpu::MemoryLocation{});
    try {
      const DeviceVector<float> there(10);
      ADD_FAILURE() << "there was some";
    } catch (const Error& error) {
      EXPECT_PRED2(holds, error.what(), "this build has no CUDA: ");
    }
  });
}

TEST(NoCuda, RefusesStreamsOfGpusButTheDefaultOne) {
  with_members(2, [](Communicator& world) {
    std::vector<int> data(1000, 1);
    world.on(nullptr).all_reduce(data, sum);
    EXPECT_EQ(data, std::vector<int>(1000, 2));
    int none = 0;
    try {
      world.on(&none).all_reduce(data, sum);
      ADD_FAILURE() << "there was a stream";
    } catch (const Error& error) {
      EXPECT_PRED2(holds, error.what(), "a stream of a GPU was given, but this build has no CUDA: ");
    }
    EXPECT_TRUE(world.failed());
  });
}

// In the node's memory, and packed for messages; two types are two calls.
TEST(NoCuda, BatchesGoByTheHost) {
  for (const bool node_memory : {true, false}) {
    const auto body = [](Communicator& world) {
      std::vector<std::vector<float>> tensors(3, std::vector<float>(100, 1.0F));
      std::vector<int> counts(50, 1);
      Batch batch(world);
      for (auto& each : tensors) batch.all_reduce(each, sum);
      batch.all_reduce(counts, sum);
      batch.run();
      for (const auto& each : tensors) EXPECT_EQ(each, std::vector<float>(100, 2.0F));
      EXPECT_EQ(counts, std::vector<int>(50, 2));
    };
    with_members(2, body, {.node_memory = node_memory});
  }
}

// As docs/gpu.md has it: what NCCL lacks is composed of at most so many members' parts.
TEST(NoCuda, ComposedOperationsAreOf64Members) {
  const Spec native{.collective = Collective::all_reduce, .type = DataType::f32, .op = ReduceOp::sum};
  Spec composed = native;
  composed.op = ReduceOp::bit_and;
  composed.type = DataType::i32;
  Spec scan = native;
  scan.collective = Collective::scan;
  Spec own = native;
  own.op = ReduceOp::user;
  EXPECT_TRUE(nccl::can_do(native, 65));
  for (const Spec& each : {composed, scan}) {
    EXPECT_TRUE(nccl::can_do(each, 64)) << to_string(each.collective);
    EXPECT_FALSE(nccl::can_do(each, 65)) << to_string(each.collective);
  }
  EXPECT_TRUE(nccl::can_do(own, 65));
}

}  // namespace
}  // namespace lockstep::test
