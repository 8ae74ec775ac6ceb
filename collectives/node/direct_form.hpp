// SPDX-License-Identifier: Apache-2.0
// Implements the form `direct`: members know the addresses of each other's buffers, and read and write there. The step
// after that tells the others that this member has finished.
#pragma once

#include <vector>

#include "collectives/node/in_node_form.hpp"
#include "collectives/node/peer_buffers.hpp"

namespace lockstep::node {

// Runs calls on the host, and reads in other processes by the system's copy. Forms for GPUs replace parts of it.
class DirectForm : public InNodeForm {
 public:
  // Goes on with the steps of `before`, which found the buffers.
  void begin(CallContext& call, const PeerBuffers& peers, const InNodeForm& before);

 protected:
  bool fill() override { return reach(); }
  void end_step() override;
  // Does this member's part of the work. Returns false if another member has given up.
  virtual bool work() { return reduces(call().collective()) ? reduce() : copy(std::size_t{1} << 20U); }
  // Copies into my output, from the memory of this GPU or of the host (-1).
  virtual void read(std::byte* to, const std::byte* from, int device, std::size_t bytes);
  // Returns the members that one which only receives waits for in the end.
  virtual InputNeed need_of_receivers() const { return InputNeed::none; }

  bool reach();
  // Combines my share and writes it to all outputs, or combines my block of a reduce_scatter.
  bool reduce();
  // Copies all blocks for this member, at most `at_once` bytes at a time.
  bool copy(std::size_t at_once);
  const PeerBuffers& peers() const { return *peers_; }

 private:
  bool copy_from(int member, std::size_t at_once);
  // Counts work of this turn. Returns true if the rest must wait for the next turn.
  bool ends_turn(std::size_t bytes);

  const PeerBuffers* peers_ = nullptr;
  std::size_t done_ = 0;          // bytes of my share, or of the blocks of the member at hand
  int copied_ = 0;                // members whose blocks have been copied, in the order of copy()
  std::size_t turn_bytes_ = 0;    // read in this turn
  std::vector<std::byte> block_;  // a part of a result that goes to several places
};

}  // namespace lockstep::node
