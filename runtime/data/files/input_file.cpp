// SPDX-License-Identifier: Apache-2.0
// Reads files through a buffer that grows with the longest piece that a format asks for.
#include "runtime/data/files/input_file.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <system_error>

#include "runtime/data/files/files.hpp"
#include "topology/base/text_file.hpp"

namespace lockstep::data {
namespace {

constexpr std::size_t read_at_once = std::size_t{256} << 10U;  // A guess.

}  // namespace

ContentStream::ContentStream(std::string path, IsPlain is_plain)
    : path_(std::move(path)), file_(open_regular_file(path_, place_of(path_))) {
  struct stat its {};
  if (::fstat(file_.get(), &its) == 0) size_ = static_cast<std::uint64_t>(its.st_size);
  constexpr std::size_t longest_sign = 64;
  std::array<std::byte, longest_sign> room{};
  const auto beginning = std::span<const std::byte>(room).first(read_file(room));
  next_ = 0;
  const std::string_view letters(reinterpret_cast<const char*>(beginning.data()), beginning.size());
  if (is_gzip(beginning) && (is_plain == nullptr || !is_plain(letters))) inflater_.emplace(Wrapping::gzip, path_);
}

std::size_t ContentStream::read(std::span<std::byte> out) { return inflater_ ? read_packed(out) : read_file(out); }

std::size_t ContentStream::read_file(std::span<std::byte> out) {
  ssize_t got = 0;
  do {
    got = ::pread(file_.get(), out.data(), out.size(), static_cast<off_t>(next_));
  } while (got < 0 && errno == EINTR);
  if (got < 0)
    throw Error(Code::file, text(place_of(path_, next_), " cannot be read: ", std::generic_category().message(errno)),
                "check the disk");
  if (got == 0 && next_ < size_)
    throw Error(Code::file, text(place_of(path_), " had ", size_, " bytes, and has now ", next_),
                "do not change a file while it is read");
  next_ += static_cast<std::uint64_t>(got);
  return static_cast<std::size_t>(got);
}

std::size_t ContentStream::read_packed(std::span<std::byte> out) {
  for (;;) {
    const std::size_t got = inflater_->unpack(packed_left_, out);
    if (got > 0) return got;
    packed_.resize(read_at_once);
    packed_left_ = std::span<const std::byte>(packed_).first(read_file(packed_));
    if (!packed_left_.empty()) continue;
    if (inflater_->is_complete()) return 0;
    throw Error(Code::file, text(place_of(path_, next_), ": the compressed data end too early"),
                "the file is cut; get it again");
  }
}

void ContentStream::seek(std::uint64_t offset) {
  if (!inflater_) {
    check_position(offset <= size_);
    next_ = offset;
    return;
  }
  inflater_.emplace(Wrapping::gzip, path_);
  packed_left_ = {};
  next_ = 0;
  Bytes skipped(read_at_once);
  while (offset > 0) {
    const std::size_t got = read(std::span(skipped).first(std::min<std::uint64_t>(offset, skipped.size())));
    check_position(got > 0);
    offset -= got;
  }
}

std::string_view InputFile::peek(std::size_t least) {
  while (end_ - begin_ < least && !is_at_end_) fill();
  return {buffer_.get() + begin_, end_ - begin_};
}

void InputFile::seek(std::uint64_t offset) {
  if (offset >= buffer_offset_ && offset - buffer_offset_ <= end_) {
    begin_ = offset - buffer_offset_;
    return;
  }
  stream_.seek(offset);
  buffer_offset_ = offset;
  begin_ = end_ = 0;
  is_at_end_ = false;
}

// Moves the rest to the beginning of the buffer, and reads more behind it.
void InputFile::fill() {
  const std::size_t left = end_ - begin_;
  const std::size_t needed = left + std::max(left, read_at_once);
  if (capacity_ < needed) {
    std::unique_ptr<char[]> larger(new char[needed]);
    if (left > 0) std::memcpy(larger.get(), buffer_.get() + begin_, left);
    buffer_ = std::move(larger);
    capacity_ = needed;
  } else if (left > 0) {
    std::memmove(buffer_.get(), buffer_.get() + begin_, left);
  }
  buffer_offset_ += begin_;
  begin_ = 0;
  end_ = left;
  const std::size_t got = stream_.read(std::as_writable_bytes(std::span(buffer_.get() + end_, capacity_ - end_)));
  end_ += got;
  is_at_end_ = got == 0;
}

InputFile* FileSequence::current() {
  if (number_ == paths_.size()) return nullptr;
  if (!file_) file_.emplace(paths_[number_], is_plain_);
  return &*file_;
}

void FileSequence::leave() {
  file_.reset();
  ++number_;
}

void FileSequence::save(Writer& to) const {
  to.put(static_cast<std::uint64_t>(number_)).put(file_ ? file_->offset() : std::uint64_t{0});
}

void FileSequence::seek(Reader& from) {
  const auto number = from.get<std::uint64_t>();
  const auto offset = from.get<std::uint64_t>();
  check_position(number < paths_.size() || (number == paths_.size() && offset == 0));
  if (number != number_) file_.reset();
  number_ = number;
  if (offset > 0 || file_) current()->seek(offset);
}

}  // namespace lockstep::data
