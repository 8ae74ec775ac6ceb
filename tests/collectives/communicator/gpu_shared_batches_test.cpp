// SPDX-License-Identifier: Apache-2.0
// Many tensors of members that share a GPU: packed there, combined by one launch, and unpacked there, in streams and
// without; beside members whose tensors are elsewhere.
#include <rapidcheck.h>

#include <algorithm>
#include <atomic>
#include <mutex>

#include "tests/collectives/communicator/shared_batches.hpp"

namespace lockstep::test {
namespace {

// Of 300 tensors those that are not empty are packed by three launches, and unpacked by three.
TEST_F(SharedBatches, AreCombinedByOneLaunch) {
  for (const bool has_nccl : {false, true}) {
    for (const bool is_mean : {false, true}) {
      const int before = gpus().launches();
      with_members(3,
                   [&](Communicator& world) {
                     Communicator same = world.reproducible();
                     Tensors tensors(300, world.rank(), 0);
                     Batch batch(same);
                     tensors.add_to(batch, is_mean);
                     batch.run();
                     EXPECT_EQ(tensors.found(), tensors.right(same, is_mean));
                   },
                   {.nccl = has_nccl});
      EXPECT_EQ(gpus().launches() - before, 3 * (3 + 3) + 1);
    }
  }
  EXPECT_EQ(gpus().pinnings() + gpus().pinned_places() + nccl().operations(), 0);
}

// A last one that has a launch for itself, and a few numbers, for which members do not ask each other where they lie.
TEST_F(SharedBatches, MayBeOneMoreThanALaunchTakesAndVerySmall) {
  with_members(2, [](Communicator& world) {
    Communicator same = world.reproducible();
    for (const int number : {121 + 4, 3}) {  // four are empty
      for (const bool is_mean : {false, true}) {
        Tensors tensors(number, world.rank(), 0);
        Batch batch(same);
        tensors.add_to(batch, is_mean);
        batch.run();
        EXPECT_EQ(tensors.found(), tensors.right(same, is_mean));
      }
    }
  });
}

TEST_F(SharedBatches, ComeFromARootWithoutTheHost) {
  with_members(3, [&](Communicator& world) {
    std::vector<DeviceVector<int>> tensors;
    for (int i = 0; i < 200; ++i) tensors.emplace_back(counting(20, 1000 * world.rank() + i));
    Batch batch(world);
    for (auto& each : tensors) batch.broadcast(each, 1);
    batch.run();
    for (int i = 0; i < 200; ++i) EXPECT_EQ(on_host(tensors[static_cast<std::size_t>(i)]), counting(20, 1000 + i));
  });
  EXPECT_EQ(gpus().launches(), 3 * 2) << "the root packs, and the others unpack what they have copied";
  EXPECT_EQ(gpus().pinnings(), 0);
}

// Little is copied to the host and back sooner than three launches have ended.
TEST_F(SharedBatches, GoByTheHostWhereThatIsMeasuredToBeSooner) {
  gpus().take({.launch = {2000, 1000}, .copy = {400, 1000}, .down = {2000, 40'000}, .up = {2000, 40'000}});
  for (const std::size_t each : {100UL, 20'000UL}) {
    const int before = gpus().launches();
    with_members(2,
                 [&](Communicator& world) {
                   std::vector<DeviceVector<int>> tensors;
                   for (int i = 0; i < 20; ++i) tensors.emplace_back(counting(each, i + world.rank()));
                   Batch batch(world);
                   for (auto& tensor : tensors) batch.all_reduce(tensor, sum);
                   batch.run();
                   EXPECT_EQ(on_host(tensors[7])[10], 2 * 17 + 1);
                 },
                 {.nccl = false});
    EXPECT_EQ(gpus().launches() - before, each == 100 ? 4 : 5);
    EXPECT_EQ(gpus().pinnings(), 2) << "of those that are small";
  }
}

// A step makes its batch again where gradients lie elsewhere.
TEST_F(SharedBatches, TakeTheirMemoryOnce) {
  with_members(2, [&](Communicator& world) {
    Tensors tensors(200, world.rank(), 0);
    for (int turn = 0; turn < 20; ++turn) {
      Batch batch(world);
      tensors.add_to(batch, true);
      batch.run();
      FakeGpus::fail_allocation_after(0);
    }
    FakeGpus::fail_allocation_after(-1);
  });
}

// What fails on one member while its tensors are packed, combined and unpacked is named on all, and nobody waits.
struct Broken {
  const char* name;
  int who;
  int launch;  // the one that fails; -1: there is no memory for it
};
std::ostream& operator<<(std::ostream& out, const Broken& broken) { return out << broken.name; }

class BrokenBatches : public SharedBatches, public testing::WithParamInterface<Broken> {};

INSTANTIATE_TEST_SUITE_P(All, BrokenBatches,
                         testing::Values(Broken{"no_memory", 1, -1}, Broken{"packing", 1, 0},
                                         Broken{"packing_more", 1, 1}, Broken{"combining", 0, 2},
                                         Broken{"unpacking", 1, 2}, Broken{"unpacking_more", 2, 3}),
                         [](const auto& each) { return std::string(each.param.name); });

TEST_P(BrokenBatches, AreNamedOnAll) {
  const Broken& broken = GetParam();
  for (const bool in_stream : {false, true}) {
    std::atomic<int> refused = 0;
    with_members(3, [&](Communicator& world) {
      const OwnStream stream(gpus());
      Tensors tensors(200, world.rank(), 0);
      Batch batch = in_stream ? Batch(world.on(stream.get())) : Batch(world);
      tensors.add_to(batch, false);
      const bool is_mine = world.rank() == broken.who;
      world.barrier();
      FakeGpus::fail_allocation_after(is_mine && broken.launch < 0 ? 0 : -1);
      FakeGpus::fail_copy_after(is_mine ? broken.launch : -1);
      try {
        for (int turn = 0; turn < 2; ++turn) batch.run();  // one may be done before another one fails
        world.barrier();
      } catch (const Error& error) {
        const std::string named =
            is_mine ? (broken.launch < 0 ? "none left" : "fell off the bus") : text("rank ", broken.who);
        EXPECT_NE(std::string_view(error.what()).find(named), std::string_view::npos) << error.what();
        EXPECT_EQ(error.code(), is_mine ? (broken.launch < 0 ? Code::out_of_memory : Code::device) : Code::peer_failed);
        ++refused;
      }
      FakeGpus::fail_allocation_after(-1);
      FakeGpus::fail_copy_after(-1);
      if (!is_mine) stream.wait();  // a call may have returned before the failure was heard of
    });
    EXPECT_EQ(refused, 3) << in_stream;
  }
}

// Drawn: what is combined, where each member has its tensors, and how.
struct DrawnBatch {
  int members = 1;
  int type = 0;  // float, bf16, or 64-bit integers
  std::vector<std::size_t> counts;
  std::vector<int> what;    // of each tensor: sum, mean, with factors, largest, from a root
  std::vector<int> places;  // of each member: the host, one GPU or the other, or by turns (2)
  bool in_stream = false;
  bool in_node = true;
  bool has_nccl = false;
};

std::ostream& operator<<(std::ostream& out, const DrawnBatch& each) {
  out << each.members << " members, type " << each.type << ", node memory " << each.in_node << ", NCCL "
      << each.has_nccl << (each.in_stream ? ", in a stream" : "") << ", places";
  for (const int place : each.places) out << ' ' << place;
  for (std::size_t i = 0; i < each.counts.size(); ++i)
    out << (i == 0 ? ": " : ", ") << each.counts[i] << " of " << each.what[i];
  return out;
}

rc::Gen<DrawnBatch> drawn_batch() {
  return rc::gen::exec([] {
    DrawnBatch each{.members = *rc::gen::inRange(1, 6), .type = *rc::gen::inRange(0, 3)};
    const auto tensors = *rc::gen::inRange<std::size_t>(1, 20);
    each.counts = *rc::gen::container<std::vector<std::size_t>>(
        tensors, rc::gen::oneOf(rc::gen::inRange<std::size_t>(0, 20), rc::gen::inRange<std::size_t>(0, 3000)));
    each.what = *rc::gen::container<std::vector<int>>(tensors, rc::gen::inRange(0, 5));
    const auto members = static_cast<std::size_t>(each.members);
    switch (*rc::gen::inRange(0, 3)) {
      case 0:
        each.places.assign(members, 0);
        break;
      case 1:
        each.places = *rc::gen::container<std::vector<int>>(members, rc::gen::inRange(-1, 3));
        break;
      default:  // a GPU for each member, as NCCL needs
        each.members = 2;
        each.places = {0, 1};
    }
    each.in_stream = *rc::gen::arbitrary<bool>();
    each.in_node = *rc::gen::arbitrary<bool>();
    each.has_nccl = *rc::gen::arbitrary<bool>();
    // NCCL takes streams of its member's GPU, which may be either one where tensors lie by turns.
    if (each.in_stream && std::ranges::find(each.places, 2) != each.places.end()) each.has_nccl = false;
    return each;
  });
}

template <class T>
void put_together(Batch& batch, std::span<T> data, int what, int rank, int members) {
  if (what == 0) batch.all_reduce(data, sum);
  if (what == 1) batch.all_reduce(data, avg);
  if (what == 2) batch.all_reduce(data, premul_sum(0.7 * rank - 1));
  if (what == 3) batch.all_reduce(data, max);
  if (what == 4) batch.broadcast(data, members / 2);
}

template <class T>
std::string run_drawn(Communicator& world, FakeGpus& gpus, const DrawnBatch& each) {
  const int rank = world.rank();
  const int place = each.places[static_cast<std::size_t>(rank)];
  const OwnStream stream(gpus, place == 1 ? 1 : 0);
  const std::size_t number = each.counts.size();
  std::vector<std::vector<T>> given(number);
  std::vector<std::vector<T>> here(number);
  std::vector<DeviceVector<T>> there(number);
  std::vector<std::vector<T>> right(number);
  Batch batch = each.in_stream ? Batch(world.on(stream.get())) : Batch(world);
  for (std::size_t i = 0; i < number; ++i) {
    for (std::size_t at = 0; at < each.counts[i]; ++at)
      given[i].push_back(static_cast<T>(100 * std::sin(static_cast<float>(at * 3 + i) + static_cast<float>(rank))));
    const int device = place < 2 ? place : static_cast<int>(i % 3) - 1;
    here[i] = right[i] = given[i];
    if (device >= 0) there[i] = DeviceVector<T>(given[i], device);
    put_together(batch, device >= 0 ? there[i].span() : std::span(here[i]), each.what[i], rank, each.members);
    Batch alone(world);  // of the host's, as a call is
    put_together(alone, std::span(right[i]), each.what[i], rank, each.members);
    alone.run();
  }
  for (int turn = 0; turn < 2; ++turn) {
    stream.put([&] {
      std::this_thread::sleep_for(std::chrono::microseconds(each.in_stream ? 300 : 0));
      for (std::size_t i = 0; i < number; ++i) {
        std::ranges::copy(given[i], here[i].begin());
        if (!there[i].empty()) there[i].copy_from(given[i]);
      }
    });
    if (!each.in_stream) stream.wait();
    batch.run();
    stream.wait();
    for (std::size_t i = 0; i < number; ++i) {
      if ((there[i].empty() ? here[i] : on_host(there[i])) != right[i])
        return text("rank ", rank, " has another tensor ", i, " in turn ", turn);
    }
  }
  return {};
}

TEST(DrawnBatches, AreRightWithTensorsAnywhere) {
  const gpu::BackendOverride gpus(std::make_unique<FakeGpus>(2));
  auto& fake = static_cast<FakeGpus&>(gpus.backend());
  const nccl::NcclOverride library(std::make_unique<FakeNccl>(fake));
  EXPECT_TRUE(rc::check("drawn batches", [&] {
    const DrawnBatch each = *drawn_batch();
    std::mutex mutex;
    std::string wrong;
    with_members(each.members,
                 [&](Communicator& world) {
                   Communicator same = world.reproducible();
                   std::string mine = each.type == 0   ? run_drawn<float>(same, fake, each)
                                      : each.type == 1 ? run_drawn<bf16>(same, fake, each)
                                                       : run_drawn<std::int64_t>(same, fake, each);
                   const std::lock_guard lock(mutex);
                   if (!mine.empty()) wrong = std::move(mine);
                 },
                 {.node_memory = each.in_node, .nccl = each.has_nccl});
    if (!wrong.empty()) RC_FAIL(wrong);
  }));
  EXPECT_EQ(fake.living(), 0U);
  EXPECT_GT(static_cast<FakeNccl&>(library.library()).operations(), 0);
}

}  // namespace
}  // namespace lockstep::test
