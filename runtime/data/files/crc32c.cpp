// SPDX-License-Identifier: Apache-2.0
// Calculates eight bytes at once, by tables or by an instruction.
#include "runtime/data/files/crc32c.hpp"

#include <array>
#include <cstddef>
#include <cstring>

namespace lockstep::data {
namespace {

using Table = std::array<std::uint32_t, 256>;

// Table i continues a checksum over a byte that i zeros follow.
constexpr std::array<Table, 8> crc_tables = [] {
  constexpr std::uint32_t polynomial = 0x82f63b78;
  std::array<Table, 8> tables{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1U) ^ ((crc & 1U) != 0 ? polynomial : 0);
    tables[0][byte] = crc;
  }
  for (std::size_t i = 1; i < tables.size(); ++i) {
    for (std::size_t byte = 0; byte < 256; ++byte)
      tables[i][byte] = (tables[i - 1][byte] >> 8U) ^ tables[0][tables[i - 1][byte] & 0xffU];
  }
  return tables;
}();

#ifdef __x86_64__
__attribute__((target("sse4.2"))) std::uint32_t crc32c_by_instruction(std::string_view bytes) {
  std::uint64_t crc = 0xffffffff;
  const char* at = bytes.data();
  std::size_t left = bytes.size();
  for (; left >= 8; at += 8, left -= 8) {
    unsigned long long word = 0;
    std::memcpy(&word, at, sizeof word);
    crc = __builtin_ia32_crc32di(crc, word);
  }
  auto last = static_cast<std::uint32_t>(crc);
  for (; left > 0; ++at, --left) last = __builtin_ia32_crc32qi(last, static_cast<unsigned char>(*at));
  return ~last;
}
#endif

}  // namespace

std::uint32_t crc32c(std::string_view bytes) {
#ifdef __x86_64__
  static const bool has_instruction = __builtin_cpu_supports("sse4.2") != 0;
  if (has_instruction) return crc32c_by_instruction(bytes);
#endif
  return crc32c_by_tables(bytes);
}

std::uint32_t crc32c_by_tables(std::string_view bytes) {
  std::uint32_t crc = 0xffffffff;
  const char* at = bytes.data();
  std::size_t left = bytes.size();
  for (; left >= 8; at += 8, left -= 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, at, sizeof word);
    word ^= crc;
    crc = 0;
    for (std::size_t i = 0; i < 8; ++i) crc ^= crc_tables[7 - i][(word >> (8 * i)) & 0xffU];
  }
  for (; left > 0; ++at, --left) crc = (crc >> 8U) ^ crc_tables[0][(crc ^ static_cast<unsigned char>(*at)) & 0xffU];
  return ~crc;
}

}  // namespace lockstep::data
