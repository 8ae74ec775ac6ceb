// SPDX-License-Identifier: Apache-2.0
// Holds the facts of one member's call in a room that all forms share, and the rules of collectives that
// need no more than the collective.
#pragma once

#include <cstddef>
#include <cstdint>

#include "collectives/node/combine.hpp"
#include "collectives/node/room.hpp"

namespace lockstep::node {

// True if only the root has data for others, or if only the root gets data.
constexpr bool only_root_sends(Collective collective) {
  return collective == Collective::broadcast || collective == Collective::scatter ||
         collective == Collective::scatter_v;
}
constexpr bool only_root_receives(Collective collective) {
  return collective == Collective::reduce || collective == Collective::gather || collective == Collective::gather_v;
}
// True if members can find their block in another's buffer, so that no slot is needed. False where each member has
// counts of its own.
bool has_known_places(Collective collective);

// Is the size in bytes of a block, which stays in the first cache while it is written to several places.
inline constexpr std::size_t block_bytes = 8192;

// Is a range of a buffer, in bytes.
struct ByteRange {
  std::size_t offset;
  std::size_t bytes;
  std::size_t end() const { return offset + bytes; }
};

// Is the block that a member has for itself; no bytes if there is none, or if it is in its place already.
struct OwnBlock {
  std::byte* to = nullptr;
  const std::byte* from = nullptr;
  std::size_t bytes = 0;
};

// Holds these facts. It owns nothing. The forms change the input and its GPU if they replace it by a copy.
struct CallContext {
  Room* room = nullptr;
  const Call* call = nullptr;
  Tuning tuning = {};
  const std::byte* input = nullptr;
  std::byte* output = nullptr;
  std::uint32_t call_tag = 0;
  BufferDevices devices = {};
  bool has_block_for_each = false;  // the input has a block for every member
  bool sends = false;               // this member has data for others
  bool receives = false;
  std::size_t largest_block_bytes = 0;  // of those that members send each other, as far as this one knows
  // Copies to the output: copy_bytes(), or stream_bytes() past the caches.
  void (*copy_to_output)(void*, const void*, std::size_t) = nullptr;
  Combiner* combiner = nullptr;
  const void** sources = nullptr;  // room for the address of every member's contribution

  // Sets everything that follows from the room, the tuning and the call.
  void set(Room& the_room, const Tuning& the_tuning, const Call& the_call);

  const Plan& plan() const { return *call->plan; }
  const Spec& spec() const { return call->plan->spec; }
  Collective collective() const { return call->plan->spec.collective; }
  int me() const { return room->index(); }
  int members() const { return room->size(); }
  bool is_root() const { return me() == spec().root; }
  std::size_t element() const { return spec().element_bytes; }
  // Returns the range that all members have in common, if they have.
  ByteRange common() const { return {0, spec().count * element()}; }
  // Return the range of my input that is for a member, and the range of my output that is from a member.
  ByteRange input_for(int member) const;
  ByteRange output_from(int member) const;
  // Returns the range that a member combines, of `bytes` bytes that all share.
  ByteRange share(std::size_t bytes, int member) const;
  OwnBlock own_block() const;
  // Copies to my output, and counts the bytes.
  void write_output(std::byte* to, const std::byte* from, std::size_t bytes) const {
    room->add_copied_bytes(bytes);
    copy_to_output(to, from, bytes);
  }
};

}  // namespace lockstep::node
