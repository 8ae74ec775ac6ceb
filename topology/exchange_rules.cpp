// SPDX-License-Identifier: Apache-2.0
// Composes the sentences of errors and warnings of exchanges.
#include "topology/exchange_rules.hpp"

#include "topology/base/text.hpp"

namespace lockstep::exchange_rules {

std::string absence(std::string_view what, std::size_t size, std::string_view members, const IndexSet& missing) {
  return text('"', what, "\" among ", size, ' ', members, ": rank ", missing.to_string(), " did not come");
}

std::string stall_warning(Duration waited, std::string_view absence) {
  return text(id(Code::stall), " waiting for ", format_duration(waited), " in ", absence);
}

std::string stall_sentence(Duration waited, std::string_view absence) {
  return text("waited ", format_duration(waited), " in ", absence);
}

Error stall(Duration waited, std::string_view absence) {
  return Error(Code::stall, stall_sentence(waited, absence), stall_remedy);
}

std::string mismatch_sentence(int rank, std::string_view what, int other, std::string_view their_what) {
  return text("rank ", rank, " is in \"", what, "\" while rank ", other, " is in \"", their_what, '"');
}

Error mismatch(int rank, std::string_view what, int other, std::string_view their_what) {
  return Error(Code::mismatch, mismatch_sentence(rank, what, other, their_what), mismatch_remedy);
}

}  // namespace lockstep::exchange_rules
