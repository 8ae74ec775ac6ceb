// SPDX-License-Identifier: Apache-2.0
// The collectives of a communicator in the order of a stream of a GPU: `world.on(stream).all_reduce(gradient, sum)`.
#pragma once

#include "collectives/communicator/collectives.hpp"

namespace lockstep {

// Of a communicator that lives as long. What is called comes after what is in the stream, and before what is put there
// later. Where GPUs do it by themselves the call returns at once; a Request may be waited for all the same.
class OnStream : public Collectives<OnStream> {
 public:
  OnStream(std::shared_ptr<detail::Team> team, gpu::Stream stream) : team_(std::move(team)), stream_(stream) {}

  int rank() const { return team_->rank(); }
  int size() const { return team_->size(); }

 private:
  friend class Collectives<OnStream>;
  friend class Batch;

  detail::Ask ordered(detail::Ask ask) const {
    ask.stream = stream_;
    return ask;
  }
  void run(const detail::Ask& ask) { team_->run(ordered(ask)); }
  Request begin(const detail::Ask& ask) { return {team_, team_->start(ordered(ask))}; }
  Prepared prepare(const detail::Ask& ask) { return {team_, team_->prepare(ordered(ask))}; }

  std::shared_ptr<detail::Team> team_;
  gpu::Stream stream_;
};

}  // namespace lockstep
