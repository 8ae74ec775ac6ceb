// SPDX-License-Identifier: Apache-2.0
// The strategies of one process.
#include "tests/runtime/layouts.hpp"
#include "tests/runtime/quick.hpp"

namespace lockstep::test {
namespace {

template <class S>
Layout of(std::string name, int replicas) {
  return {std::move(name),
          [=](std::shared_ptr<CrossDeviceOps> ops) { return std::make_unique<S>(replicas, quick(std::move(ops))); }};
}

}  // namespace

std::vector<Layout> layouts() {
  return {
      {"one_device",
       [](std::shared_ptr<CrossDeviceOps> ops) { return std::make_unique<OneDeviceStrategy>(quick(std::move(ops))); }},
      of<MirroredStrategy>("mirrored_1", 1),
      of<MirroredStrategy>("mirrored_2", 2),
      of<MirroredStrategy>("mirrored_3", 3),
      of<CentralStorageStrategy>("central_1", 1),
      of<CentralStorageStrategy>("central_3", 3)};
}

}  // namespace lockstep::test
