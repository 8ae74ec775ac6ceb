// SPDX-License-Identifier: Apache-2.0
// Implements the encoding of errors.
#include "topology/base/error_report.hpp"

#include <algorithm>

#include "topology/base/text.hpp"

namespace lockstep {

ErrorReport report_of(const Error& error) { return {error.code(), std::string(error.detail())}; }

void put(Writer& to, const ErrorReport& report) { to.put(report.code).put(std::string_view(report.text)); }

ErrorReport get_error_report(Reader& from) {
  constexpr std::size_t longest_text = 16'000;
  const auto code = from.get<Code>();
  const bool is_known = std::ranges::find(code_entries(), code, &CodeEntry::code) != code_entries().end();
  return {is_known ? code : Code::internal, printable(from.get_string(), longest_text)};
}

}  // namespace lockstep
