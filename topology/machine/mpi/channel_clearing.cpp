// SPDX-License-Identifier: Apache-2.0
// Sends and awaits markers.
#include "topology/machine/mpi/channel_clearing.hpp"

#include <algorithm>

#include "topology/machine/mpi/check.hpp"

namespace lockstep {

void ChannelClearing::note_unreceived(int channel, const UnreceivedMessages& by_process) {
  if (by_process.empty()) return;
  const auto lock = comm_.lock();
  UnreceivedMessages& known = unreceived_[channel];
  for (const auto& [process, given_up] : by_process) {
    auto& shortest = known.try_emplace(process, given_up).first->second;
    shortest = std::min(shortest, given_up);
  }
}

UnreceivedMessages ChannelClearing::take_unreceived(int channel) {
  const auto lock = comm_.lock();
  auto node = unreceived_.extract(channel);
  return node.empty() ? UnreceivedMessages{} : std::move(node.mapped());
}

void ChannelClearing::send_marker(int channel, int process, std::uint32_t generation, std::size_t given_up) {
  set_up_.send(process, marker_tag(channel), Writer().put(generation).put(std::uint64_t{given_up}).take());
}

bool ChannelClearing::is_clear(AwaitedMarker& awaited) {
  const auto lock = comm_.enter();
  const auto alone = comm_.keep_others_out();
  set_up_.drop_arriving(awaited.source_, awaited.channel_);
  for (;;) {
    if (awaited.marker_) {
      int done = 0;
      check_mpi(MPI_Test(&awaited.marker_->request, &done, MPI_STATUS_IGNORE));
      if (done == 0) return false;
      Reader reader(*awaited.marker_->bytes);
      const auto generation = reader.get<std::uint32_t>();
      awaited.given_up_ = std::min<std::size_t>(awaited.given_up_, reader.get<std::uint64_t>());
      awaited.marker_.reset();
      if (generation == awaited.generation_) break;
    }
    const auto next = arrived_.take_of_channel(awaited.source_, awaited.channel_);
    if (!next) return false;
    if (next->tag == marker_tag(awaited.channel_))
      awaited.marker_ = SetUpMessages::receive(*next);
    else
      awaited.leftovers_.push_back(*next);
  }
  drop_leftovers(awaited);
  return true;
}

void ChannelClearing::drop_leftovers(AwaitedMarker& awaited) {
  for (const MatchedMessage& each : awaited.leftovers_) {
    if (each.bytes < awaited.given_up_)
      set_up_.drop(each);
    else
      comm_.leave_to_mpi();  // it stays in MPI, where no receive matches it any more
  }
  awaited.leftovers_.clear();
  set_up_.forget_finished();
}

}  // namespace lockstep
