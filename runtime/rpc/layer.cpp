// SPDX-License-Identifier: Apache-2.0
// Checks the names of layers and addresses, with and without gRPC.
#include "runtime/rpc/rpc.hpp"

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

}  // namespace lockstep::rpc::detail
