// SPDX-License-Identifier: Apache-2.0
// Memory without a name that processes of a node share. It lives as long as somebody has it mapped: nothing is left
// behind, however they end, and neither the size nor the mode of /dev/shm matters.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace lockstep {

class SharedMemory {
 public:
  // Zeros. With `taken` the system gives all of it now or refuses; otherwise page by page when it is first used.
  // Throws Error out_of_memory.
  static SharedMemory make(std::size_t bytes, bool taken);
  // What another process of this node made, by what its ticket() said. Throws Error environment saying what the
  // system said.
  static SharedMemory open(const std::string& ticket, std::size_t bytes);

  SharedMemory() = default;
  SharedMemory(SharedMemory&&) noexcept = default;
  SharedMemory& operator=(SharedMemory&&) noexcept = default;
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;
  ~SharedMemory() { close(); }

  const std::shared_ptr<std::byte>& memory() const { return memory_; }
  // For those who open it, until close().
  std::string ticket() const;
  // The memory stays, but nobody else can open it any more.
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
