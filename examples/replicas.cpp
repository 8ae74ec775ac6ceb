// SPDX-License-Identifier: Apache-2.0
// Two replicas as threads of this process: each computes, all add, and the program goes on with what they found.
#include <lockstep.hpp>

#include <iostream>

int main() {
  lockstep::MirroredStrategy strategy(2);
  const auto found = strategy.run([](lockstep::ReplicaContext& replica) {
    const int mine = replica.replica_id_in_sync_group() + 1;
    const int total = replica.all_reduce(mine, lockstep::sum);  // 3, at both
    return mine * mine + total;
  });
  std::cout << found << '\n' << "all: " << strategy.reduce("SUM", found) << '\n';
}
