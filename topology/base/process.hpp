// SPDX-License-Identifier: Apache-2.0
// Names and watches processes of this host. A watcher sees at once that a process has ended, and how, if the system
// tells. Connections of a process may live on in its children; its pidfd does not.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "topology/base/bytes.hpp"

namespace lockstep {

// Tells a process from all others that were or will be, on any host.
struct ProcessName {
  std::uint64_t space = 0;  // a hash of the running system and of the process namespace; 0: not known here
  std::int64_t number = 0;  // the process id in that namespace
  std::uint64_t begun = 0;  // the start, in clock ticks since boot
  bool operator==(const ProcessName&) const = default;
  // Write and read the three numbers, for messages to other members.
  void write(Writer& writer) const;
  static ProcessName read(Reader& reader);
};
// Returns the name of this process. A child of fork() gets a name of its own.
ProcessName own_process();

// Returns "was ended by signal 9 (Killed)" or "ended with exit status 1". `status` is that of wait().
std::string how_it_ended(int status);

// Watches one process by a pidfd, which this object owns.
class WatchedProcess {
 public:
  // Returns the object that all watchers of this process share. Returns nothing if the process is not of this
  // host, or the system no longer knows it.
  static std::shared_ptr<const WatchedProcess> find(const ProcessName& name);
  ~WatchedProcess();
  WatchedProcess(const WatchedProcess&) = delete;
  WatchedProcess& operator=(const WatchedProcess&) = delete;

  // Returns a descriptor that becomes readable when the process ends. It stays owned by this object.
  int descriptor() const { return descriptor_; }
  // True if the process ends within so many milliseconds (0: has ended by now). A process that nobody has waited
  // for yet counts as ended, too.
  bool has_ended(int within_ms = 0) const noexcept;
  // Returns the end in the words of how_it_ended(). Returns nothing if the process lives, or the system does not
  // tell.
  std::optional<std::string> how() const;

 private:
  WatchedProcess(const ProcessName& name, int descriptor) : name_(name), descriptor_(descriptor) {}
  std::optional<int> status() const;

  ProcessName name_;
  int descriptor_;
};

}  // namespace lockstep
