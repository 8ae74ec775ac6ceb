// SPDX-License-Identifier: Apache-2.0
// Prints an uncaught Error and ends the process with its exit code.
#include "topology/machine/last_word.hpp"

#include <unistd.h>

#include <cstdlib>
#include <exception>

#include "topology/base/error.hpp"
#include "topology/base/text.hpp"

namespace lockstep {
namespace {

std::terminate_handler handler_before = nullptr;

[[noreturn]] void end() {
  try {
    if (std::current_exception()) throw;
  } catch (const Error& error) {
    const std::string words = text(error.what(), '\n');
    [[maybe_unused]] const auto written = ::write(STDERR_FILENO, words.data(), words.size());
    ::_exit(static_cast<int>(error.exit()));
  } catch (...) {  // NOLINT(bugprone-empty-catch): the one before says what it is
  }
  if (handler_before != nullptr) handler_before();
  std::abort();
}

bool is_as_it_comes(std::terminate_handler handler) {
#if defined(__GLIBCXX__)
  return handler == &__gnu_cxx::__verbose_terminate_handler;
#else
  return handler == nullptr;
#endif
}

}  // namespace

void end_by_exit_codes() {
  static const bool once = [] {
    if (!is_as_it_comes(std::get_terminate())) return false;
    handler_before = std::set_terminate(end);
    return true;
  }();
  static_cast<void>(once);
}

}  // namespace lockstep
