// SPDX-License-Identifier: Apache-2.0
// Holds the table of errors, and builds the one-line text of an error.
#include "topology/base/error.hpp"

#include <algorithm>
#include <array>
#include <system_error>

#include "topology/base/escaped.hpp"
#include "topology/base/text.hpp"

namespace lockstep {
namespace {

constexpr std::array entries = {
    CodeEntry{Code::usage, Exit::usage, "wrong use of the command or of a call"},
    CodeEntry{Code::bad_setting, Exit::usage, "a LOCKSTEP_ variable has a value that is not allowed"},
    CodeEntry{Code::unknown_setting, Exit::usage, "a LOCKSTEP_ variable that does not exist"},
    CodeEntry{Code::bad_description, Exit::usage, "a machine description cannot be understood"},
    CodeEntry{Code::bad_xml, Exit::usage, "an hwloc XML file cannot be read"},
    CodeEntry{Code::bad_topology, Exit::unfit, "a topology contradicts itself"},
    CodeEntry{Code::system, Exit::unfit, "the operating system refused a call"},
    CodeEntry{Code::mpi, Exit::unfit, "the MPI library reported an error"},
    CodeEntry{Code::mpi_hang, Exit::timeout, "the MPI library does not come back"},
    CodeEntry{Code::singleton, Exit::unfit, "one process where the launcher meant many"},
    CodeEntry{Code::thread_level, Exit::unfit, "the MPI library's thread level does not allow this call"},
    CodeEntry{Code::mpi_ended, Exit::unfit, "MPI was already ended in this process"},
    CodeEntry{Code::settings_differ, Exit::unfit, "settings differ between members"},
    CodeEntry{Code::stall, Exit::timeout, "members did not arrive within the time limit"},
    CodeEntry{Code::peer_failed, Exit::peer_died, "another member failed"},
    CodeEntry{Code::mismatch, Exit::unfit, "members made different calls"},
    CodeEntry{Code::already_failed, Exit::peer_died, "used after a failure"},
    CodeEntry{Code::bad_message, Exit::unfit, "bytes from another member make no sense"},
    CodeEntry{Code::shared_memory, Exit::unfit, "shared memory cannot be used"},
    CodeEntry{Code::device, Exit::unfit, "a GPU or its driver cannot be used"},
    CodeEntry{Code::file, Exit::usage, "a file cannot be read or written"},
    CodeEntry{Code::versions_differ, Exit::unfit, "members run different builds"},
    CodeEntry{Code::out_of_memory, Exit::unfit, "not enough memory"},
    CodeEntry{Code::cluster, Exit::usage, "a cluster is described wrongly"},
    CodeEntry{Code::replica_failed, Exit::peer_died, "a replica's function threw"},
    CodeEntry{Code::out_of_sync, Exit::wrong_data, "replicas of a variable differ"},
    CodeEntry{Code::remote, Exit::peer_died, "a call of another process failed"},
    CodeEntry{Code::untrusted, Exit::unfit, "another process does not prove the same key"},
    CodeEntry{Code::corrupt, Exit::wrong_data, "data have changed on their way"},
    CodeEntry{Code::internal, Exit::unfit, "a defect in Lockstep itself"},
};

const CodeEntry& entry(Code code) {
  const auto found = std::ranges::find(entries, code, &CodeEntry::code);
  return found == entries.end() ? entries.back() : *found;
}

std::string compose(Code code, std::string_view what, std::string_view remedy) {
  std::string all = text(id(code), " ", title(code), ": ", what);
  if (!remedy.empty()) all += text(" -> ", remedy);
  return escaped(all);  // it may hold names that somebody else chose
}

}  // namespace

std::span<const CodeEntry> code_entries() { return entries; }

std::string id(Code code) {
  const int number = static_cast<int>(code);
  return text("LOCKSTEP-E", number < 100 ? "0" : "", number < 10 ? "0" : "", number);
}

std::string_view title(Code code) { return entry(code).title; }

Exit exit_of(Code code) { return entry(code).exit; }

Error::Error(Code code, std::string_view what, std::string_view remedy)
    : std::runtime_error(compose(code, what, remedy)), code_(code) {}

std::string_view Error::detail() const {
  return std::string_view(what()).substr(id(code_).size() + 1 + title(code_).size() + 2);
}

Error system_error(std::string_view what, int error_number, std::string_view remedy) {
  const std::string reason = std::generic_category().message(error_number);
  return {Code::system, text(what, ": ", reason, " (errno ", error_number, ")"), remedy};
}

}  // namespace lockstep
