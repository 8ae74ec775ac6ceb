// SPDX-License-Identifier: Apache-2.0
// For programs that also run as tasks of TF_CONFIG, without mpirun.
#include "runtime/start.hpp"
#include "tests/support/mpi_test.hpp"

namespace lockstep::test {

Session begin_session(int& argc, char**& argv, const SessionOptions& options) {
  return start(argc, argv, {.session = options, .cluster_resolver = nullptr});
}

}  // namespace lockstep::test
