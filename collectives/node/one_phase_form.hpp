// SPDX-License-Identifier: Apache-2.0
// Implements the form with one phase: every member writes its data to its line, page or slot, and each member reads
// from there. Small data take one step. If that was measured to be faster, as among members that share cores, the last
// member to arrive combines for all.
#pragma once

#include <vector>

#include "collectives/node/listed_moves.hpp"
#include "collectives/node/slot_form.hpp"

namespace lockstep::node {

// Runs calls of any collective in this form.
class OnePhaseForm final : public SlotForm {
 public:
  void begin(CallContext& call, SlotCopies* copies);
  // Allocates the memory that repeat() would need.
  void reserve(std::size_t members) { moves_.reserve(members); }
  // True if repeat() may run the same call again.
  bool is_repeatable() const { return !is_hidden_ && download() == nullptr && upload() == nullptr; }
  // Begins the call once more with the context's new values, and advances it at once by at most these looks. Returns
  // true if it is done.
  bool repeat(PollLimits& poll_limits);
  IndexSet missing() const override;

 private:
  void choose_storage(std::size_t most);
  bool fill() override;
  void after_publishing() override;
  bool has_collected(PollLimits& poll_limits) override;
  void end_step() override;
  void copy_down(std::size_t step, SlotDownload& download) override;
  // Calls use(offset in the slot, offset in the input, bytes) for each range that a step publishes.
  template <class Use>
  void each_range(std::size_t step, bool has_mine, const Use& use) const;
  // Calls use(member, range of the output) for each range that a part brings from another member.
  template <class Use>
  void each_received(std::size_t part, const Use& use) const;
  InputNeed need() const;
  void publish_counts();
  void learn_steps();
  void keep_input(SlotCopies* copies);
  void list_moves();
  void list_result();
  void combine_result();
  int contributions() const;
  bool repeat_moves(PollLimits& poll_limits);
  void copy_own_block_on_gpu();
  void copy_own_part(std::size_t part);
  void combine_for_all();
  const std::byte* combined() const;
  void read_part(std::size_t part);
  void combine_part(std::size_t part);
  // Returns the address of the data that a member has published for this one.
  const std::byte* published_by(int member, std::size_t part) const {
    const std::byte* const all = data(member, at_step(part));
    return call().has_block_for_each ? all + static_cast<std::size_t>(call().me()) * region_ : all;
  }

  std::size_t region_ = 0;  // bytes in a slot before the next member's part, or before the result
  bool is_hidden_ = false;  // members do not know each other's counts
  bool is_unread_ = false;  // no other member reads this one's data
  bool is_combined_by_last_ = false;
  bool are_moves_listed_ = false;  // for the call that is repeated
  bool repeats_by_moves_ = false;  // it takes one step on the host, and its repetitions copy by the list
  ListedMoves moves_;
  std::vector<std::byte> kept_input_;  // the input, if the output would overwrite it too early
};

}  // namespace lockstep::node
