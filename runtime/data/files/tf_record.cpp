// SPDX-License-Identifier: Apache-2.0
// Reads records, and checks both checksums of each.
#include "runtime/data/files/tf_record.hpp"

#include <cstring>

#include "runtime/data/files/crc32c.hpp"
#include "runtime/data/files/text_cursor.hpp"

namespace lockstep::data {
namespace {

constexpr std::size_t length_bytes = sizeof(std::uint64_t);
constexpr std::size_t checksum_bytes = sizeof(std::uint32_t);
constexpr std::size_t record_header_bytes = length_bytes + checksum_bytes;

template <class T>
T number_at(std::string_view bytes, std::size_t offset) {
  T value{};
  std::memcpy(&value, bytes.data() + offset, sizeof value);
  return value;
}

// True if the bytes begin with a record's length and its checksum.
bool has_record(std::string_view bytes) {
  return bytes.size() >= record_header_bytes &&
         masked_crc32c(bytes.substr(0, length_bytes)) == number_at<std::uint32_t>(bytes, length_bytes);
}

[[noreturn]] void refuse_cut(const InputFile& file) {
  throw Error(Code::file,
              text(place_of(file.path(), file.offset()), ": the file ends in the TFRecord that begins here"),
              "the file is cut, or no TFRecord file; get it again");
}
[[noreturn]] void refuse_checksum(const InputFile& file, std::string_view what) {
  throw Error(Code::corrupt,
              text(place_of(file.path(), file.offset()), ": the ", what,
                   " of the TFRecord that begins here do not fit their checksum"),
              "the file is damaged, or no TFRecord file; get it again");
}
// Appends the next record. Returns false at the end of the file.
bool append_record(InputFile& file, Column<std::string>& out) {
  std::string_view bytes = file.peek(record_header_bytes);
  if (bytes.empty()) return false;
  if (bytes.size() < record_header_bytes) refuse_cut(file);
  if (!has_record(bytes)) refuse_checksum(file, "bytes of the length");
  const auto length = number_at<std::uint64_t>(bytes, 0);
  if (length > SIZE_MAX / 4) refuse_cut(file);
  const std::size_t whole = record_header_bytes + static_cast<std::size_t>(length) + checksum_bytes;
  bytes = file.peek(whole);
  if (bytes.size() < whole) refuse_cut(file);
  const std::string_view record = bytes.substr(record_header_bytes, static_cast<std::size_t>(length));
  if (masked_crc32c(record) != number_at<std::uint32_t>(bytes, whole - checksum_bytes)) refuse_checksum(file, "bytes");
  out.append_row(record);
  file.skip(whole);
  return true;
}

}  // namespace

std::unique_ptr<Cursor<TfRecordStage::C>> TfRecordStage::open(const Opening& /*opening*/) const {
  return std::make_unique<TextCursor>(files(), append_record, has_record);
}

void TfRecordWriter::write(std::string_view record) {
  const auto put = [&](auto number) {
    file_.write(std::string_view(reinterpret_cast<const char*>(&number), sizeof number));
  };
  const auto length = static_cast<std::uint64_t>(record.size());
  put(length);
  put(masked_crc32c(std::string_view(reinterpret_cast<const char*>(&length), sizeof length)));
  file_.write(record);
  put(masked_crc32c(record));
}

}  // namespace lockstep::data
