// SPDX-License-Identifier: Apache-2.0
// The file is
//   magic, version | head | block | ... | block | index | offset of the index, its checksum, magic
// Head, blocks and index are sections: size and checksum of the content, and the content. A file that was cut lacks the
// end.
#include "runtime/data/cache_file.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include "topology/base/error.hpp"
#include "topology/base/text.hpp"

namespace lockstep::data {
namespace {

constexpr std::uint64_t magic = 0x4548434143534B4CU;  // "LKSCACHE"
constexpr std::uint32_t version = 1;
constexpr std::uint64_t begin_size = sizeof magic + sizeof version;
constexpr std::uint64_t section_head_size = 2 * sizeof(std::uint64_t);
constexpr std::uint64_t end_size = 3 * sizeof(std::uint64_t);

std::string shown(const std::string& path) { return text("the cache \"", printable(path, 200), '"'); }

[[noreturn]] void refuse_write(const std::string& path, int error) {
  throw Error(Code::file, text(shown(path), " cannot be written: ", std::generic_category().message(error)),
              "give a path on a disk with free space, in a folder that this process may change");
}

// True if the path names the file of a descriptor.
bool names(const std::string& path, const OwnedDescriptor& file) {
  struct stat named {};
  struct stat opened {};
  return ::stat(path.c_str(), &named) == 0 && ::fstat(file.get(), &opened) == 0 && named.st_dev == opened.st_dev &&
         named.st_ino == opened.st_ino;
}

// Takes eight bytes at a time. A change in one word alone always changes the result.
std::uint64_t checksum(std::span<const std::byte> bytes) {
  std::uint64_t state = bytes.size();
  while (!bytes.empty()) {
    const std::size_t size = std::min(bytes.size(), sizeof state);
    std::uint64_t word = 0;
    std::memcpy(&word, bytes.data(), size);
    state = (state ^ word) * 0x9fb21c651e98df25U;
    state ^= state >> 35U;
    bytes = bytes.subspan(size);
  }
  return state;
}

std::uint64_t checksum(std::uint64_t number) { return checksum(std::as_bytes(std::span(&number, 1))); }

// A new name outlives a failure of the system once its folder is on the disk. Some file systems cannot do that.
void sync_folder_of(const std::string& path) {
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  const OwnedDescriptor opened(::open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (opened) ::fsync(opened.get());
}

}  // namespace

CacheDraft::CacheDraft(std::string path, OwnedDescriptor file) : path_(std::move(path)), file_(std::move(file)) {}

std::unique_ptr<CacheDraft> CacheDraft::begin(const std::string& path, const CacheHead& head) {
  const std::string name = path + ".draft";
  OwnedDescriptor file(::open(name.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0666));
  const int error = file ? 0 : errno;
  if (error == EACCES && ::access(name.c_str(), F_OK) == 0) return nullptr;
  if (error != 0) refuse_write(path, error);
  // The system gives up the lock of a process that ends.
  if (::flock(file.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno == EWOULDBLOCK) return nullptr;
    refuse_write(path, errno);
  }
  // Another writer may have published or removed this file before it gave up the lock.
  if (!names(name, file)) return nullptr;
  std::unique_ptr<CacheDraft> draft(new CacheDraft(path, std::move(file)));
  if (::access(path.c_str(), F_OK) == 0) return nullptr;
  if (::ftruncate(draft->file_.get(), 0) != 0) refuse_write(path, errno);
  draft->write(Writer().put(magic).put(version).take());
  draft->write_section(Writer()
                           .put(std::string_view(head.pipeline))
                           .put(std::span<const std::byte>(head.types))
                           .put(std::span<const std::byte>(head.opening))
                           .take());
  return draft;
}

CacheDraft::~CacheDraft() {
  if (!is_published_ && is_named()) ::unlink(name().c_str());
}

// Another loop may have begun a draft of this name, if somebody has deleted the first one.
bool CacheDraft::is_named() const { return names(name(), file_); }

void CacheDraft::add(std::uint64_t rows, const Bytes& block) {
  index_.put(rows).put(size_);
  ++blocks_;
  write_section(block);
}

void CacheDraft::publish() {
  const std::uint64_t offset = size_;
  const Bytes blocks = index_.take();
  write_section(Writer().put(blocks_).put(std::span<const std::byte>(blocks)).take());
  write(Writer().put(offset).put(checksum(offset)).put(magic).take());
  if (::fsync(file_.get()) != 0) refuse_write(path_, errno);
  if (!is_named()) return;
  if (::rename(name().c_str(), path_.c_str()) != 0) refuse_write(path_, errno);
  is_published_ = true;
  sync_folder_of(path_);
}

void CacheDraft::write(const Bytes& bytes) {
  // A write beyond the limit would end the program by a signal.
  rlimit longest{};
  if (::getrlimit(RLIMIT_FSIZE, &longest) == 0 && longest.rlim_cur < size_ + bytes.size()) refuse_write(path_, EFBIG);
  for (std::size_t done = 0; done < bytes.size();) {
    const ssize_t written = ::write(file_.get(), bytes.data() + done, bytes.size() - done);
    if (written == 0 || (written < 0 && errno != EINTR)) refuse_write(path_, written == 0 ? EIO : errno);
    if (written > 0) done += static_cast<std::size_t>(written);
  }
  size_ += bytes.size();
}

void CacheDraft::write_section(const Bytes& content) {
  write(Writer().put(static_cast<std::uint64_t>(content.size())).put(checksum(content)).take());
  write(content);
}

CacheFile::CacheFile(std::string path, OwnedDescriptor file) : path_(std::move(path)), file_(std::move(file)) {}

std::shared_ptr<const CacheFile> CacheFile::open(const std::string& path, const CacheHead& head) {
  OwnedDescriptor opened(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!opened && errno == ENOENT) return nullptr;
  struct stat its {};
  const int error = !opened || ::fstat(opened.get(), &its) != 0 ? errno : S_ISREG(its.st_mode) ? 0 : EINVAL;
  if (error != 0)
    throw Error(Code::file, text(shown(path), " cannot be read: ", std::generic_category().message(error)),
                "give the path of a file, or of none");
  std::shared_ptr<CacheFile> file(new CacheFile(path, std::move(opened)));
  file->size_ = static_cast<std::uint64_t>(its.st_size);
  file->changed_ = its.st_mtim;
  file->check_head(head);
  file->read_index();
  return file;
}

bool CacheFile::is_current() const {
  struct stat its {};
  return names(path_, file_) && ::fstat(file_.get(), &its) == 0 && its.st_mtim.tv_sec == changed_.tv_sec &&
         its.st_mtim.tv_nsec == changed_.tv_nsec;
}

void CacheFile::refuse(std::uint64_t offset, const std::string& why) const {
  throw Error(Code::file, text(shown(path_), " is damaged at byte ", offset, ": ", why),
              "delete it; the next complete loop writes it anew");
}

void CacheFile::check_head(const CacheHead& head) {
  const Bytes begin = bytes_at(0, begin_size);
  Reader reader(begin);
  if (reader.get<std::uint64_t>() != magic) refuse(0, "it does not begin as a cache of Lockstep");
  const auto theirs = reader.get<std::uint32_t>();
  if (theirs != version)
    refuse(sizeof magic, text("it has the format ", theirs, ", and this Lockstep reads the format ", version));
  const Bytes content = section_at(begin_size);
  Reader fields(content);
  head_.pipeline = fields.get_string();
  head_.types = fields.get_bytes();
  head_.opening = fields.get_bytes();
  if (head_.pipeline == head.pipeline && head_.types == head.types) return;
  const bool differs_in_types = head_.pipeline == head.pipeline;
  throw Error(Code::file,
              text(shown(path_), " has at byte ", begin_size, " the pipeline ", printable(head_.pipeline, 400),
                   differs_in_types ? " with elements of other types" : text(" and not ", head.pipeline)),
              "delete it, or give another path");
}

void CacheFile::read_index() {
  if (size_ < begin_size + end_size) refuse(size_, "it ends too early");
  const Bytes end = bytes_at(size_ - end_size, end_size);
  Reader reader(end);
  const auto offset = reader.get<std::uint64_t>();
  if (reader.get<std::uint64_t>() != checksum(offset) || reader.get<std::uint64_t>() != magic)
    refuse(size_ - end_size, "it has no end, so it was cut");
  const Bytes content = section_at(offset);
  Reader fields(content);
  const auto number = fields.get<std::uint64_t>();
  const Bytes all = fields.get_bytes();
  Reader blocks(all);
  for (std::uint64_t i = 0; i < number; ++i) {
    Block block{.first_row = rows_};
    block.rows = blocks.get<std::uint64_t>();
    block.offset = blocks.get<std::uint64_t>();
    rows_ += block.rows;
    blocks_.push_back(block);
  }
}

const CacheFile::Block& CacheFile::block_of(std::uint64_t row) const {
  return *std::prev(std::ranges::upper_bound(blocks_, row, {}, &Block::first_row));
}

Bytes CacheFile::bytes_at(std::uint64_t offset, std::uint64_t size) const {
  if (offset > size_ || size > size_ - offset) refuse(std::min(offset, size_), "it ends too early");
  Bytes bytes(size);
  for (std::uint64_t done = 0; done < size;) {
    const ssize_t got = ::pread(file_.get(), bytes.data() + done, size - done, static_cast<off_t>(offset + done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) refuse(offset + done, std::generic_category().message(errno));
    if (got == 0) refuse(offset + done, "it ends too early");
    done += static_cast<std::uint64_t>(got);
  }
  return bytes;
}

Bytes CacheFile::section_at(std::uint64_t offset) const {
  const Bytes head = bytes_at(offset, section_head_size);
  Reader reader(head);
  const auto size = reader.get<std::uint64_t>();
  const auto expected = reader.get<std::uint64_t>();
  Bytes content = bytes_at(offset + section_head_size, size);
  if (checksum(content) != expected) refuse(offset, "its checksum is wrong");
  return content;
}

}  // namespace lockstep::data
