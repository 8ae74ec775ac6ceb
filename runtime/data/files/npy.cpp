// SPDX-License-Identifier: Apache-2.0
// Reads headers of .npy files: a sign, the version, the header's length, and a Python dictionary with the element type,
// the order and the shape.
#include "runtime/data/files/npy.hpp"

#include <charconv>

#include "runtime/data/files/zip.hpp"

namespace lockstep::data {
namespace {

struct NpyHeader {
  std::string type;
  bool is_fortran = false;
  std::vector<std::int64_t> lengths;
};

// Reads the dictionary. It takes the few forms that NumPy writes.
class NpyHeaderReader {
 public:
  NpyHeaderReader(const std::string& place, std::string_view text, std::size_t offset)
      : place_(place), text_(text), offset_(offset) {}

  NpyHeader read() {
    NpyHeader header;
    unsigned seen = 0;
    expect('{');
    while (!take('}')) {
      const std::string_view key = quoted();
      expect(':');
      if (key == "descr") {
        header.type = element_type();
        seen |= 1U;
      } else if (key == "fortran_order") {
        header.is_fortran = boolean();
        seen |= 2U;
      } else if (key == "shape") {
        header.lengths = shape();
        seen |= 4U;
      } else {
        refuse("the header of the .npy file has an unknown key");
      }
      if (!take(',')) {
        expect('}');
        break;
      }
    }
    if (seen != 7) refuse("the header of the .npy file lacks descr, fortran_order or shape");
    return header;
  }

 private:
  [[noreturn]] void refuse(std::string_view fault) const {
    throw Error(Code::file, text(place_, ", byte ", offset_ + at_, ": ", fault), "write the file by numpy.save");
  }
  bool take(char letter) {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n')) ++at_;
    if (at_ == text_.size() || text_[at_] != letter) return false;
    ++at_;
    return true;
  }
  void expect(char letter) {
    if (!take(letter)) refuse(text("the header of the .npy file has no '", letter, "' here"));
  }
  std::string_view quoted() {
    const char quote = take('"') ? '"' : '\'';
    if (quote == '\'') expect(quote);
    const std::size_t end = text_.find(quote, at_);
    if (end == std::string_view::npos) refuse("a text in the header of the .npy file does not end");
    const std::string_view word = text_.substr(at_, end - at_);
    at_ = end + 1;
    return word;
  }
  std::string element_type() {
    if (take('[')) refuse("the elements have fields, which are no numbers; write each field as an array of its own");
    return std::string(quoted());
  }
  bool boolean() {
    take(' ');
    for (const std::string_view word : {"True", "False"}) {
      if (!text_.substr(at_).starts_with(word)) continue;
      at_ += word.size();
      return word == "True";
    }
    refuse("fortran_order is neither True nor False");
  }
  std::vector<std::int64_t> shape() {
    std::vector<std::int64_t> lengths;
    expect('(');
    while (!take(')')) {
      std::int64_t length = 0;
      const auto [end, error] = std::from_chars(text_.data() + at_, text_.data() + text_.size(), length);
      if (error != std::errc() || length < 0) refuse("the shape has no length here");
      at_ = static_cast<std::size_t>(end - text_.data());
      lengths.push_back(length);
      if (!take(',')) {
        expect(')');
        break;
      }
      take(' ');
    }
    return lengths;
  }

  const std::string& place_;
  std::string_view text_;
  std::size_t offset_;
  std::size_t at_ = 0;
};

struct NpyType {
  std::string_view name;
  DataType type;
};
constexpr std::array npy_types = {
    NpyType{"b1", DataType::boolean}, NpyType{"i1", DataType::i8},    NpyType{"i2", DataType::i16},
    NpyType{"i4", DataType::i32},     NpyType{"i8", DataType::i64},   NpyType{"u1", DataType::u8},
    NpyType{"u2", DataType::u16},     NpyType{"u4", DataType::u32},   NpyType{"u8", DataType::u64},
    NpyType{"f2", DataType::f16},     NpyType{"f4", DataType::f32},   NpyType{"f8", DataType::f64},
    NpyType{"c8", DataType::c64},     NpyType{"c16", DataType::c128}, NpyType{"V2", DataType::bf16}};  // by ml_dtypes

DataType type_of_npy(const std::string& place, const std::string& name) {
  const std::string_view kind = std::string_view(name).substr(name.empty() ? 0 : 1);
  const auto* const found = std::ranges::find(npy_types, kind, &NpyType::name);
  const auto refuse = [&](std::string_view remedy) {
    throw Error(Code::file, text(place, " has elements of type \"", printable(name), '"'), remedy);
  };
  if (found == npy_types.end()) refuse("write numbers: a.astype(numpy.float32)");
  if (name[0] != '<' && (name[0] != '|' || (size_of(found->type) != 1 && kind != "V2")))
    refuse(text("write little-endian numbers: a.astype('<", kind, "')"));
  return found->type;
}

// Reads the array that is all of these bytes.
FileArray read_npy_bytes(const std::string& place, std::span<const std::byte> bytes) {
  constexpr std::string_view sign = "\x93NUMPY";
  const auto refuse = [&](std::size_t byte, std::string_view fault) {
    throw Error(Code::file, text(place, ", byte ", byte, ": ", fault), "give a whole file that numpy.save has written");
  };
  const std::string_view letters(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  const auto byte = [&](std::size_t i) { return static_cast<std::size_t>(static_cast<unsigned char>(letters[i])); };
  if (!letters.starts_with(sign)) refuse(0, "these are not the first bytes of a .npy file");
  const bool is_first = letters.size() > 6 && byte(6) == 1;
  const std::size_t begin = is_first ? 10 : 12;
  if (letters.size() < begin) refuse(letters.size(), "the file ends in the header of a .npy file");
  if (byte(6) < 1 || byte(6) > 3) refuse(6, text("version ", byte(6), " of the .npy format is unknown"));
  const std::size_t length = byte(8) + (byte(9) << 8U) + (is_first ? 0 : (byte(10) << 16U) + (byte(11) << 24U));
  if (length > letters.size() - begin) refuse(letters.size(), "the file ends in the header of a .npy file");
  const NpyHeader header = NpyHeaderReader(place, letters.substr(begin, length), begin).read();
  if (header.is_fortran && header.lengths.size() > 1)
    throw Error(Code::file, text(place, " has an array in Fortran's order"),
                "write it in C's order: numpy.save(path, numpy.ascontiguousarray(a))");
  FileArray array{place, type_of_npy(place, header.type), header.lengths};
  if (header.lengths.size() > static_cast<std::size_t>(TensorShape::most_axes))
    refuse(begin, text("an array of ", header.lengths.size(), " axes; there can be ", TensorShape::most_axes));
  const std::size_t data = begin + length;
  const auto size = bytes_of_array(array.type, array.lengths, bytes.size() - data);
  if (!size) refuse(bytes.size(), "the file ends before the last element of its array");
  if (*size < bytes.size() - data) refuse(data + *size, "the file goes on behind its array");
  array.bytes = bytes.subspan(data);
  return array;
}

FileArray read_npz_member(const std::string& path, const std::shared_ptr<const MappedFile>& file,
                          const std::vector<ZipEntry>& entries, const std::string& name) {
  const auto found = std::ranges::find_if(
      entries, [&](const ZipEntry& entry) { return entry.name == name || entry.name == name + ".npy"; });
  if (found == entries.end()) {
    std::vector<std::string> names;
    for (const ZipEntry& entry : entries) {
      const std::string_view whole = entry.name;
      names.emplace_back(whole.ends_with(".npy") ? whole.substr(0, whole.size() - 4) : whole);
    }
    constexpr std::size_t most_names = 400;
    throw Error(Code::usage, text(place_of(path), " has no array \"", printable(name), '"'),
                text("it has ", printable(join(names, ", "), most_names)));
  }
  const ZipMember member = read_zip_member(path, file->bytes(), *found);
  FileArray array = read_npy_bytes(text(place_of(path), ", array \"", printable(name), '"'), member.bytes);
  array.unpacked = member.unpacked;
  if (member.unpacked == nullptr) array.mapped = file;
  return array;
}

}  // namespace

std::vector<FileArray> read_npy(const std::string& path) {
  auto file = std::make_shared<const MappedFile>(path);
  FileArray array = read_npy_bytes(place_of(path), file->bytes());
  array.mapped = std::move(file);
  return {array};
}

std::vector<FileArray> read_npz(const std::string& path, const std::vector<std::string>& names) {
  const auto file = std::make_shared<const MappedFile>(path);
  const std::vector<ZipEntry> entries = read_zip_directory(path, file->bytes());
  std::vector<FileArray> arrays;
  arrays.reserve(names.size());
  for (const std::string& name : names) arrays.push_back(read_npz_member(path, file, entries, name));
  return arrays;
}

}  // namespace lockstep::data
