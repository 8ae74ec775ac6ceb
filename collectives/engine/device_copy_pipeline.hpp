// SPDX-License-Identifier: Apache-2.0
// Data in a GPU's memory, of a call whose rounds work on the host's. It goes in pieces: each comes from the GPU shortly
// before a round needs it, and a piece of the result goes there when no round will write it any more, while the rounds
// go on with the others. Each member does that by itself: what rounds need, and when, follows from its own schedule.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "collectives/gpu/copy_streams.hpp"
#include "collectives/node/call.hpp"

namespace lockstep {

// What of a call lies where, the same in all its starts. The call's own input and output are the host's memory that
// stands for it.
struct DeviceBuffers {
  static constexpr int nowhere = gpu::MemoryLocation::host;
  int input_device = nowhere;  // nowhere: the input, or the output, is the host's
  std::byte* input = nullptr;
  int output_device = nowhere;
  std::byte* output = nullptr;
  bool is_one_memory = false;  // input and output
  std::size_t piece = 0;       // bytes
  bool downloads() const { return input_device != nowhere; }
  bool uploads() const { return output_device != nowhere; }
};

// From where on copies are worth their beginnings, as measured on that GPU.
std::size_t device_piece_bytes(const gpu::DeviceCosts& costs, std::size_t element_bytes);

// One call's data on their way.
class DeviceCopyPipeline {
 public:
  // Begins the first copies of a call that has DeviceBuffers. The streams and the call stay until it is over.
  void begin(gpu::CopyStreams& copy_streams, const Call& call);
  bool is_on() const { return call_ != nullptr; }
  void end() { call_ = nullptr; }
  bool downloads() const { return is_on() && buffers().downloads(); }
  bool uploads() const { return is_on() && buffers().uploads(); }

  // As far as it goes; whether anything moved.
  bool advance();
  // Whether all is here that the rounds use in this lap, of the segment that begins at that element. (What they write
  // has to be here as well where it is one memory: what comes would lie on it.)
  bool is_ready(const Round& round, int lap, std::size_t first) const;
  // They have used it.
  void done(const Round& round, int lap, std::size_t first);
  // All of the result is where it belongs.
  bool has_uploaded() const { return uploads_.empty(); }
  // After a failure. False: copies have not ended soon, so that what they may touch has to stay.
  bool abandon() noexcept;

 private:
  enum class DownloadState : std::uint8_t { away, coming, here };
  struct Download {
    std::uint32_t piece;
    std::shared_ptr<gpu::StreamMark> mark;
  };
  const DeviceBuffers& buffers() const { return *call_->device_buffers; }
  const Plan& plan() const { return *call_->plan; }
  bool divides() const;
  bool multiplies() const;
  bool is_as_given() const { return buffers().is_one_memory && !multiplies(); }
  std::size_t bytes_of(std::size_t count) const { return count * plan().spec.element_bytes; }
  void look_through();
  void top_up();
  void finish_download(std::uint32_t piece);
  void begin_upload(std::uint32_t piece);
  template <class Use>
  void each_piece(const Slice& slice, std::size_t first, const Use& use) const;

  gpu::CopyStreams* copy_streams_ = nullptr;
  const Call* call_ = nullptr;
  std::shared_ptr<const Plan> looked_through_;
  std::size_t looked_by_ = 0;  // bytes of a piece in that look; another size needs another look
  bool looked_at_one_memory_ = false;
  std::vector<std::uint32_t> order_;  // of the input's pieces, as rounds need them
  std::vector<std::uint32_t> uses_;   // of the output's: slices of all rounds that write there
  std::vector<DownloadState> input_;
  std::vector<std::uint32_t> left_;
  std::size_t next_ = 0;  // to come, in that order
  std::deque<Download> downloads_;
  std::deque<std::shared_ptr<gpu::StreamMark>> uploads_;
};

}  // namespace lockstep
