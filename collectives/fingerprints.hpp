// SPDX-License-Identifier: Apache-2.0
// Declares 64-bit hashes of facts that all ranks must share but no count shows. Such facts are the order and shape of
// tensors, a function, a variable, a tag, or a line of the program. They serve comparison, not security. All are pure
// values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace lockstep {

// Holds the fingerprints of one call. 0 means that there is nothing to compare.
struct Fingerprints {
  std::uint64_t layout = 0;    // several tensors, or one with a shape; see layout_of()
  std::uint64_t function = 0;  // the user's own reduction
  std::uint64_t variable = 0;  // the number of a variable in its strategy, from 1; see variable_changed()
  std::uint64_t tag = 0;       // the caller's name of the call; see call_tag_of()
  std::uint64_t merges = 0;    // the places of the merge_calls since the call before
  std::uint64_t place = 0;     // the line of the program, if ranks compare lines
  bool operator==(const Fingerprints&) const = default;
};

// Hashes a sequence of values; their order matters. The result is the same in all builds and processes.
class Fingerprint {
 public:
  // Mixes a number, or the characters of a text, into the fingerprint.
  constexpr Fingerprint& add(std::uint64_t number) {
    value_ = (value_ ^ number) * 0xff51afd7ed558ccdU;
    value_ ^= value_ >> 32U;
    return *this;
  }
  constexpr Fingerprint& add(std::string_view text) {
    for (const char letter : text) add(static_cast<std::uint64_t>(static_cast<unsigned char>(letter)) + 1);
    return add(text.size());
  }
  // Returns the hash of the values so far. It is never 0.
  constexpr std::uint64_t value() const { return value_ == 0 ? 1 : value_; }

 private:
  std::uint64_t value_ = 0x9e3779b97f4a7c15U;
};

// Builds a layout from a fingerprint: its low 16 bits become the number of tensors. tensors_in() returns that number,
// at most most_tensors_told.
inline constexpr std::uint64_t most_tensors_told = 0xffff;
constexpr std::uint64_t layout_of(std::uint64_t fingerprint, std::size_t tensors) {
  return (fingerprint & ~most_tensors_told) | (tensors < most_tensors_told ? tensors : most_tensors_told);
}
constexpr std::uint64_t tensors_in(std::uint64_t layout) { return layout & most_tensors_told; }

// Combines two layouts into one: the order of a call's tensors, and the shapes that the caller states. 0 means none.
constexpr std::uint64_t layout_with(std::uint64_t layout, std::uint64_t shapes) {
  if (layout == 0 || shapes == 0) return layout | shapes;
  return layout_of(Fingerprint().add(layout).add(shapes).value(), tensors_in(layout));
}

// Combines a variable's number with the way in which a call changes it; 0 means no change. The way takes the top 8
// bits. variable_in() returns the number again.
inline constexpr unsigned change_shift = 56;
constexpr std::uint64_t variable_changed(std::uint64_t variable, std::uint8_t way) {
  return variable | std::uint64_t{way} << change_shift;
}
constexpr std::uint64_t variable_in(std::uint64_t change) { return change & ((std::uint64_t{1} << change_shift) - 1); }

}  // namespace lockstep
