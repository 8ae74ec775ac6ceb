// SPDX-License-Identifier: Apache-2.0
// Measures a row by a GPU's own clock, as nccl-tests does. It puts many operations into a stream without waiting
// between them. It divides the time between a mark before the first and one behind the last by their number. Lockstep
// takes turns with NCCL's own operation, and with copies of as many bytes within the GPU's memory.
#pragma once

#include "bench/gpu_buffers.hpp"
#include "bench/measure.hpp"

namespace lockstep::bench {

// Owns a stream, and measures by the clock of its GPU.
class Stopwatch {
 public:
  explicit Stopwatch(int device);
  ~Stopwatch();
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;

  gpu::Stream stream() const { return stream_; }
  // Returns the time of one operation in microseconds, if `operations` of them are put into the stream. Throws Error
  // stall if they do not end.
  double time(std::uint64_t operations, const std::function<void()>& put) const;

 private:
  int device_;
  gpu::Stream stream_;
};

// Measures the stream row of a collective. All members make it together.
class StreamRow {
 public:
  // `nccl` may be null: then NCCL is not measured.
  StreamRow(Communicator& world, const Subject& subject, GpuBuffers& on, NcclBaseline* nccl);

  gpu::Stream stream() const { return watch_.stream(); }
  // Runs Lockstep's operation once, and returns when it is complete.
  void once();
  // Measures all candidates. `expected_us` is about the time of one operation, equal on all members.
  StreamTiming measure(const Effort& effort, std::uint64_t seed, double expected_us, bool& interrupted);

 private:
  void add(std::string name, std::function<void()> put);

  Communicator& world_;
  Subject subject_;
  std::size_t moved_;  // bytes of a member's buffers that the operation reads or writes
  std::uint64_t bytes_;
  Stopwatch watch_;
  std::function<void()> ours_;
  std::uint64_t operations_ = 1;
  std::vector<BenchCandidate> candidates_;
};

}  // namespace lockstep::bench
