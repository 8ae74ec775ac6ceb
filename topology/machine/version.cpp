// SPDX-License-Identifier: Apache-2.0
// Holds the version and the commit that the build was made from.
#include "lockstep_commit.hpp"
#include "topology/machine/session.hpp"

namespace lockstep {

std::string_view version() { return LOCKSTEP_VERSION; }

std::string_view commit() { return LOCKSTEP_COMMIT; }

}  // namespace lockstep
