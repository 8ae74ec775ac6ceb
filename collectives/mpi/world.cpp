// SPDX-License-Identifier: Apache-2.0
// Makes the communicator of all members of a session. It is here, above sessions and collectives, because a session
// does not know collectives.
#include <cmath>
#include <numeric>
#include <optional>

#include "collectives/communicator/communicator.hpp"
#include "collectives/engine/status_reader.hpp"
#include "collectives/engine/timeline.hpp"
#include "collectives/mpi/mpi_transport.hpp"
#include "collectives/mpi/transport_choice.hpp"
#include "collectives/plan_table.hpp"
#include "topology/base/text_file.hpp"
#include "topology/machine/session.hpp"

namespace lockstep {
namespace {

struct WorldAttachment final : Attachment {
  explicit WorldAttachment(Communicator made) : communicator(std::move(made)) {}
  bool failed() const override { return communicator.failed(); }
  Communicator communicator;
};

std::vector<int> first_ranks(int number) {
  std::vector<int> ranks(static_cast<std::size_t>(number));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

CommunicatorOptions with_settings(const Session& session, CommunicatorOptions options) {
  if (options.algorithm.empty()) options.algorithm = session.settings().algorithm();
  options.node_memory = session.settings().node_memory();
  options.checksums = options.checksums || session.settings().checksums();
  options.nccl = session.settings().nccl();
  options.strict = options.strict || session.settings().strict();
  if (options.wire == WireFormat::as_is) options.wire = *parse_wire_format(session.settings().wire());
  status::set_dump_folder(session.settings().dump());
  timeline::set_folder(session.settings().timeline());
  status::write_on_signal(session.settings().signal(), session.log());
  if (const auto path = session.settings().table()) {
    options.table = read_text_file(*path, most_text_bytes, "LOCKSTEP_TABLE");
    refuse_foreign_table(options.table, *path, session.topology());
    options.table_name = *path;
  }
  return options;
}

// Returns the result of `f`. If it throws, other members that wait in the exchange learn the error.
template <class F>
auto or_tell(Exchange& exchange, const F& f) {
  try {
    return f();
  } catch (const std::exception& error) {
    exchange.fail(error.what());
    throw;
  }
}

std::unique_ptr<WorldAttachment> make_world(Session& session) {
  auto maker = transport_of(session);  // may measure the network
  auto options = or_tell(session.exchange(), [&] { return with_settings(session, {}); });
  return std::make_unique<WorldAttachment>(Communicator(session.exchange(), session.shared_topology(),
                                                        first_ranks(session.size()), std::move(maker),
                                                        std::move(options)));
}

}  // namespace

TransportMaker transport_of(Session& session) {
  const std::shared_ptr<SessionBackend>& backend = session.backend();
  if (backend) return [backend](Exchange& exchange) { return backend->transport(exchange); };
  auto& kept = session.kept_attachment();
  if (!kept) {
    const auto choice = or_tell(session.exchange(), [&] { return std::make_shared<TransportChoice>(session); });
    const bool speaks = session.rank() == 0;  // rank 0 logs for all
    if (speaks) session.log().info(text("messages go ", choice->by_tcp() ? "over TCP" : "by MPI", ": ", choice->why()));
    constexpr double worth = 0.9;
    if (const auto& network = choice->network(); network.bytes_per_us > 0) {
      session.set_network(network);
      if (speaks)
        session.log().info(
            text("a small message takes ", std::lround(network.latency_us), " us between nodes",
                 network.node_latency_us > 0 ? text(", ", std::lround(network.node_latency_us), " us within one") : "",
                 "; ", std::lround(network.bytes_per_us), " MB go in a second",
                 network.flow_bytes_per_us < worth * network.bytes_per_us
                     ? text(", ", std::lround(network.flow_bytes_per_us), " by one connection")
                     : "",
                 "; there are ", std::lround(network.crowd), " members or other programs for each core"));
    }
    kept = choice;
  }
  return [choice = std::static_pointer_cast<TransportChoice>(kept)](Exchange& exchange) {
    return choice->transport(exchange);
  };
}

std::function<std::unique_ptr<Communicator>(int)> Session::members(ThreadMembers threads, CommunicatorOptions options) {
  auto maker = transport_of(*this);
  const auto topology = std::make_shared<const Topology>(this->topology().with_members(threads.numbers));
  try {
    options = with_settings(*this, std::move(options));
  } catch (const std::exception& error) {
    for (const auto& exchange : *threads.exchanges) exchange->fail(error.what());
    throw;
  }
  return [=, maker = std::move(maker), exchanges = threads.exchanges, options = std::move(options)](int mine) {
    auto& exchange = *exchanges->at(static_cast<std::size_t>(mine));
    return or_tell(exchange, [&] {
      return std::make_unique<Communicator>(exchange, topology, first_ranks(topology->size()), maker, options);
    });
  };
}

Communicator& Session::world() {
  if (!attachment()) attachment() = make_world(*this);
  return static_cast<WorldAttachment&>(*attachment()).communicator;
}

}  // namespace lockstep
