// SPDX-License-Identifier: Apache-2.0
// Reads and writes the files of caches: a head, blocks of rows, and an index, each with a checksum.
#pragma once

#include <cstdint>
#include <ctime>
#include <memory>
#include <string>
#include <vector>

#include "topology/base/bytes.hpp"
#include "topology/base/descriptor.hpp"

namespace lockstep::data {

// Says which rows a file has.
struct CacheHead {
  std::string pipeline;  // Describes the stages above the cache.
  Bytes types;           // Tells the types of the elements' parts.
  Bytes opening;         // Holds the order of the rows.
};

// Writes a file under another name. Nobody sees it before publish().
class CacheDraft {
 public:
  // Returns a draft of the file at `path`. Returns null if another loop or process writes it, or has written it, and
  // for a draft of another user. A draft of a process that has ended is begun anew.
  static std::unique_ptr<CacheDraft> begin(const std::string& path, const CacheHead& head);
  // Removes the draft, unless it has been published.
  ~CacheDraft();
  CacheDraft(const CacheDraft&) = delete;
  CacheDraft& operator=(const CacheDraft&) = delete;

  // Append a block, and complete the file under its name. Both throw Error file, and name the path. A draft that
  // somebody has deleted is not published.
  void add(std::uint64_t rows, const Bytes& block);
  void publish();

 private:
  CacheDraft(std::string path, OwnedDescriptor file);
  void write(const Bytes& bytes);
  void write_section(const Bytes& content);
  bool is_named() const;
  std::string name() const { return path_ + ".draft"; }

  std::string path_;
  OwnedDescriptor file_;  // Has the lock that makes this process the only writer.
  std::uint64_t size_ = 0;
  Writer index_;
  std::uint64_t blocks_ = 0;
  bool is_published_ = false;
};

// Reads a complete file. Several threads may use it.
class CacheFile {
 public:
  struct Block {
    std::uint64_t first_row = 0;
    std::uint64_t rows = 0;
    std::uint64_t offset = 0;
  };

  // Returns the file at `path`; null if there is none. Throws Error file for a damaged one, and for one that has
  // another pipeline or other types than `head`.
  static std::shared_ptr<const CacheFile> open(const std::string& path, const CacheHead& head);

  // True if the path still names this file, and nobody has written to it since.
  bool is_current() const;
  const Bytes& opening() const { return head_.opening; }
  std::uint64_t rows() const { return rows_; }
  // Returns the block of a row that is there.
  const Block& block_of(std::uint64_t row) const;
  Bytes read(const Block& block) const { return section_at(block.offset); }
  // Throws Error file that names the file and the offset.
  [[noreturn]] void refuse(std::uint64_t offset, const std::string& why) const;

 private:
  CacheFile(std::string path, OwnedDescriptor file);
  void check_head(const CacheHead& head);
  void read_index();
  Bytes bytes_at(std::uint64_t offset, std::uint64_t size) const;
  Bytes section_at(std::uint64_t offset) const;

  std::string path_;
  OwnedDescriptor file_;
  std::uint64_t size_ = 0;
  timespec changed_{};  // Is the time of the last change.
  CacheHead head_;
  std::vector<Block> blocks_;
  std::uint64_t rows_ = 0;
};

}  // namespace lockstep::data
