// SPDX-License-Identifier: Apache-2.0
// The frame of every fuzzer: whatever the bytes, a parser answers or throws an Error; nothing else.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "topology/base/error.hpp"

namespace lockstep::fuzz {

template <class Parse>
int answers_or_refuses(const std::uint8_t* data, std::size_t size, const Parse& parse) {
  try {
    parse(std::string_view(reinterpret_cast<const char*>(data), size));
  } catch (const Error& error) {
    if (error.code() == Code::internal) __builtin_trap();
  }
  return 0;
}

inline void require(bool good) {
  if (!good) __builtin_trap();
}

}  // namespace lockstep::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);
