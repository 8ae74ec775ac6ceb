// SPDX-License-Identifier: Apache-2.0
// A process of this host, as others name and watch it: they see at once when it has ended, and, where the system tells,
// how. What it has opened may live on in a child of its; this does not.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "topology/base/bytes.hpp"

namespace lockstep {

// What tells a process from all others that were or will be, wherever they are.
struct ProcessName {
  std::uint64_t space = 0;  // the system since its start, and the namespace of its number; 0: that is not known here
  std::int64_t number = 0;
  std::uint64_t begun = 0;  // as the system counts
  bool operator==(const ProcessName&) const = default;
  void write(Writer& writer) const;
  static ProcessName read(Reader& reader);
};
ProcessName own_process();

// "was ended by signal 9 (Killed)", "ended with exit status 1", of what wait() gives.
std::string how_it_ended(int status);

class WatchedProcess {
 public:
  // The same object to all who watch it. Nothing: it is not of this host, or the system knows it no more.
  static std::shared_ptr<const WatchedProcess> find(const ProcessName& name);
  ~WatchedProcess();
  WatchedProcess(const WatchedProcess&) = delete;
  WatchedProcess& operator=(const WatchedProcess&) = delete;

  // Can be read when it has ended.
  int descriptor() const { return descriptor_; }
  // Given so many milliseconds. Also where nobody has asked yet how it ended.
  bool has_ended(int within_ms = 0) const noexcept;
  // In the words of how_it_ended(). Nothing: it lives, or the system does not tell.
  std::optional<std::string> how() const;

 private:
  WatchedProcess(const ProcessName& name, int descriptor) : name_(name), descriptor_(descriptor) {}
  std::optional<int> status() const;

  ProcessName name_;
  int descriptor_;
};

}  // namespace lockstep
