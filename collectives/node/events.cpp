// SPDX-License-Identifier: Apache-2.0
// Makes the events of each GPU at their first use, and gives them back.
#include "collectives/node/events.hpp"

#include <algorithm>

namespace lockstep::node {

namespace {

// Calls use(event) for each event that exists.
template <class Use>
void each_of(const GpuEvents::DeviceEvents& one, const Use& use) {
  if (one.before != nullptr) use(*one.before);
  for (gpu::DeviceEvent* const done : one.done) {
    if (done != nullptr) use(*done);
  }
}

}  // namespace

GpuEvents::~GpuEvents() {
  for (const DeviceEvents& each : all_) backend_.end_stream(each.device, each.own);
}

GpuEvents::DeviceEvents& GpuEvents::of(int device) {
  const auto known = std::ranges::find(all_, device, &DeviceEvents::device);
  if (known != all_.end()) return *known;
  all_.reserve(all_.size() + 1);
  DeviceEvents made{.device = device};
  try {
    made.before = &backend_.take_event(device);
    for (gpu::DeviceEvent*& each : made.done) each = &backend_.take_event(device);
    made.own = backend_.make_stream(device);
  } catch (...) {
    each_of(made, [&](gpu::DeviceEvent& taken) { backend_.give_back(taken); });
    throw;
  }
  return all_.emplace_back(made);
}

bool GpuEvents::is_working() const {
  return std::ranges::any_of(all_, [](const DeviceEvents& each) {
    return std::ranges::any_of(each.done, [](gpu::DeviceEvent* done) { return !done->is_reached(); });
  });
}

void GpuEvents::give_back() {
  for (const DeviceEvents& each : all_) each_of(each, [&](gpu::DeviceEvent& event) { backend_.give_back(event); });
}

void GpuEvents::give_back_when(const std::function<bool()>& nobody_waits) {
  for (const DeviceEvents& each : all_)
    each_of(each, [&](gpu::DeviceEvent& event) { backend_.give_back_when(event, nobody_waits); });
}

}  // namespace lockstep::node
