// SPDX-License-Identifier: Apache-2.0
// Lists the pieces of data that a call moves. A program that repeats the call then computes no place and no size again.
#pragma once

#include <cstddef>
#include <vector>

namespace lockstep::node {

// Is a piece of data that moves between a member's buffer and the room.
struct Move {
  int member;          // that takes the piece in an unequal form, else that publishes it
  std::size_t at;      // in the published data; unknown (0) for a piece that comes in an unequal form
  std::size_t offset;  // in the caller's buffer
  std::size_t bytes;
};

// Is the block that a member has for itself.
struct OwnMove {
  std::size_t from = 0;  // in the input
  std::size_t to = 0;    // in the output
  std::size_t bytes = 0;
};

// Is a result, which combines pieces of the first members.
struct ListedResult {
  std::size_t at = 0;     // in the data that each of them publishes
  std::size_t from = 0;   // my own piece, in the input
  std::size_t to = 0;     // in the output
  std::size_t count = 0;  // elements
  int members = 0;        // the number of them; 0: there is no result
};

// Holds the moves of one member in one call. It owns no buffer.
struct ListedMoves {
  std::vector<Move> sent;
  std::vector<Move> received;
  OwnMove own;
  ListedResult result;

  // Allocates the memory for calls of this number of members.
  void reserve(std::size_t members) {
    sent.reserve(members);
    received.reserve(members);
  }
  // Empties the lists, and keeps their memory.
  void clear() {
    sent.clear();
    received.clear();
    own = {};
    result = {};
  }
};

}  // namespace lockstep::node
