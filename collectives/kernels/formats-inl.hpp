// SPDX-License-Identifier: Apache-2.0
// Defines how the element types lie in memory and in vectors. A format loads and stores four vectors at a time, from
// and to addresses that need no alignment. 16-bit floats become 32-bit floats in vectors. On a target without vectors
// (SCALAR), a "vector" is one number.
#if defined(LOCKSTEP_KERNELS_FORMATS) == defined(HWY_TARGET_TOGGLE)
#ifdef LOCKSTEP_KERNELS_FORMATS
#undef LOCKSTEP_KERNELS_FORMATS
#else
#define LOCKSTEP_KERNELS_FORMATS
#endif

#include <hwy/highway.h>

#include <cstdint>
#include <cstring>

#include "collectives/types.hpp"

HWY_BEFORE_NAMESPACE();
namespace lockstep::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Loads one vector. Loads and stores go by bytes: a buffer of floats may begin anywhere, and a pointer to float may
// not.
template <class D>
HWY_INLINE hn::Vec<D> load_vector(D d, const std::uint8_t* from) {
#if HWY_TARGET == HWY_SCALAR
  hn::TFromD<D> value;
  std::memcpy(&value, from, sizeof(value));
  return hn::Set(d, value);
#else
  return hn::BitCast(d, hn::LoadU(hn::Repartition<std::uint8_t, D>(), from));
#endif
}

// Stores one vector.
template <class D, class V>
HWY_INLINE void store_vector([[maybe_unused]] D d, std::uint8_t* to, V vector) {
#if HWY_TARGET == HWY_SCALAR
  const hn::TFromD<D> value = hn::GetLane(vector);
  std::memcpy(to, &value, sizeof(value));
#else
  const hn::Repartition<std::uint8_t, D> bytes;
  hn::StoreU(hn::BitCast(bytes, vector), bytes, to);
#endif
}

// Stores one vector past the caches. The address must be aligned to the vector, except on SCALAR.
template <class D, class V>
HWY_INLINE void stream_vector([[maybe_unused]] D d, std::uint8_t* to, V vector) {
#if HWY_TARGET == HWY_SCALAR
  store_vector(d, to, vector);
#else
  const hn::Repartition<std::uint8_t, D> bytes;
  hn::Stream(hn::BitCast(bytes, vector), bytes, to);
#endif
}

// Formats numbers that vectors hold in the same form as memory. `size` is that of a number in bytes. A chunk is four
// vectors.
template <class T>
struct Plain {
  using D = hn::ScalableTag<T>;
  static constexpr std::size_t size = sizeof(T);
  static constexpr std::size_t max_chunk_bytes = std::size_t{4} * HWY_MAX_BYTES;
  static HWY_INLINE std::size_t vector_bytes() { return hn::Lanes(D()) * sizeof(T); }
  static HWY_INLINE std::size_t chunk_bytes() { return 4 * vector_bytes(); }

  template <std::size_t which>
  static HWY_INLINE auto load(const std::uint8_t* from) {
    return load_vector(D(), from + which * vector_bytes());
  }
#if HWY_TARGET != HWY_SCALAR
  // Load and store less than a vector without memory in between: a piece of 4 or 8 bytes, repeated in every place of a
  // vector. Elements must not be longer than the piece.
  template <class Piece>
  static HWY_INLINE auto load_piece(const std::uint8_t* from) {
    Piece piece;
    std::memcpy(&piece, from, sizeof piece);
    return hn::BitCast(D(), hn::Set(hn::ScalableTag<Piece>(), piece));
  }
  template <class Piece, class V>
  static HWY_INLINE void store_piece(std::uint8_t* to, V vector) {
    const Piece piece = hn::GetLane(hn::BitCast(hn::ScalableTag<Piece>(), vector));
    std::memcpy(to, &piece, sizeof piece);
  }
  // Stores one whole vector.
  template <class V>
  static HWY_INLINE void store_one(std::uint8_t* to, V vector) {
    store_vector(D(), to, vector);
  }
#endif
  template <class V>
  static HWY_INLINE void store(std::uint8_t* to, V a0, V a1, V a2, V a3) {
    store_vector(D(), to, a0);
    store_vector(D(), to + vector_bytes(), a1);
    store_vector(D(), to + 2 * vector_bytes(), a2);
    store_vector(D(), to + 3 * vector_bytes(), a3);
  }
  template <class V>
  static HWY_INLINE void stream(std::uint8_t* to, V a0, V a1, V a2, V a3) {
    stream_vector(D(), to, a0);
    stream_vector(D(), to + vector_bytes(), a1);
    stream_vector(D(), to + 2 * vector_bytes(), a2);
    stream_vector(D(), to + 3 * vector_bytes(), a3);
  }
};

#if HWY_TARGET == HWY_SCALAR

// Formats four values of any type, one by one. Operations that want an element's lanes beside each other use it.
template <class T>
struct Values {
  static constexpr std::size_t size = sizeof(T);
  static constexpr std::size_t max_chunk_bytes = 4 * sizeof(T);
  static std::size_t chunk_bytes() { return max_chunk_bytes; }

  template <std::size_t which>
  static T load(const std::uint8_t* from) {
    T value;
    std::memcpy(&value, from + which * sizeof(T), sizeof(T));
    return value;
  }
  static void store(std::uint8_t* to, const T& a0, const T& a1, const T& a2, const T& a3) {
    const T values[] = {a0, a1, a2, a3};
    std::memcpy(to, values, sizeof(values));
  }
  static void stream(std::uint8_t* to, const T& a0, const T& a1, const T& a2, const T& a3) {
    store(to, a0, a1, a2, a3);
  }
};

// Formats 16-bit floats, for T = f16 or bf16.
template <class T>
struct Float16Format {
  using V = hn::Vec<hn::ScalableTag<float>>;
  static constexpr std::size_t size = 2;
  static constexpr std::size_t max_chunk_bytes = 8;
  static std::size_t chunk_bytes() { return max_chunk_bytes; }

  template <std::size_t which>
  static V load(const std::uint8_t* from) {
    return V(static_cast<float>(Values<T>::template load<which>(from)));
  }
  static void store(std::uint8_t* to, V a0, V a1, V a2, V a3) {
    Values<T>::store(to, T(a0.raw), T(a1.raw), T(a2.raw), T(a3.raw));
  }
  static void stream(std::uint8_t* to, V a0, V a1, V a2, V a3) { store(to, a0, a1, a2, a3); }
};

#else

using WordTag = hn::ScalableTag<std::uint32_t>;
using FloatTag = hn::ScalableTag<float>;

// Formats 16-bit floats, two in each 32-bit word. Vectors 0 and 2 take the lower halves of the words, 1 and 3 the upper
// ones, so nothing has to move between lanes. `Convert` converts the halves.
template <class Convert>
struct PackedFloat16 {
  static constexpr std::size_t size = 2;
  static constexpr std::size_t max_chunk_bytes = std::size_t{2} * HWY_MAX_BYTES;
  static HWY_INLINE std::size_t vector_bytes() { return hn::Lanes(WordTag()) * 4; }
  static HWY_INLINE std::size_t chunk_bytes() { return 2 * vector_bytes(); }

  template <std::size_t which>
  static HWY_INLINE auto load(const std::uint8_t* from) {
    const auto words = load_vector(WordTag(), from + which / 2 * vector_bytes());
    if constexpr (which % 2 == 0)
      return hn::BitCast(FloatTag(), Convert::lower(words));
    else
      return hn::BitCast(FloatTag(), Convert::upper(words));
  }
  template <class V>
  static HWY_INLINE void store(std::uint8_t* to, V a0, V a1, V a2, V a3) {
    store_vector(WordTag(), to, Convert::join(hn::BitCast(WordTag(), a0), hn::BitCast(WordTag(), a1)));
    store_vector(WordTag(), to + vector_bytes(), Convert::join(hn::BitCast(WordTag(), a2), hn::BitCast(WordTag(), a3)));
  }
  template <class V>
  static HWY_INLINE void stream(std::uint8_t* to, V a0, V a1, V a2, V a3) {
    stream_vector(WordTag(), to, Convert::join(hn::BitCast(WordTag(), a0), hn::BitCast(WordTag(), a1)));
    stream_vector(WordTag(), to + vector_bytes(),
                  Convert::join(hn::BitCast(WordTag(), a2), hn::BitCast(WordTag(), a3)));
  }
};

// Converts bfloats, which are the upper halves of floats. Rounding cannot turn NaN into a number, since operations
// leave only the quiet NaN.
struct BfloatWords {
  template <class V>
  static HWY_INLINE V lower(V words) {
    return hn::ShiftLeft<16>(words);
  }
  template <class V>
  static HWY_INLINE V upper(V words) {
    return hn::And(words, hn::Set(WordTag(), 0xffff0000));
  }
  template <class V>
  static HWY_INLINE V join(V lower, V upper) {
    return hn::Or(narrow(lower), hn::And(rounded(upper), hn::Set(WordTag(), 0xffff0000)));
  }
  // Converts one number in each word, in its lower half.
  template <class V>
  static HWY_INLINE V widen(V words) {
    return hn::ShiftLeft<16>(words);
  }
  template <class V>
  static HWY_INLINE V narrow(V bits) {
    return hn::ShiftRight<16>(rounded(bits));
  }

 private:
  template <class V>
  static HWY_INLINE V rounded(V bits) {
    const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(WordTag(), 1));
    return hn::Add(bits, hn::Add(odd, hn::Set(WordTag(), 0x7fff)));
  }
};

// Converts halves by integer arithmetic, as types.cpp does. Subnormal halves need another way, since not all targets
// can shift each lane by its own width. They become the low bits of a float that is added and subtracted again.
struct HalfWords {
  template <class V>
  static HWY_INLINE V lower(V words) {
    return widen(hn::And(words, hn::Set(WordTag(), 0xffff)));
  }
  template <class V>
  static HWY_INLINE V upper(V words) {
    return widen(hn::ShiftRight<16>(words));
  }
  template <class V>
  static HWY_INLINE V join(V lower, V upper) {
    return hn::Or(narrow(lower), hn::ShiftLeft<16>(narrow(upper)));
  }
  // Converts one number in each word, in its lower half.
  template <class V>
  static HWY_INLINE V widen(V half) {
    const WordTag d;
    const auto sign = hn::ShiftLeft<16>(hn::And(half, hn::Set(d, 0x8000)));
    const auto shifted = hn::ShiftLeft<13>(hn::And(half, hn::Set(d, 0x7fff)));
    const auto exponent = hn::And(shifted, hn::Set(d, 0x0f800000));
    const auto normal = hn::Add(shifted, hn::Set(d, rebias));
    const auto special = hn::Add(normal, hn::Set(d, rebias));
    const auto unit = hn::Set(d, smallest_normal);
    const auto subnormal = floats_apart(hn::Add(shifted, unit), unit);
    auto bits = hn::IfThenElse(hn::Eq(exponent, hn::Set(d, 0x0f800000)), special, normal);
    bits = hn::IfThenElse(hn::Eq(exponent, hn::Zero(d)), subnormal, bits);
    return hn::Or(bits, sign);
  }

  template <class V>
  static HWY_INLINE V narrow(V bits) {
    const WordTag d;
    const auto magnitude = hn::And(bits, hn::Set(d, 0x7fffffff));
    const auto sign = hn::ShiftRight<16>(hn::Xor(bits, magnitude));
    const auto half = hn::Set(d, 126U << 23U);  // 0.5: its unit in the last place is 2^-24
    const auto sum = hn::Add(hn::BitCast(FloatTag(), magnitude), hn::BitCast(FloatTag(), half));
    const auto subnormal = hn::Sub(hn::BitCast(d, sum), half);
    const auto odd = hn::And(hn::ShiftRight<13>(magnitude), hn::Set(d, 1));
    const auto normal = hn::Add(hn::Sub(magnitude, hn::Set(d, rebias)), hn::Add(odd, hn::Set(d, 0xfff)));
    auto result = if_at_least(magnitude, smallest_normal, hn::ShiftRight<13>(normal), subnormal);
    result = if_at_least(magnitude, too_large, hn::Set(d, 0x7c00), result);
    result = if_at_least(magnitude, 0x7f800001, hn::Set(d, 0x7e00), result);
    return hn::Or(result, sign);
  }

 private:
  static constexpr std::uint32_t smallest_normal = 113U << 23U;  // 2^-14
  static constexpr std::uint32_t too_large = 143U << 23U;        // 2^16
  static constexpr std::uint32_t rebias = 112U << 23U;           // difference between the exponents of half and float

  template <class V>
  static HWY_INLINE V floats_apart(V left, V right) {
    return hn::BitCast(WordTag(), hn::Sub(hn::BitCast(FloatTag(), left), hn::BitCast(FloatTag(), right)));
  }

  // Selects `yes` in lanes of at least the limit, else `no`. Magnitudes are positive as signed numbers too, and all
  // targets can compare signed numbers.
  template <class V>
  static HWY_INLINE V if_at_least(V magnitude, std::uint32_t limit, V yes, V no) {
    const hn::RebindToSigned<WordTag> ints;
    const auto least = hn::Set(ints, static_cast<std::int32_t>(limit - 1));
    return hn::IfThenElse(hn::RebindMask(WordTag(), hn::Gt(hn::BitCast(ints, magnitude), least)), yes, no);
  }
};

#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2 && !defined(HWY_DISABLE_F16C)

// Formats halves by the instructions that x86 processors have for them since F16C.
struct NativeHalf {
  using D = hn::Rebind<hwy::float16_t, FloatTag>;
  static constexpr std::size_t size = 2;
  static constexpr std::size_t max_chunk_bytes = std::size_t{2} * HWY_MAX_BYTES;
  static HWY_INLINE std::size_t part_bytes() { return hn::Lanes(D()) * 2; }
  static HWY_INLINE std::size_t chunk_bytes() { return 4 * part_bytes(); }

  template <std::size_t which>
  static HWY_INLINE auto load(const std::uint8_t* from) {
    return hn::PromoteTo(FloatTag(), load_vector(D(), from + which * part_bytes()));
  }
  template <class V>
  static HWY_INLINE void store(std::uint8_t* to, V a0, V a1, V a2, V a3) {
    store_vector(D(), to, hn::DemoteTo(D(), a0));
    store_vector(D(), to + part_bytes(), hn::DemoteTo(D(), a1));
    store_vector(D(), to + 2 * part_bytes(), hn::DemoteTo(D(), a2));
    store_vector(D(), to + 3 * part_bytes(), hn::DemoteTo(D(), a3));
  }
  template <class V>
  static HWY_INLINE void stream(std::uint8_t* to, V a0, V a1, V a2, V a3) {
    stream_vector(D(), to, hn::DemoteTo(D(), a0));
    stream_vector(D(), to + part_bytes(), hn::DemoteTo(D(), a1));
    stream_vector(D(), to + 2 * part_bytes(), hn::DemoteTo(D(), a2));
    stream_vector(D(), to + 3 * part_bytes(), hn::DemoteTo(D(), a3));
  }
};

#endif

template <class T>
struct Float16FormatOf {
  using Type = PackedFloat16<BfloatWords>;
};
template <>
struct Float16FormatOf<f16> {
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2 && !defined(HWY_DISABLE_F16C)
  using Type = NativeHalf;
#else
  using Type = PackedFloat16<HalfWords>;
#endif
};
template <class T>
using Float16Format = typename Float16FormatOf<T>::Type;

#endif

}  // namespace lockstep::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
