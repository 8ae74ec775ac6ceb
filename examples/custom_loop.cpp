// SPDX-License-Identifier: Apache-2.0
// Trains a layer w x + b on two replicas with a loop of the program: binary cross-entropy and gradient descent. Each
// replica has half of a global batch of 16 equal examples. Losses are divided by the global batch, so a sum over
// replicas is the mean over examples.
#include <lockstep.hpp>

#include <cmath>
#include <iostream>

int main() {
  using namespace lockstep;
  constexpr float learning_rate = 0.01F;
  constexpr int global_batch = 16;
  MirroredStrategy strategy(2);
  const Scope scope = strategy.scope();
  Variable w(1.0584904F, {.name = "kernel", .aggregation = Aggregation::only_first_replica});
  Variable b(0.F, {.name = "bias", .aggregation = Aggregation::only_first_replica});
  const auto step = [&](ReplicaContext& replica) {
    float loss = 0;
    Tensor<float> gradients(TensorShape{2});  // of w and b
    for (int example = replica.local_id(); example < global_batch; example += replica.num_replicas_in_sync()) {
      const float x = 1;
      const float z = w.read().item() * x + b.read().item();
      loss += std::log1p(std::exp(-z)) / global_batch;  // the label is 1
      const float slope = -1 / (1 + std::exp(z)) / global_batch;
      gradients[0] += slope * x;
      gradients[1] += slope;
    }
    replica.all_reduce(gradients, sum);
    w -= learning_rate * gradients[0];  // all have the same value, so the first one's counts
    b -= learning_rate * gradients[1];
    return loss;
  };
  for (int i = 0; i < 5; ++i) std::cout << Tensor(strategy.reduce("SUM", strategy.run(step))) << '\n';
  w.check_sync();
}
