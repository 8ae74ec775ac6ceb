// SPDX-License-Identifier: Apache-2.0
// Reads files from the beginning to the end, unpacked if they are gzip files.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/data/files/gzip.hpp"
#include "topology/base/bytes.hpp"
#include "topology/base/descriptor.hpp"

namespace lockstep::data {

// Tells from its first bytes whether a file is not packed, though it begins as gzip files do.
using IsPlain = bool (*)(std::string_view beginning);

// Reads the content of a regular file.
class ContentStream {
 public:
  // Throws Error file if the file cannot be read.
  ContentStream(std::string path, IsPlain is_plain);
  // Returns the number of bytes read into `out`; 0 at the end only.
  std::size_t read(std::span<std::byte> out);
  // Goes to a byte of the content. A packed file is unpacked again up to it. Throws Error bad_message if there is no
  // such byte.
  void seek(std::uint64_t offset);
  const std::string& path() const { return path_; }

 private:
  std::size_t read_file(std::span<std::byte> out);
  std::size_t read_packed(std::span<std::byte> out);

  std::string path_;
  OwnedDescriptor file_;
  std::uint64_t size_ = 0;  // Is the file's size when it was opened.
  std::uint64_t next_ = 0;  // Is the next byte of the file.
  std::optional<Inflater> inflater_;
  Bytes packed_;
  std::span<const std::byte> packed_left_;
};

// Shows the content of a file piece by piece.
class InputFile {
 public:
  explicit InputFile(std::string path, IsPlain is_plain = nullptr) : stream_(std::move(path), is_plain) {}
  // Returns `least` bytes or more from the offset on, or fewer at the end of the file. They hold until the next call of
  // peek() or seek().
  std::string_view peek(std::size_t least);
  // Goes behind bytes that peek() has returned.
  void skip(std::size_t bytes) { begin_ += bytes; }
  // Returns the offset of the next byte in the content.
  std::uint64_t offset() const { return buffer_offset_ + begin_; }
  void seek(std::uint64_t offset);
  const std::string& path() const { return stream_.path(); }

 private:
  void fill();

  ContentStream stream_;
  std::unique_ptr<char[]> buffer_;
  std::size_t capacity_ = 0;
  std::size_t begin_ = 0;  // Are the bytes in the buffer that have not been skipped.
  std::size_t end_ = 0;
  std::uint64_t buffer_offset_ = 0;  // Is the offset of the buffer's first byte.
  bool is_at_end_ = false;
};

// Reads several files one after the other.
class FileSequence {
 public:
  explicit FileSequence(const std::vector<std::string>& paths, IsPlain is_plain = nullptr)
      : paths_(paths), is_plain_(is_plain) {}
  // Returns the file at the position; null behind the last one.
  InputFile* current();
  // Goes to the next file.
  void leave();
  std::size_t number() const { return number_; }  // Counts the files before the current one.

  // Appends the number of the file, and the offset in it; and goes there.
  void save(Writer& to) const;
  void seek(Reader& from);

 private:
  const std::vector<std::string>& paths_;
  IsPlain is_plain_;
  std::size_t number_ = 0;
  std::optional<InputFile> file_;
};

}  // namespace lockstep::data
