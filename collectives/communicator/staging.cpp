// SPDX-License-Identifier: Apache-2.0
#include "collectives/communicator/staging.hpp"

#include <vector>

#include "collectives/kernels/copy.hpp"

namespace lockstep::detail {

Staged make_staged(std::size_t bytes, bool for_gpu) {
  if (for_gpu) return gpu::layer()->pinned(bytes);
  const auto memory = std::make_shared<std::vector<std::byte>>(bytes);
  return {memory, memory->data()};
}

void copy_in(const Copy& copy) {
  const std::size_t run = copy.data.count / copy.data.blocks * copy.element_bytes;
  const std::size_t stride = copy.data.stride * copy.element_bytes;
  auto* from = static_cast<std::byte*>(copy.data.data);
  if (copy.where.on_device())
    return gpu::layer()->copy(copy.where.device, {copy.staged, run}, {from, stride}, run, copy.data.blocks);
  for (std::size_t block = 0; block < copy.data.blocks; ++block)
    copy_bytes(copy.staged + block * run, from + block * stride, run);
}

void copy_back(const Copy& copy) {
  const std::size_t run = copy.data.count / copy.data.blocks * copy.element_bytes;
  const std::size_t stride = copy.data.stride * copy.element_bytes;
  auto* to = static_cast<std::byte*>(copy.data.data);
  if (copy.where.on_device())
    return gpu::layer()->copy(copy.where.device, {to, stride}, {copy.staged, run}, run, copy.data.blocks);
  for (std::size_t block = 0; block < copy.data.blocks; ++block)
    copy_bytes(to + block * stride, copy.staged + block * run, run);
}

}  // namespace lockstep::detail
