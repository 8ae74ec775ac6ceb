// SPDX-License-Identifier: Apache-2.0
// A row by a GPU's own clock, as nccl-tests measures: many operations are put into a stream one after the other,
// nothing is waited for between them, and the time between a mark before the first and one behind the last is divided
// by how many they are. Ours in turns with NCCL's own, and with copies of as many bytes within the GPU's memory.
#pragma once

#include "bench/gpu_buffers.hpp"
#include "bench/measure.hpp"

namespace lockstep::bench {

// A stream, and its GPU's clock.
class Stopwatch {
 public:
  explicit Stopwatch(int device);
  ~Stopwatch();
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;

  gpu::Stream stream() const { return stream_; }
  // Of one operation, in microseconds, when as many are put into the stream. Throws Error stall where they do not end.
  double time(std::uint64_t operations, const std::function<void()>& put) const;

 private:
  int device_;
  gpu::Stream stream_;
};

// Of a collective; all members make it.
class StreamRow {
 public:
  // With no NCCL where there is none to measure.
  StreamRow(Communicator& world, const Subject& subject, GpuBuffers& on, NcclBaseline* nccl);

  // Ours once more, on the same data in other memory; ahead of measure().
  void add_symmetric(const GpuBuffers& on);
  gpu::Stream stream() const { return watch_.stream(); }
  // Ours, once; done when it returns.
  void once();
  // `expected_us`: about what one takes, the same for all members.
  StreamTiming measure(const Effort& effort, std::uint64_t seed, double expected_us, bool& interrupted);

 private:
  void add(std::string name, std::function<void()> put);

  Communicator& world_;
  Subject subject_;
  std::size_t moved_;  // bytes of a member's buffers, which are read or written
  std::uint64_t bytes_;
  Stopwatch watch_;
  std::function<void()> ours_;
  std::uint64_t operations_ = 1;
  std::vector<BenchCandidate> candidates_;
};

}  // namespace lockstep::bench
