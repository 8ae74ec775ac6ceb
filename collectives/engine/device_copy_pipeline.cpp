// SPDX-License-Identifier: Apache-2.0
// Implements the copies of a call's data between GPU and host, piece by piece.
#include "collectives/engine/device_copy_pipeline.hpp"

#include <sched.h>

#include <algorithm>
#include <chrono>

#include "collectives/kernels/kernels.hpp"

namespace lockstep {
namespace {

// Bounds the downloads under way at once, a guess: enough to keep the GPU's copy engine busy.
constexpr std::size_t copies_ahead = 3;

// Divides and rounds up.
std::size_t up(std::size_t number, std::size_t by) { return (number + by - 1) / by; }

// Returns true for a local copy to the same place. If input and output are one buffer and nothing is multiplied, its
// data is there already.
bool stays(const LocalStep& local, int lap) {
  const Slice to = local.target.at(lap);
  const Slice from = local.left.at(lap);
  return local.kind == LocalStepKind::copy && to.space == Space::output && from.space == Space::input &&
         to.offset == from.offset;
}

// Calls use(slice, writes) for each slice that a round touches in a lap.
template <class Use>
void each_use(const Round& round, int lap, bool is_as_given, const Use& use) {
  for (const Message& each : round.sends) use(each.slice.at(lap), false);
  for (const Message& each : round.receives) use(each.slice.at(lap), true);
  for (const LocalStep& each : round.locals) {
    use(each.left.at(lap), false);
    if (each.kind == LocalStepKind::reduce) use(each.right.at(lap), false);
    if (!is_as_given || !stays(each, lap)) use(each.target.at(lap), true);
  }
  for (const IntraNodeStep& each : round.node_steps) {
    use(each.from, false);
    use(each.to, true);
  }
}

}  // namespace

std::size_t device_piece_bytes(const gpu::DeviceCosts& costs, std::size_t element_bytes) {
  constexpr std::uint64_t worth = 4;  // a piece takes 4 times as long as its start: a guess
  constexpr std::uint64_t line = 64;
  constexpr std::uint64_t most = 64U << 20U;
  const gpu::LinearCost slower = std::max(costs.down, costs.up, [](const gpu::LinearCost& a, const gpu::LinearCost& b) {
    return a.of(1U << 20U) < b.of(1U << 20U);
  });
  const std::uint64_t mib = 1U << 20U;
  const std::uint64_t bytes =
      slower.ns_per_mib == 0 ? most : std::clamp(worth * slower.ns * mib / slower.ns_per_mib, line, most);
  return up(bytes, line * element_bytes) * line * element_bytes;
}

// Returns true if the result is a mean. Then every read of a piece must come before its division, too.
bool DeviceCopyPipeline::divides() const { return plan().spec.op == ReduceOp::avg && plan().result.count > 0; }

bool DeviceCopyPipeline::multiplies() const {
  return plan().spec.op == ReduceOp::premul_sum && reduces(plan().spec.collective);
}

template <class Use>
void DeviceCopyPipeline::each_piece(const Slice& slice, std::size_t first, const Use& use) const {
  if (slice.count == 0 || slice.space == Space::scratch) return;
  const std::size_t begin = bytes_of(first + slice.offset);
  const std::size_t end = begin + bytes_of(slice.count);
  for (std::size_t piece = begin / buffers().piece; piece * buffers().piece < end; ++piece)
    use(static_cast<std::uint32_t>(piece));
}

// Goes through all rounds once. Finds the order in which they need pieces of the input, and how often they write each
// piece of the output.
void DeviceCopyPipeline::find_piece_uses() {
  const bool is_known = analyzed_plan_ == call_->plan && analyzed_piece_bytes_ == buffers().piece &&
                        analyzed_one_memory_ == buffers().is_one_memory;
  if (is_known) return;
  analyzed_plan_ = call_->plan;
  analyzed_piece_bytes_ = buffers().piece;
  analyzed_one_memory_ = buffers().is_one_memory;
  download_order_.clear();
  std::vector<bool> is_wanted(up(bytes_of(plan().input_count), buffers().piece));
  write_counts_.assign(up(bytes_of(plan().output_count), buffers().piece), 0);
  const auto want = [&](std::uint32_t piece) {
    if (piece >= is_wanted.size() || is_wanted[piece]) return;
    is_wanted[piece] = true;
    download_order_.push_back(piece);
  };
  for (int segment = 0; segment < plan().segments; ++segment) {
    const std::size_t first = static_cast<std::size_t>(segment) * plan().segment;
    for (const Round& round : plan().schedule_of(segment).rounds) {
      for (int lap = 0; lap < round.times; ++lap) {
        each_use(round, lap, is_as_given(), [&](const Slice& slice, bool writes) {
          const bool is_input = slice.space == Space::input;
          if (is_input || buffers().is_one_memory) each_piece(slice, first, want);
          if (!is_input && (writes || divides()))
            each_piece(slice, first, [&](std::uint32_t piece) { ++write_counts_[piece]; });
        });
      }
    }
  }
}

void DeviceCopyPipeline::begin(gpu::CopyStreams& copy_streams, const Call& call) {
  copy_streams_ = &copy_streams;
  call_ = &call;
  find_piece_uses();
  input_.assign(up(bytes_of(plan().input_count), buffers().piece), DownloadState::not_started);
  writes_left_ = write_counts_;
  next_download_ = downloads() ? 0 : download_order_.size();
  downloads_.clear();
  uploads_.clear();
  copy_streams.begin(buffers().input_device, buffers().output_device);
  begin_downloads();
}

void DeviceCopyPipeline::begin_downloads() {
  while (next_download_ < download_order_.size() && downloads_.size() < copies_ahead) {
    const std::uint32_t piece = download_order_[next_download_++];
    const std::size_t at = piece * buffers().piece;
    const std::size_t bytes = std::min(buffers().piece, bytes_of(plan().input_count) - at);
    const int device = buffers().input_device;
    const gpu::Stream down = copy_streams_->down(device);
    auto* const to = const_cast<std::byte*>(static_cast<const std::byte*>(call_->input)) + at;
    gpu::backend()->begin_copy(device, to, buffers().input + at, bytes, down);
    input_[piece] = DownloadState::under_way;
    downloads_.push_back({piece, gpu::backend()->mark(device, down)});
  }
}

void DeviceCopyPipeline::finish_download(std::uint32_t piece) {
  input_[piece] = DownloadState::arrived;
  if (!multiplies()) return;
  const std::size_t at = piece * buffers().piece;
  const std::size_t bytes = std::min(buffers().piece, bytes_of(plan().input_count) - at);
  auto* const here = const_cast<std::byte*>(static_cast<const std::byte*>(call_->input)) + at;
  scale(plan().spec.type, here, here, bytes / plan().spec.element_bytes, call_->factor);
}

bool DeviceCopyPipeline::advance() {
  bool moved = false;
  for (; !downloads_.empty() && downloads_.front().mark->is_reached(); downloads_.pop_front(), moved = true)
    finish_download(downloads_.front().piece);
  if (moved) begin_downloads();
  for (; !uploads_.empty() && uploads_.front()->is_reached(); uploads_.pop_front()) moved = true;
  return moved;
}

bool DeviceCopyPipeline::is_ready(const Round& round, int lap, std::size_t first) const {
  if (!downloads()) return true;
  bool is_here = true;
  each_use(round, lap, is_as_given(), [&](const Slice& slice, bool /*writes*/) {
    if (slice.space == Space::input || buffers().is_one_memory)
      each_piece(slice, first, [&](std::uint32_t piece) {
        is_here = is_here && (piece >= input_.size() || input_[piece] == DownloadState::arrived);
      });
  });
  return is_here;
}

void DeviceCopyPipeline::done(const Round& round, int lap, std::size_t first) {
  if (!uploads()) return;
  each_use(round, lap, is_as_given(), [&](const Slice& slice, bool writes) {
    if (slice.space != Space::output || (!writes && !divides())) return;
    each_piece(slice, first, [&](std::uint32_t piece) {
      if (--writes_left_[piece] == 0) begin_upload(piece);
    });
  });
}

void DeviceCopyPipeline::begin_upload(std::uint32_t piece) {
  const std::size_t at = piece * buffers().piece;
  const std::size_t bytes = std::min(buffers().piece, bytes_of(plan().output_count) - at);
  std::byte* const from = static_cast<std::byte*>(call_->output) + at;
  if (divides()) divide(plan().spec.type, from, from, bytes / plan().spec.element_bytes, plan().size);
  const int device = buffers().output_device;
  const gpu::Stream up = copy_streams_->up(device);
  gpu::backend()->begin_copy(device, buffers().output + at, from, bytes, up);
  uploads_.push_back(gpu::backend()->mark(device, up));
}

bool DeviceCopyPipeline::abandon() noexcept {
  if (!is_on()) return true;
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(1);
  try {
    std::vector<std::shared_ptr<gpu::StreamMark>> marks;
    if (downloads())
      marks.push_back(gpu::backend()->mark(buffers().input_device, copy_streams_->down(buffers().input_device)));
    if (uploads())
      marks.push_back(gpu::backend()->mark(buffers().output_device, copy_streams_->up(buffers().output_device)));
    end();
    while (!std::ranges::all_of(marks, [](const auto& mark) { return mark->is_reached(); })) {
      if (std::chrono::steady_clock::now() > limit) return false;
      ::sched_yield();
    }
    return true;
  } catch (const std::exception&) {
    end();
    return false;  // the state of a GPU that has failed is unknown
  }
}

}  // namespace lockstep
