// SPDX-License-Identifier: Apache-2.0
// Reads and writes buffers in several pieces.
#include "collectives/node/member_buffers.hpp"

namespace lockstep::node {

void ScatteredInput::publish(std::byte* to, std::size_t offset, std::size_t bytes) {
  call_->call->pieces->in_range(offset, bytes, [&](const std::byte* from, std::size_t at, std::size_t here) {
    call_->room->add_copied_bytes(here);
    call_->room->write_strategy().write(to + at, from, here, call_->tuning.slow_write_from);
  });
}

const std::byte* ScatteredInput::read(std::size_t offset, std::size_t bytes) {
  const ScatteredBuffer& pieces = *call_->call->pieces;
  if (const std::byte* const whole = pieces.whole(offset, bytes)) return whole;
  if (gathered_.size() < bytes) gathered_.resize(bytes);
  pieces.read(gathered_.data(), offset, bytes);
  return gathered_.data();
}

void ScatteredOutput::write(std::size_t offset, const std::byte* from, std::size_t bytes) {
  call_->call->pieces->write(offset, from, bytes);
}

std::byte* ScatteredOutput::place_of_result(std::size_t /*offset*/, std::size_t bytes) {
  if (result_.size() < bytes) result_.resize(bytes);
  return result_.data();
}

}  // namespace lockstep::node
