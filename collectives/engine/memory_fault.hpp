// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "topology/base/error.hpp"
#include "topology/base/mapped.hpp"
#include "topology/base/text.hpp"

namespace lockstep {

// The memory of a message that the kernel could not read or write. Transports throw it; the engine adds the call and
// the buffer.
class MemoryFault : public Error {
 public:
  MemoryFault(const void* at, std::size_t bytes, Access access)
      : Error(Code::usage,
              text(bytes, " bytes at ", address(at), " cannot be ", access == Access::read ? "read" : "written")),
        at_(at),
        bytes_(bytes),
        access_(access) {}
  // As a debugger writes it.
  static std::string address(const void* at) { return "0x" + hexadecimal(reinterpret_cast<std::uintptr_t>(at)); }
  const void* at() const { return at_; }
  std::size_t bytes() const { return bytes_; }
  Access access() const { return access_; }

 private:
  const void* at_;
  std::size_t bytes_;
  Access access_;
};

}  // namespace lockstep
