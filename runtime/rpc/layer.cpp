// SPDX-License-Identifier: Apache-2.0
// Checks the names of layers and addresses, and says that an answer is late, with and without gRPC.
#include "runtime/rpc/rpc.hpp"

#include "topology/base/duration.hpp"

namespace lockstep::rpc::detail {

void check_layer(std::string_view layer, const std::string& address) {
  if (layer != "grpc")
    throw Error(Code::usage, text("Only GRPC backend is supported at the moment, not '", printable(layer), '\''),
                "say \"grpc\"");
  constexpr int most_port = 65535;
  const std::size_t colon = address.rfind(':');
  if (colon == std::string::npos || colon == 0 || colon + 1 == address.size() || address.size() > 300 ||
      address.find_first_not_of("0123456789", colon + 1) != std::string::npos || address.size() - colon > 6 ||
      std::stoi(address.substr(colon + 1)) > most_port)
    throw Error(Code::usage, text('\'', printable(address), "' is not an address"),
                "write host:port, as localhost:12345");
}

void refuse_late(const std::string& what, TimeSpan limit) {
  throw Error(Code::stall, text(what, " has no answer after ", format_duration(limit)),
              "check the server; ClientOptions::timeout sets the limit");
}

}  // namespace lockstep::rpc::detail
