// SPDX-License-Identifier: Apache-2.0
#include "runtime/extended.hpp"

namespace lockstep {

Extended::Devices Extended::parameter_devices() const {
  Devices all = strategy_->devices();
  if (strategy_->keeps() == Strategy::Keeps::central) all.resize(1);
  return all;
}

}  // namespace lockstep
