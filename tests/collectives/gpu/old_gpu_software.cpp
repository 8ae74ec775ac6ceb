// SPDX-License-Identifier: Apache-2.0
// A program for tests of drivers and of NCCLs that do not fit: says why it goes without, and goes on on the host.
//   old_gpu_software [CALL]: as if the driver lacked that one
#include <iostream>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/communicator/local.hpp"
#include "collectives/gpu/current_context.hpp"
#include "collectives/gpu/memory.hpp"
#include "collectives/nccl/library.hpp"

namespace {

using lockstep::Communicator;

std::string_view lacked;

void* all_but_one(const char* name, unsigned /*since*/) {
  static char there = 0;
  return lacked == name ? nullptr : &there;
}

void say(int argc, char** argv) {
  std::cout << "driver: " << lockstep::gpu::why_none() << '\n';
  if (argc > 1) {
    lacked = argv[1];
    lockstep::gpu::DriverFunctions all;
    const char* const missing = lockstep::gpu::find_all(all_but_one, all);
    std::cout << "lacks: " << (missing == nullptr ? "nothing" : lockstep::gpu::why_unfit(cudaSuccess, missing)) << '\n';
  }
  std::string why;
  const auto nccl = lockstep::nccl::load(why);
  std::cout << "nccl: " << (nccl != nullptr ? nccl->version() : why) << '\n';
  try {
    const lockstep::DeviceVector<int> there(10);
    std::cout << "memory: there\n";
  } catch (const lockstep::Error& error) {
    std::cout << "memory: " << error.what() << '\n';
  }
}

}  // namespace

int main(int argc, char** argv) {
  say(argc, argv);
  std::vector<int> sums(2);
  lockstep::run_members(2, [&](Communicator& world) {
    sums.at(static_cast<std::size_t>(world.rank())) = world.all_reduce(world.rank() + 1, lockstep::sum);
  });
  std::cout << "host: " << (sums == std::vector<int>{3, 3} ? "right" : "wrong") << '\n';
}
