// SPDX-License-Identifier: Apache-2.0
// Checks if the members of a call have left.
#include "collectives/engine/departed_members.hpp"

#include "topology/base/error.hpp"

namespace lockstep {

void DepartedMembers::check(const Operation& operation) const {
  if (operation.is_message() || !has_any()) return;
  for (int peer = 0; peer < identity_.size; ++peer) {
    const auto& last = last_calls_[static_cast<std::size_t>(peer)];
    if (!last || *last >= operation.number) continue;
    throw Error(Code::peer_failed,
                text(identity_.members.name_of(peer), " left \"", identity_.name, "\" after ",
                     *last == 0 ? "no call" : text("call ", *last), ", and is not in ", describe(operation)),
                "let all members make the same calls before they end the communicator");
  }
}

void DepartedMembers::check_peer(const Operation& operation, int peer) const {
  if (!has(peer)) return;
  throw Error(Code::peer_failed,
              text(identity_.members.name_of(peer), " left \"", identity_.name, "\" without the message that ",
                   describe(operation), " at ", place(operation.call.origin), " waits for"),
              "let every send have its receive before the communicator ends");
}

}  // namespace lockstep
