// SPDX-License-Identifier: Apache-2.0
// Maps files, and sees by their times whether they have been changed.
#include "runtime/data/files/mapped_file.hpp"

#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <system_error>

#include "runtime/data/files/files.hpp"
#include "topology/base/text_file.hpp"

namespace lockstep::data {

MappedFile::MappedFile(const std::string& path) : path_(path) {
  const OwnedDescriptor file = open_regular_file(path, place_of(path));
  struct stat its {};
  void* memory = nullptr;
  const bool has_size = ::fstat(file.get(), &its) == 0;
  size_ = static_cast<std::size_t>(its.st_size);
  if (has_size && size_ > 0) memory = ::mmap(nullptr, size_, PROT_READ, MAP_SHARED, file.get(), 0);
  if (!has_size || memory == MAP_FAILED)
    throw Error(Code::file, text(place_of(path), " cannot be mapped: ", std::generic_category().message(errno)),
                "check the limit of memory (ulimit -v), and the file's system");
  begin_ = static_cast<const std::byte*>(memory);
  device_ = its.st_dev;
  number_ = its.st_ino;
  changed_ = its.st_mtim;
}

MappedFile::~MappedFile() {
  if (size_ > 0) ::munmap(const_cast<std::byte*>(begin_), size_);  // NOLINT(cppcoreguidelines-pro-type-const-cast)
}

void MappedFile::require_unchanged() const {
  struct stat its {};
  if (::stat(path_.c_str(), &its) != 0 || its.st_dev != device_ || its.st_ino != number_) return;
  if (static_cast<std::size_t>(its.st_size) == size_ && its.st_mtim.tv_sec == changed_.tv_sec &&
      its.st_mtim.tv_nsec == changed_.tv_nsec)
    return;
  throw Error(Code::file, text(place_of(path_), " has been changed while it was read"),
              "write another file, and rename it to this path");
}

}  // namespace lockstep::data
