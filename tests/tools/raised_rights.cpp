// SPDX-License-Identifier: Apache-2.0
// Says which files its environment makes it use, and makes them, for raised_rights_test.py. With an argument it begins
// a session instead.
#include <iostream>

#include "collectives/node/tuning_record.hpp"
#include "topology/base/environment.hpp"
#include "topology/base/error.hpp"
#include "topology/base/settings.hpp"
#include "topology/machine/read_machine.hpp"
#include "topology/machine/session.hpp"
#include "topology/secret/secret.hpp"

namespace lockstep {
namespace {

void say_files() {
  constexpr std::string_view key = "a machine of this test";
  std::cout << "raised: " << has_raised_rights() << "\n";
  std::cout << "dump: " << Settings::from_environment().dump() << "\n";
  node::store_record({}, key);
  std::cout << "measurements: " << node::tuning_file(key) << "\n";
  try {
    std::cout << "key: " << secret_of_user().source() << "\n";
  } catch (const Error& error) {
    std::cout << error.what() << "\n";
  }
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** /*argv*/) {
  using namespace lockstep;
  if (argc == 1) say_files();
  try {
    if (argc > 1) const Session session;
    read_this_machine(Log(LogLevel::off));
    std::cout << "machine: read\n";
  } catch (const Error& error) {
    std::cout << error.what() << "\n";
  }
  return 0;
}
