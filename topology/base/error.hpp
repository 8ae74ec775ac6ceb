// SPDX-License-Identifier: Apache-2.0
// Errors that people can act on. Every error has a stable id (LOCKSTEP-E004) with one entry in docs/errors.md. It
// says the fault, the place, and the remedy. The library throws; only the command, or an error that leaves main,
// ends a program.
#pragma once

#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>

namespace lockstep {

// Lists the exit codes of the command; each error belongs to one. docs/settings.md describes them.
enum class Exit : std::uint8_t {
  success = 0,
  usage = 1,
  wrong_data = 2,
  gate = 3,
  timeout = 4,
  peer_died = 5,
  unfit = 6,
  inconclusive = 7,
};

// Numbers the errors. A number never gets another meaning.
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
  already_failed = 17,
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

// Holds one row of the table of errors: the code, the exit code of its kind, and a title for people.
struct CodeEntry {
  Code code;
  Exit exit;
  std::string_view title;
};

// Returns all codes in ascending order: the table behind docs/errors.md.
std::span<const CodeEntry> code_entries();

// Return the stable id of a code, its title, and the exit code that it belongs to. A code without a row counts as
// `internal`.
std::string id(Code code);  // for example "LOCKSTEP-E004"
std::string_view title(Code code);
Exit exit_of(Code code);

// Carries one error. Its text is one line: "id title: fact -> remedy", with control characters written out.
class Error : public std::runtime_error {
 public:
  // Makes an error from the fact with its place, and the remedy `remedy`; an empty remedy is left out.
  Error(Code code, std::string_view what, std::string_view remedy = {});

  // Returns the id of the error. docs/errors.md explains each one.
  Code code() const { return code_; }
  // Returns the fact and the remedy, without the id and title before them. Refers to this object's text.
  std::string_view detail() const;
  Exit exit() const { return exit_of(code_); }

 private:
  Code code_;
};

// Returns an Error `system` with the text of `error_number`, which is an errno.
Error system_error(std::string_view what, int error_number, std::string_view remedy = {});

}  // namespace lockstep
