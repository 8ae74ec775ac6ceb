// SPDX-License-Identifier: Apache-2.0
// Stands in for the transport in builds without UCX.
#include "collectives/ucx/ucx_transport.hpp"
#include "topology/base/error.hpp"

namespace lockstep {

struct Ucx::Shared {};

std::optional<std::string> why_no_ucx() { return "this build of Lockstep has no UCX"; }

Ucx::Ucx(UcxOptions /*options*/) {
  throw Error(Code::usage, *why_no_ucx(), "install libucx-dev and build with -Ducx=enabled, or start by mpirun");
}
Ucx::~Ucx() = default;
std::unique_ptr<Transport> Ucx::transport(Exchange& /*exchange*/, LostMemberLookup /*lost*/) { return nullptr; }

}  // namespace lockstep
