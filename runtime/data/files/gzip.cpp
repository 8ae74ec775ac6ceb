// SPDX-License-Identifier: Apache-2.0
// Calls zlib.
#include "runtime/data/files/gzip.hpp"

#define ZLIB_CONST
#include <zlib.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "runtime/data/files/files.hpp"

namespace lockstep::data {
namespace {

constexpr std::size_t most_at_once = std::size_t{1} << 30U;  // zlib counts bytes in 32 bits.
constexpr int gzip_window = 15 + 16;                         // 16 asks for gzip.
constexpr int bare_window = -15;

// Counts the zeros at the beginning. Some programs fill a gzip file with zeros up to a multiple of a block.
std::size_t count_zeros(std::span<const std::byte> bytes) {
  const auto end = std::ranges::find_if(bytes, [](std::byte each) { return each != std::byte{0}; });
  return static_cast<std::size_t>(end - bytes.begin());
}

uInt zlib_size(std::size_t bytes) { return static_cast<uInt>(std::min(bytes, most_at_once)); }

}  // namespace

bool has_zlib() { return true; }

struct Inflater::Stream {
  Stream(Wrapping its_wrapping, std::string its_path) : wrapping(its_wrapping), path(std::move(its_path)) {
    if (::inflateInit2(&zlib, wrapping == Wrapping::gzip ? gzip_window : bare_window) != Z_OK)
      throw Error(Code::out_of_memory, text("zlib has no memory to unpack ", place_of(path)));
  }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  ~Stream() { ::inflateEnd(&zlib); }

  z_stream zlib{};
  Wrapping wrapping;
  std::string path;
  bool is_complete = false;
  std::uint64_t unpacked = 0;
};

Inflater::Inflater(Wrapping wrapping, std::string path)
    : stream_(std::make_unique<Stream>(wrapping, std::move(path))) {}
Inflater::Inflater(Inflater&&) noexcept = default;
Inflater& Inflater::operator=(Inflater&&) noexcept = default;
Inflater::~Inflater() = default;

std::size_t Inflater::unpack(std::span<const std::byte>& packed, std::span<std::byte> out) {
  Stream& stream = *stream_;
  std::size_t written = 0;
  while (written < out.size()) {
    if (stream.is_complete) {
      if (stream.wrapping == Wrapping::gzip) packed = packed.subspan(count_zeros(packed));
      if (stream.wrapping == Wrapping::none || packed.empty()) break;
      ::inflateReset(&stream.zlib);  // Another member follows.
      stream.is_complete = false;
    }
    const uInt in_size = zlib_size(packed.size());
    const uInt out_size = zlib_size(out.size() - written);
    stream.zlib.next_in = reinterpret_cast<const Bytef*>(packed.data());
    stream.zlib.avail_in = in_size;
    stream.zlib.next_out = reinterpret_cast<Bytef*>(out.data() + written);
    stream.zlib.avail_out = out_size;
    const int status = ::inflate(&stream.zlib, Z_NO_FLUSH);
    packed = packed.subspan(in_size - stream.zlib.avail_in);
    written += out_size - stream.zlib.avail_out;
    stream.is_complete = status == Z_STREAM_END;
    if (status == Z_BUF_ERROR) break;
    if (status == Z_OK || status == Z_STREAM_END) continue;
    throw Error(Code::corrupt,
                text(place_of(stream.path), " is damaged behind ", stream.unpacked + written,
                     " unpacked bytes: ", stream.zlib.msg == nullptr ? "zlib refuses it" : stream.zlib.msg),
                "get the file again");
  }
  stream.unpacked += written;
  return written;
}

bool Inflater::is_complete() const { return stream_->is_complete; }

std::string pack_gzip(std::string_view content, const std::string& path) {
  z_stream zlib{};
  constexpr int memory_level = 8;
  if (::deflateInit2(&zlib, Z_DEFAULT_COMPRESSION, Z_DEFLATED, gzip_window, memory_level, Z_DEFAULT_STRATEGY) != Z_OK)
    throw Error(Code::out_of_memory, text("zlib has no memory to pack ", place_of(path)));
  const std::unique_ptr<z_stream, int (*)(z_stream*)> owner(&zlib, ::deflateEnd);
  std::string packed;
  std::vector<char> out(std::size_t{1} << 16U);
  for (int status = Z_OK; status != Z_STREAM_END;) {
    const uInt in_size = zlib_size(content.size());
    zlib.next_in = reinterpret_cast<const Bytef*>(content.data());
    zlib.avail_in = in_size;
    zlib.next_out = reinterpret_cast<Bytef*>(out.data());
    zlib.avail_out = zlib_size(out.size());
    status = ::deflate(&zlib, in_size == content.size() ? Z_FINISH : Z_NO_FLUSH);
    content.remove_prefix(in_size - zlib.avail_in);
    packed.append(out.data(), out.size() - zlib.avail_out);
  }
  return packed;
}

std::uint32_t crc32(std::span<const std::byte> bytes) {
  return static_cast<std::uint32_t>(
      ::crc32_z(::crc32_z(0, nullptr, 0), reinterpret_cast<const Bytef*>(bytes.data()), bytes.size()));
}

}  // namespace lockstep::data
