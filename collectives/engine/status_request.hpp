// SPDX-License-Identifier: Apache-2.0
// Asks through a process on this host where all members of one of its communicators stand. What they answer is among
// the notes of status_members.hpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "topology/base/descriptor.hpp"

namespace lockstep::status {

// Writes requests into one communicator's entry of a status file. The process serves a request the next time it listens
// to other members: at the latest while it waits in a call of this communicator.
class StatusRequester {
 public:
  // `order`: as in CommunicatorSnapshot. Does not throw; can_request() is false for a process without such a
  // communicator and for a file that this process may not write.
  StatusRequester(int process, int order) noexcept;

  bool can_request() const { return static_cast<bool>(file_); }
  // Never blocks.
  void request() noexcept;
  // Whether the process has asked all members since request().
  bool is_served() const noexcept;

 private:
  OwnedDescriptor file_;
  std::size_t status_begin_ = 0;         // in the file
  std::optional<std::uint64_t> before_;  // `requests_served` before the request; nothing: there was none
};

}  // namespace lockstep::status
