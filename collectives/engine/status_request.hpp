// SPDX-License-Identifier: Apache-2.0
// Asks all members of a communicator for their state, through one of its processes on this host. Their answers appear
// among the notes of status_members.hpp.
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
  // `order` is that of CommunicatorSnapshot. Does not throw. can_request() is false if the process has no such
  // communicator, or if this process may not write its file.
  StatusRequester(int process, int order) noexcept;

  bool can_request() const { return static_cast<bool>(file_); }
  // Requests that the members be asked. Never blocks. Requires can_request().
  void request() noexcept;
  // Returns true if the process has asked all members since request().
  bool is_served() const noexcept;

 private:
  OwnedDescriptor file_;
  // Gives the position of the entry in the file.
  std::size_t status_begin_ = 0;
  // Holds `requests_served` as of the request; nothing if there was no request.
  std::optional<std::uint64_t> before_;
};

}  // namespace lockstep::status
