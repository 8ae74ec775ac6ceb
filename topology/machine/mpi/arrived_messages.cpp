// SPDX-License-Identifier: Apache-2.0
// Asks MPI for messages that have arrived.
#include "topology/machine/mpi/arrived_messages.hpp"

#include <algorithm>

#include "topology/base/bytes.hpp"
#include "topology/machine/mpi/check.hpp"

namespace lockstep {

std::optional<std::size_t> ArrivedMessages::next_bytes(int source, int tag) {
  if (has_aside_) {
    const std::lock_guard lock(aside_mutex_);
    const auto found = std::ranges::find_if(
        aside_, [&](const MatchedMessage& each) { return each.source == source && each.tag == tag; });
    if (found != aside_.end()) return found->bytes;
  }
  int here = 0;
  MPI_Status status;
  check_mpi(MPI_Iprobe(source, tag, comm_.get(), &here, &status));
  if (here == 0) return std::nullopt;
  int bytes = 0;
  check_mpi(MPI_Get_count(&status, MPI_BYTE, &bytes));
  return static_cast<std::size_t>(bytes);
}

MPI_Request ArrivedMessages::receive_next(int source, int tag, std::byte* into, std::size_t bytes) {
  MPI_Request request = MPI_REQUEST_NULL;
  auto matched = take_aside([&](const MatchedMessage& each) { return each.source == source && each.tag == tag; });
  if (matched) {
    check_mpi(MPI_Imrecv(into, static_cast<int>(bytes), MPI_BYTE, &matched->message, &request));
  } else {
    check_mpi(MPI_Irecv(into, static_cast<int>(bytes), MPI_BYTE, source, tag, comm_.get(), &request));
  }
  return request;
}

std::optional<MatchedMessage> ArrivedMessages::take(int source, int tag) {
  auto matched =
      take_aside([&](const MatchedMessage& each) { return (source < 0 || each.source == source) && each.tag == tag; });
  return matched ? matched : match(source, tag);
}

std::optional<MatchedMessage> ArrivedMessages::take_of_channel(int source, int channel) {
  const auto fits = [&](const MatchedMessage& each) {
    return each.source == source && comm_.tags().channel_of(each.tag) == channel;
  };
  if (auto matched = take_aside(fits)) return matched;
  for (;;) {
    const auto next = match(source, MPI_ANY_TAG);
    if (!next || fits(*next)) return next;
    const std::lock_guard lock(aside_mutex_);
    aside_.push_back(*next);
    has_aside_ = true;
  }
}

bool ArrivedMessages::drop_one() {
  int here = 0;
  MPI_Status status;
  check_mpi(MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, comm_.get(), &here, &status));
  if (has_aside_ || (here != 0 && !comm_.tags().is_set_up(status.MPI_TAG))) comm_.leave_to_mpi();
  if (here == 0 || comm_.is_left_to_mpi()) return false;
  int size = 0;
  check_mpi(MPI_Get_count(&status, MPI_BYTE, &size));
  Bytes bytes(static_cast<std::size_t>(size));
  check_mpi(MPI_Recv(bytes.data(), size, MPI_BYTE, status.MPI_SOURCE, status.MPI_TAG, comm_.get(), MPI_STATUS_IGNORE));
  ++set_up_count_;
  return true;
}

// Takes the next message from the source (any: -1) with the tag (or MPI_ANY_TAG) out of MPI's queue.
std::optional<MatchedMessage> ArrivedMessages::match(int source, int tag) {
  int here = 0;
  MPI_Message message = MPI_MESSAGE_NULL;
  MPI_Status status;
  check_mpi(MPI_Improbe(source < 0 ? MPI_ANY_SOURCE : source, tag, comm_.get(), &here, &message, &status));
  if (here == 0) return std::nullopt;
  int bytes = 0;
  check_mpi(MPI_Get_count(&status, MPI_BYTE, &bytes));
  if (comm_.tags().is_set_up(status.MPI_TAG)) ++set_up_count_;
  return MatchedMessage{status.MPI_SOURCE, status.MPI_TAG, static_cast<std::size_t>(bytes), message};
}

template <class Fits>
std::optional<MatchedMessage> ArrivedMessages::take_aside(const Fits& fits) {
  if (!has_aside_) return std::nullopt;
  const std::lock_guard lock(aside_mutex_);
  const auto found = std::ranges::find_if(aside_, fits);
  if (found == aside_.end()) return std::nullopt;
  const MatchedMessage matched = *found;
  aside_.erase(found);
  has_aside_ = !aside_.empty();
  return matched;
}

}  // namespace lockstep
