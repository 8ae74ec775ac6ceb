// SPDX-License-Identifier: Apache-2.0
// Moves the messages of rounds by MPI_Isend and matched receives, and control messages by the wire.
#include "collectives/mpi/mpi_transport.hpp"

#include <algorithm>
#include <chrono>
#include <thread>

#include "collectives/engine/round_rules.hpp"
#include "collectives/mpi/chunks.hpp"
#include "collectives/mpi/transport.hpp"
#include "topology/base/error.hpp"
#include "topology/base/text.hpp"
#include "topology/machine/mpi/check.hpp"

namespace lockstep {

std::unique_ptr<Transport> mpi_transport(Exchange& exchange) {
  auto* over_mpi = dynamic_cast<MpiExchange*>(&exchange);
  if (over_mpi == nullptr) return nullptr;
  return std::make_unique<MpiTransport>(*over_mpi);
}

MpiTransport::MpiTransport(MpiExchange& exchange, std::size_t chunk)
    : exchange_(exchange),
      wire_(exchange.wire()),
      generation_(exchange.generation()),
      chunk_(chunk),
      lanes_(static_cast<std::size_t>(wire_->comm().tags().call_lanes())),
      silent_(static_cast<std::size_t>(exchange.size())) {
  const TagLayout& tags = wire_->comm().tags();
  const auto from_lane = [&](int channel) {
    return tags.data(channel, 0, 0) - tags.data(exchange.channel_block().channel, 0, 0);
  };
  tag_offsets_.reserve(silent_.size());
  for (int member = 0; member < exchange.size(); ++member)
    tag_offsets_.push_back({from_lane(exchange.channel_to(member)), from_lane(exchange.channel_from(member))});
}

// Receives control messages that nobody heard, because MPI would keep them.
MpiTransport::~MpiTransport() {
  try {
    if (!std::ranges::all_of(lanes_, &MpiLane::idle)) abandon();
    while (!mpi_has_ended() && receive_control()) continue;
  } catch (const std::exception& error) {
    exchange_.log().warn(text("ending a transport over MPI: ", error.what()));
  }
}

void MpiTransport::MpiLane::reserve(std::size_t receives, std::size_t sends) {
  awaited.reserve(receives);
  requests.reserve(receives + sends);
  parts.reserve(receives + sends);
  finished.resize(receives + sends);
  statuses.resize(receives + sends);
}

void MpiTransport::MpiLane::forget_finished() {
  std::size_t kept = 0;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    if (requests[i] == MPI_REQUEST_NULL) continue;
    requests[kept] = requests[i];
    parts[kept++] = parts[i];
  }
  requests.resize(kept);
  parts.resize(kept);
}

std::size_t MpiTransport::count_parts(std::size_t bytes) const { return Chunks(bytes, chunk_).count(); }

void MpiTransport::post(RoundTag round_tag, std::span<const SendDescriptor> sends,
                        std::span<const ReceiveDescriptor> receives) {
  // Rounds of point-to-point messages have lanes without tags. They all use the tag for messages, on any lane.
  if (round_tag.is_message && static_cast<std::size_t>(round_tag.lane) >= lanes_.size())
    lanes_.resize(static_cast<std::size_t>(round_tag.lane) + 1);
  MpiLane& lane = lanes_.at(static_cast<std::size_t>(round_tag.lane));
  if (!lane.idle()) throw round_rules::lane_is_busy(round_tag.lane);
  std::size_t in = 0;
  std::size_t out = 0;
  for (const ReceiveDescriptor& each : receives) in += count_parts(each.bytes);
  for (const SendDescriptor& each : sends) out += count_parts(each.bytes);
  lane.reserve(in, out);
  lane.across = round_tag.is_message;
  lane.turn = ++turns_;
  const TagLayout& tags = wire_->comm().tags();
  lane.tag = round_tag.is_message ? tags.message(exchange_.channel_block().channel, round_tag.call_tag)
                                  : tags.data(exchange_.channel_block().channel, round_tag.lane, round_tag.call_tag);
  for (const ReceiveDescriptor& each : receives) {
    const Chunks chunks(each.bytes, chunk_);
    for (std::size_t i = 0; i < chunks.count(); ++i) {
      auto* into = static_cast<std::byte*>(each.data) + chunks.offset(i);
      lane.awaited.push_back({each.peer, into, chunks.size(i), each.bytes});
    }
  }
  const auto access = wire_->comm().access();
  for (const SendDescriptor& each : sends) {
    const Chunks chunks(each.bytes, chunk_);
    for (std::size_t i = 0; i < chunks.count(); ++i) {
      const auto* from = static_cast<const std::byte*>(each.data) + chunks.offset(i);
      MPI_Request request = MPI_REQUEST_NULL;
      check_mpi(MPI_Isend(from, static_cast<int>(chunks.size(i)), MPI_BYTE, on_wire(each.peer), tag_to(lane, each.peer),
                          wire_->comm().get(), &request));
      lane.requests.push_back(request);
      lane.parts.push_back({each.peer, nullptr, chunks.size(i), each.bytes});
    }
    exchange_.sends_to(each.peer);
  }
}

// Returns the length of the next message from this member, if one has arrived.
std::optional<std::size_t> MpiTransport::arrived(const MpiLane& lane, int peer) {
  return wire_->arrived().next_bytes(on_wire(peer), tag_from(lane, peer));
}

// True if another round of a point-to-point message with the same tag was posted earlier; that round takes the first
// message.
bool MpiTransport::another_is_first(const MpiLane& lane, int peer) const {
  if (!lane.across) return false;
  return std::ranges::any_of(lanes_, [&](const MpiLane& other) {
    return other.across && other.tag == lane.tag && other.turn < lane.turn &&
           std::ranges::find(other.awaited, peer, &MessageChunk::peer) != other.awaited.end();
  });
}

// Starts to receive the messages that have arrived, in the order of posting for each member. Messages behind a missing
// one have to wait. Returns the error text for a message of another length, or an empty string.
std::string MpiTransport::take_arrived(MpiLane& lane) {
  std::string wrong;
  ++pass_;
  std::size_t kept = 0;
  for (const MessageChunk& part : lane.awaited) {
    std::uint64_t& silent = silent_.at(static_cast<std::size_t>(part.peer));
    const bool waits = silent == pass_ || !wrong.empty() || another_is_first(lane, part.peer);
    const auto bytes = waits ? std::nullopt : arrived(lane, part.peer);
    if (bytes == part.bytes) {
      lane.requests.push_back(
          wire_->arrived().receive_next(on_wire(part.peer), tag_from(lane, part.peer), part.into, part.bytes));
      lane.parts.push_back(part);
      continue;
    }
    if (bytes && part.message == part.bytes) {
      wrong = text("rank ", part.peer, " sent ", *bytes, " bytes where ", part.bytes, " were expected");
    } else if (bytes) {
      wrong = text("rank ", part.peer, " sent another length than the ", part.message,
                   " bytes that were expected: a part of it has ", *bytes, ", not ", part.bytes);
    }
    silent = pass_;
    lane.awaited[kept++] = part;
  }
  lane.awaited.resize(kept);
  return wrong;
}

void MpiTransport::take_finished(MpiLane& lane) {
  int count = 0;
  const int code = MPI_Testsome(static_cast<int>(lane.requests.size()), lane.requests.data(), &count,
                                lane.finished.data(), lane.statuses.data());
  int kind = MPI_SUCCESS;
  if (code != MPI_SUCCESS) MPI_Error_class(code, &kind);
  if (kind != MPI_ERR_IN_STATUS) check_mpi(code);
  if (count <= 0) return;
  int first_error = MPI_SUCCESS;
  for (int i = 0; i < count; ++i) {
    const auto at = static_cast<std::size_t>(lane.finished[static_cast<std::size_t>(i)]);
    lane.requests[at] = MPI_REQUEST_NULL;  // not every MPI resets a failed one
    if (kind != MPI_SUCCESS && first_error == MPI_SUCCESS) {
      first_error = lane.statuses[static_cast<std::size_t>(i)].MPI_ERROR;
    }
  }
  lane.forget_finished();
  check_mpi(first_error);
}

bool MpiTransport::done(int number) {
  MpiLane& lane = lanes_.at(static_cast<std::size_t>(number));
  if (lane.idle()) return true;
  const auto access = wire_->comm().access();
  if (!lane.awaited.empty()) {
    const std::string wrong = take_arrived(lane);
    if (!wrong.empty()) throw Error(Code::mismatch, wrong, "give the same counts and types on all members");
  }
  if (!lane.requests.empty()) take_finished(lane);
  return lane.idle();
}

// Receives messages that no round will want, because their senders could not give up otherwise. Messages to itself take
// another path: the wire would use MPI_Imrecv, in which MPICH 4.0.2 crashes if a communicator has one process.
void MpiTransport::drop_arrived(const MpiLane& lane) {
  constexpr std::size_t most = std::size_t{64} << 20U;  // in bytes; a larger one would take too much memory
  for (const MessageChunk& part : lane.awaited) {
    std::optional<std::size_t> bytes;
    {
      const auto access = wire_->comm().access();
      bytes = arrived(lane, part.peer);
      if (bytes && part.peer == rank()) {
        Bytes dropped(*bytes);
        MPI_Request request =
            wire_->arrived().receive_next(on_wire(part.peer), tag_from(lane, part.peer), dropped.data(), *bytes);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
      }
    }
    if (bytes.value_or(0) <= most && part.peer != rank())
      wire_->set_up().try_receive(on_wire(part.peer), tag_from(lane, part.peer));
  }
}

bool MpiTransport::anything_on_its_way() {
  const auto access = wire_->comm().access();
  bool any = false;
  for (MpiLane& lane : lanes_) {
    for (MPI_Request& request : lane.requests) {
      int over = 0;  // a failed one is over, too
      if (MPI_Test(&request, &over, MPI_STATUS_IGNORE) != MPI_SUCCESS) request = MPI_REQUEST_NULL;
    }
    lane.forget_finished();
    any = any || !lane.requests.empty();
  }
  return any;
}

// Waits a second, because MPI cannot recall a send that nobody receives: it deprecates that, and Open MPI does not do
// it. A receive that has begun cannot be recalled either. Both end when the other side does its part.
bool MpiTransport::abandon() {
  exchange_.mark_failed();
  wire_->comm().leave_to_mpi();
  if (mpi_has_ended()) {  // nobody can complete the messages under way
    for (MpiLane& lane : lanes_) lane = {};
    return false;
  }
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(1);
  bool any = anything_on_its_way();
  for (const MpiLane& lane : lanes_) drop_arrived(lane);
  while (any && std::chrono::steady_clock::now() < end) {
    std::this_thread::sleep_for(std::chrono::microseconds(100));
    for (const MpiLane& lane : lanes_) drop_arrived(lane);
    any = anything_on_its_way();
  }
  for (MpiLane& lane : lanes_) lane.awaited.clear();
  if (any) give_up_remaining();
  return !any;
}

void MpiTransport::give_up_remaining() {
  constexpr std::size_t most = 8;
  std::vector<std::string> what;
  {
    const auto access = wire_->comm().access();
    for (MpiLane& lane : lanes_) {
      for (std::size_t i = 0; i < lane.requests.size(); ++i) {
        const MessageChunk& part = lane.parts[i];
        const bool incoming = part.into != nullptr;
        if (!incoming) exchange_.gives_up(part.peer, part.bytes);
        what.push_back(text(part.bytes, incoming ? " bytes from rank " : " bytes to rank ", part.peer));
        MPI_Request_free(&lane.requests[i]);
      }
      lane.forget_finished();
    }
  }
  const std::size_t more = what.size() - std::min(what.size(), most);
  what.resize(what.size() - more);
  exchange_.log().warn(text("given up, but still on the way: ", join(what, ", "),
                            more == 0 ? "" : text(" and ", more, " more"),
                            "; MPI may use their memory at any time -> keep it as it is until the program ends"));
}

void MpiTransport::send_control(int peer, Bytes bytes) {
  if (peer == rank()) return own_words_.push_back(std::move(bytes));
  Bytes word = Writer().put(generation_).take();
  word.insert(word.end(), bytes.begin(), bytes.end());
  wire_->set_up().send(on_wire(peer), wire_->comm().tags().set_up(exchange_.channel_to(peer), MpiExchange::word_kind),
                       std::move(word));
}

// Drops control messages of an earlier user of the channel.
std::optional<Transport::ReceivedControl> MpiTransport::receive_control() {
  if (!own_words_.empty()) {
    Bytes word = std::move(own_words_.front());
    own_words_.pop_front();
    return ReceivedControl{rank(), std::move(word)};
  }
  while (auto word = exchange_.try_receive_any(MpiExchange::word_kind)) {
    Reader reader(word->bytes);
    if (reader.get<std::uint32_t>() != generation_) continue;
    word->bytes.erase(word->bytes.begin(), word->bytes.begin() + sizeof generation_);
    return ReceivedControl{word->source, std::move(word->bytes)};
  }
  return std::nullopt;
}

// Sleeps for the whole time, because MPI has no descriptor to wait for. Callers keep the time short. A signal ends it
// early.
void MpiTransport::sleep(std::int64_t nanoseconds) {
  const timespec time = round_rules::to_timespec(nanoseconds);
  ::nanosleep(&time, nullptr);
}

// Pushes the last messages once more. MPI watches no members, so nothing has to be called off.
void MpiTransport::leave(const Bytes& leave_message) {
  Transport::leave(leave_message);
  if (!mpi_has_ended()) exchange_.flushed();
}

}  // namespace lockstep
