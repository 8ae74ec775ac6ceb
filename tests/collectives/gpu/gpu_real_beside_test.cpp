// SPDX-License-Identifier: Apache-2.0
// What runs beside what on a real GPU, and behind what: kernels of a program's own in ordinary streams and in the
// default one, calls that name no stream, NCCL, and gradients that become ready in a backward pass. The times are
// printed, for people; the results are checked. Skipped, aloud, where there is no such GPU.
#include <algorithm>
#include <chrono>
#include <deque>
#include <iostream>

#include "collectives/nccl/library.hpp"
#include "runtime/gradient_reducer.hpp"
#include "tests/collectives/communicator/members.hpp"
#include "tests/collectives/gpu/own_kernel.hpp"
#include "tests/collectives/gpu/real_gpu.hpp"

namespace lockstep::test {
namespace {

class RealDefaultStream : public RealGpu {};
class RealBeside : public RealGpu {
 protected:
  void SetUp() override {
    RealGpu::SetUp();
    if (IsSkipped()) return;
    if (gpu::backend()->devices() < 2) GTEST_SKIP() << lacks("needs two GPUs");
    if (nccl::library() == nullptr) GTEST_SKIP() << lacks("needs NCCL; " + nccl::why_none());
  }
};

double ms_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
}

template <class What>
double median_ms(int times, const What& what) {
  std::vector<double> all;
  for (int i = 0; i < times; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    what();
    all.push_back(ms_since(begin));
  }
  std::ranges::nth_element(all, all.begin() + times / 2);
  return all[static_cast<std::size_t>(times / 2)];
}

// Kernels of some milliseconds, in a stream of the thread's GPU.
class Busy {
 public:
  explicit Busy(int device) : data_(std::vector<Affine>(4'000'000, Affine{3, 5}), device) {}
  void put_into(cudaStream_t stream, int kernels) {
    for (int i = 0; i < kernels; ++i) launch_after(data_.data(), data_.data(), data_.data(), data_.size(), stream);
  }

 private:
  DeviceVector<Affine> data_;
};

// A call that went before what an ordinary stream was given would find, and leave, something else.
TEST_F(RealDefaultStream, ComesAfterOrdinaryOnes) {
  for (const std::size_t count : {std::size_t{10}, std::size_t{300'000}}) {
    with_members(2, [&](Communicator& world) {
      const gpu::DeviceGuard on(0);
      const CudaStream stream(cudaStreamDefault);
      Busy busy(0);
      const Plain data(count);
      const Pinned old(Numbers(count, -1));
      for (int turn = 0; turn < 10; ++turn) {
        const Pinned given(counting(count, turn + world.rank()));
        old.put_into(data.span(), stream.get());
        stream.wait();
        busy.put_into(stream.get(), 50);
        given.put_into(data.span(), stream.get());
        world.all_reduce(data.span(), sum);
        Pinned found(Numbers(count, 0));
        found.take_from(data.span(), stream.get());
        stream.wait();
        Numbers right = counting(count, 0);
        for (std::int32_t& each : right) each = 2 * (each + turn) + 1;
        EXPECT_EQ(found.values(), right) << turn;
      }
    });
  }
}

// What the event in the default stream adds to a copy of little, which cudaMemcpy orders by itself.
TEST_F(RealDefaultStream, CostsASmallCopy) {
  DeviceVector<int> there(std::vector<int>{7}, 0);
  int here = 0;
  const double ours = median_ms(1000, [&] { there.copy_to(std::span(&here, 1)); });
  EXPECT_EQ(here, 7);
  const gpu::DeviceGuard on(0);
  const double cudas =
      median_ms(1000, [&] { well(cudaMemcpy(&here, there.data(), sizeof here, cudaMemcpyDeviceToHost)); });
  std::cout << text("4 bytes to the host: ", 1000 * ours, " us, by cudaMemcpy ", 1000 * cudas, " us\n");
}

// Kernels that are put into the default stream behind a plan's start need not wait for NCCL.
TEST_F(RealBeside, IsTheDefaultStream) {
  with_members(2, [](Communicator& world) {
    const gpu::DeviceGuard on(world.rank());
    Busy busy(world.rank());
    DeviceVector<float> data(std::vector<float>(std::size_t{32} << 20U, 1.F), world.rank());
    auto plan = world.plan_all_reduce(data, max);
    for (int i = 0; i < 3; ++i) plan.run();
    int kernels = 100;
    const auto pass = [&] {
      busy.put_into(nullptr, kernels);
      well(cudaStreamSynchronize(nullptr));
    };
    const double reduction = median_ms(9, [&] { plan.run(); });
    kernels = std::max(1, static_cast<int>(kernels * reduction / median_ms(9, pass)));
    const double alone = median_ms(9, pass);
    world.barrier();
    double kernels_done = 0;
    const double together = median_ms(9, [&] {
      const auto begin = std::chrono::steady_clock::now();
      Request request = plan.start();
      pass();
      kernels_done = ms_since(begin);
      request.wait();
    });
    std::vector<float> found(data.size());
    data.copy_to(found);
    EXPECT_EQ(found, std::vector<float>(data.size(), 1.F));
    if (world.rank() == 0)
      std::cout << text("all_reduce of 128 MiB: ", reduction, " ms, kernels ", alone, " ms, both ", together,
                        " ms, of which the kernels were done after ", kernels_done, " ms\n");
  });
}

// Layers of which each takes a while, with a gradient of 4 MiB: how much of NCCL's time the pass hides where gradients
// name the stream that makes them, and where they do not.
TEST_F(RealBeside, IsABackwardPass) {
  constexpr int layers = 40;
  constexpr std::size_t floats = std::size_t{1} << 20U;
  const int replicas = std::min(gpu::backend()->devices(), 4);
  std::vector<std::string> devices;
  for (int i = 0; i < replicas; ++i) devices.push_back(text("gpu:", i));
  MirroredStrategy strategy(devices);
  std::vector<GradientSpec> specs;
  for (int i = 0; i < layers; ++i) specs.push_back({text("layer", i), DataType::f32, floats});
  GradientReducer reducer(strategy, specs, {});
  strategy.run([&](ReplicaContext& context) {
    const int device = context.local_id();
    const CudaStream stream;
    Busy busy(device);
    std::deque<DeviceVector<float>> gradients;
    for (int i = 0; i < layers; ++i) gradients.emplace_back(std::vector<float>(floats, 1.F), device);
    const auto meet = [&] { context.merge_call([](Strategy&, const PerReplica<int>&) {}, 0); };
    enum class Names : std::uint8_t { its_stream, none };
    const auto step = [&](int kernels, bool reduces, Names names) {
      meet();
      return median_ms(1, [&] {
        if (!reduces) {
          busy.put_into(stream.get(), kernels * layers);
          return stream.wait();
        }
        GradientReducer::BackwardPass pass(reducer, context);
        for (int i = layers - 1; i >= 0; --i) {
          busy.put_into(stream.get(), kernels);
          const std::span<float> gradient = gradients[static_cast<std::size_t>(i)].span();
          if (names == Names::its_stream) {
            pass.ready(i, gradient, stream.get());
          } else {
            stream.wait();
            pass.ready(i, gradient);
          }
        }
        pass.finish();
        stream.wait();
      });
    };
    const auto median_of = [&](int kernels, bool reduces, Names names) {
      std::vector<double> all;
      for (int i = 0; i < 9; ++i) all.push_back(step(kernels, reduces, names));
      std::ranges::nth_element(all, all.begin() + 4);
      return all[4];
    };
    for (int i = 0; i < 3; ++i) step(1, true, Names::its_stream);
    const double reduction = median_of(0, true, Names::its_stream);
    // All alike: as long as the reduction, by the slowest one's clock.
    const double wanted = context.all_reduce(reduction / median_of(1, false, Names::none), max);
    const int kernels = std::max(1, static_cast<int>(wanted));
    const double pass = median_of(kernels, false, Names::none);
    const double named = median_of(kernels, true, Names::its_stream);
    const double waited = median_of(kernels, true, Names::none);
    if (device == 0) {
      const double most = std::min(pass, reduction);
      std::cout << text(layers, " gradients of 4 MiB on ", replicas, " GPUs: reduced alone ", reduction,
                        " ms, the pass alone ", pass, " ms, together ", named,
                        " ms (hidden: ", (pass + reduction - named) / most, "), where the host waits for each ", waited,
                        " ms (", (pass + reduction - waited) / most, ")\n");
    }
    std::vector<float> found(floats);
    gradients[0].copy_to(found);
    EXPECT_TRUE(std::ranges::all_of(found, [&](float each) { return each == found[0]; }));
    EXPECT_GT(found[0], 1.F);
  });
}

}  // namespace
}  // namespace lockstep::test
