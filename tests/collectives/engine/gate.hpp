// SPDX-License-Identifier: Apache-2.0
// Holds streams of the tests' own back.
#pragma once

#include <future>
#include <utility>

#include "tests/collectives/gpu/fake_gpus.hpp"

namespace lockstep::test {

// What comes into a stream behind it waits until it is opened, which its end does as well.
class Gate {
 public:
  Gate() = default;
  ~Gate() { open(); }
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;
  void hold(const OwnStream& stream) {
    stream.put([opened = opened_] { opened.wait(); });
  }
  void open() {
    if (!std::exchange(is_open_, true)) gate_.set_value();
  }

 private:
  std::promise<void> gate_;
  std::shared_future<void> opened_ = gate_.get_future().share();
  bool is_open_ = false;
};

}  // namespace lockstep::test
