// SPDX-License-Identifier: Apache-2.0
// Shows the progress of a command in one line on the terminal. Nothing is shown if standard error is no terminal.
#pragma once

#include <string_view>

namespace lockstep::command {

// Owns that line, and removes it at the end of its life. Only a speaking process shows anything.
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
