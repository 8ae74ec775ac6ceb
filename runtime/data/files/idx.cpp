// SPDX-License-Identifier: Apache-2.0
// Reads headers of IDX files: two zeros, the type, the number of axes, and their lengths in 32 bits each.
#include "runtime/data/files/idx.hpp"

#include "runtime/data/files/gzip.hpp"
#include "runtime/data/files/output_file.hpp"

namespace lockstep::data {
namespace {

struct IdxType {
  unsigned number;
  DataType type;
};
constexpr std::array idx_types = {IdxType{0x08, DataType::u8},  IdxType{0x09, DataType::i8},
                                  IdxType{0x0b, DataType::i16}, IdxType{0x0c, DataType::i32},
                                  IdxType{0x0d, DataType::f32}, IdxType{0x0e, DataType::f64}};
constexpr std::size_t most_header_bytes = 4 + 4 * TensorShape::most_axes;

[[noreturn]] void refuse_idx(const std::string& path, std::size_t byte, const std::string& fault) {
  throw Error(Code::file, text(place_of(path, byte), ": ", fault), "give an IDX file, and get a cut one again");
}

struct IdxHeader {
  FileArray array;
  std::size_t header_bytes;
  std::size_t data_bytes;
};

// Reads the header at the beginning of a file with at most `most_bytes`.
IdxHeader read_idx_header(const std::string& path, std::span<const std::byte> beginning, std::uint64_t most_bytes) {
  const auto byte = [&](std::size_t i) { return std::to_integer<unsigned>(beginning[i]); };
  if (beginning.size() < 4) refuse_idx(path, beginning.size(), "the file ends in the header of an IDX file");
  const auto* const found = std::ranges::find(idx_types, byte(2), &IdxType::number);
  if (byte(0) != 0 || byte(1) != 0 || found == idx_types.end())
    refuse_idx(path, 0, "these are not the first bytes of an IDX file");
  const unsigned axes = byte(3);
  if (axes == 0 || axes > TensorShape::most_axes)
    refuse_idx(path, 3, text("an array of ", axes, " axes; there can be 1 to ", TensorShape::most_axes));
  const std::size_t header_bytes = 4 + 4 * std::size_t{axes};
  if (beginning.size() < header_bytes) refuse_idx(path, beginning.size(), "the file ends in the header of an IDX file");
  IdxHeader header{{place_of(path), found->type, {}, true}, header_bytes, 0};
  for (std::size_t at = 4; at < header_bytes; at += 4) {
    header.array.lengths.push_back(
        static_cast<std::int64_t>((byte(at) << 24U) + (byte(at + 1) << 16U) + (byte(at + 2) << 8U) + byte(at + 3)));
  }
  const auto bytes = bytes_of_array(header.array.type, header.array.lengths, most_bytes - header_bytes);
  if (!bytes) refuse_idx(path, 4, text("the header says more elements than the file has, which ends too early"));
  header.data_bytes = *bytes;
  return header;
}

[[noreturn]] void refuse_longer(const std::string& path, const IdxHeader& header) {
  refuse_idx(path, header.header_bytes + header.data_bytes, "the file goes on behind its array");
}

// Unpacks until `out` is full; returns the number of bytes.
std::size_t unpack_fully(Inflater& inflater, std::span<const std::byte>& packed, std::span<std::byte> out) {
  std::size_t all = 0;
  while (all < out.size()) {
    const std::size_t got = inflater.unpack(packed, out.subspan(all));
    if (got == 0) break;
    all += got;
  }
  return all;
}

FileArray read_packed_idx(const std::string& path, std::span<const std::byte> packed) {
  const std::uint64_t most = packed.size() * most_inflation;
  Inflater inflater(Wrapping::gzip, path);
  Bytes all(most_header_bytes);
  all.resize(unpack_fully(inflater, packed, all));
  IdxHeader header = read_idx_header(path, all, std::max<std::uint64_t>(most, all.size()));
  const std::size_t whole = header.header_bytes + header.data_bytes;
  const std::size_t before = all.size();
  if (before > whole) refuse_longer(path, header);
  all.resize(whole);
  const std::size_t got = before + unpack_fully(inflater, packed, std::span(all).subspan(before));
  if (got < whole) refuse_idx(path, got, text("the unpacked file ends, and its header says ", whole, " bytes"));
  std::byte more{};
  if (inflater.unpack(packed, std::span(&more, 1)) > 0) refuse_longer(path, header);
  if (!inflater.is_complete()) refuse_idx(path, whole, "the compressed data end too early");
  header.array.unpacked = std::make_shared<const Bytes>(std::move(all));
  header.array.bytes = std::span<const std::byte>(*header.array.unpacked).subspan(header.header_bytes);
  return header.array;
}

}  // namespace

std::vector<FileArray> read_idx(const std::string& path) {
  auto file = std::make_shared<const MappedFile>(path);
  const std::span<const std::byte> bytes = file->bytes();
  if (is_gzip(bytes)) return {read_packed_idx(path, bytes)};
  IdxHeader header = read_idx_header(path, bytes, bytes.size());
  if (bytes.size() > header.header_bytes + header.data_bytes) refuse_longer(path, header);
  header.array.bytes = bytes.subspan(header.header_bytes);
  header.array.mapped = std::move(file);
  return {header.array};
}

void write_idx_bytes(const std::string& path, DataType type, const TensorShape& shape,
                     std::span<const std::byte> elements) {
  const auto* const found = std::ranges::find(idx_types, type, &IdxType::type);
  const bool is_short = std::ranges::all_of(shape.lengths(), [](std::int64_t length) { return length >> 32 == 0; });
  if (found == idx_types.end() || shape.rank() == 0 || !is_short)
    throw Error(Code::usage, text("write_idx() of elements ", to_string(type), " with the shape ", shape.to_string()),
                "an IDX file has u8, i8, i16, i32, f32 or f64, and axes of less than 2^32");
  std::string content{0, 0, static_cast<char>(found->number), static_cast<char>(shape.rank())};
  for (const std::int64_t length : shape.lengths()) {
    for (int shift = 24; shift >= 0; shift -= 8) content += static_cast<char>(length >> shift & 0xff);
  }
  const std::size_t header_bytes = content.size();
  content.resize(header_bytes + elements.size());
  copy_swapped(elements, size_of(type), content.data() + header_bytes);
  OutputFile file(path);
  file.write(path.ends_with(".gz") ? pack_gzip(content, path) : content);
  file.close();
}

}  // namespace lockstep::data
