// SPDX-License-Identifier: Apache-2.0
// Closes descriptors in children made by fork(). Such a child holds everything that its parent had open, until it
// ends or runs another program. Peers would take a connection held by a child for that of a living parent.
#pragma once

#include <cstdint>

namespace lockstep {

// Makes each forked child give up this descriptor at once; its number then leads to /dev/null. The caller gives it
// back just before it closes it. Numbers of 2^20 and more are ignored.
void keep_from_children(int descriptor);
// Ends keep_from_children() for this descriptor.
void return_to_children(int descriptor) noexcept;
// Does the same, for ever, for the sockets of a library that does not tell which it opens. These are nonblocking TCP
// sockets with this port on either side. At most 64 ports are kept; after that the oldest makes room.
void keep_port_from_children(std::uint16_t port);

}  // namespace lockstep
