// SPDX-License-Identifier: Apache-2.0
// Prints the example of input of the page on ParameterServerStrategy: two replicas double the halves of each batch.
#include <lockstep.hpp>
#include <lockstep/data.hpp>

#include <cstdio>
#include <iostream>
#include <string>

int main() {
  using namespace lockstep;
  try {
    MirroredStrategy strategy(2);
    const std::int64_t global_batch_size = strategy.global_batch(1);
    const auto dataset = data::range(4).batch(global_batch_size);
    std::string separator = "[";
    for (const auto& x : strategy.distribute(dataset)) {
      const auto result = strategy.run([](const Tensor<std::int64_t>& input) { return input * 2; }, x);
      std::cout << separator << to_list_text(result);
      separator = ", ";
    }
    std::cout << "]\n";
    return 0;
  } catch (const Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return static_cast<int>(exit_of(error.code()));
  }
}
