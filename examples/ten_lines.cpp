// SPDX-License-Identifier: Apache-2.0
// The example of the README: a gradient that all members average, blocking and beside their own work.
#include <lockstep.hpp>

#include <iostream>

int main(int argc, char** argv) {
  lockstep::Session session(argc, argv);  // starts MPI if nobody did; ends what it started
  auto& world = session.world();
  std::vector<float> gradient(1 << 20, static_cast<float>(world.rank()));
  world.all_reduce(gradient, lockstep::sum);  // in place, blocking
  auto request = world.all_reduce_async(gradient, lockstep::avg);
  // ... compute something else ...
  request.wait();
  if (world.rank() == 0) std::cout << "everybody has " << gradient[0] << "\n";
}
