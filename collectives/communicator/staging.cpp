// SPDX-License-Identifier: Apache-2.0
// Copies data to staging memory and back, on the host and on GPUs.
#include "collectives/communicator/staging.hpp"

#include <algorithm>
#include <cstring>
#include <vector>

#include "collectives/gpu/packing.hpp"
#include "collectives/kernels/copy.hpp"
#include "collectives/kernels/kernels.hpp"

namespace lockstep::detail {

StagingBuffer make_staging_buffer(std::size_t bytes, bool for_gpu) {
  if (for_gpu) return gpu::backend()->pinned(bytes);
  const auto memory = std::make_shared<std::vector<std::byte>>(bytes);
  return {memory, memory->data()};
}

namespace {

std::size_t bytes_of(const StagingCopy& copy) { return copy.data.count * copy.element_bytes; }

void change(const CopyTransform& transform, std::byte* to, const std::byte* from, std::size_t count) {
  if (transform.scales) scale(transform.type, to, from, count, transform.factor);
  if (transform.divisor != 0) divide(transform.type, to, transform.scales ? to : from, count, transform.divisor);
}

// Copies runs of a few bytes, such as a column of a matrix; `run` is known where it is compiled.
template <std::size_t run>
void copy_runs(std::byte* to, std::size_t to_stride, const std::byte* from, std::size_t from_stride,
               std::size_t blocks) {
  for (std::size_t block = 0; block < blocks; ++block)
    std::memcpy(to + block * to_stride, from + block * from_stride, run);
}

// Returns true if it has copied short runs on the host.
bool copy_short_runs(const StagingCopy& copy, bool in, std::size_t run) {
  auto* const data = static_cast<std::byte*>(copy.data.data);
  const std::size_t stride = copy.data.stride * copy.element_bytes;
  const auto with = [&](auto copy_all) {
    in ? copy_all(copy.staged, run, data, stride, copy.data.blocks)
       : copy_all(data, stride, copy.staged, run, copy.data.blocks);
    return true;
  };
  if (run == 4) return with(copy_runs<4>);
  if (run == 8) return with(copy_runs<8>);
  return run == 16 && with(copy_runs<16>);
}

void copy_one(const StagingCopy& copy, bool in) {
  const std::size_t count = copy.data.count / copy.data.blocks;
  const std::size_t run = count * copy.element_bytes;
  const std::size_t stride = copy.data.stride * copy.element_bytes;
  auto* const data = static_cast<std::byte*>(copy.data.data);
  const gpu::StridedRuns theirs{data, stride};
  const gpu::StridedRuns ours{copy.staged, run};
  if (copy.where.on_device()) {
    if (!in) change(copy.transform, copy.staged, copy.staged, copy.data.count);
    gpu::backend()->copy(copy.where.device, in ? ours : theirs, in ? theirs : ours, run, copy.data.blocks);
    if (in) change(copy.transform, copy.staged, copy.staged, copy.data.count);
    return;
  }
  if (!copy.transform.changes() && copy_short_runs(copy, in, run)) return;
  for (std::size_t block = 0; block < copy.data.blocks; ++block) {
    std::byte* const there = data + block * stride;
    std::byte* const here = copy.staged + block * run;
    if (copy.transform.changes())
      change(copy.transform, in ? here : there, in ? there : here, count);
    else
      copy_bytes(in ? here : there, in ? there : here, run);
  }
}

// True if the second copy continues the first, and one launch of a GPU can do both.
bool go_together(const StagingCopy& first, const StagingCopy& second) {
  const CopyTransform& transform = first.transform;
  const CopyTransform& other = second.transform;  // The factor may differ for each piece.
  return first.where.on_device() && first.where == second.where && first.data.contiguous() &&
         second.data.contiguous() && first.staged + bytes_of(first) == second.staged && transform.type == other.type &&
         transform.scales == other.scales && transform.divisor == other.divisor;
}

gpu::PackArguments packing_of(std::span<const StagingCopy> copies) {
  const CopyTransform& transform = copies.front().transform;
  gpu::PackArguments all;
  all.whole = copies.front().staged;
  all.begins[0] = 0;
  all.in_pieces = all.in_whole = transform.type;
  all.scales = transform.scales;
  all.divisor = transform.divisor;
  for (const StagingCopy& copy : copies) {
    all.pieces[all.count] = static_cast<std::byte*>(copy.data.data);
    all.factors[all.count] = copy.transform.factor;
    all.begins[all.count + 1] = all.begins[all.count] + bytes_of(copy);
    ++all.count;
  }
  return all;
}

// True if both sides are in GPU memory, so that the host cannot change elements on their way.
bool is_between_gpus(const StagingCopy& copy) { return copy.where.on_device() && gpu::where(copy.staged).on_device(); }

void copy(std::span<const StagingCopy> copies, bool in) {
  for (std::size_t first = 0; first < copies.size();) {
    std::size_t last = first + 1;
    while (last < copies.size() && last - first < gpu::most_pieces && go_together(copies[last - 1], copies[last]))
      ++last;
    if (last - first == 1 && !is_between_gpus(copies[first]))
      copy_one(copies[first], in);
    else
      gpu::backend()->pack(copies[first].where.device, packing_of(copies.subspan(first, last - first)), in);
    first = last;
  }
}

void begin_copy(std::span<const StagingCopy> copies, bool in, gpu::Stream stream) {
  while (!copies.empty()) {
    const std::size_t many = std::min<std::size_t>(copies.size(), gpu::most_pieces);
    gpu::backend()->begin_pack(copies.front().where.device, packing_of(copies.first(many)), in, stream);
    copies = copies.subspan(many);
  }
}

}  // namespace

void copy_in(std::span<const StagingCopy> copies) { copy(copies, true); }
void copy_back(std::span<const StagingCopy> copies) { copy(copies, false); }
void begin_copy_in(std::span<const StagingCopy> copies, gpu::Stream stream) { begin_copy(copies, true, stream); }
void begin_copy_back(std::span<const StagingCopy> copies, gpu::Stream stream) { begin_copy(copies, false, stream); }

}  // namespace lockstep::detail
