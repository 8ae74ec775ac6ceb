// SPDX-License-Identifier: Apache-2.0
// GPUs on which a process can be killed at a moment that is named: the tests' own, and those that the machine has.
#pragma once

#include <functional>
#include <memory>

#include "collectives/gpu/device_backend.hpp"
#include "tests/collectives/gpu/fake_gpus.hpp"

namespace lockstep::test {

class DeadlyGpus {
 public:
  using Moment = FakeGpus::Moment;

  DeadlyGpus() = default;
  virtual ~DeadlyGpus() = default;
  DeadlyGpus(const DeadlyGpus&) = delete;
  DeadlyGpus& operator=(const DeadlyGpus&) = delete;

  virtual void at(Moment moment, std::function<void()> hook) = 0;
  virtual void before_copies(std::function<void()> hook) = 0;
  // Work of the host's, in a stream.
  virtual void put(gpu::Stream stream, std::function<void()> work) = 0;
  // Allocations that nobody has freed.
  virtual std::size_t living() const = 0;
};

// In place of the process's own, for as long as it lives. Nothing, where it sees no GPU.
std::unique_ptr<DeadlyGpus> deadly_gpus_of_the_machine();

}  // namespace lockstep::test
