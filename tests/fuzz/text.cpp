// SPDX-License-Identifier: Apache-2.0
#include "topology/base/text.hpp"
#include "tests/fuzz/fuzz.hpp"
#include "topology/base/duration.hpp"
#include "topology/base/escaped.hpp"
#include "topology/base/index_set.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return lockstep::fuzz::answers_or_refuses(data, size, [](std::string_view text) {
    using namespace lockstep;
    if (const auto set = IndexSet::parse(text)) fuzz::require(IndexSet::parse(set->to_string()) == set);
    if (const auto duration = parse_duration(text)) fuzz::require(*duration >= Duration{});
    for (const char letter : printable(text)) fuzz::require(letter >= 0x20 && letter < 0x7f);
    for (const char letter : escaped(text)) fuzz::require(static_cast<unsigned char>(letter) >= 0x20 && letter != 0x7f);
    fuzz::require(escaped(escaped(text)) == escaped(text));
    nearest(text, split("topo,doctor,bench", ','));
  });
}
