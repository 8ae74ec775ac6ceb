// SPDX-License-Identifier: Apache-2.0
// Lets processes begin a loop over a distributed data set alike.
#include "runtime/distributed_dataset.hpp"

#include <cstring>
#include <span>
#include <vector>

namespace lockstep::detail {

data::Opening agree_on_opening(Strategy& strategy, const data::Opening& mine, const std::string& pipeline) {
  Communicator& channel = strategy.channel(Channel::input);
  if (channel.size() == 1) return mine;
  const std::uint64_t own = hash(to_bytes(pipeline));
  std::vector<std::uint64_t> all(static_cast<std::size_t>(channel.size()));
  channel.all_gather(std::span(&own, 1), all);
  for (std::size_t rank = 1; rank < all.size(); ++rank) {
    if (all[rank] == all[0]) continue;
    throw Error(Code::mismatch,
                text("processes loop over different data sets: process 0 and process ", rank, " differ; this one's is ",
                     pipeline),
                "let all processes distribute the same pipeline, with the same parameters and seeds");
  }
  Writer writer;
  save(mine, writer);
  Bytes opening = writer.take();
  std::vector<std::uint8_t> bytes(opening.size());
  std::memcpy(bytes.data(), opening.data(), bytes.size());
  channel.broadcast(bytes, 0);
  Reader reader(std::as_bytes(std::span(bytes)));
  return load(mine, reader);
}

}  // namespace lockstep::detail
