// SPDX-License-Identifier: Apache-2.0
// Reads zip files by their directory at the end, also those of more than 4 GiB (zip64). All numbers are little-endian.
#include "runtime/data/files/zip.hpp"

#include <algorithm>
#include <cstring>
#include <optional>

#include "runtime/data/files/files.hpp"
#include "runtime/data/files/gzip.hpp"

namespace lockstep::data {
namespace {

constexpr std::uint32_t end_sign = 0x06054b50;
constexpr std::uint32_t wide_end_sign = 0x06064b50;
constexpr std::uint32_t wide_locator_sign = 0x07064b50;
constexpr std::uint32_t entry_sign = 0x02014b50;
constexpr std::uint32_t member_sign = 0x04034b50;
constexpr std::size_t end_bytes = 22;
constexpr std::size_t wide_end_bytes = 56;
constexpr std::size_t locator_bytes = 20;
constexpr std::size_t entry_bytes = 46;
constexpr std::size_t member_bytes = 30;
constexpr std::uint32_t is_wide = 0xffffffff;  // Stands for a number that a wider field has.
constexpr std::uint16_t wide_field = 1;

// Reads numbers at offsets, and trusts none.
class ZipBytes {
 public:
  ZipBytes(const std::string& path, std::span<const std::byte> file) : path_(path), file_(file) {}

  std::uint64_t size() const { return file_.size(); }
  std::span<const std::byte> part(std::uint64_t offset, std::uint64_t bytes) const {
    if (offset > file_.size() || bytes > file_.size() - offset) refuse(offset, "the zip file ends too early");
    return file_.subspan(static_cast<std::size_t>(offset), static_cast<std::size_t>(bytes));
  }
  template <class T>
  T number(std::uint64_t offset) const {
    T value{};
    std::memcpy(&value, part(offset, sizeof value).data(), sizeof value);
    return value;
  }
  [[noreturn]] void refuse(std::uint64_t offset, std::string_view fault) const {
    throw Error(Code::file, text(place_of(path_, offset), ": ", fault), "give a whole zip file, as numpy.savez writes");
  }

 private:
  const std::string& path_;
  std::span<const std::byte> file_;
};

// Finds the last record, which a comment may follow.
std::uint64_t find_end(const ZipBytes& zip) {
  constexpr std::uint64_t longest_comment = 65535;
  if (zip.size() < end_bytes) zip.refuse(zip.size(), "the file is too short for a zip file");
  const std::uint64_t last = zip.size() - end_bytes;
  for (std::uint64_t back = 0; back <= std::min(last, longest_comment); ++back) {
    if (zip.number<std::uint32_t>(last - back) == end_sign) return last - back;
  }
  zip.refuse(last, "a zip file's end is not here");
}

struct Directory {
  std::uint64_t offset;
  std::uint64_t entries;
};

Directory find_directory(const ZipBytes& zip) {
  const std::uint64_t end = find_end(zip);
  Directory found{zip.number<std::uint32_t>(end + 16), zip.number<std::uint16_t>(end + 10)};
  const bool may_be_wide = found.offset == is_wide || found.entries == 0xffff;
  if (!may_be_wide || end < locator_bytes || zip.number<std::uint32_t>(end - locator_bytes) != wide_locator_sign)
    return found;
  const auto wide = zip.number<std::uint64_t>(end - locator_bytes + 8);
  zip.part(wide, wide_end_bytes);
  if (zip.number<std::uint32_t>(wide) != wide_end_sign) zip.refuse(wide, "a zip64 file's end is not here");
  return {zip.number<std::uint64_t>(wide + 48), zip.number<std::uint64_t>(wide + 32)};
}

// Reads the numbers that are wider than the entry's own fields.
void read_wide_fields(const ZipBytes& zip, std::uint64_t begin, std::uint64_t end, ZipEntry& entry) {
  while (begin + 4 <= end) {
    const auto kind = zip.number<std::uint16_t>(begin);
    const auto bytes = zip.number<std::uint16_t>(begin + 2);
    std::uint64_t at = begin + 4;
    begin = at + bytes;
    if (kind != wide_field) continue;
    for (std::uint64_t* const number : {&entry.bytes, &entry.packed_bytes, &entry.header}) {
      if (*number != is_wide) continue;
      if (at + sizeof *number > std::min(begin, end)) zip.refuse(at, "a zip64 field ends too early");
      *number = zip.number<std::uint64_t>(at);
      at += sizeof *number;
    }
  }
}

Bytes unpack_member(const std::string& path, std::span<const std::byte> packed, const ZipEntry& entry) {
  const std::string place = text(path, ", member ", entry.name);
  const auto refuse = [&](std::string_view fault) {
    throw Error(Code::corrupt, text(place_of(place), " ", fault, " its ", entry.bytes, " bytes"),
                "write the file again");
  };
  if (entry.bytes / most_inflation > packed.size()) refuse("has too few compressed bytes for");
  Inflater inflater(Wrapping::none, place);
  Bytes bytes(static_cast<std::size_t>(entry.bytes));
  std::size_t all = 0;
  while (all < bytes.size()) {
    const std::size_t got = inflater.unpack(packed, std::span(bytes).subspan(all));
    if (got == 0) refuse("ends before");
    all += got;
  }
  std::byte more{};
  if (inflater.unpack(packed, std::span(&more, 1)) > 0) refuse("goes on behind");
  if (crc32(bytes) != entry.checksum) refuse("has another checksum than the zip file says of");
  return bytes;
}

}  // namespace

std::vector<ZipEntry> read_zip_directory(const std::string& path, std::span<const std::byte> file) {
  const ZipBytes zip(path, file);
  const Directory directory = find_directory(zip);
  std::vector<ZipEntry> entries;
  std::uint64_t at = directory.offset;
  for (std::uint64_t i = 0; i < directory.entries; ++i) {
    zip.part(at, entry_bytes);
    if (zip.number<std::uint32_t>(at) != entry_sign) zip.refuse(at, "an entry of the zip file's directory is not here");
    const auto name_bytes = zip.number<std::uint16_t>(at + 28);
    const auto extra_bytes = zip.number<std::uint16_t>(at + 30);
    const auto comment_bytes = zip.number<std::uint16_t>(at + 32);
    ZipEntry entry{to_string(zip.part(at + entry_bytes, name_bytes)),
                   zip.number<std::uint16_t>(at + 8),
                   zip.number<std::uint16_t>(at + 10),
                   zip.number<std::uint32_t>(at + 16),
                   zip.number<std::uint32_t>(at + 20),
                   zip.number<std::uint32_t>(at + 24),
                   zip.number<std::uint32_t>(at + 42)};
    const std::uint64_t extra = at + entry_bytes + name_bytes;
    zip.part(extra, extra_bytes);
    read_wide_fields(zip, extra, extra + extra_bytes, entry);
    entries.push_back(std::move(entry));
    at = extra + extra_bytes + comment_bytes;
  }
  return entries;
}

ZipMember read_zip_member(const std::string& path, std::span<const std::byte> file, const ZipEntry& entry) {
  const ZipBytes zip(path, file);
  zip.part(entry.header, member_bytes);
  if (zip.number<std::uint32_t>(entry.header) != member_sign)
    zip.refuse(entry.header, "a member of the zip file is not here");
  const std::uint64_t begin = entry.header + member_bytes + zip.number<std::uint16_t>(entry.header + 26) +
                              zip.number<std::uint16_t>(entry.header + 28);
  const std::span<const std::byte> packed = zip.part(begin, entry.packed_bytes);
  constexpr std::uint16_t stored = 0;
  constexpr std::uint16_t deflated = 8;
  if ((entry.flags & 1U) != 0) zip.refuse(entry.header, "the member is encrypted");
  if (entry.method == stored) {
    if (entry.bytes != entry.packed_bytes) zip.refuse(entry.header, "the member has two sizes");
    return {packed, nullptr};
  }
  if (entry.method != deflated)
    zip.refuse(entry.header, text("the member is packed by method ", entry.method, ", not stored or deflated"));
  auto unpacked = std::make_shared<const Bytes>(unpack_member(path, packed, entry));
  return {*unpacked, unpacked};
}

}  // namespace lockstep::data
