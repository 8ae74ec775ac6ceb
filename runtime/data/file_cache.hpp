// SPDX-License-Identifier: Apache-2.0
// Defines the store that keeps the rows of a cache in a file, for later loops and processes.
#pragma once

#include <algorithm>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "runtime/data/cache.hpp"
#include "runtime/data/cache_file.hpp"

namespace lockstep::data {

// Tells the types of the numbers and tensors in an element.
template <class E>
Bytes types_of() {
  Writer types;
  const Columns<E> none;
  for_each_column(none, [&](const auto& column) { column.save(types); });
  E element{};
  std::apply([&]<class... Leaf>(const Leaf&...) { (types.put(Number<Leaf>), ...); }, leaves(element));
  return types.take();
}

// Keeps rows in the file at a path. Of several loops and processes that begin at once, one writes it; the others read
// the stage above meanwhile.
template <class C>
class FileStore {
 public:
  class Kept {
   public:
    Kept(std::shared_ptr<const CacheFile> file, Opening opening)
        : file_(std::move(file)), opening_(std::move(opening)) {}
    const Opening& opening() const { return opening_; }
    std::uint64_t size() const { return file_->rows(); }
    // Appends rows of one block.
    std::size_t append(C& out, std::uint64_t first, std::size_t max_rows) {
      if (first >= size()) return 0;
      if (first < block_.first_row || first - block_.first_row >= rows_of(rows_)) load(file_->block_of(first));
      const auto place = static_cast<std::size_t>(first - block_.first_row);
      const std::size_t number = std::min(max_rows, rows_of(rows_) - place);
      append_rows(out, rows_, place, number);
      return number;
    }

   private:
    void load(const CacheFile::Block& block) try {
      clear(rows_);
      const Bytes bytes = file_->read(block);
      Reader reader(bytes);
      for_each_column(rows_, [&](auto& column) { column.load(reader); });
      if (rows_of(rows_) != block.rows)
        file_->refuse(block.offset, "a block has another number of rows than the index");
      block_ = block;
    } catch (...) {
      clear(rows_);
      block_ = {};
      throw;
    }

    std::shared_ptr<const CacheFile> file_;
    Opening opening_;
    CacheFile::Block block_;
    C rows_;  // Holds the rows of the block.
  };

  class Recording {
   public:
    explicit Recording(std::unique_ptr<CacheDraft> draft) : draft_(std::move(draft)) {}
    void add(const C& rows, std::size_t first, std::size_t number) {
      append_rows(block_, rows, first, number);
      if (rows_of(block_) >= block_rows_) flush();
    }
    void keep() {
      flush();
      draft_->publish();
    }

   private:
    static constexpr std::size_t block_bytes = std::size_t{1} << 20U;
    static constexpr std::size_t max_block_rows = std::size_t{1} << 16U;

    // The size of a block tells how many rows the next one should have.
    void flush() {
      if (rows_of(block_) == 0) return;
      Writer writer;
      for_each_column(block_, [&](const auto& column) { column.save(writer); });
      const Bytes bytes = writer.take();
      draft_->add(rows_of(block_), bytes);
      const std::size_t each = std::max<std::size_t>(1, bytes.size() / rows_of(block_));
      block_rows_ = std::clamp<std::size_t>(block_bytes / each, 1, max_block_rows);
      clear(block_);
    }

    std::unique_ptr<CacheDraft> draft_;
    C block_;
    std::size_t block_rows_ = 1;
  };

  FileStore(const Stage<C>& upstream, std::string path, const Bytes& types)
      : path_(std::move(path)), head_{.pipeline = upstream.describe(), .types = types} {}
  // Has no path, since each process may have its own.
  std::string name() const { return "cache(file)"; }
  // Gives each part of the input a file of its own, since the descriptions of two parts may be equal.
  template <class S>
  std::shared_ptr<S> stage_on(SharedStage<C> upstream, const InputPart& part) const {
    const std::string suffix = part.shards == 1 ? "" : text(".shard-", part.index, "-of-", part.shards);
    return std::make_shared<S>(std::move(upstream), path_ + suffix, head_.types);
  }
  std::optional<Kept> find(const Opening& like) const {
    std::shared_ptr<const CacheFile> file = opened();
    if (!file) return std::nullopt;
    Writer order;
    save_with_lap(like, order);
    if (file->opening().size() != order.take().size()) file->refuse(0, "it has the orders of other shuffles");
    Reader opening(file->opening());
    return Kept(std::move(file), load_with_lap(like, opening));
  }
  std::unique_ptr<Recording> record(const Opening& opening) const {
    if (opened()) return nullptr;
    CacheHead head = head_;
    Writer order;
    save_with_lap(opening, order);
    head.opening = order.take();
    std::unique_ptr<CacheDraft> draft = CacheDraft::begin(path_, head);
    return draft ? std::make_unique<Recording>(std::move(draft)) : nullptr;
  }

 private:
  // Opens the file again if somebody has deleted or replaced it.
  std::shared_ptr<const CacheFile> opened() const {
    const std::lock_guard lock(mutex_);
    if (!file_ || !file_->is_current()) file_ = CacheFile::open(path_, head_);
    return file_;
  }

  std::string path_;
  CacheHead head_;
  mutable std::mutex mutex_;
  mutable std::shared_ptr<const CacheFile> file_;  // Is null before a reading is complete.
};

template <class C>
using FileCacheStage = CacheStage<C, FileStore<C>>;

}  // namespace lockstep::data
