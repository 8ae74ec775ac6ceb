// SPDX-License-Identifier: Apache-2.0
// Writes the progress line with control sequences of terminals.
#include "tools/lockstep/progress.hpp"

#include <unistd.h>

#include <iostream>

namespace lockstep::command {

ProgressLine::ProgressLine(bool speaking) : shown_(speaking && ::isatty(STDERR_FILENO) == 1) {}

void ProgressLine::show(std::string_view words) {
  if (!shown_) return;
  std::cerr << "\r\x1b[K" << words << std::flush;
  has_words_ = true;
}

void ProgressLine::clear() {
  if (has_words_) std::cerr << "\r\x1b[K" << std::flush;
  has_words_ = false;
}

}  // namespace lockstep::command
