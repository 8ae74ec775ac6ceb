// SPDX-License-Identifier: Apache-2.0
// Memory without a name that processes of a node share. It lives as long as a process has it mapped. So nothing is
// left behind, however they end, and neither the size nor the mode of /dev/shm matters.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace lockstep {

// Owns a mapping, and the descriptor by which others may open the same memory. Moves, and does not copy.
class SharedMemory {
 public:
  // Returns new memory, all zeros. If `taken`, the system provides all of it now or refuses; otherwise it provides
  // each page at its first use. Throws Error out_of_memory.
  static SharedMemory make(std::size_t bytes, bool taken);
  // Maps the memory of another process of this node, which made `ticket`. `bytes` must be its size. Throws Error
  // shared_memory with the system's reason, or bad_message if the ticket is malformed.
  static SharedMemory open(const std::string& ticket, std::size_t bytes);

  SharedMemory() = default;
  SharedMemory(SharedMemory&&) noexcept = default;
  SharedMemory& operator=(SharedMemory&&) noexcept = default;
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;
  ~SharedMemory() { close(); }

  // Returns the memory, which stays mapped as long as a copy of the pointer lives. Null in a default object.
  const std::shared_ptr<std::byte>& memory() const { return memory_; }
  // Returns a text for open() in other processes. It is valid until close(); empty without memory of one's own.
  std::string ticket() const;
  // Makes the mapping of this process read-only. `bytes` must be its size. Throws Error system.
  void make_read_only(std::size_t bytes);
  // Closes the descriptor. The memory stays mapped, but nobody else can open it any more.
  void close();

 private:
  std::shared_ptr<std::byte> memory_;
  struct File {
    int number = -1;
    std::uint64_t device = 0;
    std::uint64_t inode = 0;
  };
  std::unique_ptr<File> file_;
};

}  // namespace lockstep
