// SPDX-License-Identifier: Apache-2.0
// Implements the publication of waits and failures.
#include "collectives/engine/status_publisher.hpp"

#include <algorithm>

#include "collectives/engine/call_history.hpp"
#include "collectives/engine/stall.hpp"
#include "collectives/engine/status_reader.hpp"

namespace lockstep {
namespace {

static_assert(CallHistory::length == status::calls_kept);

// Returns the end of the place, short enough to leave room for the ranks that are waited for.
std::string short_place(const Origin& origin) {
  constexpr std::size_t most = 60;
  const std::string at = place(origin);
  return at.empty() ? at : text(" at ", at.substr(at.size() - std::min(at.size(), most)));
}

}  // namespace

StatusPublisher::StatusPublisher(const CommunicatorIdentity& identity, const Log& log, bool is_published)
    : identity_(identity), log_(log) {
  if (is_published) status_ = status::claim_status(identity.name, identity.rank, identity.size, identity.id);
  notes_ = status::MemberNotes(status_, identity.members, identity.size);
  track_ = timeline::take_track(identity.name, identity.rank, identity.size, identity.id);
}

StatusPublisher::~StatusPublisher() {
  write_track();
  notes_.clear();
  status::give_back(status_);
}

void StatusPublisher::write_track() noexcept {
  if (!track_) return;
  try {
    track_->write();
  } catch (const std::exception& error) {
    log_.warn(error.what());
  }
}

// Names the call only if it is not the last one, which readers know from its entry.
void StatusPublisher::begin_wait(const Operation& operation, const std::string& where, const IndexSet& peers) {
  if (status_ == nullptr) return;
  const bool is_last = !operation.is_message() && operation.number == status_->started.load(std::memory_order_relaxed);
  const std::string call = is_last ? "" : text(describe(operation), short_place(operation.call.origin), ", ");
  status_->waits.write(text(call, where, " of \"", operation.plan().algorithm, '"',
                            peers.empty() ? "" : text(", for ", ranks_text(peers))));
  status_->waits_since_ns.store(operation.stall.since.count(), std::memory_order_relaxed);
}

void StatusPublisher::fail(const ErrorReport& reason) noexcept {
  if (status_ == nullptr) return;
  try {
    status_->failure.write(text(id(reason.code), ' ', reason.text));
    status::mark_failed(status_);
    if (const auto folder = status::dump())
      log_.info(text("the last calls of the members on this host are in ", *folder, " -> lockstep why ", *folder));
  } catch (const std::exception& error) {
    log_.warn(error.what());
  }
}

std::string StatusPublisher::neighbours(const IndexSet& ranks) const {
  return status_ == nullptr ? "" : status::neighbours(identity_.id, ranks, identity_.members);
}

}  // namespace lockstep
