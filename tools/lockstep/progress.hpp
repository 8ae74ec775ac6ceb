// SPDX-License-Identifier: Apache-2.0
// One line on a terminal that says how far a command is; nothing where standard error is none.
#pragma once

#include <string_view>

namespace lockstep::command {

class ProgressLine {
 public:
  explicit ProgressLine(bool speaking);
  ~ProgressLine() { clear(); }
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;
  void show(std::string_view words);
  void clear();

 private:
  bool shown_;
  bool has_words_ = false;
};

}  // namespace lockstep::command
