// SPDX-License-Identifier: Apache-2.0
// Calls that name no stream come after what is in the GPU's default stream and in all ordinary ones, which that one
// comes after: whatever way they go. What is in a stream apart from those is the program's affair.
#include <gtest/gtest.h>

#include "tests/collectives/gpu/stream_order.hpp"

#include "tests/collectives/communicator/members.hpp"
#include "tests/collectives/gpu/with_gpus.hpp"
#include "tests/support/lacks.hpp"

namespace lockstep::test {
namespace {

class DefaultStream : public WithGpus<2> {
 protected:
  // In one launch and by slots, and by messages in pieces and whole.
  void for_each_way(const std::function<void(Communicator&, std::size_t count)>& body) {
    for (const bool by_memory : {true, false}) {
      for (const std::size_t count : {10U, 3000U, 300'000U})
        with_members(3, [&](Communicator& world) { body(world, count); },
                     {.node_memory = by_memory && node_memory(), .timeout = std::chrono::seconds(20)});
    }
  }
};

using Sum = std::function<void(Communicator&, std::span<std::int32_t> in, std::span<std::int32_t> out)>;
const std::vector<Sum>& sums() {
  static const std::vector<Sum> all = {
      [](Communicator& world, auto in, auto out) { world.all_reduce(in, out, sum); },
      [](Communicator& world, auto in, auto out) { world.all_reduce(in, out, premul_sum(1)); },
      [](Communicator& world, auto in, auto out) { world.all_reduce_async(in, out, sum).wait(); },
      [](Communicator& world, auto in, auto out) { world.plan_all_reduce(in, out, sum).run(); }};
  return all;
}

void pause() { std::this_thread::sleep_for(std::chrono::milliseconds(3)); }

// What makes the input is done, and what reads the output: a call that went before it would find, or leave, something
// else.
TEST_F(DefaultStream, ComesAfterOrdinaryOnes) {
  for_each_way([&](Communicator& world, std::size_t count) {
    const OrdinaryStream stream(gpus());
    NumbersThere in(count);
    NumbersThere out(count);
    for (const Sum& call : sums()) {
      const Numbers given = counting(count, world.rank());
      in.copy_from(Numbers(count, -1));
      out.copy_from(Numbers(count, -2));
      Numbers seen;
      if (world.rank() != 1) stream.put(pause);
      stream.put([&] {
        in.copy_from(given);
        seen = on_host(out);
      });
      call(world, in.span(), out.span());
      EXPECT_EQ(seen, Numbers(count, -2));
      Numbers right = counting(count, 0);
      for (std::int32_t& each : right) each = 3 * each + 3;
      EXPECT_EQ(on_host(out), right);
    }
  });
}

// What is in a stream apart from them is not waited for: such calls end while it is held back.
TEST_F(DefaultStream, DoesNotComeAfterThoseApart) {
  for_each_way([&](Communicator& world, std::size_t count) {
    const OwnStream stream(gpus());
    NumbersThere there(Numbers(count, 1));
    Gate gate;
    gate.hold(stream);
    for (const Sum& call : sums()) {
      there.copy_from(Numbers(count, 1));
      call(world, there.span(), there.span());
      EXPECT_EQ(on_host(there), Numbers(count, 3));
    }
  });
}

// A GPU's is its own.
TEST_F(DefaultStream, OfAnotherGpuIsNotWaitedFor) {
  for_each_way([&](Communicator& world, std::size_t count) {
    std::promise<void> gate;
    if (world.rank() == 0) gpus().put(1, nullptr, [opened = gate.get_future().share()] { opened.wait(); });
    NumbersThere there(Numbers(count, 1));
    for (const Sum& call : sums()) {
      there.copy_from(Numbers(count, 1));
      call(world, there.span(), there.span());
      EXPECT_EQ(on_host(there), Numbers(count, 3));
    }
    gate.set_value();
  });
}

}  // namespace
}  // namespace lockstep::test
