// SPDX-License-Identifier: Apache-2.0
// Is the first program of the README: all ranks sum a gradient in a blocking call, then average it in an async one.
#include <lockstep.hpp>

#include <iostream>

int main(int argc, char** argv) {
  lockstep::Session session(argc, argv);  // starts MPI if it is not running, and ends it
  auto& world = session.world();
  std::vector<float> gradient(1 << 20, static_cast<float>(world.rank()));
  world.all_reduce(gradient, lockstep::sum);  // in place, blocking
  auto request = world.all_reduce_async(gradient, lockstep::avg);
  // ... compute something else ...
  request.wait();
  if (world.rank() == 0) std::cout << "everybody has " << gradient[0] << "\n";
}
