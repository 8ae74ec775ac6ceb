// SPDX-License-Identifier: Apache-2.0
// Computes a fingerprint of a function that is equal in all processes.
#include "collectives/communicator/operations.hpp"

#include <dlfcn.h>
#include <link.h>

namespace lockstep::detail {
namespace {

std::uint64_t look_up(const void* code) {
  Dl_info info{};
  void* extra = nullptr;
  if (::dladdr1(code, &info, &extra, RTLD_DL_LINKMAP) == 0 || extra == nullptr) return 0;
  const auto* const map = static_cast<const link_map*>(extra);
  // The program itself has no name here, because each member may have been started by another path.
  const std::string_view path = map->l_name == nullptr ? "" : map->l_name;
  const std::string_view name = path.substr(path.find_last_of('/') + 1);
  const auto distance = static_cast<const std::byte*>(code) - static_cast<const std::byte*>(info.dli_fbase);
  return Fingerprint().add(name).add(static_cast<std::uint64_t>(distance)).value();
}

}  // namespace

std::uint64_t fingerprint_of_code(const void* code) {
  struct LastFingerprint {
    const void* code = nullptr;
    std::uint64_t fingerprint = 0;
  };
  thread_local LastFingerprint last;  // Saves the search for repeated calls in a loop.
  if (last.code != code) last = {code, look_up(code)};
  return last.fingerprint;
}

}  // namespace lockstep::detail
