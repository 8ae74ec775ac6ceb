// SPDX-License-Identifier: Apache-2.0
// Measures the times of work on a GPU with two sizes, once per device.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>

#include "collectives/gpu/combining.hpp"
#include "collectives/gpu/device_backend.hpp"
#include "topology/base/error.hpp"

namespace lockstep::gpu {
namespace {

// Set the two sizes that are measured; all measurements together take a few milliseconds.
constexpr std::size_t small_bytes = 4096;
constexpr std::size_t large_bytes = 1U << 20U;

std::uint32_t whole(double value) {
  constexpr double most = std::numeric_limits<std::uint32_t>::max();
  return static_cast<std::uint32_t>(std::clamp(std::round(value), 0.0, most));
}

// Returns the line through two measurements.
LinearCost cost_of(double small_us, double large_us) {
  constexpr double mib = 1U << 20U;
  const double per_byte = std::max(0.0, large_us - small_us) / (large_bytes - small_bytes);
  return {.ns = whole(1e3 * (small_us - per_byte * small_bytes)), .ns_per_mib = whole(1e3 * per_byte * mib)};
}

// Describes a combination that reads and writes so many bytes in all, in four equal parts.
CombineArguments combining(std::byte* memory, std::size_t bytes) {
  constexpr std::size_t parts = 4;
  const std::size_t part = bytes / parts;
  CombineArguments all{};
  for (std::size_t i = 0; i < 2; ++i) {
    all.inputs[i] = memory + i * part;
    all.outputs[i] = memory + (2 + i) * part;
  }
  all.input_count = all.output_count = 2;
  all.count = part / size_of(DataType::f32);
  all.op = ReduceOp::sum;
  all.is_aligned = true;
  return all;
}

}  // namespace

double DeviceBackend::now_us() const {
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

DeviceCosts DeviceBackend::costs(int device) {
  const std::lock_guard lock(measuring_);
  costs_.resize(static_cast<std::size_t>(std::max(devices(), device + 1)));
  auto& known = costs_[static_cast<std::size_t>(device)];
  if (known) return *known;
  try {
    known = measure_costs(device);
  } catch (const Error&) {
    known = DeviceCosts{};
  }
  return *known;
}

std::shared_ptr<std::byte> DeviceBackend::allocate_for_a_moment(int device, std::size_t bytes) {
  return {allocate(device, bytes), [this, device](std::byte* memory) { free(device, memory); }};
}

DeviceCosts DeviceBackend::measure_costs(int device) {
  const std::shared_ptr<std::byte> there = allocate_for_a_moment(device, 2 * large_bytes);
  const std::shared_ptr<std::byte> here = pinned(large_bytes);
  // Takes the best of five runs, after one that warms up.
  const auto time = [&](const auto& work, std::size_t bytes) {
    constexpr int repetitions = 5;
    double best = std::numeric_limits<double>::max();
    for (int i = 0; i <= repetitions; ++i) {
      const double begin = now_us();
      work(bytes);
      if (i > 0) best = std::min(best, now_us() - begin);
    }
    return best;
  };
  const auto cost = [&](const auto& work) { return cost_of(time(work, small_bytes), time(work, large_bytes)); };
  const auto copies = [&](std::byte* to, std::byte* from) {
    return [this, device, to, from](std::size_t bytes) { copy(device, {to, 0}, {from, 0}, bytes, 1); };
  };
  std::byte* const one = there.get();
  return {.launch = cost([&](std::size_t bytes) { combine(device, DataType::f32, combining(one, bytes)); }),
          .copy = cost(copies(one + large_bytes, one)),
          .down = cost(copies(here.get(), one)),
          .up = cost(copies(one, here.get()))};
}

}  // namespace lockstep::gpu
