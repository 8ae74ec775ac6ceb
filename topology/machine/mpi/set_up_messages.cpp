// SPDX-License-Identifier: Apache-2.0
// Starts set-up messages, and looks if MPI has finished them.
#include "topology/machine/mpi/set_up_messages.hpp"

#include <algorithm>
#include <climits>

#include "topology/base/error.hpp"
#include "topology/base/keep.hpp"
#include "topology/base/text.hpp"
#include "topology/machine/mpi/check.hpp"

namespace lockstep {

void SetUpMessages::send(int target, int tag, Bytes bytes) {
  if (bytes.size() > INT_MAX)
    throw Error(Code::usage, text("a set-up message of ", bytes.size(), " bytes"), "keep it under 2 GiB");
  const auto lock = comm_.enter();
  if (leaving_.size() >= forget_at_) {
    forget_finished();
    forget_at_ = std::max<std::size_t>(16, 2 * leaving_.size());
  }
  ++sent_[static_cast<std::size_t>(target)];
  leaving_.push_back({comm_.tags().channel_of(tag), MPI_REQUEST_NULL, std::make_unique<Bytes>(std::move(bytes))});
  SetUpSend& last = leaving_.back();
  check_mpi(MPI_Isend(last.bytes->data(), static_cast<int>(last.bytes->size()), MPI_BYTE, target, tag, comm_.get(),
                      &last.request));
}

bool SetUpMessages::flushed(int channel) {
  const auto lock = comm_.enter();
  forget_finished();
  return std::ranges::none_of(leaving_, [&](const SetUpSend& each) { return each.channel == channel; });
}

std::optional<ReceivedMessage> SetUpMessages::try_receive(int source, int tag) {
  const auto lock = comm_.enter();
  const SourceTag key{source, tag};
  auto found = arriving_.find(key);
  if (found == arriving_.end()) {
    const auto matched = arrived_.take(source, tag);
    if (!matched) return std::nullopt;
    found = arriving_.emplace(key, receive(*matched)).first;
  }
  int done = 0;
  check_mpi(MPI_Test(&found->second.request, &done, MPI_STATUS_IGNORE));
  if (done == 0) return std::nullopt;
  ReceivedMessage arrived{found->second.source, std::move(*found->second.bytes)};
  arriving_.erase(found);
  return arrived;
}

void SetUpMessages::abandon_leaving(int channel) {
  const auto lock = comm_.lock();
  std::erase_if(leaving_, [&](SetUpSend& each) {
    if (each.channel != channel) return false;
    abandon(each);
    return true;
  });
}

void SetUpMessages::abandon_arriving(int channel) {
  const auto lock = comm_.lock();
  for (auto each = arriving_.begin(); each != arriving_.end();) {
    if (comm_.tags().channel_of(each->first.second) == channel) {
      abandon(each->second);
      each = arriving_.erase(each);
    } else {
      ++each;
    }
  }
}

void SetUpMessages::abandon_all() {
  const auto lock = comm_.lock();
  for (SetUpSend& each : leaving_) abandon(each);
  for (auto& [key, each] : arriving_) abandon(each);
  for (SetUpReceive& each : dropping_) abandon(each);
  leaving_.clear();
  arriving_.clear();
  dropping_.clear();
}

// Keeps the bytes of a message that is not finished, since MPI may use them at any time until it ends.
template <class Message>
void SetUpMessages::abandon(Message& message) {
  int done = 0;
  if (!mpi_has_ended()) MPI_Test(&message.request, &done, MPI_STATUS_IGNORE);
  if (done != 0) return;
  keep_forever(std::move(message.bytes));
  comm_.leave_to_mpi();
}

SetUpReceive SetUpMessages::receive(MatchedMessage matched) {
  SetUpReceive arriving{MPI_REQUEST_NULL, matched.source, std::make_unique<Bytes>(matched.bytes)};
  check_mpi(MPI_Imrecv(arriving.bytes->data(), static_cast<int>(matched.bytes), MPI_BYTE, &matched.message,
                       &arriving.request));
  return arriving;
}

void SetUpMessages::drop_arriving(int source, int channel) {
  for (auto each = arriving_.begin(); each != arriving_.end();) {
    if (each->second.source == source && comm_.tags().channel_of(each->first.second) == channel) {
      dropping_.push_back(std::move(each->second));
      each = arriving_.erase(each);
    } else {
      ++each;
    }
  }
}

void SetUpMessages::forget_finished() {
  const auto is_done = [](auto& each) {
    int done = 0;
    check_mpi(MPI_Test(&each.request, &done, MPI_STATUS_IGNORE));
    return done != 0;
  };
  std::erase_if(leaving_, is_done);
  std::erase_if(dropping_, is_done);
}

}  // namespace lockstep
