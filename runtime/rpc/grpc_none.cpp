// SPDX-License-Identifier: Apache-2.0
// Replaces the gRPC client and server in builds without gRPC.
#include "runtime/rpc/rpc.hpp"

namespace lockstep::rpc {
namespace {

[[noreturn]] void refuse() {
  throw Error(Code::usage, "this build of Lockstep has no gRPC",
              "install libgrpc++-dev and build with -Dgrpc=enabled, or start the processes by mpirun");
}

}  // namespace

struct RpcServer::Parts {};
struct Client::Parts {};

bool is_available() { return false; }

std::unique_ptr<RpcServer> RpcServer::create(std::string_view layer, const std::string& address,
                                             const ServerOptions& /*options*/) {
  detail::check_layer(layer, address);
  refuse();
}
RpcServer::RpcServer(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}
RpcServer::~RpcServer() = default;
void RpcServer::add_handler(const std::string& /*name*/, const std::string& /*signature*/, Handler /*handler*/) {
  refuse();
}
void RpcServer::add_deferred(const std::string& /*name*/, Deferred /*function*/) { refuse(); }
void RpcServer::start() { refuse(); }
const std::string& RpcServer::address() const { refuse(); }

std::unique_ptr<Client> Client::create(std::string_view layer, const std::string& address,
                                       const ClientOptions& /*options*/) {
  detail::check_layer(layer, address);
  refuse();
}
Client::Client(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}
Client::~Client() = default;
const std::string& Client::address() const { refuse(); }
TimeSpan Client::limit() const { refuse(); }
std::shared_ptr<const detail::ReplyFuture> Client::start(const std::string& /*name*/, const Bytes& /*arguments*/) {
  refuse();
}

}  // namespace lockstep::rpc
