// SPDX-License-Identifier: Apache-2.0
// Functions of the program's own that have a form for GPUs: members with a GPU each combine by it, in their order.
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <cstring>

#include "tests/collectives/gpu/own_gpus.hpp"
#include "tests/support/holds.hpp"

namespace lockstep::test {
namespace {

// Associative, and never the same the other way round.
struct Matrix {
  std::uint32_t a, b, c, d;
  bool operator==(const Matrix&) const = default;
};

Matrix times(const Matrix& x, const Matrix& y) {
  return {x.a * y.a + x.b * y.c, x.a * y.b + x.b * y.d, x.c * y.a + x.d * y.c, x.c * y.b + x.d * y.d};
}

// Not even associative: its bits show the order.
float mixed(float x, float y) { return x * 0.9F + y * 1.1F; }

// A kernel of the program's own, as these GPUs have them.
template <class T, class Function>
auto kernel(FakeGpus& gpus, Function function) {
  return [all = &gpus, function](const T* left, const T* right, T* out, std::size_t count, void* stream) {
    const int device = all->where(out).device;
    EXPECT_EQ(FakeGpus::used(), device);
    all->put(stream, [=] {
      const std::size_t bytes = count * sizeof(T);
      const auto* const a = reinterpret_cast<const T*>(all->reach(left, bytes));
      const auto* const b = reinterpret_cast<const T*>(all->reach(right, bytes));
      T* const to = reinterpret_cast<T*>(all->reach(out, bytes));
      for (std::size_t i = 0; i < count; ++i) to[i] = function(a[i], b[i]);
    });
  };
}

std::vector<Matrix> matrices(std::size_t many, int rank) {
  std::vector<Matrix> all(many);
  for (std::size_t i = 0; i < many; ++i) {
    const auto n = static_cast<std::uint32_t>(i + 1);
    const auto r = static_cast<std::uint32_t>(rank + 1);
    all[i] = {n, r, 3 * r, n * r + 1};
  }
  return all;
}

CommunicatorOptions without_nccl(const Communicator& world) {
  CommunicatorOptions options = world.options();
  options.nccl = false;
  return options;
}

TEST_F(OwnGpus, CombineByFunctionsOfTheirOwn) {
  for (const int members : {1, 3, 8}) {
    with_members(members, [&](Communicator& world) {
      Communicator host = world.duplicate(without_nccl(world));
      const int rank = world.rank();
      const auto size = static_cast<std::size_t>(members);
      const auto op = ordered(times).on_gpu(kernel<Matrix>(gpus(), times));
      const std::vector<Matrix> mine = matrices(count, rank);
      const auto compare = [&](const auto& call, std::size_t outputs) {
        std::vector<Matrix> here(outputs, Matrix{7, 7, 7, 7});
        const DeviceVector<Matrix> in(mine, rank);
        DeviceVector<Matrix> there(here, rank);
        call(host, mine, here);
        call(world, in, there);
        EXPECT_EQ(on_host(there), here);
      };
      const int root = members / 2;
      compare([&](auto& on, const auto& in, auto& out) { on.all_reduce(in, out, op); }, count);
      compare([&](auto& on, const auto& in, auto& out) { on.reduce(in, out, op, root); }, count);
      compare([&](auto& on, const auto& in, auto& out) { on.scan(in, out, op); }, count);
      compare([&](auto& on, const auto& in, auto& out) { on.exscan(in, out, op); }, count);
      std::vector<std::size_t> counts(size, count / size);
      counts.front() += count % size;
      compare([&](auto& on, const auto& in, auto& out) { on.reduce_scatter_v(in, out, counts, op); },
              counts[static_cast<std::size_t>(rank)]);
      // In place.
      std::vector<Matrix> here = mine;
      DeviceVector<Matrix> there(mine, rank);
      host.all_reduce(here, op);
      world.all_reduce(there, op);
      EXPECT_EQ(on_host(there), here);
      host.scan(here, op);
      world.scan(there, op);
      EXPECT_EQ(on_host(there), here);
      host.reduce(here, op, root);
      world.reduce(there, op, root);
      EXPECT_EQ(on_host(there), here);
    });
  }
  EXPECT_EQ(gpus().pinnings(), 0);
  EXPECT_GT(nccl().operations(), 0);
}

// The host's tree: the same bits of a function in whose result the order shows.
TEST_F(OwnGpus, UserFunctionsHaveTheBitsOfTheHost) {
  with_members(6, [&](Communicator& world) {
    Communicator ordered_world = world.reproducible();
    Communicator host = ordered_world.duplicate(without_nccl(ordered_world));
    const auto op = commutative(mixed).on_gpu(kernel<float>(gpus(), mixed));
    std::vector<float> here(count);
    for (std::size_t i = 0; i < count; ++i)
      here[i] = std::sin(static_cast<float>(i) * static_cast<float>(world.rank() + 1));
    DeviceVector<float> there(here, world.rank());
    DeviceVector<float> before(here, world.rank());
    std::vector<float> scanned = here;
    host.all_reduce(here, op);
    ordered_world.all_reduce(there, op);
    EXPECT_EQ(std::memcmp(on_host(there).data(), here.data(), count * sizeof(float)), 0);
    host.scan(scanned, op);
    ordered_world.scan(before, op);
    EXPECT_EQ(std::memcmp(on_host(before).data(), scanned.data(), count * sizeof(float)), 0);
  });
  EXPECT_EQ(gpus().pinnings(), 0);
}

// In streams, plans and batches as well.
TEST_F(OwnGpus, CombineByFunctionsOfTheirOwnInAStream) {
  with_members(3, [&](Communicator& world) {
    const Stream stream(gpus(), world.rank());
    const auto op = ordered(times).on_gpu(kernel<Matrix>(gpus(), times));
    std::vector<Matrix> here = matrices(50, world.rank());
    DeviceVector<Matrix> there(here, world.rank());
    DeviceVector<Matrix> first(here, world.rank());
    DeviceVector<Matrix> second(here, world.rank());
    PreparedCall plan = world.on(stream.get()).plan_all_reduce(there, op);
    for (int turn = 0; turn < 3; ++turn) {
      plan.run();
      world.all_reduce(here, ordered(times));
    }
    EXPECT_EQ(plan.algorithm(), "nccl");
    stream.wait();
    EXPECT_EQ(on_host(there), here);
    Batch batch(world);
    batch.all_reduce(first, op).all_reduce(second, op);
    batch.run();
    here = matrices(50, world.rank());
    world.all_reduce(here, ordered(times));
    EXPECT_EQ(on_host(first), here);
    EXPECT_EQ(on_host(second), here);
  });
  EXPECT_EQ(gpus().pinnings(), 0);
}

// One that has no form for GPUs: all go by the host.
TEST_F(OwnGpus, GoByTheHostWhereOneHasNoFunctionForGpus) {
  with_members(3, [&](Communicator& world) {
    std::vector<Matrix> here = matrices(count, world.rank());
    DeviceVector<Matrix> there(here, world.rank());
    world.all_reduce(here, ordered(times));
    if (world.rank() == 1)
      world.all_reduce(there, ordered(times));
    else
      world.all_reduce(there, ordered(times).on_gpu(kernel<Matrix>(gpus(), times)));
    EXPECT_EQ(on_host(there), here);
  });
  EXPECT_EQ(nccl().operations(), 0);
}

TEST_F(OwnGpus, ReportExceptionsOfUserFunctions) {
  for (const bool is_known : {true, false}) {
    std::atomic<int> refused = 0;
    with_members(3, [&](Communicator& world) {
      DeviceVector<unsigned> mine(std::vector<unsigned>(count, 1), world.rank());
      const auto add = [](unsigned a, unsigned b) { return a + b; };
      const auto throws = [is_bad = world.rank() == 1, is_known, all = kernel<unsigned>(gpus(), add)](
                              const unsigned* left, const unsigned* right, unsigned* out, std::size_t many,
                              void* stream) {
        if (is_bad && is_known) throw std::runtime_error("no such kernel");
        if (is_bad) throw 7;  // NOLINT(hicpp-exception-baseclass): whatever a program throws
        all(left, right, out, many, stream);
      };
      try {
        world.all_reduce(mine, commutative(add).on_gpu(throws));
        world.barrier();
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), world.rank() == 1 ? Code::device : Code::peer_failed) << error.what();
        EXPECT_PRED2(holds, error.what(), is_known ? "no such kernel" : "not a std::exception");
        ++refused;
      }
    });
    EXPECT_EQ(refused, 3);
  }
}

}  // namespace
}  // namespace lockstep::test
