// SPDX-License-Identifier: Apache-2.0
// Finds the conductivity of a rod from its measured temperatures. Each replica has a piece of the rod. In every step
// the replicas exchange the cells at their edges and predict the next temperatures. Then they correct the conductivity,
// a mirrored variable, by the sum of all replicas' gradients.
//
//   heat                          one replica
//   mpirun -n 3 heat              three ranks with one replica each
//   mpirun -n 2 heat 2            two ranks with two replicas each
#include <lockstep.hpp>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <vector>

namespace {

using lockstep::ReplicaContext;

constexpr std::size_t cells = 240;
constexpr double truth = 0.2;

// Returns the measured temperature of a cell: a sum of three waves that decay.
double warmth(std::size_t cell, int time) {
  double sum = 0;
  for (const int wave : {1, 3, 8}) {
    const double angle = wave * 3.14159265358979323846 / cells;
    sum +=
        std::pow(1 - 4 * truth * std::pow(std::sin(angle), 2), time) * std::sin(2 * angle * static_cast<double>(cell));
  }
  return sum;
}

// Receives the neighbours' edge cells into the first and last element of `rod`. The rod is a ring.
void exchange_edges(ReplicaContext& replica, std::vector<double>& rod) {
  const int n = replica.num_replicas_in_sync();
  const int me = replica.replica_id_in_sync_group();
  const std::size_t last = rod.size() - 1;
  auto& world = replica.communicator();
  const std::span<double> all(rod);
  world.sendrecv(all.subspan(1, 1), (me + n - 1) % n, all.subspan(last, 1), (me + 1) % n);
  world.sendrecv(all.subspan(last - 1, 1), (me + 1) % n, all.first(1), (me + n - 1) % n);
}

// Predicts one step, corrects the conductivity, and returns this replica's squared error.
double improve(ReplicaContext& replica, lockstep::Variable<double>& conductivity, int time) {
  const auto n = static_cast<std::size_t>(replica.num_replicas_in_sync());
  const auto me = static_cast<std::size_t>(replica.replica_id_in_sync_group());
  const std::size_t begin = cells * me / n;
  const std::size_t end = cells * (me + 1) / n;
  std::vector<double> rod(end - begin + 2);
  for (std::size_t i = begin; i < end; ++i) rod[i - begin + 1] = warmth(i, time);
  exchange_edges(replica, rod);
  double error = 0;
  double slope = 0;
  for (std::size_t i = begin; i < end; ++i) {
    const std::size_t at = i - begin + 1;
    const double flow = rod[at - 1] - 2 * rod[at] + rod[at + 1];
    const double wrong = rod[at] + conductivity.read().item() * flow - warmth(i, time + 1);
    error += wrong * wrong;
    slope += 2 * wrong * flow;
  }
  conductivity.assign_sub(0.3 * slope);  // subtracts the sum of all replicas' values
  return error;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    lockstep::Session session = lockstep::start(argc, argv);
    lockstep::MultiWorkerMirroredStrategy strategy(session, argc > 1 ? std::atoi(argv[1]) : 1);
    const auto scope = strategy.scope();
    lockstep::Variable conductivity(0.5, {.name = "conductivity", .aggregation = lockstep::Aggregation::sum});
    for (int time = 0; time <= 60; ++time) {
      const double error = strategy.reduce(
          "SUM", strategy.run([&](ReplicaContext& replica) { return improve(replica, conductivity, time); }));
      if (session.rank() == 0 && time % 20 == 0)
        std::printf("time %d: conductivity %.6f, error %.1e\n", time, conductivity.read().item(), error);
    }
    conductivity.check_sync();  // throws if the replicas' values differ
    return 0;
  } catch (const lockstep::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return static_cast<int>(exit_of(error.code()));
  }
}
