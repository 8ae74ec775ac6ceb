// SPDX-License-Identifier: Apache-2.0
// Takes unreceived messages out of MPI before their channel is used again. It keeps those of other channels that it
// meets on the way, for the exchanges that they belong to.
#include <algorithm>

#include "topology/base/keep.hpp"
#include "topology/machine/mpi/check.hpp"
#include "topology/machine/mpi/wire.hpp"

namespace lockstep {

void Wire::note_unreceived(int channel, const UnreceivedMessages& by_process) {
  const std::lock_guard lock(mutex_);
  if (by_process.empty()) return;
  UnreceivedMessages& known = unreceived_[channel];
  for (const auto& [process, given_up] : by_process) {
    auto& shortest = known.try_emplace(process, given_up).first->second;
    shortest = std::min(shortest, given_up);
  }
}

Wire::UnreceivedMessages Wire::take_unreceived(int channel) {
  const std::lock_guard lock(mutex_);
  auto node = unreceived_.extract(channel);
  return node.empty() ? UnreceivedMessages{} : std::move(node.mapped());
}

void Wire::send_marker(int channel, int process, std::uint32_t generation, std::size_t given_up) {
  send(process, tag(channel, marker_kind), Writer().put(generation).put(std::uint64_t{given_up}).take());
}

std::optional<std::size_t> Wire::next_bytes(int source, int tag) {
  if (has_aside_) {
    const std::lock_guard lock(aside_mutex_);
    const auto found = std::ranges::find_if(
        aside_, [&](const MatchedMessage& each) { return each.source == source && each.tag == tag; });
    if (found != aside_.end()) return found->bytes;
  }
  int here = 0;
  MPI_Status status;
  check_mpi(MPI_Iprobe(source, tag, comm_, &here, &status));
  if (here == 0) return std::nullopt;
  int bytes = 0;
  check_mpi(MPI_Get_count(&status, MPI_BYTE, &bytes));
  return static_cast<std::size_t>(bytes);
}

MPI_Request Wire::receive_next(int source, int tag, std::byte* into, std::size_t bytes) {
  MPI_Request request = MPI_REQUEST_NULL;
  auto matched = take_aside(source, tag);
  if (matched) {
    check_mpi(MPI_Imrecv(into, static_cast<int>(bytes), MPI_BYTE, &matched->message, &request));
  } else {
    check_mpi(MPI_Irecv(into, static_cast<int>(bytes), MPI_BYTE, source, tag, comm_, &request));
  }
  return request;
}

// Takes the next message from the source (any: -1) with the tag (or MPI_ANY_TAG) out of MPI's queue.
std::optional<Wire::MatchedMessage> Wire::match(int source, int tag) {
  int here = 0;
  MPI_Message message = MPI_MESSAGE_NULL;
  MPI_Status status;
  check_mpi(MPI_Improbe(source < 0 ? MPI_ANY_SOURCE : source, tag, comm_, &here, &message, &status));
  if (here == 0) return std::nullopt;
  int bytes = 0;
  check_mpi(MPI_Get_count(&status, MPI_BYTE, &bytes));
  if (tags_.is_set_up(status.MPI_TAG)) ++received_;
  return MatchedMessage{status.MPI_SOURCE, status.MPI_TAG, static_cast<std::size_t>(bytes), message};
}

std::optional<Wire::MatchedMessage> Wire::take_aside(int source, int tag) {
  if (!has_aside_) return std::nullopt;
  const std::lock_guard lock(aside_mutex_);
  const auto found = std::ranges::find_if(
      aside_, [&](const MatchedMessage& each) { return (source < 0 || each.source == source) && each.tag == tag; });
  if (found == aside_.end()) return std::nullopt;
  const MatchedMessage matched = *found;
  aside_.erase(found);
  has_aside_ = !aside_.empty();
  return matched;
}

std::optional<Wire::MatchedMessage> Wire::take_aside_of(const Clearing& clearing) {
  const std::lock_guard lock(aside_mutex_);
  const auto found = std::ranges::find_if(aside_, [&](const MatchedMessage& each) {
    return each.source == clearing.source_ && tags_.channel_of(each.tag) == clearing.channel_;
  });
  if (found == aside_.end()) return std::nullopt;
  const MatchedMessage matched = *found;
  aside_.erase(found);
  has_aside_ = !aside_.empty();
  return matched;
}

Wire::SetUpReceive Wire::receive(MatchedMessage matched) {
  SetUpReceive arriving{MPI_REQUEST_NULL, matched.source, std::make_unique<Bytes>(matched.bytes)};
  check_mpi(MPI_Imrecv(arriving.bytes->data(), static_cast<int>(matched.bytes), MPI_BYTE, &matched.message,
                       &arriving.request));
  return arriving;
}

bool Wire::clear(Clearing& clearing) {
  const Lock lock = enter();
  ++waiting_to_clear_;
  const std::unique_lock alone(together_);
  --waiting_to_clear_;
  drop_arriving(clearing);
  for (;;) {
    if (clearing.marker_) {
      int done = 0;
      check_mpi(MPI_Test(&clearing.marker_->request, &done, MPI_STATUS_IGNORE));
      if (done == 0) return false;
      Reader reader(*clearing.marker_->bytes);
      const auto generation = reader.get<std::uint32_t>();
      clearing.given_up_ = std::min<std::size_t>(clearing.given_up_, reader.get<std::uint64_t>());
      clearing.marker_.reset();
      if (generation == clearing.generation_) break;
    }
    auto next = take_aside_of(clearing);
    if (!next) next = match(clearing.source_, MPI_ANY_TAG);
    if (!next) return false;
    if (tags_.channel_of(next->tag) != clearing.channel_) {
      const std::lock_guard aside(aside_mutex_);
      aside_.push_back(*next);
      has_aside_ = true;
    } else if (next->tag == tag(clearing.channel_, marker_kind)) {
      clearing.marker_ = receive(*next);
    } else {
      clearing.leftovers_.push_back(*next);
    }
  }
  drop(clearing);
  return true;
}

// Drops half-received messages of an exchange that ended before they had come whole.
void Wire::drop_arriving(const Clearing& clearing) {
  for (auto each = arriving_.begin(); each != arriving_.end();) {
    if (each->second.source == clearing.source_ && tags_.channel_of(each->first.second) == clearing.channel_) {
      dropping_.push_back(std::move(each->second));
      each = arriving_.erase(each);
    } else {
      ++each;
    }
  }
}

void Wire::drop(Clearing& clearing) {
  for (const MatchedMessage& each : clearing.leftovers_) {
    if (each.bytes < clearing.given_up_) {
      dropping_.push_back(receive(each));
    } else {
      abandoned_ = true;  // it stays in MPI, where no receive matches it any more
    }
  }
  clearing.leftovers_.clear();
  collect_the_gone();
}

void Wire::abandon_leftovers() {
  const std::lock_guard lock(mutex_);
  for (SetUpReceive& each : dropping_) {
    int done = 0;
    if (!ended()) MPI_Test(&each.request, &done, MPI_STATUS_IGNORE);
    if (done != 0) continue;
    keep_for_ever(std::move(each.bytes));
    abandoned_ = true;
  }
  dropping_.clear();
  abandoned_ = abandoned_ || has_aside_;
}

}  // namespace lockstep
