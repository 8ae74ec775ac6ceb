// SPDX-License-Identifier: Apache-2.0
// 32-bit floats to the 16-bit ones of messages and back, a vector at a time. What does not fill a vector goes through
// the same instructions, so a number's bits do not depend on where in the buffer it stands.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "collectives/kernels/wire_kernels.cpp"
#include "collectives/kernels/vectors.hpp"
// Below vectors.hpp, which chooses the targets.
#include <hwy/foreach_target.h>
// Below foreach_target.h, which includes this file again for each target.
#include <hwy/highway.h>

#include "collectives/kernels/float_ops-inl.hpp"
#include "collectives/kernels/formats-inl.hpp"
#include "collectives/kernels/table.hpp"

HWY_BEFORE_NAMESPACE();
namespace lockstep::HWY_NAMESPACE {
namespace {

#if HWY_TARGET == HWY_SCALAR

using Float = hn::ScalableTag<float>;
constexpr std::size_t most_lanes = 1;

template <class T>
struct Numbers {
  using Short = hn::ScalableTag<std::uint16_t>;
  static auto narrow(hn::Vec<Float> wide) { return hn::Set(Short(), T(hn::GetLane(wide)).bits); }
  static auto widen(hn::Vec<Short> bits) {
    T value;
    value.bits = hn::GetLane(bits);
    return hn::Set(Float(), static_cast<float>(value));
  }
};

#else

using Float = Floats;
constexpr std::size_t most_lanes = HWY_MAX_BYTES / 4;

// By the words of the format, of which a number has the lower half.
template <class Convert>
struct InWords {
  using Short = hn::Rebind<std::uint16_t, Floats>;
  static HWY_INLINE auto narrow(hn::Vec<Floats> wide) {
    const hn::RebindToSigned<Words> ints;
    return hn::DemoteTo(Short(), hn::BitCast(ints, Convert::narrow(hn::BitCast(Words(), wide))));
  }
  static HWY_INLINE auto widen(hn::Vec<Short> bits) {
    return hn::BitCast(Floats(), Convert::widen(hn::PromoteTo(Words(), bits)));
  }
};

template <class T>
struct NumbersOf {
  using Type = InWords<BfloatWords>;
};

#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2 && !defined(HWY_DISABLE_F16C)

struct ByInstruction {
  using Short = hn::Rebind<hwy::float16_t, Floats>;
  static HWY_INLINE auto narrow(hn::Vec<Floats> wide) { return hn::DemoteTo(Short(), wide); }
  static HWY_INLINE auto widen(hn::Vec<Short> bits) { return hn::PromoteTo(Floats(), bits); }
};
template <>
struct NumbersOf<f16> {
  using Type = ByInstruction;
};

#else

template <>
struct NumbersOf<f16> {
  using Type = InWords<HalfWords>;
};

#endif

template <class T>
using Numbers = typename NumbersOf<T>::Type;

#endif

// Calls one(to, from) for each vector of numbers, of so many bytes each.
template <std::size_t to_bytes, std::size_t from_bytes, class One>
HWY_INLINE void for_all(void* target, const void* source, std::size_t count, const One& one) {
  auto* const to = static_cast<std::uint8_t*>(target);
  const auto* const from = static_cast<const std::uint8_t*>(source);
  const std::size_t lanes = hn::Lanes(Float());
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
    const auto numbers = Numbers<T>::narrow(with_quiet_nan(load_vector(Float(), from)));
    store_vector(typename Numbers<T>::Short(), to, numbers);
  });
}

template <class T>
void widen_all(void* floats, const void* source, std::size_t count) {
  for_all<4, 2>(floats, source, count, [](std::uint8_t* to, const std::uint8_t* from) {
    store_vector(Float(), to, Numbers<T>::widen(load_vector(typename Numbers<T>::Short(), from)));
  });
}

template <class T>
void round_all(void* floats, std::size_t count) {
  for_all<4, 4>(floats, floats, count, [](std::uint8_t* to, const std::uint8_t* from) {
    const auto numbers = Numbers<T>::narrow(with_quiet_nan(load_vector(Float(), from)));
    store_vector(Float(), to, Numbers<T>::widen(numbers));
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
