// SPDX-License-Identifier: Apache-2.0
// Unpacks and packs data by zlib. A build without zlib throws Error file that says so.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace lockstep::data {

// True in a build with zlib.
bool has_zlib();

// Limits the bytes that deflate can make of one, so that a small file cannot ask for much memory.
inline constexpr std::uint64_t most_inflation = 1032;

inline bool is_gzip(std::span<const std::byte> beginning) {
  return beginning.size() >= 3 && beginning[0] == std::byte{0x1f} && beginning[1] == std::byte{0x8b} &&
         beginning[2] == std::byte{8};
}

// Names the wrapping of packed data: gzip files, of one or more members, or the bare data in zip files.
enum class Wrapping : std::uint8_t { gzip, none };

// Unpacks data from its beginning to its end.
class Inflater {
 public:
  // `path` names the file in messages.
  Inflater(Wrapping wrapping, std::string path);
  Inflater(Inflater&&) noexcept;
  Inflater& operator=(Inflater&&) noexcept;
  ~Inflater();

  // Unpacks from `packed`, which it shortens, until `out` is full or more packed bytes are needed. Returns the number
  // of bytes in `out`.
  std::size_t unpack(std::span<const std::byte>& packed, std::span<std::byte> out);
  // True after the last byte of the data.
  bool is_complete() const;

 private:
  struct Stream;
  std::unique_ptr<Stream> stream_;
};

// Returns a gzip file with this content. `path` names the file in messages.
std::string pack_gzip(std::string_view content, const std::string& path);

// Returns the checksum of zip files.
std::uint32_t crc32(std::span<const std::byte> bytes);

}  // namespace lockstep::data
