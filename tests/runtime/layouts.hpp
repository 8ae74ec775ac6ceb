// SPDX-License-Identifier: Apache-2.0
// The layouts of replicas in which the tests of every strategy are run: those of the program that they are linked into.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "runtime/strategy.hpp"

namespace lockstep::test {

struct Layout {
  std::string name;
  std::function<std::unique_ptr<Strategy>(std::shared_ptr<CrossDeviceOps> ops)> with;
  std::function<std::shared_ptr<void>()> machine = {};  // what has to be there as long as its strategies
  std::unique_ptr<Strategy> make() const { return with(nullptr); }
};
inline void PrintTo(const Layout& layout, std::ostream* out) { *out << layout.name; }

std::vector<Layout> layouts();

class EveryLayout : public testing::TestWithParam<Layout> {
 protected:
  std::shared_ptr<void> machine = GetParam().machine ? GetParam().machine() : nullptr;
  std::unique_ptr<Strategy> strategy = GetParam().make();

  int size() const { return strategy->num_replicas_in_sync(); }
  int sum_of_ids() const { return size() * (size() - 1) / 2; }
  // Of this process's first replica.
  int first() const { return strategy->replica(0).replica_id_in_sync_group(); }
  // "gpu:1", of this process's first replica.
  std::string first_device() const {
    const DeviceName name = parse_device(strategy->devices().front());
    return text(name.type == "GPU" ? "gpu:" : "cpu:", name.index);
  }
  bool is_on_gpus() const { return strategy->devices().front().find("GPU") != std::string::npos; }
  // Waits until all processes have ended their calls: a failure in one of them would meet those that have not.
  void end_calls() { strategy->channel(Channel::checkpoints).barrier(); }
  bool is_in_one_process() const { return strategy->num_local_replicas() == size(); }
};

}  // namespace lockstep::test
