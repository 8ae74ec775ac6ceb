// SPDX-License-Identifier: Apache-2.0
// Errors that people can act on. Every error has a stable id (LOCKSTEP-E004) with one entry in
// docs/errors.md, says what was wrong and where, and how to mend it. The library throws; only the
// command, or an error that leaves main, ends a program.
#pragma once

#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>

namespace lockstep {

// Exit codes of the command; each error belongs to one.
enum class Exit : std::uint8_t {
  well = 0,
  usage = 1,
  wrong_data = 2,
  gate = 3,
  timeout = 4,
  peer_died = 5,
  unfit = 6,
  inconclusive = 7,
};

// The numbers are stable: a number is never given to another meaning.
enum class Code : std::uint16_t {
  usage = 1,
  bad_setting = 2,
  unknown_setting = 3,
  bad_description = 4,
  bad_xml = 5,
  bad_topology = 6,
  system = 7,
  mpi = 8,
  mpi_hang = 9,
  singleton = 10,
  thread_level = 11,
  mpi_ended = 12,
  settings_differ = 13,
  stall = 14,
  peer_failed = 15,
  mismatch = 16,
  poisoned = 17,
  bad_message = 18,
  shared_memory = 19,
  device = 20,
  file = 21,
  versions_differ = 22,
  out_of_memory = 23,
  cluster = 24,
  replica_failed = 25,
  out_of_sync = 26,
  remote = 27,
  untrusted = 28,
  corrupt = 29,
  internal = 99,
};

struct CodeEntry {
  Code code;
  Exit exit;
  std::string_view title;
};

// All codes in ascending order: the table behind docs/errors.md.
std::span<const CodeEntry> code_entries();

std::string id(Code code);  // "LOCKSTEP-E004"
std::string_view title(Code code);
Exit exit_of(Code code);

class Error : public std::runtime_error {
 public:
  // `what` says what was wrong and where; `mend` says what to do about it.
  Error(Code code, std::string_view what, std::string_view mend = {});

  Code code() const { return code_; }
  // What was wrong and how to mend it, without the id and title before it.
  std::string_view detail() const;
  Exit exit() const { return exit_of(code_); }

 private:
  Code code_;
};

// An error of the operating system: appends the text of errno.
Error system_error(std::string_view what, int error_number, std::string_view mend = {});

}  // namespace lockstep
