// SPDX-License-Identifier: Apache-2.0
// Makes the channels of a strategy's processes.
#include "runtime/process_channels.hpp"

#include <utility>

namespace lockstep::detail {
namespace {

constexpr std::array all_channels = {Channel::training, Channel::input, Channel::checkpoints, Channel::health};

}  // namespace

void ProcessChannels::begin(const MakeChannel& make) {
  for (const Channel each : all_channels)
    channels_[static_cast<std::size_t>(each)] = std::make_unique<Communicator>(make(each));
}

void ProcessChannels::replace(Channel channel, Communicator made) {
  *channels_[static_cast<std::size_t>(channel)] = std::move(made);
}

Communicator& ProcessChannels::at(Channel channel) {
  const std::lock_guard lock(mutex_);
  std::unique_ptr<Communicator>& found = channels_.at(static_cast<std::size_t>(channel));
  if (make_ && !found) found = std::make_unique<Communicator>(make_(channel));
  if (make_ && found->failed()) *found = make_(channel);
  return *found;
}

}  // namespace lockstep::detail
