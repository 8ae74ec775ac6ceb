// SPDX-License-Identifier: Apache-2.0
// What `lockstep sim` is told: calls, faults and fabrics are refused, or mean the same when they are written again.
#include "bench/simulation.hpp"
#include "tests/fuzz/fuzz.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace lockstep;
  constexpr int members = 16;
  fuzz::answers_or_refuses(data, size, [](std::string_view text) {
    const std::string words = bench::parse_call(text, members).to_text();
    fuzz::require(bench::parse_call(words, members).to_text() == words);
  });
  fuzz::answers_or_refuses(data, size, [](std::string_view text) {
    const std::string words = bench::parse_fault(text).to_text();
    fuzz::require(bench::parse_fault(words).to_text() == words);
  });
  return fuzz::answers_or_refuses(data, size, [](std::string_view text) {
    const simulated::Fabric fabric(simulated::parse_fabric(text, {.nodes = 4, .members = 4}));
    for (int to = 0; to < members; ++to) {
      for (const int link : fabric.path(1, to))
        fuzz::require(link >= 0 && static_cast<std::size_t>(link) < fabric.links());
    }
  });
}
