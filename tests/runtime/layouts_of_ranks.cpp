// SPDX-License-Identifier: Apache-2.0
// The strategies of several processes: with one replica in each, and with two in every other one.
#include "tests/runtime/layouts.hpp"
#include "tests/runtime/quick.hpp"
#include "tests/support/mpi_test.hpp"

namespace lockstep::test {
namespace {

Layout with(std::string name, const std::function<int()>& replicas) {
  return {std::move(name), [=](std::shared_ptr<CrossDeviceOps> ops) {
            return std::make_unique<MultiWorkerMirroredStrategy>(session(), replicas(), quick(std::move(ops)));
          }};
}

}  // namespace

std::vector<Layout> layouts() {
  return {with("one_each", [] { return 1; }), with("two_and_one", [] { return 2 - session().rank() % 2; })};
}

}  // namespace lockstep::test
