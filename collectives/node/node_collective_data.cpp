// SPDX-License-Identifier: Apache-2.0
// Finds the places of a call's data, in the caller's buffers and in the room.
#include <algorithm>

#include "collectives/kernels/copy.hpp"
#include "collectives/node/node_collective.hpp"

namespace lockstep::node {

// Sets the span of a step in a slot; all members know it. If a member does not know the others' sizes, data do not
// rotate.
void NodeCollective::set_span(std::size_t bytes) {
  const bool spreads = holder() == StepStorage::slot && !hidden_ && bytes >= tuning_.spread_from;
  span_ = spreads ? round_up(bytes, cache_line) + cache_line : 0;
}

std::byte* NodeCollective::my_next() const {
  if (holder() == StepStorage::line) return room_->my_next_line().payload;
  return holder() == StepStorage::page ? room_->my_next_page() : room_->my_next_slot(span_);
}

const std::byte* NodeCollective::data(int member, StepNumber step) const {
  if (holder() == StepStorage::line) return room_->line(member, step).payload;
  return holder() == StepStorage::page ? room_->page(member, step) : room_->slot(member, step, span_);
}

// Returns the size in bytes of the largest block that members give each other, as far as this one knows.
std::size_t NodeCollective::most_bytes() const {
  if (collective() == Collective::barrier) return 0;
  if (!cuts_input(collective()) && !cuts_output(collective())) return common().bytes;
  return std::max(cuts_input(collective()) ? spec().gives.largest() : 0,
                  cuts_output(collective()) ? spec().takes.largest() : 0) *
         element();
}

NodeCollective::ByteRange NodeCollective::gives(int member) const {
  if (for_each_) return {spec().gives.offset(member) * element(), spec().gives.count(member) * element()};
  return cuts_output(collective()) ? ByteRange{0, spec().takes.count(me()) * element()} : common();
}

NodeCollective::ByteRange NodeCollective::takes(int member) const {
  if (cuts_output(collective()))
    return {spec().takes.offset(member) * element(), spec().takes.count(member) * element()};
  return for_each_ ? ByteRange{0, spec().gives.count(me()) * element()} : common();
}

NodeCollective::ByteRange NodeCollective::of_part(const ByteRange& whole, std::size_t part) const {
  const std::size_t skip = std::min(part * piece_, whole.bytes);
  return {whole.offset + skip, std::min(piece_, whole.bytes - skip)};
}

void NodeCollective::write(std::byte* to, const std::byte* from, std::size_t bytes) const {
  room_->has_moved(bytes);
  if (streams_)
    stream_bytes(to, from, bytes);
  else
    copy_bytes(to, from, bytes);
}

void NodeCollective::hand(std::byte* to, const std::byte* from, std::size_t bytes) const {
  room_->has_moved(bytes);
  room_->write_strategy().write(to, from, bytes, tuning_.slow_from);
}

const std::byte* NodeCollective::mine(std::size_t offset, std::size_t bytes) {
  if (pieces_ == nullptr) return input_ + offset;
  if (const std::byte* const whole = pieces_->whole(offset, bytes)) return whole;
  if (gathered_.size() < bytes) gathered_.resize(bytes);
  pieces_->read(gathered_.data(), offset, bytes);
  return gathered_.data();
}

void NodeCollective::hand_mine(std::byte* to, std::size_t offset, std::size_t bytes) const {
  if (pieces_ == nullptr) return hand(to, input_ + offset, bytes);
  pieces_->in_range(offset, bytes,
                    [&](const std::byte* from, std::size_t at, std::size_t here) { hand(to + at, from, here); });
}

void NodeCollective::put(std::size_t offset, const std::byte* from, std::size_t bytes) {
  if (uploads())
    upload(offset, from, bytes);
  else if (pieces_ == nullptr)
    write(output_ + offset, from, bytes);
  else
    pieces_->write(offset, from, bytes);
}

const std::byte* NodeCollective::given_by(int member, std::size_t part) const {
  const StepNumber step = at_step(part);
  const std::byte* all = data(member, step);
  return for_each_ ? all + static_cast<std::size_t>(me()) * region_ : all;
}

}  // namespace lockstep::node
