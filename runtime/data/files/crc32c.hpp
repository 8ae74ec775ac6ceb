// SPDX-License-Identifier: Apache-2.0
// Calculates the checksum of TFRecord files.
#pragma once

#include <cstdint>
#include <string_view>

namespace lockstep::data {

// Returns the CRC-32C (Castagnoli) of bytes, by the processor's instruction for it if there is one.
std::uint32_t crc32c(std::string_view bytes);
// Returns the same on any processor.
std::uint32_t crc32c_by_tables(std::string_view bytes);

// Returns it as TFRecord files store it, so that a checksum of bytes with checksums in them stays a good one.
inline std::uint32_t masked_crc32c(std::string_view bytes) {
  const std::uint32_t crc = crc32c(bytes);
  return ((crc >> 15U) | (crc << 17U)) + 0xa282ead8U;
}

}  // namespace lockstep::data
