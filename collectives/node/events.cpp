// SPDX-License-Identifier: Apache-2.0
#include "collectives/node/events.hpp"

#include <algorithm>

namespace lockstep::node {

namespace {

// That it has.
template <class Use>
void each_of(const Events::OnDevice& one, const Use& use) {
  if (one.before != nullptr) use(*one.before);
  for (gpu::Event* const done : one.done) {
    if (done != nullptr) use(*done);
  }
}

}  // namespace

Events::~Events() {
  for (const OnDevice& each : all_) layer_.end_stream(each.device, each.own);
}

Events::OnDevice& Events::of(int device) {
  const auto known = std::ranges::find(all_, device, &OnDevice::device);
  if (known != all_.end()) return *known;
  all_.reserve(all_.size() + 1);
  OnDevice made{.device = device};
  try {
    made.before = &layer_.take_event(device);
    for (gpu::Event*& each : made.done) each = &layer_.take_event(device);
    made.own = layer_.make_stream(device);
  } catch (...) {
    each_of(made, [&](gpu::Event& taken) { layer_.give_back(taken); });
    throw;
  }
  return all_.emplace_back(made);
}

bool Events::is_working() const {
  return std::ranges::any_of(all_, [](const OnDevice& each) {
    return std::ranges::any_of(each.done, [](gpu::Event* done) { return !done->is_reached(); });
  });
}

void Events::give_back() {
  for (const OnDevice& each : all_) each_of(each, [&](gpu::Event& event) { layer_.give_back(event); });
}

void Events::give_back_when(const std::function<bool()>& nobody_waits) {
  for (const OnDevice& each : all_)
    each_of(each, [&](gpu::Event& event) { layer_.give_back_when(event, nobody_waits); });
}

}  // namespace lockstep::node
