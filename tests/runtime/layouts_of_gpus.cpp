// SPDX-License-Identifier: Apache-2.0
// The strategies of one process on GPUs: of the tests' own making, with an NCCL among them and without, and on those
// of the machine.
#include <cstdlib>

#include "tests/runtime/layouts.hpp"
#include "tests/runtime/own_machine.hpp"
#include "tests/runtime/quick.hpp"

namespace lockstep::test {
namespace {

template <class S>
Layout of(std::string name, std::vector<std::string> devices, bool has_nccl = true) {
  return {std::move(name),
          [=](std::shared_ptr<CrossDeviceOps> ops) { return std::make_unique<S>(devices, quick(std::move(ops))); },
          [=] { return std::make_shared<OwnMachine>(has_nccl); }};
}

}  // namespace

std::vector<Layout> layouts() {
  std::vector<Layout> all = {
      of<MirroredStrategy>("gpu_1", {"gpu:0"}),
      of<MirroredStrategy>("gpu_2", {"gpu:1", "gpu:0"}),
      of<MirroredStrategy>("gpu_3_without_nccl", {"gpu:0", "gpu:1", "gpu:2"}, false),
      of<MirroredStrategy>("gpu_and_cpu", {"gpu:1", "cpu:0"}),
      of<CentralStorageStrategy>("central_gpu_2", {"gpu:0", "gpu:1"}),
  };
  if (const gpu::DeviceBackend* const own = gpu::own_backend()) {
    std::vector<std::string> there;
    for (int i = 0; i < own->devices(); ++i) there.push_back(text("gpu:", i));
    const auto with = [=](std::shared_ptr<CrossDeviceOps> ops) {
      return std::make_unique<MirroredStrategy>(there, quick(std::move(ops)));
    };
    all.push_back({"real", with});
  }
  return all;
}

}  // namespace lockstep::test
