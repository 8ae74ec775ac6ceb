// SPDX-License-Identifier: Apache-2.0
// The example of the README: who is here, and what lies between my ring neighbour and me.
#include <lockstep.hpp>

#include <iostream>

int main(int argc, char** argv) {
  lockstep::Session session(argc, argv);  // starts MPI if nobody did; ends what it started
  const lockstep::Topology& topology = session.topology();
  const lockstep::Group ring = lockstep::world_group(topology, session.rank());
  const int next = ring.rank((ring.index() + 1) % ring.size());
  const auto greeting =
      lockstep::text("rank ", session.rank(), " on ", topology.node(topology.member(session.rank()).node).host,
                     " -> rank ", next, ": ", to_string(topology.link(session.rank(), next)), "\n");
  for (const auto& line : session.exchange().all_gather("greetings", lockstep::to_bytes(greeting))) {
    if (session.rank() == 0) std::cout << lockstep::to_string(line);
  }
}
