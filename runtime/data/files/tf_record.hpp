// SPDX-License-Identifier: Apache-2.0
// Reads and writes TFRecord files. A record is its length, the length's checksum, its bytes, and their checksum.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/data/files/files.hpp"
#include "runtime/data/files/output_file.hpp"

namespace lockstep::data {

// Gives the records of files.
class TfRecordStage final : public FileStage<Columns<std::string>> {
 public:
  using C = Columns<std::string>;
  using FileStage<C>::FileStage;
  std::unique_ptr<Cursor<C>> open(const Opening& opening) const override;
  std::int64_t length() const override { return unknown_length; }
  std::string describe() const override { return describe_source("from_tf_records", files()); }
  SharedStage<C> with_files(std::vector<std::string> paths) const override {
    return std::make_shared<TfRecordStage>(std::move(paths));
  }
};

// Returns the bytes of the files' records, whose checksums fit. The files may be gzip files.
inline Dataset<std::string> from_tf_records(const Files& files) {
  return Dataset<std::string>(std::make_shared<TfRecordStage>(files.paths()));
}

// Writes a TFRecord file.
class TfRecordWriter {
 public:
  explicit TfRecordWriter(std::string path) : file_(std::move(path)) {}
  void write(std::string_view record);
  // Makes the file appear at its path. Without it there is no file.
  void close() { file_.close(); }

 private:
  OutputFile file_;
};

}  // namespace lockstep::data
