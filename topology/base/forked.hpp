// SPDX-License-Identifier: Apache-2.0
// A child that comes about by fork() has all that its parent has open, until it ends or runs another program. Others
// would take a connection that such a child has for that of a parent that lives; so it lets go of those at once.
#pragma once

#include <cstdint>

namespace lockstep {

// From now on, until it is given back, just before it is closed.
void keep_from_children(int descriptor);
void give_back_to_children(int descriptor) noexcept;
// Sockets of a library that does not tell which it opens: TCP, with this port here or there, as a program that never
// blocks has them. For ever.
void keep_port_from_children(std::uint16_t port);

}  // namespace lockstep
