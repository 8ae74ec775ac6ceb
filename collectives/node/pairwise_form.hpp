// SPDX-License-Identifier: Apache-2.0
// Implements the form of calls in which members know only their own counts: gather_v, scatter_v and all_to_all_v. It
// also serves an exscan of two members, in which the first one's input moves to the other, and large equal blocks: see
// fits(). The call takes one step of the room, however large its blocks are. A member publishes a table with the sizes
// of its blocks, and each other member checks and takes its own block. The member that sends chooses one of three ways
// for each block:
//
//   inline    The block lies behind the table, in the line or page.
//   stream    The block goes through a ring of chunks in the slot. Two counters of the pair tell how far both are.
//   address   The receiver reads the block in the sender's memory.
//
// So no member waits for one that sends it nothing, and a sender of small blocks waits for no other.
#pragma once

#include <cstring>
#include <vector>

#include "collectives/node/in_node_form.hpp"
#include "collectives/node/listed_moves.hpp"

namespace lockstep::node {

// Runs these calls on the host's data.
class PairwiseForm final : public InNodeForm {
 public:
  // True if the call is done in this form. It is equal on all members.
  static bool fits(const CallContext& call);
  void reserve(std::size_t members) {
    outgoing_.reserve(members);
    incoming_.reserve(members);
    moves_.reserve(members);
    ends_.reserve(members);
  }
  // Begins a call, also one that was made before.
  void begin(CallContext& call);
  // True if repeat() may run the same call again: its blocks for others lie in lines and pages.
  bool is_repeatable() const {
    return storage() != StepStorage::slot && !keeps_input_ && !call().room->gpus().any_member_has();
  }
  // Begins the call once more with the context's new values, and advances it at once by at most these looks. Returns
  // true if it is done.
  bool repeat(PollLimits& poll_limits);
  IndexSet missing() const override;

 private:
  // Is the end of a block in a line or page, counted from the end of the table.
  using InlineEnd = std::uint32_t;
  // Is the part of a slot's area through which a block goes. Calls begin at different places of it, since a line that
  // the receiver still has in its cache is slow to write.
  struct Ring {
    std::byte* begin = nullptr;
    std::size_t chunk = 0;  // bytes
    std::size_t first = 0;  // the place of the block's first chunk
    std::size_t places = 1;
    std::byte* at(std::size_t bytes) const {
      return begin + (first + bytes / chunk) % places * round_up(chunk, cache_line);
    }
  };
  // Is a block for another member. It is done when nothing of it has to be written, and nobody reads in its place.
  struct Outgoing {
    const std::byte* from = nullptr;
    std::size_t bytes = 0;
    std::size_t written = 0;
    Ring ring = {};
    bool is_by_address = false;
    bool is_done = true;
  };
  // Is a block from another member.
  struct Incoming {
    std::byte* to = nullptr;
    std::size_t bytes = 0;
    std::size_t taken = 0;
    Ring ring = {};
    std::uintptr_t address = 0;  // in the sender's process; 0: the block comes through the ring
    bool is_seen = false;        // the sender's table was read
    bool is_done = true;
  };

  bool sends_to(int member) const;
  bool takes_from(int member) const;
  void list_moves();
  void choose_storage();
  void keep_input();
  // Make the blocks of a call from the moves: all of them, or those that come, from a move on.
  void set_up_blocks();
  void set_up_incoming(std::size_t first_move);
  bool fill() override;
  void fill_inline();
  void fill_slot();
  void after_publishing() override;
  bool has_collected(PollLimits& poll_limits) override;
  void end_step() override;
  // Moves one chunk of each block that can be moved. Returns true if all blocks are done.
  bool move_chunks();
  void send(int to, Outgoing& block);
  void write_chunk(int to, Outgoing& block);
  void receive(int from, Incoming& block);
  void take_inline(int from, std::byte* to, std::size_t expected) const;
  void read_table(int from, Incoming& block);
  void take_chunk(int from, Incoming& block);
  void take_by_address(int from, Incoming& block);
  bool may_write(int from, const Incoming& block, std::size_t bytes) const;
  std::uintptr_t address_of(const std::byte* block, std::size_t bytes) const;
  Ring ring_of(std::size_t bytes, std::byte* begin) const;
  std::size_t region_bytes() const;

  std::vector<Outgoing> outgoing_;
  std::vector<Incoming> incoming_;
  ListedMoves moves_;                  // empty blocks that come are among them, since their size is checked
  std::vector<InlineEnd> ends_;        // the table of blocks in a line or page
  bool keeps_input_ = false;           // the call reads a copy of its input
  bool is_in_place_ = false;           // input and output are one buffer
  bool sees_all_ = false;              // this member takes a block from each other one
  std::vector<std::byte> kept_input_;  // the input, if the output would overwrite it too early
};

}  // namespace lockstep::node
