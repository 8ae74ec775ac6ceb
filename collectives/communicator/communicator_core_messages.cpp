// SPDX-License-Identifier: Apache-2.0
// Checks messages between two members, plans each as a schedule of one message, and starts it.
#include "collectives/communicator/communicator_core_parts.hpp"

namespace lockstep::detail {

CallHandle CommunicatorCore::exchange(std::span<const PeerMessage> sends, std::span<const PeerMessage> receives,
                                      Origin origin) {
  const ExclusiveUse use(*this, origin);
  refuse_if_closed();
  or_refuse([&] {
    for (const PeerMessage& each : sends) check(each, false, origin);
    for (const PeerMessage& each : receives) check(each, true, origin);
  });
  const CallHandle handle = take_slot(origin);
  PendingCall& slot = pending(handle);
  std::size_t bytes = 0;
  for (const auto& messages : {sends, receives}) {
    for (const PeerMessage& each : messages)
      bytes += !each.data.contiguous() ? each.data.count * each.element_bytes : 0;
  }
  slot.staging.clear();
  slot.staging.reserve(bytes);  // The reserve keeps the addresses valid.
  for (const PeerMessage& each : sends) begin_message(each, true, handle);
  for (const PeerMessage& each : receives) begin_message(each, false, handle);
  return handle;
}

void CommunicatorCore::begin_message(const PeerMessage& message, bool sends, CallHandle handle) {
  PendingCall& slot = pending(handle);
  Call call{.plan = message_plan(message, sends), .origin = slot.origin, .limit = options_.timeout};
  std::byte* data = static_cast<std::byte*>(message.data.data);
  const gpu::MemoryLocation where = where_is(message.data);
  if (needs_staging(message.data, where)) {
    const std::size_t bytes = message.data.count * message.element_bytes;
    const std::size_t before = slot.staging.size();
    if (where.on_device())
      slot.staged.push_back(take_memory(bytes, true));
    else
      slot.staging.resize(before + bytes);
    data = where.on_device() ? slot.staged.back().get() : slot.staging.data() + before;
    const StagingCopy copy{message.data, data, message.element_bytes, where};
    if (sends)
      copy_all({&copy, 1}, handle);
    else
      slot.back.push_back(copy);
  }
  if (sends)
    call.input = data;
  else
    call.output = data;
  begin(call, handle);
}

void CommunicatorCore::check(const PeerMessage& message, bool written, Origin origin) const {
  if (message.peer < 0 || message.peer >= size()) {
    throw Error(
        Code::usage,
        text("a message with rank ", message.peer, " (", place(origin), "), but the members are 0 to ", size() - 1),
        "give a rank of this communicator; ranks of its parent do not count");
  }
  const auto largest = static_cast<std::int64_t>(engine_->exchange_tags() / 2) - 1;
  if (message.tag < 0 || message.tag > largest) {
    throw Error(
        Code::usage,
        text("a message with tag ", message.tag, " (", place(origin), "), but tags are 0 to ", largest, " here"),
        message.neighbours ? "a grid has at most a dimension for every four tags"
                           : "give a smaller tag; how large they may be follows from the MPI library's MPI_TAG_UB");
  }
  if (const auto wrong = buffer_error(message.data, message.element_bytes, written))
    throw Error(Code::usage, text("a message (", place(origin), "): ", wrong->what), wrong->mend);
}

// Returns the tag on the transport. CartesianGrids use the upper half of the exchange tags.
std::uint32_t CommunicatorCore::mark_of(const PeerMessage& message) const {
  return static_cast<std::uint32_t>(message.tag) + (message.neighbours ? engine_->exchange_tags() / 2 : 0);
}

// Plans one message, and keeps the plan, because programs repeat messages.
std::shared_ptr<const Plan> CommunicatorCore::message_plan(const PeerMessage& message, bool sends) {
  const std::size_t bytes = message.data.count * message.element_bytes;
  constexpr std::size_t most = 4096;
  if (message_plans_.size() >= most) message_plans_.clear();
  const std::uint32_t mark = mark_of(message);
  auto& known = message_plans_[{message.peer, mark, sends, bytes}];
  if (known) return known;
  auto plan = std::make_shared<Plan>();
  plan->spec = {.collective = Collective::exchange,
                .type = DataType::u8,
                .element_bytes = 1,
                .count = bytes,
                .root = static_cast<int>(mark)};
  plan->size = size();
  plan->index = rank();
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
