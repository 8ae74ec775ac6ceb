// SPDX-License-Identifier: Apache-2.0
// Trains a mirrored variable on two replicas. Each replica has an example of its own.
#include <lockstep.hpp>

#include <iostream>

using lockstep::Variable;

int main() {
  lockstep::MirroredStrategy strategy(2);
  const auto scope = strategy.scope();
  Variable weight(1.0F, {.name = "weight", .aggregation = lockstep::Aggregation::sum});
  for (int step = 0; step < 3; ++step) {
    strategy.run([&](lockstep::ReplicaContext& replica) {
      const float x = static_cast<float>(replica.replica_id_in_sync_group() + 1);  // this replica's example
      const float gradient = 2 * x * (weight.read().item() * x - 3 * x) / 2;       // gradient of the mean squared error
      weight -= 0.1F * gradient;                                                   // subtracts the sum of both replicas
    });
  }
  weight.check_sync();
  std::cout << weight << '\n';
}
