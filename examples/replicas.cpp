// SPDX-License-Identifier: Apache-2.0
// Runs a function in two replicas, which are threads of this process. The replicas add their values; the program
// receives each replica's result, and their sum.
#include <lockstep.hpp>

#include <iostream>

int main() {
  lockstep::MirroredStrategy strategy(2);
  const auto found = strategy.run([](lockstep::ReplicaContext& replica) {
    const int mine = replica.replica_id_in_sync_group() + 1;
    const int total = replica.all_reduce(mine, lockstep::sum);  // 3 in both replicas
    return mine * mine + total;
  });
  std::cout << found << '\n' << "all: " << strategy.reduce("SUM", found) << '\n';
}
