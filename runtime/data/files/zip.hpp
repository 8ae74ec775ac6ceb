// SPDX-License-Identifier: Apache-2.0
// Reads the directory of zip files, and finds the bytes of their members.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "topology/base/bytes.hpp"

namespace lockstep::data {

// Is an entry of a zip file's directory.
struct ZipEntry {
  std::string name;
  std::uint16_t flags = 0;
  std::uint16_t method = 0;
  std::uint32_t checksum = 0;
  std::uint64_t packed_bytes = 0;
  std::uint64_t bytes = 0;
  std::uint64_t header = 0;  // Is the offset of the member's own header.
};

// Returns the directory of a zip file. Throws Error file for bytes that are no zip file. `path` names the file in
// messages.
std::vector<ZipEntry> read_zip_directory(const std::string& path, std::span<const std::byte> file);

// Holds the content of a member.
struct ZipMember {
  std::span<const std::byte> bytes;
  std::shared_ptr<const Bytes> unpacked;  // Has the bytes of a compressed member; null if the file has them.
};
// Finds a member, and unpacks it if it is compressed. It compares the checksum of compressed members alone, since
// others are not read here.
ZipMember read_zip_member(const std::string& path, std::span<const std::byte> file, const ZipEntry& entry);

}  // namespace lockstep::data
