// SPDX-License-Identifier: Apache-2.0
// A build without CUDA and NCCL, whatever this build has: the files that it takes for them are compiled into this
// program. What is said there, word for word, and that the host goes on.
#include <gtest/gtest.h>

#include <vector>

#include "collectives/gpu/memory.hpp"
#include "collectives/nccl/clique.hpp"
#include "collectives/nccl/library.hpp"
#include "tests/collectives/members.hpp"
#include "topology/machine/device.hpp"

namespace lockstep::test {
namespace {

TEST(NoCuda, is_said_word_for_word) {
  EXPECT_EQ(gpu::layer(), nullptr);
  EXPECT_EQ(gpu::why_none(), "this build has no CUDA: build it where the CUDA Toolkit is, with -Dcuda=enabled");
  EXPECT_EQ(nccl::library(), nullptr);
  std::string why_no_nccl;
  EXPECT_EQ(nccl::load(why_no_nccl), nullptr);
  EXPECT_EQ(why_no_nccl, "this build has no NCCL: build it where nccl.h is, with -Dnccl=enabled");
  const Devices devices = read_devices();
  EXPECT_FALSE(devices.built);
  EXPECT_TRUE(devices.gpus.empty());
  EXPECT_EQ(devices.why_none, "this build has no CUDA (meson setup -Dcuda=enabled builds with it)");
  EXPECT_EQ(cuda_version(), "not built in");
  EXPECT_EQ(nccl_version(), "not built in");
}

TEST(NoCuda, memory_of_a_gpu_is_refused) {
  try {
    const DeviceVector<int> there(10);
    ADD_FAILURE() << "there was some";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::device);
    EXPECT_NE(
        std::string_view(error.what())
            .find("LOCKSTEP-E020 a GPU or its driver cannot be used: memory of GPU 0 was asked for, but this build "
                  "has no CUDA: build it where the CUDA Toolkit is, with -Dcuda=enabled"),
        std::string_view::npos)
        << error.what();
  }
}

TEST(NoCuda, the_hosts_data_are_as_ever) {
  with_members(3, [](Communicator& world) {
    std::vector<int> data(1000, world.rank());
    world.all_reduce(data, sum);
    EXPECT_EQ(data, std::vector<int>(1000, 3));
    EXPECT_EQ(gpu::where(data.data()), gpu::Where{});
    try {
      world.allocate_on_gpu<float>(10);
      ADD_FAILURE() << "there was some";
    } catch (const Error& error) {
      EXPECT_NE(std::string_view(error.what()).find("this build has no CUDA: "), std::string_view::npos)
          << error.what();
    }
  });
}

// As docs/gpu.md has it: what NCCL lacks is composed of at most so many members' parts.
TEST(NoCuda, composed_operations_are_of_64_members) {
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
