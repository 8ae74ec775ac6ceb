// SPDX-License-Identifier: Apache-2.0
#include "collectives/node/events.hpp"

#include <algorithm>

namespace lockstep::node {

Events::~Events() {
  for (const OnDevice& each : all_) layer_.end_stream(each.device, each.own);
}

Events::OnDevice& Events::of(int device) {
  const auto known = std::ranges::find(all_, device, &OnDevice::device);
  if (known != all_.end()) return *known;
  OnDevice made{.device = device, .before = &layer_.take_event(device)};
  for (gpu::Event*& each : made.done) each = &layer_.take_event(device);
  all_.reserve(all_.size() + 1);
  made.own = layer_.make_stream(device);
  return all_.emplace_back(made);
}

bool Events::is_working() const {
  return std::ranges::any_of(all_, [](const OnDevice& each) {
    return std::ranges::any_of(each.done, [](gpu::Event* done) { return !done->is_reached(); });
  });
}

void Events::give_back() {
  for (const OnDevice& each : all_) {
    layer_.give_back(*each.before);
    for (gpu::Event* const done : each.done) layer_.give_back(*done);
  }
}

}  // namespace lockstep::node
