// SPDX-License-Identifier: Apache-2.0
#include "bench/onednn.hpp"
#include "topology/base/error.hpp"

namespace lockstep::bench {

std::string onednn_version() { return ""; }

void use_one_onednn_thread() {}

void onednn_product(const train::compute::ProductShape& /*shape*/,
                    const train::compute::ProductOperand<float>& /*left*/,
                    const train::compute::ProductOperand<float>& /*right*/,
                    const train::compute::ProductTarget<float>& /*target*/) {
  throw Error(Code::internal, "this build has no oneDNN", "install libdnnl-dev and build again");
}

}  // namespace lockstep::bench
