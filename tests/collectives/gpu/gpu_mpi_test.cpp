// SPDX-License-Identifier: Apache-2.0
// Processes that share a GPU: each maps what the others have there. With one of the tests' own making, and with what
// the machine has.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <memory>
#include <optional>

#include "collectives/communicator/batch.hpp"
#include "tests/collectives/communicator/all_ranks.hpp"
#include "tests/collectives/gpu/stream_order.hpp"

namespace lockstep::test {
namespace {

enum class Kind : std::uint8_t { fake, real };
std::ostream& operator<<(std::ostream& out, Kind kind) { return out << (kind == Kind::fake ? "fake" : "real"); }

class SharedGpu : public NeedsRanks<2>, public testing::WithParamInterface<Kind> {
 protected:
  void SetUp() override {
    NeedsRanks<2>::SetUp();
    if (IsSkipped()) return;
    const char* const memory = std::getenv("LOCKSTEP_NODE_MEMORY");
    if (session().shared_topology()->node_count() > 1 || (memory != nullptr && std::string(memory) == "0"))
      GTEST_SKIP() << lacks("needs one node whose members share memory");
    if (GetParam() == Kind::fake)
      fake_.emplace(std::make_unique<FakeGpus>(1));
    else if (gpu::backend() == nullptr)
      GTEST_SKIP() << lacks(text("needs a GPU; ", gpu::why_none()));
  }
  // Nothing, where it is a real one.
  FakeGpus* fake() const { return fake_ ? static_cast<FakeGpus*>(&fake_->backend()) : nullptr; }
  void TearDown() override {
    if (fake() == nullptr) return;
    EXPECT_EQ(fake()->living(), 0U);
  }

 private:
  std::optional<gpu::BackendOverride> fake_;
};

class FakeSharedGpu : public SharedGpu {};
INSTANTIATE_TEST_SUITE_P(Layers, SharedGpu, testing::Values(Kind::fake, Kind::real), testing::PrintToStringParamName());
INSTANTIATE_TEST_SUITE_P(Layers, FakeSharedGpu, testing::Values(Kind::fake), testing::PrintToStringParamName());

constexpr std::size_t count = 60'000;

std::vector<std::int32_t> sum_of(int members, int turn) {
  std::vector<std::int32_t> all = counting(count, 0);
  for (std::int32_t& each : all) each = members * (each + turn) + members * (members - 1) / 2;
  return all;
}

TEST_P(SharedGpu, IsReducedOnByOneOfThem) {
  {
    Communicator all = all_ranks();
    const int n = all.size();
    for (int turn = 0; turn < 20; ++turn) {
      DeviceVector<std::int32_t> mine(counting(count, all.rank() + turn));  // mostly where the last one was
      all.all_reduce(mine, sum);
      EXPECT_EQ(on_host(mine), sum_of(n, turn));
    }
    if (fake() == nullptr) return;
    EXPECT_EQ(fake()->launches(), all.rank() == 0 ? 20 : 0);
    EXPECT_GT(fake()->mappings(), 0);
  }
  EXPECT_EQ(fake()->pinnings(), 0);
}

// CUDA waits for all that a process has on the GPU where it unmaps, and streams may be held back: so calls there leave
// it.
TEST_P(FakeSharedGpu, IsUnmappedWhereNothingIsInAStream) {
  Communicator all = all_ranks();
  const auto others = static_cast<std::size_t>(all.size() - 1);
  std::vector<DeviceVector<std::int32_t>> between;  // so that no address comes again
  const auto mapped = [&] { return fake()->living() - between.size(); };
  const OwnStream stream(*fake());
  for (std::size_t turn = 0; turn < 10; ++turn) {
    DeviceVector<std::int32_t> mine(counting(count + 5000 * turn, all.rank()));
    all.on(stream.get()).all_reduce(mine, sum);
    stream.wait();
    all.barrier();
    between.emplace_back(100 + 1000 * (turn % 2));
  }
  EXPECT_GE(mapped(), all.rank() == 0 ? 5 * others : 0) << "what the others have freed";
  DeviceVector<std::int32_t> mine(counting(count, all.rank()));
  all.all_reduce(mine, sum);
  EXPECT_EQ(on_host(mine), sum_of(all.size(), 0));
  EXPECT_LE(mapped(), 1 + 2 * others);
}

// With the bits of the host, in either order.
TEST_P(SharedGpu, IsWherePartsAreMultipliedAndDivided) {
  {
    Communicator all = all_ranks();
    Communicator tree = all.reproducible();
    const int me = all.rank();
    std::vector<float> given(count);
    for (std::size_t i = 0; i < count; ++i) given[i] = std::sin(static_cast<float>(i) + static_cast<float>(me) * 0.7F);
    const auto expect = [&](Communicator& world, const auto& op) {
      std::vector<float> right = given;
      world.all_reduce(right, op);
      DeviceVector<float> there(given);
      world.all_reduce(there, op);
      EXPECT_EQ(on_host(there), right) << to_string(world.order());
      const std::size_t block = count / 30;
      const std::size_t blocks = block * static_cast<std::size_t>(world.size());
      right.resize(block);
      world.reduce_scatter(std::span(given).first(blocks), right, op);
      const DeviceVector<float> part(block);
      there.copy_from(given);
      world.reduce_scatter(there.span().first(blocks), part.span(), op);
      EXPECT_EQ(on_host(part), right) << to_string(world.order());
    };
    for (Communicator* const each : {&all, &tree}) {
      expect(*each, avg);
      expect(*each, premul_sum(0.3 * me - 1));
    }
  }
  if (fake() == nullptr) return;
  EXPECT_EQ(fake()->pinnings(), 0);
  EXPECT_EQ(fake()->launches(), 4 * (world().rank() == 0 ? 2 : 1));
}

// Many tensors in memory that the library takes and the others map; in a stream, where one is named, before it goes on.
TEST_P(SharedGpu, PacksManyTensorsAndCombinesThemThere) {
  constexpr int many = 150;
  {
    Communicator all = all_ranks();
    Communicator tree = all.reproducible();
    const int me = all.rank();
    const gpu::Stream stream = gpu::backend()->make_stream(0);
    {
      std::vector<DeviceVector<float>> weighed;
      std::vector<DeviceVector<float>> meant;
      std::vector<float> given(200);
      for (std::size_t i = 0; i < given.size(); ++i)
        given[i] = std::sin(static_cast<float>(i) + static_cast<float>(me) * 0.7F);
      for (int i = 0; i < many; ++i) {
        weighed.emplace_back(given);
        meant.emplace_back(given);
      }
      for (const bool in_stream : {false, true}) {
        Batch batch = in_stream ? Batch(tree.on(stream)) : Batch(tree);
        for (auto& each : weighed) batch.all_reduce(each, premul_sum(0.3 * me - 1));
        for (auto& each : meant) batch.all_reduce(each, avg);
        std::vector<float> right_weighed = given;
        std::vector<float> right_meant = given;
        for (int turn = 0; turn < 3; ++turn) {
          batch.run();
          gpu::backend()->wait(stream);
          tree.all_reduce(right_weighed, premul_sum(0.3 * me - 1));
          tree.all_reduce(right_meant, avg);
          EXPECT_EQ(on_host(weighed.back()), right_weighed);
          EXPECT_EQ(on_host(weighed.front()), right_weighed);
          EXPECT_EQ(on_host(meant.back()), right_meant);
        }
        for (auto& each : weighed) each.copy_from(given);
        for (auto& each : meant) each.copy_from(given);
      }
    }
    gpu::backend()->end_stream(0, stream);
  }
  if (fake() == nullptr) return;
  EXPECT_EQ(fake()->pinnings(), 0);
  EXPECT_EQ(fake()->launches(), 2 * 3 * (2 * 4 + (world().rank() == 0 ? 2 : 0)));
}

// Also where a batch comes first: processes that measured together would measure each other.
TEST_P(FakeSharedGpu, IsMeasuredByOneOfThem) {
  Communicator all = all_ranks();
  std::vector<DeviceVector<std::int32_t>> tensors;
  for (int i = 0; i < 3; ++i) tensors.emplace_back(counting(count, all.rank()));
  Batch batch(all);
  for (auto& each : tensors) batch.all_reduce(each, sum);
  batch.run();
  EXPECT_EQ(on_host(tensors[2]), sum_of(all.size(), 0));
  EXPECT_EQ(fake()->measurings(), all.rank() == 0 ? 1 : 0);
}

// What one member has elsewhere goes by way of the host, and so does what is little.
TEST_P(SharedGpu, IsNotAllThatIsUsed) {
  Communicator all = all_ranks();
  for (const std::size_t size : {count, std::size_t{10}}) {
    std::vector<std::int32_t> here = counting(size, all.rank());
    DeviceVector<std::int32_t> there(here);
    if (all.rank() == 1 && size == count) {
      all.all_reduce(here, sum);
    } else {
      all.all_reduce(there, sum);
      here = on_host(there);
    }
    std::vector<std::int32_t> right = sum_of(all.size(), 0);
    right.resize(size);
    EXPECT_EQ(here, right);
  }
  if (fake() == nullptr) return;
  EXPECT_EQ(fake()->launches(), 0);
}

// All calls have returned before any stream goes on.
TEST_P(FakeSharedGpu, OrdersCallsInStreamsWithoutTheHost) {
  {
    Communicator all = all_ranks();
    for (const Collective collective : moved_or_reduced) {
      for (int late = 0; late < std::min(all.size(), 3); ++late) expect_order(all, *fake(), collective, late, 9000);
      expect_order(all, *fake(), collective, 1, 100);
    }
    for (const Collective collective : {Collective::all_reduce, Collective::reduce, Collective::reduce_scatter}) {
      expect_order(all, *fake(), collective, 0, 9000, avg);
      expect_order(all, *fake(), collective, 1, 9000, premul_sum(all.rank() - 3));
    }
    expect_many(all, *fake(), count);
    expect_requests(all, *fake(), count);
    const int events = fake()->events();
    expect_many(all, *fake(), count);
    EXPECT_EQ(fake()->events(), events) << "once is enough";
  }
  EXPECT_EQ(fake()->pinnings(), 0);
}

// Who only takes is done before the root is, and lets go of all that others find in its process.
TEST_P(FakeSharedGpu, IsLeftOnlyWhenAllHaveReadIt) {
  Communicator all = all_ranks();
  const int root = all.size() - 1;
  DeviceVector<std::int32_t> mine(counting(count, all.rank()));
  all.broadcast(mine, root);
  if (all.rank() == root)
    fake()->at(FakeGpus::Moment::opening, [] { std::this_thread::sleep_for(std::chrono::milliseconds(100)); });
  all.broadcast(mine, root);
  EXPECT_EQ(on_host(mine), counting(count, root));
}

}  // namespace
}  // namespace lockstep::test
