// SPDX-License-Identifier: Apache-2.0
// Checks messages between two members, plans each as a schedule of one message, and starts it.
#include "collectives/communicator/peer_messages.hpp"

#include <algorithm>
#include <iterator>

#include "collectives/engine/engine.hpp"
#include "collectives/engine/real_platform.hpp"
#include "topology/base/text.hpp"

namespace lockstep::detail {

void PeerMessages::check(std::span<const PeerMessage> sends, std::span<const PeerMessage> receives,
                         const Origin& origin) const {
  for (const PeerMessage& each : sends) check_one(each, false, origin);
  for (const PeerMessage& each : receives) check_one(each, true, origin);
}

void PeerMessages::begin(std::span<const PeerMessage> sends, std::span<const PeerMessage> receives, PendingCall& slot) {
  std::size_t bytes = 0;
  for (const auto& messages : {sends, receives}) {
    for (const PeerMessage& each : messages)
      bytes += !each.data.contiguous() ? each.data.count * each.element_bytes : 0;
  }
  slot.staging.clear();
  slot.staging.reserve(bytes);  // The reserve keeps the addresses valid.
  for (std::size_t i = 0; i < sends.size(); ++i) {
    if (send_attempts_.empty() || !send_attempts_[i].is_done) begin_one(sends[i], true, slot);
  }
  for (std::size_t i = 0; i < receives.size(); ++i) {
    if (receive_attempts_.empty() || !receive_attempts_[i].is_done) begin_one(receives[i], false, slot);
  }
}

bool PeerMessages::try_now(std::span<const PeerMessage> sends, std::span<const PeerMessage> receives, bool waits,
                           const Origin& origin) {
  constexpr std::size_t most = 16;  // more are compared with each other too often, a guess
  send_attempts_.clear();
  receive_attempts_.clear();
  const auto is_on_device = [](const PeerMessage& each) { return where_is(each.data).on_device(); };
  if (std::max(sends.size(), receives.size()) > most || std::ranges::any_of(sends, is_on_device) ||
      std::ranges::any_of(receives, is_on_device))
    return false;
  // The first message of a kind is begun as an operation. So later ones find its memory, however they go.
  if (!std::ranges::all_of(sends, [&](const PeerMessage& each) { return was_begun(each, true); }) ||
      !std::ranges::all_of(receives, [&](const PeerMessage& each) { return was_begun(each, false); }))
    return false;
  reserve_packed(sends, receives);
  for (const PeerMessage& each : sends) {
    send_attempts_.push_back(attempt_of(each));
    if (!each.data.contiguous()) pack(each, send_attempts_.back());
  }
  for (const PeerMessage& each : receives) receive_attempts_.push_back(attempt_of(each));
  member_.engine().try_messages(send_attempts_, receive_attempts_, waits, origin);
  for (std::size_t i = 0; i < receives.size(); ++i) {
    if (receive_attempts_[i].is_done && !receives[i].data.contiguous()) unpack(receives[i], receive_attempts_[i]);
  }
  return std::ranges::all_of(send_attempts_, &MessageAttempt::is_done) &&
         std::ranges::all_of(receive_attempts_, &MessageAttempt::is_done);
}

PeerMessages::MessageKey& PeerMessages::begun_place(const MessageKey& key) {
  const auto& [peer, tag, sends, bytes] = key;
  const std::size_t mixed = static_cast<std::size_t>(peer) * 31 + std::size_t{tag} * 7 + (sends ? 1 : 0) + bytes * 13;
  return begun_[(mixed ^ mixed >> 6U) % begun_.size()];
}

bool PeerMessages::was_begun(const PeerMessage& message, bool sends) {
  const MessageKey key{message.peer, tag_of(message), sends, message.data.count * message.element_bytes};
  return begun_place(key) == key;
}

// Makes space for all strided data at once, so that addresses stay valid.
void PeerMessages::reserve_packed(std::span<const PeerMessage> sends, std::span<const PeerMessage> receives) {
  std::size_t bytes = 0;
  for (const auto& messages : {sends, receives}) {
    for (const PeerMessage& each : messages)
      bytes += !each.data.contiguous() ? each.data.count * each.element_bytes : 0;
  }
  packed_.clear();
  packed_.reserve(bytes);
}

// Describes a message. The data of a strided one are packed.
MessageAttempt PeerMessages::attempt_of(const PeerMessage& message) {
  const std::size_t bytes = message.data.count * message.element_bytes;
  MessageAttempt attempt{message.peer, tag_of(message), static_cast<std::byte*>(message.data.data), bytes};
  if (message.data.contiguous()) return attempt;
  packed_.resize(packed_.size() + bytes);
  attempt.data = packed_.data() + packed_.size() - bytes;
  return attempt;
}

void PeerMessages::pack(const PeerMessage& message, const MessageAttempt& attempt) {
  const StagingCopy copy{message.data, attempt.data, message.element_bytes, {}};
  pending_calls_.copy_in({&copy, 1});
}

void PeerMessages::unpack(const PeerMessage& message, const MessageAttempt& attempt) {
  const StagingCopy copy{message.data, attempt.data, message.element_bytes, {}};
  member_.or_refuse([&] { copy_back({&copy, 1}); });
}

void PeerMessages::begin_one(const PeerMessage& message, bool sends, PendingCall& slot) {
  Call call{.plan = plan_of(message, sends), .origin = slot.origin, .limit = member_.options().timeout};
  std::byte* data = static_cast<std::byte*>(message.data.data);
  const gpu::MemoryLocation where = where_is(message.data);
  if (needs_staging(message.data, where)) {
    const std::size_t bytes = message.data.count * message.element_bytes;
    const std::size_t before = slot.staging.size();
    if (where.on_device())
      slot.staged.push_back(member_.or_refuse([&] { return make_staging_buffer(bytes, true); }));
    else
      slot.staging.resize(before + bytes);
    data = where.on_device() ? slot.staged.back().get() : slot.staging.data() + before;
    const StagingCopy copy{message.data, data, message.element_bytes, where};
    if (sends)
      pending_calls_.copy_in({&copy, 1});
    else
      slot.back.push_back(copy);
  }
  if (sends)
    call.input = data;
  else
    call.output = data;
  pending_calls_.start(call, slot);
}

void PeerMessages::check_one(const PeerMessage& message, bool written, const Origin& origin) const {
  if (message.peer < 0 || message.peer >= member_.size()) {
    throw Error(Code::usage,
                text("a message with rank ", message.peer, " (", place(origin), "), but the members are 0 to ",
                     member_.size() - 1),
                "give a rank of this communicator; ranks of its parent do not count");
  }
  const auto largest = static_cast<std::int64_t>(member_.engine().message_tags() / 2) - 1;
  if (message.tag < 0 || message.tag > largest) {
    throw Error(
        Code::usage,
        text("a message with tag ", message.tag, " (", place(origin), "), but tags are 0 to ", largest, " here"),
        message.neighbours ? "a grid has at most a dimension for every four tags"
                           : "give a smaller tag; how large they may be follows from the MPI library's MPI_TAG_UB");
  }
  if (const auto error = buffer_error(message.data, message.element_bytes, written))
    throw Error(Code::usage, text("a message (", place(origin), "): ", error->what), error->remedy);
}

// Returns the tag on the transport. CartesianGrids use the upper half of the exchange tags.
std::uint32_t PeerMessages::tag_of(const PeerMessage& message) const {
  return static_cast<std::uint32_t>(message.tag) + (message.neighbours ? member_.engine().message_tags() / 2 : 0);
}

// Plans one message, and keeps the plan, because programs repeat messages.
std::shared_ptr<const Plan> PeerMessages::plan_of(const PeerMessage& message, bool sends) {
  const std::size_t bytes = message.data.count * message.element_bytes;
  constexpr std::size_t most = 4096;
  if (plans_.size() >= most) plans_.clear();
  const std::uint32_t tag = tag_of(message);
  const MessageKey key{message.peer, tag, sends, bytes};
  begun_place(key) = key;
  auto& known = plans_[key];
  if (known) return known;
  auto plan = std::make_shared<Plan>();
  plan->spec = {.collective = Collective::sendrecv,
                .type = DataType::u8,
                .element_bytes = 1,
                .count = bytes,
                .root = static_cast<int>(tag)};
  plan->size = member_.size();
  plan->index = member_.rank();
  plan->algorithm = sends ? "send" : "recv";
  ScheduleBuilder one;
  if (sends)
    one.round().send(message.peer, input(0, bytes));
  else
    one.round().receive(message.peer, output(0, bytes));
  plan->last = one.as_it_is();  // An empty message is sent too.
  (sends ? plan->input_count : plan->output_count) = bytes;
  plan->why = "a message";
  return known = std::move(plan);
}

}  // namespace lockstep::detail
