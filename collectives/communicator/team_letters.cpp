// SPDX-License-Identifier: Apache-2.0
// Messages between members that name each other: checked, planned as schedules of one message, and begun.
#include "collectives/communicator/team_parts.hpp"

namespace lockstep::detail {

Handle Team::exchange(std::span<const Letter> sends, std::span<const Letter> receives, Origin origin) {
  const Use use(*this, origin);
  refuse_if_closed();
  or_refuse([&] {
    for (const Letter& each : sends) check(each, false, origin);
    for (const Letter& each : receives) check(each, true, origin);
  });
  const Handle handle = take_slot(origin);
  Pending& slot = pending(handle);
  std::size_t bytes = 0;
  for (const auto& letters : {sends, receives}) {
    for (const Letter& each : letters) bytes += !each.data.contiguous() ? each.data.count * each.element_bytes : 0;
  }
  slot.staging.clear();
  slot.staging.reserve(bytes);  // stays where it is
  for (const Letter& each : sends) begin_letter(each, true, handle);
  for (const Letter& each : receives) begin_letter(each, false, handle);
  return handle;
}

void Team::begin_letter(const Letter& letter, bool sends, Handle handle) {
  Pending& slot = pending(handle);
  Call call{.plan = letter_plan(letter, sends), .origin = slot.origin, .limit = options_.timeout};
  std::byte* data = static_cast<std::byte*>(letter.data.data);
  const gpu::Where where = where_is(letter.data);
  if (needs_staging(letter.data, where)) {
    const std::size_t bytes = letter.data.count * letter.element_bytes;
    const std::size_t before = slot.staging.size();
    if (where.on_device())
      slot.staged.push_back(take_memory(bytes, true));
    else
      slot.staging.resize(before + bytes);
    data = where.on_device() ? slot.staged.back().get() : slot.staging.data() + before;
    const Copy copy{letter.data, data, letter.element_bytes, where};
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

void Team::check(const Letter& letter, bool written, Origin origin) const {
  if (letter.peer < 0 || letter.peer >= size()) {
    throw Error(
        Code::usage,
        text("a message with rank ", letter.peer, " (", place(origin), "), but the members are 0 to ", size() - 1),
        "give a rank of this communicator; ranks of its parent do not count");
  }
  const auto largest = static_cast<std::int64_t>(engine_->marks_across() / 2) - 1;
  if (letter.tag < 0 || letter.tag > largest) {
    throw Error(Code::usage,
                text("a message with tag ", letter.tag, " (", place(origin), "), but tags are 0 to ", largest, " here"),
                letter.neighbours
                    ? "a grid has at most a dimension for every four tags"
                    : "give a smaller tag; how large they may be follows from the MPI library's MPI_TAG_UB");
  }
  if (const auto wrong = complaint(letter.data, letter.element_bytes, written))
    throw Error(Code::usage, text("a message (", place(origin), "): ", wrong->what), wrong->mend);
}

// The upper half of the marks is the grids' own.
std::uint32_t Team::mark_of(const Letter& letter) const {
  return static_cast<std::uint32_t>(letter.tag) + (letter.neighbours ? engine_->marks_across() / 2 : 0);
}

// One message; kept, because programs send the same again and again.
std::shared_ptr<const Plan> Team::letter_plan(const Letter& letter, bool sends) {
  const std::size_t bytes = letter.data.count * letter.element_bytes;
  constexpr std::size_t most = 4096;
  if (letters_.size() >= most) letters_.clear();
  const std::uint32_t mark = mark_of(letter);
  auto& known = letters_[{letter.peer, mark, sends, bytes}];
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
    one.round().send(letter.peer, input(0, bytes));
  else
    one.round().receive(letter.peer, output(0, bytes));
  plan->last = one.as_it_is();  // a message of nothing is one, too
  (sends ? plan->input_count : plan->output_count) = bytes;
  plan->why = "a message";
  return known = std::move(plan);
}

}  // namespace lockstep::detail
