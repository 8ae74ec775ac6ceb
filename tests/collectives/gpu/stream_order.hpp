// SPDX-License-Identifier: Apache-2.0
// Calls in streams of a GPU that members share, for tests with threads and with processes: the streams are held back,
// and what is in them before and after a call shows whether each waits for what it has to.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <thread>
#include <vector>

#include "collectives/communicator/communicator.hpp"
#include "tests/collectives/engine/gate.hpp"
#include "tests/collectives/gpu/with_gpus.hpp"

namespace lockstep::test {

using Numbers = std::vector<std::int32_t>;
using NumbersThere = DeviceVector<std::int32_t>;

inline constexpr Collective moved_or_reduced[] = {
    Collective::all_reduce, Collective::reduce,     Collective::reduce_scatter, Collective::all_gather,
    Collective::broadcast,  Collective::all_to_all, Collective::gather,         Collective::scatter};

// Of a block for every member in each buffer, with the second one as the root.
template <class World, class Op = BuiltInOp<ReduceOp::sum>>
void call(Collective collective, const World& given, std::span<std::int32_t> in, std::span<std::int32_t> out,
          Op op = {}) {
  auto& world = const_cast<World&>(given);
  const std::size_t block = in.size() / static_cast<std::size_t>(world.size());
  switch (collective) {
    case Collective::all_reduce:
      return world.all_reduce(in, out, op);
    case Collective::reduce:
      return world.reduce(in, out, op, 1);
    case Collective::reduce_scatter:
      return world.reduce_scatter(in, out.first(block), op);
    case Collective::all_gather:
      return world.all_gather(in.first(block), out);
    case Collective::broadcast:
      return world.broadcast(in, 1);
    case Collective::all_to_all:
      return world.all_to_all(in, out);
    case Collective::gather:
      return world.gather(in.first(block), out, 1);
    default:
      return world.scatter(in, out.first(block), 1);
  }
}

// All calls have returned before any stream goes on, that of the `late` member after the others; its data is there only
// then, and overwritten behind the call.
template <class Op = BuiltInOp<ReduceOp::sum>>
void expect_order(Communicator& world, FakeGpus& gpus, Collective collective, int late, std::size_t block, Op op = {}) {
  const std::size_t count = block * static_cast<std::size_t>(world.size());
  const Numbers given = counting(count, 1000 * world.rank());
  Numbers right_in = given;
  Numbers right_out(count, -1);
  call(collective, world, std::span(right_in), std::span(right_out), op);
  const OwnStream stream(gpus);
  NumbersThere in(count);
  NumbersThere out(Numbers(count, -1));
  Numbers found_in;
  Numbers found_out;
  Gate gate;
  gate.hold(stream);
  stream.put([&] { in.copy_from(given); });
  call(collective, world.on(stream.get()), in.span(), out.span(), op);
  stream.put([&] {
    found_in = on_host(in);
    found_out = on_host(out);
    in.copy_from(Numbers(count, -2));
    out.copy_from(Numbers(count, -2));
  });
  world.barrier();
  if (world.rank() == late) std::this_thread::sleep_for(std::chrono::milliseconds(2));
  gate.open();
  stream.wait();
  EXPECT_EQ(found_in, right_in) << to_string(collective) << ' ' << to_string(Op::op) << ", " << late << " is late";
  EXPECT_EQ(found_out, right_out) << to_string(collective) << ' ' << to_string(Op::op) << ", " << late << " is late";
}

// Many calls, with the next one on the same memory behind each, and two streams whose members are busy by turns.
inline void expect_many(Communicator& world, FakeGpus& gpus, std::size_t count) {
  constexpr int turns = 12;
  const OwnStream one(gpus);
  const OwnStream other(gpus);
  const std::array<const OwnStream*, 2> streams = {&one, &other};
  std::array<NumbersThere, 2> data = {NumbersThere(count), NumbersThere(count)};
  std::vector<Numbers> found(turns);
  for (int turn = 0; turn < turns; ++turn) {
    const auto which = static_cast<std::size_t>(turn % 3 == 0 ? 1 : 0);
    streams[which]->put([&, which, turn] {
      std::this_thread::sleep_for(std::chrono::microseconds((turn * 7 + world.rank() * 5) % 4 * 100));
      data[which].copy_from(counting(count, turn * 100 + world.rank()));
    });
    world.on(streams[which]->get()).all_reduce(data[which], sum);
    streams[which]->put([&, which, turn] { found[static_cast<std::size_t>(turn)] = on_host(data[which]); });
  }
  one.wait();
  other.wait();
  const int n = world.size();
  for (int turn = 0; turn < turns; ++turn) {
    Numbers right = counting(count, 100 * turn);
    for (std::int32_t& each : right) each = n * each + n * (n - 1) / 2;
    EXPECT_EQ(found[static_cast<std::size_t>(turn)], right) << turn;
  }
}

// A Request is done when the stream has come to it, and what is in one stream does not keep the other from going on.
inline void expect_requests(Communicator& world, FakeGpus& gpus, std::size_t count) {
  const OwnStream held(gpus);
  const OwnStream free(gpus);
  NumbersThere first(Numbers(count, 1));
  NumbersThere second(Numbers(count, 2));
  Gate gate;
  gate.hold(held);
  Request late = world.on(held.get()).all_reduce_async(first, sum);
  world.on(held.get()).all_reduce_async(first, sum);  // need not be waited for
  Request early = world.on(free.get()).all_reduce_async(second, sum);
  early.wait();
  EXPECT_EQ(on_host(second), Numbers(count, 2 * world.size()));
  EXPECT_FALSE(late.test());
  world.barrier();
  gate.open();
  late.wait();
  held.wait();
  EXPECT_EQ(on_host(first), Numbers(count, world.size() * world.size()));
}

}  // namespace lockstep::test
