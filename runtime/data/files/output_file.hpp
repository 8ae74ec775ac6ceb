// SPDX-License-Identifier: Apache-2.0
// Writes files that nobody sees before they are whole.
#pragma once

#include <string>
#include <string_view>

#include "topology/base/descriptor.hpp"

namespace lockstep::data {

// Writes to a draft beside the path. close() gives it the path; without it, the draft is deleted.
class OutputFile {
 public:
  // Throws Error file if the folder cannot be written to.
  explicit OutputFile(std::string path);
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;
  ~OutputFile();
  // Throw Error file. After a write that failed, close() throws too.
  void write(std::string_view bytes);
  void close();

 private:
  [[noreturn]] void refuse(int error) const;

  std::string path_;
  std::string draft_;
  OwnedDescriptor file_;
  int failure_ = 0;  // Is the number of the first error.
};

}  // namespace lockstep::data
