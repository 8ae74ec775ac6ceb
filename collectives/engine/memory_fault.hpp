// SPDX-License-Identifier: Apache-2.0
// Defines the error for a message whose memory cannot be read or written. It carries the address, from which the engine
// finds the buffer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "topology/base/error.hpp"
#include "topology/base/mapped.hpp"
#include "topology/base/text.hpp"

namespace lockstep {

// Reports memory that the kernel could not read or write for a message. Transports throw it; the engine adds the call
// and the buffer.
class MemoryFault : public Error {
 public:
  // Reports `bytes` bytes that begin at `at`.
  MemoryFault(const void* at, std::size_t bytes, Access access)
      : Error(Code::usage,
              text(bytes, " bytes at ", address(at), " cannot be ", access == Access::read ? "read" : "written")),
        at_(at),
        bytes_(bytes),
        access_(access) {}
  // Returns the address as a debugger writes it, in hexadecimal.
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
