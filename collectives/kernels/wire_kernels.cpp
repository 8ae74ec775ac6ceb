// SPDX-License-Identifier: Apache-2.0
// Converts 32-bit floats to the 16-bit floats of messages and back, a vector at a time. The rest goes through the same
// instructions, so a number's bits do not depend on its position in the buffer.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "collectives/kernels/wire_kernels.cpp"
#include "collectives/kernels/vectors.hpp"
// This include must follow vectors.hpp, which chooses the targets.
#include <hwy/foreach_target.h>
// This one must follow foreach_target.h, which includes this file again for each target.
#include <hwy/highway.h>

#include "collectives/kernels/float_ops-inl.hpp"
#include "collectives/kernels/formats-inl.hpp"
#include "collectives/kernels/table.hpp"

HWY_BEFORE_NAMESPACE();
namespace lockstep::HWY_NAMESPACE {
namespace {

#if HWY_TARGET == HWY_SCALAR

using WideTag = hn::ScalableTag<float>;
constexpr std::size_t most_lanes = 1;

template <class T>
struct NarrowFormat {
  using NarrowTag = hn::ScalableTag<std::uint16_t>;
  static auto narrow(hn::Vec<WideTag> wide) { return hn::Set(NarrowTag(), T(hn::GetLane(wide)).bits); }
  static auto widen(hn::Vec<NarrowTag> bits) {
    T value;
    value.bits = hn::GetLane(bits);
    return hn::Set(WideTag(), static_cast<float>(value));
  }
};

#else

using WideTag = FloatTag;
constexpr std::size_t most_lanes = HWY_MAX_BYTES / 4;

// Converts by the 32-bit words of a format, where a number takes the lower half.
template <class Convert>
struct WordConversion {
  using NarrowTag = hn::Rebind<std::uint16_t, FloatTag>;
  static HWY_INLINE auto narrow(hn::Vec<FloatTag> wide) {
    const hn::RebindToSigned<WordTag> ints;
    return hn::DemoteTo(NarrowTag(), hn::BitCast(ints, Convert::narrow(hn::BitCast(WordTag(), wide))));
  }
  static HWY_INLINE auto widen(hn::Vec<NarrowTag> bits) {
    return hn::BitCast(FloatTag(), Convert::widen(hn::PromoteTo(WordTag(), bits)));
  }
};

template <class T>
struct NarrowFormatOf {
  using Type = WordConversion<BfloatWords>;
};

#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2 && !defined(HWY_DISABLE_F16C)

struct InstructionConversion {
  using NarrowTag = hn::Rebind<hwy::float16_t, FloatTag>;
  static HWY_INLINE auto narrow(hn::Vec<FloatTag> wide) { return hn::DemoteTo(NarrowTag(), wide); }
  static HWY_INLINE auto widen(hn::Vec<NarrowTag> bits) { return hn::PromoteTo(FloatTag(), bits); }
};
template <>
struct NarrowFormatOf<f16> {
  using Type = InstructionConversion;
};

#else

template <>
struct NarrowFormatOf<f16> {
  using Type = WordConversion<HalfWords>;
};

#endif

template <class T>
using NarrowFormat = typename NarrowFormatOf<T>::Type;

#endif

// Calls one(to, from) for each vector of numbers, with the given bytes per number on each side.
template <std::size_t to_bytes, std::size_t from_bytes, class One>
HWY_INLINE void for_all(void* target, const void* source, std::size_t count, const One& one) {
  auto* const to = static_cast<std::uint8_t*>(target);
  const auto* const from = static_cast<const std::uint8_t*>(source);
  const std::size_t lanes = hn::Lanes(WideTag());
  std::size_t i = 0;
  for (; count - i >= lanes; i += lanes) one(to + i * to_bytes, from + i * from_bytes);
  if (i == count) return;
  alignas(64) std::uint8_t rest[most_lanes * 4] = {};
  alignas(64) std::uint8_t result[most_lanes * 4] = {};
  std::memcpy(rest, from + i * from_bytes, (count - i) * from_bytes);
  one(result, rest);
  std::memcpy(to + i * to_bytes, result, (count - i) * to_bytes);
}

template <class T>
void narrow_all(void* target, const void* floats, std::size_t count) {
  for_all<2, 4>(target, floats, count, [](std::uint8_t* to, const std::uint8_t* from) {
    const auto numbers = NarrowFormat<T>::narrow(with_quiet_nan(load_vector(WideTag(), from)));
    store_vector(typename NarrowFormat<T>::NarrowTag(), to, numbers);
  });
}

template <class T>
void widen_all(void* floats, const void* source, std::size_t count) {
  for_all<4, 2>(floats, source, count, [](std::uint8_t* to, const std::uint8_t* from) {
    store_vector(WideTag(), to, NarrowFormat<T>::widen(load_vector(typename NarrowFormat<T>::NarrowTag(), from)));
  });
}

template <class T>
void round_all(void* floats, std::size_t count) {
  for_all<4, 4>(floats, floats, count, [](std::uint8_t* to, const std::uint8_t* from) {
    const auto numbers = NarrowFormat<T>::narrow(with_quiet_nan(load_vector(WideTag(), from)));
    store_vector(WideTag(), to, NarrowFormat<T>::widen(numbers));
  });
}

template <class T>
WireKernel wire_kernel_of() {
  return {&narrow_all<T>, &widen_all<T>, &round_all<T>};
}

WireKernel choose_wire(WireFormat format) {
  if (format == WireFormat::bf16) return wire_kernel_of<bf16>();
  if (format == WireFormat::f16) return wire_kernel_of<f16>();
  return {};
}

}  // namespace
}  // namespace lockstep::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep {

HWY_EXPORT(choose_wire);
WireKernel make_wire_kernel(WireFormat format) { return HWY_DYNAMIC_DISPATCH(choose_wire)(format); }

}  // namespace lockstep
#endif
