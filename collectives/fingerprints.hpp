// SPDX-License-Identifier: Apache-2.0
// 64 bits that stand for what members must have alike and what no count shows: the order and shape of tensors, a
// function, a variable, a line of the program. For comparing, not for security. Pure values.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace lockstep {

// Of one call. 0: there is nothing to compare.
struct Fingerprints {
  std::uint64_t layout = 0;    // of several tensors, or of one with a shape; see layout_of()
  std::uint64_t function = 0;  // of the user's own reduction
  std::uint64_t variable = 0;  // the number of a variable in its strategy, from 1; see variable_changed()
  std::uint64_t place = 0;     // of the line of the program, where members compare these
  bool operator==(const Fingerprints&) const = default;
};

// Takes in values one after the other; their order counts.
class Fingerprint {
 public:
  constexpr Fingerprint& add(std::uint64_t number) {
    value_ = (value_ ^ number) * 0xff51afd7ed558ccdU;
    value_ ^= value_ >> 32U;
    return *this;
  }
  constexpr Fingerprint& add(std::string_view text) {
    for (const char letter : text) add(static_cast<std::uint64_t>(static_cast<unsigned char>(letter)) + 1);
    return add(text.size());
  }
  // Never 0.
  constexpr std::uint64_t value() const { return value_ == 0 ? 1 : value_; }

 private:
  std::uint64_t value_ = 0x9e3779b97f4a7c15U;
};

// A fingerprint of that many tensors, whose number can be read from it.
inline constexpr std::uint64_t most_tensors_told = 0xffff;
constexpr std::uint64_t layout_of(std::uint64_t fingerprint, std::size_t tensors) {
  return (fingerprint & ~most_tensors_told) | std::min<std::uint64_t>(tensors, most_tensors_told);
}
constexpr std::uint64_t tensors_in(std::uint64_t layout) { return layout & most_tensors_told; }

// One layout of two: how a call's tensors follow each other, and what the caller says of their shapes.
constexpr std::uint64_t layout_with(std::uint64_t layout, std::uint64_t shapes) {
  if (layout == 0 || shapes == 0) return layout | shapes;
  return layout_of(Fingerprint().add(layout).add(shapes).value(), tensors_in(layout));
}

// A variable together with the way in which a call changes it (0: in none).
inline constexpr unsigned change_shift = 56;
constexpr std::uint64_t variable_changed(std::uint64_t variable, std::uint8_t way) {
  return variable | std::uint64_t{way} << change_shift;
}
constexpr std::uint64_t variable_in(std::uint64_t change) { return change & ((std::uint64_t{1} << change_shift) - 1); }

}  // namespace lockstep
