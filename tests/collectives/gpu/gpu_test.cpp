// SPDX-License-Identifier: Apache-2.0
// Data in GPUs' memory is recognised in every call, beside members whose data the host has.
#include <gtest/gtest.h>

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <optional>

#include "collectives/gpu/combining.hpp"
#include "tests/collectives/communicator/members.hpp"
#include "tests/collectives/gpu/with_gpus.hpp"
#include "tests/support/lacks.hpp"
#include "tests/support/refusal.hpp"

namespace lockstep::test {
namespace {

void expect_refusal(const std::function<void()>& call, Code code, std::initializer_list<std::string_view> parts) {
  const std::string why = refusal(call, code);
  for (const std::string_view part : parts) EXPECT_NE(why.find(part), std::string::npos) << why;
}

// With GPUs of our own making.
class FakeGpu : public WithGpus<2> {};

enum class Kind : std::uint8_t { fake, real };
std::ostream& operator<<(std::ostream& out, Kind kind) { return out << (kind == Kind::fake ? "fake" : "real"); }

// With those, and with what the machine has.
class Gpu : public testing::TestWithParam<Kind> {
 protected:
  void SetUp() override {
    if (GetParam() == Kind::fake)
      instead_.emplace(std::make_unique<FakeGpus>(2));
    else if (gpu::backend() == nullptr)
      GTEST_SKIP() << lacks(text("needs a GPU; ", gpu::why_none()));
  }
  static int last() { return gpu::backend()->devices() - 1; }

 private:
  std::optional<gpu::BackendOverride> instead_;
};

INSTANTIATE_TEST_SUITE_P(Layers, Gpu, testing::Values(Kind::fake, Kind::real), testing::PrintToStringParamName());

TEST_P(Gpu, MemoryIsHadAndFilled) {
  {
    DeviceVector<int> there(counting(1000, 7), last());
    EXPECT_EQ(there.size(), 1000U);
    EXPECT_EQ(there.device(), last());
    EXPECT_EQ(on_host(there), counting(1000, 7));
    EXPECT_EQ(gpu::where(there.data() + 999), gpu::MemoryLocation{last()});
    EXPECT_EQ(gpu::where(&there), gpu::MemoryLocation{});
    DeviceVector<int> moved = std::move(there);
    EXPECT_EQ(there.size(), 0U);
    EXPECT_EQ(on_host(moved).back(), 1006);
    DeviceVector<int> other(1000, 0);
    other.copy_from(moved);
    EXPECT_EQ(on_host(other), counting(1000, 7));
    expect_refusal([&] { other.copy_from(counting(3, 0)); }, Code::usage, {"3 elements", "DeviceVector of 1000"});
  }
  EXPECT_EQ(DeviceVector<int>(0).data(), nullptr);
  for (const int nowhere : {last() + 1, 99, -1})
    expect_refusal([&] { DeviceVector<int>(10, nowhere); }, Code::device,
                   {text("memory of GPU ", nowhere), text("sees ", last() + 1), "CUDA_VISIBLE_DEVICES"});
  expect_refusal([] { DeviceVector<double>(std::size_t{1} << 62U); }, Code::usage, {"more than any memory holds"});
}

TEST_F(FakeGpu, MemoryIsFreedWithItsOwner) {
  {
    DeviceVector<int> there(1000, 1);
    const DeviceVector<int> moved = std::move(there);
    there = DeviceVector<int>(10);
    EXPECT_EQ(gpus().living(), 2U);
    there = DeviceVector<int>(20);
    EXPECT_EQ(gpus().living(), 2U);
  }
  EXPECT_EQ(gpus().living(), 0U);
}

// Else the tests would show nothing.
TEST_F(FakeGpu, MemoryIsOutOfReachOfTheHost) {
  const DeviceVector<int> there(10);
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe(ends.data()), 0);
  EXPECT_EQ(::write(ends[1], there.data(), 1), -1);
  for (const int each : ends) ::close(each);
}

TEST(NoGpu, IsSaidWhereMemoryOfOneIsAskedFor) {
  if (gpu::backend() != nullptr) GTEST_SKIP() << lacks("needs a machine without a GPU");
  EXPECT_NE(gpu::why_none(), "");
  expect_refusal([] { DeviceVector<int>(10); }, Code::device, {"memory of GPU 0", gpu::why_none()});
  EXPECT_EQ(gpu::where(this), gpu::MemoryLocation{});
}

// Where a call has nothing to write it leaves what is there: between blocks, behind them, and where it does not look.
TEST_P(Gpu, LeavesOtherElementsAlone) {
  for (const bool node_memory : {true, false}) {
    const auto check = [&](Communicator& world) {
      const auto me = static_cast<std::size_t>(world.rank());
      const std::size_t each = 1000;
      const std::vector<std::size_t> counts(3, each);
      const std::vector<std::size_t> offsets{2 * each + 20, each + 10, 0};
      const std::vector<int> before = counting(3 * each + 50, 100'000);
      const DeviceVector<int> in(counting(each, world.rank()), last());
      const auto gathered = [&] {
        std::vector<int> all = before;
        for (std::size_t i = 0; i < 3; ++i)
          std::ranges::copy(counting(each, static_cast<int>(i)), all.begin() + static_cast<std::ptrdiff_t>(offsets[i]));
        return all;
      };
      DeviceVector<int> out(before, last());
      world.all_gather_v(in, out, counts, offsets);
      EXPECT_EQ(on_host(out), gathered());
      std::vector<int> here = before;
      world.all_gather_v(in, here, counts, offsets);
      EXPECT_EQ(here, gathered());
      out.copy_from(before);
      world.gather_v(in, out, counts, 1, offsets);
      EXPECT_EQ(on_host(out), me == 1 ? gathered() : before);
      out.copy_from(before);
      const std::vector<std::size_t> tens(3, 10);
      world.all_to_all_v(in, tens, out, tens, std::vector<std::size_t>{0, 10, 20}, offsets);
      std::vector<int> swapped = before;
      for (std::size_t i = 0; i < 3; ++i)
        std::ranges::copy(counting(10, static_cast<int>(i + 10 * me)),
                          swapped.begin() + static_cast<std::ptrdiff_t>(offsets[i]));
      EXPECT_EQ(on_host(out), swapped);
      DeviceVector<int> same(on_host(in), last());
      std::vector<int> turned = on_host(in);
      const std::vector<std::size_t> back = {20, 10, 0};
      for (std::size_t i = 0; i < 3; ++i)
        std::ranges::copy(counting(10, static_cast<int>(i + 10 * me)),
                          turned.begin() + static_cast<std::ptrdiff_t>(back[i]));
      world.all_to_all_v(same, tens, same, tens, std::vector<std::size_t>{0, 10, 20}, back);
      EXPECT_EQ(on_host(same), turned) << "in place";
      DeviceVector<int> part(counting(each, 7), last());
      world.exscan(in, part, sum);
      if (me == 0) {
        EXPECT_EQ(on_host(part), counting(each, 7));
      }
      part.copy_from(counting(each, 7));
      world.reduce(in, part, max, 2);
      if (me != 2) {
        EXPECT_EQ(on_host(part), counting(each, 7));
      }
    };
    with_members(3, check, {.node_memory = node_memory});
  }
}

TEST_P(Gpu, ColumnsAndMessagesTravel) {
  with_members(3, [](Communicator& world) {
    const int n = world.size();
    const int right = (world.rank() + 1) % n;
    const int left = (world.rank() + n - 1) % n;
    DeviceVector<int> matrix(counting(60, 100 * world.rank()));
    world.all_reduce(StridedBuffer<int>{matrix.data() + 2, 10, 6, 2}, sum);
    EXPECT_EQ(on_host(matrix)[8], 3 * 8 + 300);
    EXPECT_EQ(on_host(matrix)[10], 100 * world.rank() + 10);
    DeviceVector<int> in(20);
    world.sendrecv(DeviceVector<int>(counting(20, world.rank())), right, in, left);
    EXPECT_EQ(on_host(in), counting(20, left));
    std::vector<int> here(10);
    const auto column = [&](int at) { return StridedBuffer<int>{matrix.data() + at, 10, 6}; };
    matrix.copy_from(counting(60, 100 * world.rank()));
    auto sent = world.send_async(column(1), right, 4);
    world.recv(here, left, 4);
    sent.wait();
    EXPECT_EQ(here[9], 100 * left + 55);
    sent = world.send_async(here, right, 5);
    world.recv(column(0), left, 5);
    sent.wait();
    EXPECT_EQ(on_host(matrix)[54], 100 * ((left + n - 1) % n) + 55);
    EXPECT_EQ(on_host(matrix)[55], 100 * world.rank() + 55);
  });
}

// Of floats whose sum depends on the order, and of 16-bit ones; at places that vectors fit, and others.
template <class T, class Op>
void expect_the_hosts_bits(Communicator& world, std::size_t skip, std::span<const T> in, Op op) {
  const std::size_t count = in.size();
  const std::size_t block = count / static_cast<std::size_t>(world.size());
  const DeviceVector<T> memory(count + skip);
  const std::span<T> there = memory.span().subspan(skip);
  gpu::copy(0, reinterpret_cast<std::byte*>(there.data()), reinterpret_cast<const std::byte*>(in.data()),
            in.size_bytes());
  const DeviceVector<T> result(count + skip);
  const std::span<T> out = result.span().subspan(skip);
  std::vector<T> right(count);
  const auto expect = [&](std::size_t written, std::string_view what) {
    std::vector<T> here(result.size());
    result.copy_to(here);
    EXPECT_TRUE(std::ranges::equal(std::span(here).subspan(skip, written), std::span(right).first(written)))
        << what << ' ' << to_string(Op::op) << ' ' << to_string(world.order()) << skip;
  };
  world.all_reduce(in, right, op);
  world.all_reduce(there, out, op);
  expect(count, "all_reduce");
  world.reduce_scatter(in, std::span(right).first(block), op);
  world.reduce_scatter(there, out.first(block), op);
  expect(block, "reduce_scatter");
  world.reduce(in, right, op, 2);
  world.reduce(there, out, op, 2);
  if (world.rank() == 2) expect(count, "reduce");
}

template <class T>
void expect_the_hosts_bits() {
  with_members(5, [](Communicator& world) {
    constexpr std::size_t count = 4000;
    std::vector<T> mine(count);
    for (std::size_t i = 0; i < count; ++i)
      mine[i] = T(std::ldexp(static_cast<float>((i * 31 + static_cast<std::size_t>(world.rank()) * 17) % 101),
                             static_cast<int>(i * 7 + static_cast<std::size_t>(world.rank()) * 5) % 12));
    Communicator tree = world.reproducible();
    for (Communicator* each : {&world, &tree}) {
      for (const std::size_t skip : {0UL, 1UL}) {
        expect_the_hosts_bits<T>(*each, skip, mine, sum);
        expect_the_hosts_bits<T>(*each, skip, mine, avg);
        expect_the_hosts_bits<T>(*each, skip, mine, premul_sum(0.3 * world.rank() - 1));
      }
    }
  });
}

TEST_P(Gpu, GivesTheBitsOfTheHost) {
  expect_the_hosts_bits<float>();
  expect_the_hosts_bits<double>();
  expect_the_hosts_bits<bf16>();
  expect_the_hosts_bits<std::int64_t>();
}

// Threads whose data are all on one GPU: nothing is copied to the host.
TEST_F(FakeGpu, ReducesWhereTheDataLie) {
  with_members(4, [&](Communicator& world) {
    constexpr std::size_t count = 3000;
    DeviceVector<int> data(counting(count, world.rank()));
    DeviceVector<int> all(4 * count);
    DeviceVector<int> block(count);
    world.barrier();
    const int before = gpus().copies();
    world.barrier();
    world.all_reduce(data, sum);
    world.reproducible().all_reduce(data, max);
    world.reduce(data, sum, 2);
    world.barrier();
    EXPECT_EQ(gpus().copies(), before);
    EXPECT_EQ(gpus().launches(), 3);
    world.barrier();
    world.all_gather(data, all);
    world.reduce_scatter(all, block, sum);
    world.barrier();
    EXPECT_EQ(gpus().launches(), 3 + 4);
    EXPECT_EQ(gpus().copies(), before + 4 * 4);
    EXPECT_EQ(gpus().pinnings(), 0);
    world.barrier();
    const int sums = 4 * static_cast<int>(count - 1) + 6;
    EXPECT_EQ(on_host(block)[count - 1], 4 * (world.rank() == 2 ? 4 * sums : sums));
  });
}

// By the launch that combines, each part by the factor of its member.
TEST_F(FakeGpu, MultipliesAndDividesWhereTheDataLie) {
  with_members(3, [&](Communicator& world) {
    constexpr std::size_t count = 6000;
    const int me = world.rank();
    DeviceVector<int> mean(counting(count, me));
    DeviceVector<int> weighed(counting(count, me));
    DeviceVector<int> at_root(counting(count, me));
    DeviceVector<int> block(count / 3);
    world.barrier();
    const int before = gpus().copies();
    world.barrier();
    world.all_reduce(mean, avg);
    world.reproducible().all_reduce(weighed, premul_sum(me + 1));
    world.reduce(at_root, premul_sum(10 * me), 1);
    world.all_reduce_async(at_root, avg).wait();
    world.barrier();
    EXPECT_EQ(gpus().launches(), 4);
    world.barrier();
    world.reduce_scatter(weighed, block, premul_sum(me - 1));
    world.barrier();
    EXPECT_EQ(gpus().launches(), 4 + 3);
    EXPECT_EQ(gpus().copies(), before);
    EXPECT_EQ(gpus().pinnings(), 0);
    world.barrier();
    EXPECT_EQ(on_host(mean), counting(count, 1));
    EXPECT_EQ(on_host(weighed)[5999], 6 * 5999 + 2 + 6);
    EXPECT_EQ(on_host(block), std::vector<int>(count / 3));
    EXPECT_EQ(on_host(at_root)[5999], (5999 + 5999 * 30 + 10 + 40 + 5999 + 2) / 3);
  });
}

TEST_F(FakeGpu, MemoryForStagingIsKept) {
  with_members(2, [](Communicator& world) {
    DeviceVector<float> data(1000);
    const auto own = commutative([](float a, float b) { return a + b; });
    for (int turn = 0; turn < 50; ++turn) world.all_reduce(data, own);
  });
  EXPECT_LE(gpus().pinnings(), 2);
  EXPECT_GE(gpus().copies(), 200);
}

}  // namespace
}  // namespace lockstep::test
