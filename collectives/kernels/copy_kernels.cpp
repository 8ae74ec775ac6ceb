// SPDX-License-Identifier: Apache-2.0
// Copies by vectors. For data that a cache holds, the C library uses microcoded string instructions. On some processors
// these are ten times slower than vectors if two buffers lie badly to each other.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "collectives/kernels/copy_kernels.cpp"
#include "collectives/kernels/vectors.hpp"
// This include must follow vectors.hpp, which chooses the targets.
#include <hwy/foreach_target.h>
// This one must follow foreach_target.h, which includes this file again for each target.
#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include <cstring>

#include "collectives/kernels/copy.hpp"

HWY_BEFORE_NAMESPACE();
namespace lockstep::HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;
using ByteTag = hn::ScalableTag<std::uint8_t>;

// Gives the number of vectors that a loop copies at once.
constexpr std::size_t at_once = 4;

// Copies up to the first address that is a multiple, where whole vectors can be stored. Returns the number of bytes.
std::size_t copy_head(std::uint8_t* to, const std::uint8_t* from, std::size_t multiple) {
  const std::size_t head = (multiple - reinterpret_cast<std::uintptr_t>(to) % multiple) % multiple;
  std::memcpy(to, from, head);
  return head;
}

// Copies whole groups of four vectors to an aligned target. Returns the number of bytes.
template <bool streamed>
std::size_t copy_groups(std::uint8_t* to, const std::uint8_t* from, std::size_t bytes) {
  const ByteTag d;
  const std::size_t width = hn::Lanes(d);
  const auto put = [&](auto vector, std::uint8_t* at) {
    if constexpr (streamed)
      hn::Stream(vector, d, at);
    else
      hn::Store(vector, d, at);
  };
  std::size_t at = 0;
  for (; at + at_once * width <= bytes; at += at_once * width) {
    const auto a = hn::LoadU(d, from + at);
    const auto b = hn::LoadU(d, from + at + width);
    const auto c = hn::LoadU(d, from + at + 2 * width);
    const auto e = hn::LoadU(d, from + at + 3 * width);
    put(a, to + at);
    put(b, to + at + width);
    put(c, to + at + 2 * width);
    put(e, to + at + 3 * width);
  }
  return at;
}

void copy_vectors(void* target, const void* source, std::size_t bytes) {
  const std::size_t width = hn::Lanes(ByteTag());
  auto* to = static_cast<std::uint8_t*>(target);
  const auto* from = static_cast<const std::uint8_t*>(source);
  if (bytes == 0) return;  // the pointers may be null then
  if (bytes < at_once * width) {
    std::memcpy(to, from, bytes);
    return;
  }
  std::size_t at = copy_head(to, from, width);
  at += copy_groups<false>(to + at, from + at, bytes - at);
  std::memcpy(to + at, from + at, bytes - at);
}

void stream_vectors(void* target, const void* source, std::size_t bytes) {
  constexpr std::size_t line = 64;
  auto* to = static_cast<std::uint8_t*>(target);
  const auto* from = static_cast<const std::uint8_t*>(source);
  if (HWY_TARGET == HWY_SCALAR || bytes < line + at_once * hn::Lanes(ByteTag()))
    return copy_vectors(target, source, bytes);
  std::size_t at = copy_head(to, from, line);
  at += copy_groups<true>(to + at, from + at, bytes - at);
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
