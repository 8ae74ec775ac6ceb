// SPDX-License-Identifier: Apache-2.0
// In place of gpu_deaths_cuda.cpp, in a build without CUDA.
#include "tests/runtime/gpu_deaths.hpp"

namespace lockstep::test {

std::unique_ptr<DeadlyGpus> deadly_gpus_of_the_machine() { return nullptr; }

}  // namespace lockstep::test
