// SPDX-License-Identifier: Apache-2.0
#include "collectives/communicator/staging.hpp"

#include <algorithm>
#include <vector>

#include "collectives/gpu/packing.hpp"
#include "collectives/kernels/copy.hpp"
#include "collectives/kernels/kernels.hpp"

namespace lockstep::detail {

Staged make_staged(std::size_t bytes, bool for_gpu) {
  if (for_gpu) return gpu::layer()->pinned(bytes);
  const auto memory = std::make_shared<std::vector<std::byte>>(bytes);
  return {memory, memory->data()};
}

namespace {

std::size_t bytes_of(const Copy& copy) { return copy.data.count * copy.element_bytes; }

void change(const OnTheWay& way, std::byte* to, const std::byte* from, std::size_t count) {
  if (way.scales) scale(way.type, to, from, count, way.factor);
  if (way.divisor != 0) divide(way.type, to, way.scales ? to : from, count, way.divisor);
}

void copy_one(const Copy& copy, bool in) {
  const std::size_t count = copy.data.count / copy.data.blocks;
  const std::size_t run = count * copy.element_bytes;
  const std::size_t stride = copy.data.stride * copy.element_bytes;
  auto* const data = static_cast<std::byte*>(copy.data.data);
  const gpu::Runs theirs{data, stride};
  const gpu::Runs ours{copy.staged, run};
  if (copy.where.on_device()) {
    if (!in) change(copy.way, copy.staged, copy.staged, copy.data.count);
    gpu::layer()->copy(copy.where.device, in ? ours : theirs, in ? theirs : ours, run, copy.data.blocks);
    if (in) change(copy.way, copy.staged, copy.staged, copy.data.count);
    return;
  }
  for (std::size_t block = 0; block < copy.data.blocks; ++block) {
    std::byte* const there = data + block * stride;
    std::byte* const here = copy.staged + block * run;
    if (copy.way.changes())
      change(copy.way, in ? here : there, in ? there : here, count);
    else
      copy_bytes(in ? here : there, in ? there : here, run);
  }
}

// Whether the second is where the first ends, and a GPU can do both at once.
bool go_together(const Copy& first, const Copy& second) {
  const OnTheWay& way = first.way;
  const OnTheWay& other = second.way;  // each has its own factor
  return first.where.on_device() && first.where == second.where && first.data.contiguous() &&
         second.data.contiguous() && first.staged + bytes_of(first) == second.staged && way.type == other.type &&
         way.scales == other.scales && way.divisor == other.divisor;
}

gpu::Packing packing_of(std::span<const Copy> copies) {
  const OnTheWay& way = copies.front().way;
  gpu::Packing all;
  all.whole = copies.front().staged;
  all.begins[0] = 0;
  all.in_pieces = all.in_whole = way.type;
  all.scales = way.scales;
  all.divisor = way.divisor;
  for (const Copy& copy : copies) {
    all.pieces[all.count] = static_cast<std::byte*>(copy.data.data);
    all.factors[all.count] = copy.way.factor;
    all.begins[all.count + 1] = all.begins[all.count] + bytes_of(copy);
    ++all.count;
  }
  return all;
}

// What the host cannot change on its way.
bool is_between_gpus(const Copy& copy) { return copy.where.on_device() && gpu::where(copy.staged).on_device(); }

void copy(std::span<const Copy> copies, bool in) {
  for (std::size_t first = 0; first < copies.size();) {
    std::size_t last = first + 1;
    while (last < copies.size() && last - first < gpu::most_pieces && go_together(copies[last - 1], copies[last]))
      ++last;
    if (last - first == 1 && !is_between_gpus(copies[first]))
      copy_one(copies[first], in);
    else
      gpu::layer()->pack(copies[first].where.device, packing_of(copies.subspan(first, last - first)), in);
    first = last;
  }
}

void begin_copy(std::span<const Copy> copies, bool in, gpu::Stream stream) {
  while (!copies.empty()) {
    const std::size_t many = std::min<std::size_t>(copies.size(), gpu::most_pieces);
    gpu::layer()->begin_pack(copies.front().where.device, packing_of(copies.first(many)), in, stream);
    copies = copies.subspan(many);
  }
}

}  // namespace

void copy_in(std::span<const Copy> copies) { copy(copies, true); }
void copy_back(std::span<const Copy> copies) { copy(copies, false); }
void begin_copy_in(std::span<const Copy> copies, gpu::Stream stream) { begin_copy(copies, true, stream); }
void begin_copy_back(std::span<const Copy> copies, gpu::Stream stream) { begin_copy(copies, false, stream); }

}  // namespace lockstep::detail
