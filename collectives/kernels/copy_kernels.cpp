// SPDX-License-Identifier: Apache-2.0
// Copies. The C library's own takes microcoded string instructions for what a cache holds, which on some processors
// are ten times slower than vectors when two buffers lie badly to each other.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "collectives/kernels/copy_kernels.cpp"
#include "collectives/kernels/vectors.hpp"
// Below vectors.hpp, which chooses the targets.
#include <hwy/foreach_target.h>
// Below foreach_target.h, which includes this file again for each target.
#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include <cstring>

#include "collectives/kernels/copy.hpp"

HWY_BEFORE_NAMESPACE();
namespace lockstep::HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;
using Bytes = hn::ScalableTag<std::uint8_t>;

constexpr std::size_t at_once = 4;  // vectors

// To where vectors can be stored whole; how many bytes that is.
std::size_t copy_head(std::uint8_t* to, const std::uint8_t* from, std::size_t multiple) {
  const std::size_t head = (multiple - reinterpret_cast<std::uintptr_t>(to) % multiple) % multiple;
  std::memcpy(to, from, head);
  return head;
}

void copy_vectors(void* target, const void* source, std::size_t bytes) {
  const Bytes d;
  const std::size_t width = hn::Lanes(d);
  auto* to = static_cast<std::uint8_t*>(target);
  const auto* from = static_cast<const std::uint8_t*>(source);
  if (bytes < at_once * width) {
    std::memcpy(to, from, bytes);
    return;
  }
  std::size_t at = copy_head(to, from, width);
  for (; at + at_once * width <= bytes; at += at_once * width) {
    const auto a = hn::LoadU(d, from + at);
    const auto b = hn::LoadU(d, from + at + width);
    const auto c = hn::LoadU(d, from + at + 2 * width);
    const auto e = hn::LoadU(d, from + at + 3 * width);
    hn::Store(a, d, to + at);
    hn::Store(b, d, to + at + width);
    hn::Store(c, d, to + at + 2 * width);
    hn::Store(e, d, to + at + 3 * width);
  }
  for (; at + width <= bytes; at += width) hn::Store(hn::LoadU(d, from + at), d, to + at);
  std::memcpy(to + at, from + at, bytes - at);
}

void stream_vectors(void* target, const void* source, std::size_t bytes) {
  const Bytes d;
  const std::size_t width = hn::Lanes(d);
  constexpr std::size_t line = 64;
  auto* to = static_cast<std::uint8_t*>(target);
  const auto* from = static_cast<const std::uint8_t*>(source);
  if (HWY_TARGET == HWY_SCALAR || bytes < line + at_once * width) return copy_vectors(target, source, bytes);
  std::size_t at = copy_head(to, from, line);
  for (; at + at_once * width <= bytes; at += at_once * width) {
    const auto a = hn::LoadU(d, from + at);
    const auto b = hn::LoadU(d, from + at + width);
    const auto c = hn::LoadU(d, from + at + 2 * width);
    const auto e = hn::LoadU(d, from + at + 3 * width);
    hn::Stream(a, d, to + at);
    hn::Stream(b, d, to + at + width);
    hn::Stream(c, d, to + at + 2 * width);
    hn::Stream(e, d, to + at + 3 * width);
  }
  hwy::FlushStream();
  copy_vectors(to + at, from + at, bytes - at);
}

}  // namespace
}  // namespace lockstep::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep {

HWY_EXPORT(copy_vectors);
HWY_EXPORT(stream_vectors);

void copy_bytes(void* target, const void* source, std::size_t bytes) {
  HWY_DYNAMIC_DISPATCH(copy_vectors)(target, source, bytes);
}
void stream_bytes(void* target, const void* source, std::size_t bytes) {
  HWY_DYNAMIC_DISPATCH(stream_vectors)(target, source, bytes);
}

}  // namespace lockstep
#endif
