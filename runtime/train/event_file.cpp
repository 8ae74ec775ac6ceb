// SPDX-License-Identifier: Apache-2.0
// Encodes the messages by hand: tensorflow/core/util/event.proto and framework/summary.proto.
#include "runtime/train/event_file.hpp"

#include <unistd.h>

#include <atomic>
#include <bit>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "runtime/data/files/crc32c.hpp"
#include "topology/base/error.hpp"
#include "topology/base/text.hpp"

namespace lockstep::train {
namespace {

// Hold the kinds of protobuf's fields.
enum class WireType : std::uint8_t { varint = 0, eight_bytes = 1, bytes = 2, four_bytes = 5 };

static_assert(std::endian::native == std::endian::little, "numbers are written as they are in memory");
template <class T>
std::string raw_bytes(T number) {
  return {reinterpret_cast<const char*>(&number), sizeof number};
}
std::string varint(std::uint64_t number) {
  std::string bytes;
  for (; number > 0x7f; number >>= 7U) bytes += static_cast<char>((number & 0x7fU) | 0x80U);
  return bytes += static_cast<char>(number);
}
std::string field_key(unsigned number, WireType type) { return varint(number << 3U | static_cast<unsigned>(type)); }
std::string double_field(unsigned number, double value) {
  return field_key(number, WireType::eight_bytes) + raw_bytes(value);
}
std::string float_field(unsigned number, float value) {
  return field_key(number, WireType::four_bytes) + raw_bytes(value);
}
std::string integer_field(unsigned number, std::int64_t value) {
  return field_key(number, WireType::varint) + varint(static_cast<std::uint64_t>(value));
}
std::string bytes_field(unsigned number, std::string_view bytes) {
  return (field_key(number, WireType::bytes) + varint(bytes.size())).append(bytes);
}

double seconds_since_1970() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}
// Returns "events.out.tfevents.1764400000.host.123.0". TensorBoard reads the files of a folder by the order of names.
std::string file_name() {
  static std::atomic<int> files{0};
  std::string host(256, '\0');
  if (gethostname(host.data(), host.size() - 1) != 0) host = "localhost";
  return text("events.out.tfevents.", static_cast<std::int64_t>(seconds_since_1970()), '.', host.c_str(), '.', getpid(),
              '.', files.fetch_add(1));
}

}  // namespace

EventFile::EventFile(const std::string& folder) : path_(text(folder, '/', file_name())) {
  std::error_code failure;
  std::filesystem::create_directories(folder, failure);
  errno = failure.value();
  if (!failure) file_.open(path_, std::ios::binary);
  if (failure || !file_)
    throw Error(Code::file, text("the event file ", path_, " cannot be made: ", std::strerror(errno)),
                "give the callback TensorBoard a folder that can be written");
  write(double_field(1, seconds_since_1970()) + bytes_field(3, "brain.Event:2"));
}

void EventFile::scalar(std::string_view tag, float value, std::int64_t step) {
  const std::string point = bytes_field(1, tag) + float_field(2, value);
  write(double_field(1, seconds_since_1970()) + integer_field(2, step) + bytes_field(5, bytes_field(1, point)));
}

void EventFile::write(std::string_view event) {
  const std::string length = raw_bytes(static_cast<std::uint64_t>(event.size()));
  file_ << length << raw_bytes(data::masked_crc32c(length)) << event << raw_bytes(data::masked_crc32c(event));
  if (!file_.flush())
    throw Error(Code::file, text("the event file ", path_, " cannot be written: ", std::strerror(errno)),
                "make space on the disk");
}

}  // namespace lockstep::train
