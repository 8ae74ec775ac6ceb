// SPDX-License-Identifier: Apache-2.0
#include "collectives/plan_table.hpp"
#include "tests/fuzz/fuzz.hpp"
#include "topology/base/text.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return lockstep::fuzz::answers_or_refuses(data, size, [](std::string_view text) {
    using namespace lockstep;
    const auto is_known = [](Collective collective, std::string_view name) {
      return name == node_algorithm || find_algorithm(collective, name) != nullptr;
    };
    // The first line as a list of forced names, all lines as a table.
    try {
      for (const ForcedAlgorithm& each : parse_forced_algorithms(text.substr(0, text.find('\n'))))
        fuzz::require(is_known(each.collective, each.algorithm));
    } catch (const Error& error) {
      fuzz::require(error.code() == Code::bad_setting);
    }
    int line = 0;
    for (const TableRow& row : parse_plan_table(text)) {
      fuzz::require(row.members.least <= row.members.most && row.nodes.least <= row.nodes.most &&
                    row.bytes.least <= row.bytes.most);
      fuzz::require(is_known(row.collective, row.algorithm));
      fuzz::require(!row.provenance.empty() && row.line > line);
      line = row.line;
    }
  });
}
