// SPDX-License-Identifier: Apache-2.0
// Divides global batches for a program's own input functions.
#include "runtime/input_options.hpp"

#include "topology/base/error.hpp"
#include "topology/base/text.hpp"

namespace lockstep {

std::int64_t InputContext::get_per_replica_batch_size(std::int64_t global_batch_size) const {
  if (global_batch_size % num_replicas_in_sync != 0)
    throw Error(Code::usage,
                text("a global batch of ", global_batch_size, " for ", num_replicas_in_sync,
                     " replicas, which cannot have equal parts"),
                "give a multiple of the number of replicas");
  return global_batch_size / num_replicas_in_sync;
}

}  // namespace lockstep
