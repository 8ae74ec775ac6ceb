// SPDX-License-Identifier: Apache-2.0
// Reads data sets that a strategy divides, for their tests under every layout.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/distributed_dataset.hpp"
#include "tests/runtime/layouts.hpp"

namespace lockstep::test {

class Datasets : public EveryLayout {
 protected:
  using Array = Tensor<std::int64_t>;

  // Returns the rows of all replicas, batch by batch, with the pieces of a batch one behind the other.
  std::vector<Array> batches_of(DistributedIterator<Array>& iterator, int most = 1000) {
    std::vector<Array> all;
    for (int i = 0; i < most; ++i) {
      const auto batch = iterator.next();
      if (!batch) break;
      all.push_back(strategy->gather(*batch, 0));
    }
    return all;
  }
  std::vector<Array> batches_of(const Dataset<Array>& dataset, InputOptions options = {}) {
    auto iterator = strategy->distribute(dataset, options).open();
    return batches_of(iterator);
  }
  // Adds up a number of each process.
  std::int64_t sum_of_processes(std::int64_t mine) { return strategy->channel(Channel::input).all_reduce(mine, sum); }
  static std::vector<Array> all_of(const Dataset<Array>& dataset) {
    std::vector<Array> all;
    for (const Array& each : dataset) all.push_back(each);
    return all;
  }
};

}  // namespace lockstep::test
