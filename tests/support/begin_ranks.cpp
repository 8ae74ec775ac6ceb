// SPDX-License-Identifier: Apache-2.0
#include "tests/support/mpi_test.hpp"

namespace lockstep::test {

Session begin_session(int& argc, char**& argv, const SessionOptions& options) { return {argc, argv, options}; }

}  // namespace lockstep::test
