// SPDX-License-Identifier: Apache-2.0
// Stands in for the transport in builds without OpenSSL, which proves keys.
#include "collectives/tcp/tcp_transport.hpp"
#include "topology/base/error.hpp"

namespace lockstep {

std::optional<std::string> why_no_tcp() {
  return "this build has no OpenSSL, which members need to authenticate each other";
}

namespace {

[[noreturn]] void refuse() { throw Error(Code::usage, *why_no_tcp(), "install libssl-dev and build again"); }

}  // namespace

std::shared_ptr<const Secret> key_of_job(Exchange& /*exchange*/) { refuse(); }

struct Tcp::Shared {};

Tcp::Tcp(const TcpOptions& /*options*/) { refuse(); }
Tcp::~Tcp() = default;

std::unique_ptr<Transport> Tcp::transport(Exchange& /*exchange*/, LostMemberLookup /*lost*/) { return nullptr; }

bool Tcp::has_lost() const { return false; }

}  // namespace lockstep
