// SPDX-License-Identifier: Apache-2.0
// Moves a call's data between GPU memory and host memory, where its rounds work. Data moves in pieces: a piece is
// downloaded shortly before a round needs it. A piece of the result is uploaded once no later round writes it, while
// the rounds go on. Each member does this by itself, because its own schedule tells when rounds need which piece.
//
// An operation owns it, so it is reused with the operation's slot. The streams belong to the Runner.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "collectives/gpu/copy_streams.hpp"
#include "collectives/node/call.hpp"

namespace lockstep {

// Describes the GPU buffers of a call; all its starts share it. The call's own input and output are then host memory
// that stands in for them.
struct DeviceBuffers {
  static constexpr int nowhere = gpu::MemoryLocation::host;
  // Names the GPU of the input or the output. `nowhere` means host memory.
  int input_device = nowhere;
  std::byte* input = nullptr;
  // Says the same of the output.
  int output_device = nowhere;
  std::byte* output = nullptr;
  // True if input and output are one buffer.
  bool is_one_memory = false;
  // Gives the size of a piece in bytes.
  std::size_t piece = 0;
  bool downloads() const { return input_device != nowhere; }
  bool uploads() const { return output_device != nowhere; }
};

// Returns the size of a piece in bytes. It is large enough that starting a copy costs little, by that GPU's measured
// costs. It is a multiple of 64 elements.
std::size_t device_piece_bytes(const gpu::DeviceCosts& costs, std::size_t element_bytes);

// Copies the data of one call.
class DeviceCopyPipeline {
 public:
  // Begins the first copies of a call that has DeviceBuffers. The streams and the call must stay until the call is
  // over.
  void begin(gpu::CopyStreams& copy_streams, const Call& call);
  // Returns true between begin() and end().
  bool is_on() const { return call_ != nullptr; }
  void end() { call_ = nullptr; }
  bool downloads() const { return is_on() && buffers().downloads(); }
  bool uploads() const { return is_on() && buffers().uploads(); }

  // Finishes copies that are complete, and begins the next ones. Returns true if anything moved. Never blocks.
  bool advance();
  // Returns true if all data that a round uses in this lap has arrived. `first` is the first element of its segment. If
  // input and output are one buffer, the data that the round writes must have arrived too: a later copy would overwrite
  // the result.
  bool is_ready(const Round& round, int lap, std::size_t first) const;
  // Reports that a round's lap is over. Begins uploads of the pieces that no later round writes.
  void done(const Round& round, int lap, std::size_t first);
  // Returns true if no upload is under way.
  bool has_uploaded() const { return uploads_.empty(); }
  // Gives up after a failure. Waits for copies under way for at most a second. Returns false if they have not ended by
  // then, so their memory must stay.
  bool abandon() noexcept;

 private:
  enum class DownloadState : std::uint8_t { not_started, under_way, arrived };
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
  void find_piece_uses();
  void begin_downloads();
  void finish_download(std::uint32_t piece);
  void begin_upload(std::uint32_t piece);
  template <class Use>
  void each_piece(const Slice& slice, std::size_t first, const Use& use) const;

  gpu::CopyStreams* copy_streams_ = nullptr;
  const Call* call_ = nullptr;
  // Remembers the plan that order_ and uses_ belong to.
  std::shared_ptr<const Plan> analyzed_plan_;
  // Remembers the size of a piece at the last find_piece_uses(). Another size needs another look.
  std::size_t analyzed_piece_bytes_ = 0;
  bool analyzed_one_memory_ = false;
  // Lists the pieces of the input in the order in which rounds need them.
  std::vector<std::uint32_t> download_order_;
  // Counts for each piece of the output how often rounds write it.
  std::vector<std::uint32_t> write_counts_;
  // Holds the state of each piece of the input.
  std::vector<DownloadState> input_;
  // Holds for each piece of the output the number of writes that are left.
  std::vector<std::uint32_t> writes_left_;
  // Gives the index in order_ of the next download.
  std::size_t next_download_ = 0;
  std::deque<Download> downloads_;
  std::deque<std::shared_ptr<gpu::StreamMark>> uploads_;
};

}  // namespace lockstep
