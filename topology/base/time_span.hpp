// SPDX-License-Identifier: Apache-2.0
// The unit of time in headers that users include. It takes and gives the durations of <chrono> without that header,
// which is dear to compile (docs/design/026-packages.md).
#pragma once

#include <compare>
#include <concepts>
#include <cstdint>
#include <type_traits>

namespace lockstep {

namespace detail {

inline constexpr std::int64_t nanoseconds_per_second = 1'000'000'000;

// True for std::chrono::duration and for types with its interface.
template <class T>
concept ChronoDuration = requires(const T& time) {
  typename T::rep;
  T::period::num;
  T::period::den;
  time.count();
};

// True if each value of T is a whole number of nanoseconds, as it is for std::chrono::hours and all smaller units.
template <class T>
concept WholeNanoseconds =
    ChronoDuration<T> && std::is_integral_v<typename T::rep> && nanoseconds_per_second % T::period::den == 0;

// True if T holds each number of nanoseconds: std::chrono::nanoseconds, or a duration of floating point, which rounds.
template <class T>
concept HoldsNanoseconds = ChronoDuration<T> &&
    (std::is_floating_point_v<typename T::rep> || (T::period::num == 1 && T::period::den == nanoseconds_per_second));

}  // namespace detail

// Holds a time in nanoseconds. It converts from each std::chrono duration of whole nanoseconds, and to
// std::chrono::nanoseconds.
class TimeSpan {
 public:
  constexpr TimeSpan() = default;
  template <detail::WholeNanoseconds D>
  constexpr TimeSpan(const D& time)  // NOLINT(google-explicit-constructor): programs write {.timeout = 20s}
      : nanoseconds_(static_cast<std::int64_t>(time.count()) * D::period::num *
                     (detail::nanoseconds_per_second / D::period::den)) {}
  template <detail::HoldsNanoseconds D>
  constexpr operator D() const {  // NOLINT(google-explicit-constructor): programs write nanoseconds time = limit;
    using Number = typename D::rep;
    if constexpr (std::is_floating_point_v<Number>)
      return D(static_cast<Number>(nanoseconds_) * D::period::den / D::period::num / detail::nanoseconds_per_second);
    else
      return D(static_cast<Number>(nanoseconds_));
  }
  static constexpr TimeSpan seconds(std::int64_t number) {
    TimeSpan time;
    time.nanoseconds_ = number * detail::nanoseconds_per_second;
    return time;
  }

  // Returns the number of nanoseconds.
  constexpr std::int64_t count() const { return nanoseconds_; }

  friend constexpr bool operator==(TimeSpan, TimeSpan) = default;
  friend constexpr auto operator<=>(TimeSpan, TimeSpan) = default;  // NOLINT(modernize-use-nullptr): of clang 14
  friend constexpr TimeSpan operator+(TimeSpan left, TimeSpan right) {
    left.nanoseconds_ += right.nanoseconds_;
    return left;
  }
  friend constexpr TimeSpan operator-(TimeSpan left, TimeSpan right) {
    left.nanoseconds_ -= right.nanoseconds_;
    return left;
  }
  template <std::integral N>
  friend constexpr TimeSpan operator*(TimeSpan time, N factor) {
    time.nanoseconds_ *= static_cast<std::int64_t>(factor);
    return time;
  }
  template <std::integral N>
  friend constexpr TimeSpan operator/(TimeSpan time, N divisor) {
    time.nanoseconds_ /= static_cast<std::int64_t>(divisor);
    return time;
  }

 private:
  std::int64_t nanoseconds_ = 0;
};

}  // namespace lockstep
