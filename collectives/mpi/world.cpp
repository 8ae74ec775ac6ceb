// SPDX-License-Identifier: Apache-2.0
// The communicator of all members of a session. It lies here, above both, because a session knows no collectives.
#include <numeric>
#include <optional>

#include "collectives/communicator/communicator.hpp"
#include "collectives/mpi/mpi_transport.hpp"
#include "collectives/plan_table.hpp"
#include "topology/machine/session.hpp"

namespace lockstep {
namespace {

struct World final : Attachment {
  explicit World(Communicator made) : communicator(std::move(made)) {}
  bool failed() const override { return communicator.failed(); }
  Communicator communicator;
};

std::unique_ptr<World> make_world(Session& session) {
  std::vector<int> ranks(static_cast<std::size_t>(session.size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  CommunicatorOptions options;
  options.algorithm = session.settings().algorithm();
  options.node_memory = session.settings().node_memory();
  if (const auto path = session.settings().table()) {
    options.table = read_text_file(*path);
    options.table_name = *path;
  }
  return std::make_unique<World>(
      Communicator(session.exchange(), session.shared_topology(), std::move(ranks), mpi_transport, std::move(options)));
}

}  // namespace

Communicator& Session::world() {
  if (!attachment()) attachment() = make_world(*this);
  return static_cast<World&>(*attachment()).communicator;
}

}  // namespace lockstep
