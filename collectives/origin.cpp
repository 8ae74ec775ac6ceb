// SPDX-License-Identifier: Apache-2.0
// Names a line of the user's program for people, and for comparison between ranks.
#include "collectives/origin.hpp"

#include <string_view>

#include "collectives/fingerprints.hpp"
#include "topology/base/text.hpp"

namespace lockstep {

std::string place(const Origin& origin) {
  return origin.line > 0 ? text(origin.file, ':', origin.line) : std::string();
}

std::uint64_t fingerprint_of(const Origin& origin) {
  if (origin.line <= 0) return 0;
  const std::string_view path = origin.file;
  const std::string_view name = path.substr(path.rfind('/') + 1);  // all of it if there is no folder
  return Fingerprint().add(name).add(static_cast<std::uint64_t>(origin.line)).value();
}

}  // namespace lockstep
