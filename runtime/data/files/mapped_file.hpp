// SPDX-License-Identifier: Apache-2.0
// Reads a whole file through the kernel's page cache, which all processes of a node share.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <ctime>
#include <span>
#include <string>

namespace lockstep::data {

// Maps a regular file for reading.
class MappedFile {
 public:
  // Throws Error file if the file cannot be read.
  explicit MappedFile(const std::string& path);
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile();

  std::span<const std::byte> bytes() const { return {begin_, size_}; }
  // Throws Error file if the file has been changed since it was mapped. A read behind its end would be a SIGBUS. A file
  // that took its place by a rename does not count, since the old one stays mapped.
  void require_unchanged() const;

 private:
  std::string path_;
  const std::byte* begin_ = nullptr;
  std::size_t size_ = 0;
  dev_t device_{};
  ino_t number_{};
  timespec changed_{};
};

}  // namespace lockstep::data
