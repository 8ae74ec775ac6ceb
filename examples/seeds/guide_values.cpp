// SPDX-License-Identifier: Apache-2.0
// Prints what the guide to distributed training prints of values: a number that the default strategy reduces, and a
// variable of a mirrored strategy. The lines about devices go to standard error.
#include <lockstep.hpp>

#include <cstdio>
#include <iostream>

int main() {
  using namespace lockstep;
  try {
    Strategy& default_strategy = get_strategy();
    std::cout << to_string(Tensor(default_strategy.reduce("SUM", 1.F))) << '\n';

    const bool has_gpus = !physical_devices("GPU").empty();
    std::cout << "# The guide's condition chooses the " << (has_gpus ? "mirrored" : "default") << " strategy here.\n";

    MirroredStrategy strategy({.cross_device_ops = std::make_shared<ReductionToOneDevice>()});
    const Scope scope = strategy.scope();
    const Variable variable(1.F);
    std::cout << variable << '\n';
    strategy.reduce("SUM", strategy.run([&] { return variable.read(); }));
    return 0;
  } catch (const Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return static_cast<int>(exit_of(error.code()));
  }
}
