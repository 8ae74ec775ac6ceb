// SPDX-License-Identifier: Apache-2.0
// Describes an error to other members, and encodes it in bytes. Every message that carries an error uses this encoding.
#pragma once

#include <string>

#include "topology/base/bytes.hpp"
#include "topology/base/error.hpp"

namespace lockstep {

// Holds an error without the exception. `text` says the fact and the remedy, as Error::detail() does.
struct ErrorReport {
  Code code = Code::internal;
  std::string text = {};
  bool operator==(const ErrorReport&) const = default;
};

// Returns the report of an error.
ErrorReport report_of(const Error& error);
// Appends a report to a message.
void put(Writer& to, const ErrorReport& report);
// Reads a report, and trusts no byte. The code is `internal` if this build does not know it. The text is printable, and
// at most 16,000 bytes of it are kept, which name thousands of ranks. Throws Error bad_message if the message is too
// short.
ErrorReport get_error_report(Reader& from);

}  // namespace lockstep
