// SPDX-License-Identifier: Apache-2.0
// Calls a program's callbacks in fit(), evaluate() and predict(), and lets one process end the training of all.
#pragma once

#include <atomic>
#include <exception>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/input_agreement.hpp"
#include "runtime/strategy.hpp"
#include "runtime/train/callbacks.hpp"
#include "runtime/train/model.hpp"

namespace lockstep::train {

// Lets one process end the training of all. The vote is on its way while the next batch is read.
class EndVote {
 public:
  // Orders the votes: the greatest of all processes counts.
  enum Vote : int { go_on, stop, failed };

  // `may_end` is true if this process has callbacks, which may end the training between two batches. All processes make
  // it.
  EndVote(Strategy& strategy, bool may_end) : votes_(strategy.channel(Channel::training)) {
    is_alone_ = votes_.size() == 1;
    is_needed_ = is_alone_ ? may_end : votes_.all_reduce(may_end ? 1 : 0, max) > 0;
  }
  // Begin and finish the vote behind a batch.
  void begin(Vote mine) {
    vote_ = mine;
    if (is_needed_ && !is_alone_) request_ = votes_.all_reduce_async(std::span(&vote_, 1), max);
  }
  Vote finish() {
    request_.wait();
    return is_needed_ ? static_cast<Vote>(vote_) : go_on;
  }
  // Votes behind an epoch, also if no process has callbacks: a display may ask for the end.
  Vote ask(Vote mine) { return is_alone_ ? mine : static_cast<Vote>(votes_.all_reduce(int{mine}, max)); }

 private:
  Communicator& votes_;
  bool is_alone_ = true;
  bool is_needed_ = false;
  int vote_ = go_on;
  Request request_;
};

// Calls the program's callbacks. One that fails in one process ends the training in all of them, by the next vote.
class CallbackList {
 public:
  // The callbacks may be those of a loop outside of this one, whose model they get back.
  CallbackList(Model& model, const std::vector<AnyCallback>& callbacks, std::string place)
      : strategy_(model.strategy()), callbacks_(callbacks), place_(std::move(place)) {
    for (const AnyCallback& each : callbacks_) former_models_.push_back(each->set_model(&model));
  }
  ~CallbackList() {
    for (std::size_t i = callbacks_.size(); i-- > 0;) callbacks_[i]->set_model(former_models_[i]);
  }
  CallbackList(const CallbackList&) = delete;
  CallbackList& operator=(const CallbackList&) = delete;

  bool empty() const { return callbacks_.empty(); }
  template <class F, class... A>
  void call(F function, A&... arguments) {
    try {
      for (const AnyCallback& each : callbacks_) (each.operator->()->*function)(arguments...);
    } catch (...) {
      keep_failure(std::current_exception());
    }
  }
  // Lets votes tell failures, and whether to stop. All processes begin it.
  void begin_votes(std::atomic<bool>& stops) {
    stops_ = &stops;
    vote_.emplace(strategy_, !empty());
  }
  // Begin the vote behind a batch, finish it, and vote behind an epoch. The last two return true if the training shall
  // end, and throw in all processes if a callback has failed in one of them.
  void begin_vote() { vote_->begin(my_vote()); }
  bool ends_behind_batch() { return ends(vote_->finish()); }
  bool ends_behind_epoch() { return ends(vote_->ask(my_vote())); }

 private:
  // Fails at once, or lets the next vote tell all processes.
  void keep_failure(const std::exception_ptr& failure) {
    if (vote_ && !is_alone())
      failure_ = failure_ ? failure_ : failure;
    else
      lockstep::detail::fail_for_all(strategy_, failure, place_);
  }
  bool is_alone() const { return strategy_.num_local_replicas() == strategy_.num_replicas_in_sync(); }
  EndVote::Vote my_vote() const {
    if (failure_) return EndVote::failed;
    return stops_->load() ? EndVote::stop : EndVote::go_on;
  }
  bool ends(EndVote::Vote vote) const {
    if (vote == EndVote::failed) lockstep::detail::fail_together(strategy_, failure_, place_);
    return vote == EndVote::stop;
  }

  Strategy& strategy_;
  const std::vector<AnyCallback>& callbacks_;
  std::string place_;
  std::vector<Model*> former_models_;
  std::atomic<bool>* stops_ = nullptr;
  std::optional<EndVote> vote_;
  std::exception_ptr failure_;
};

}  // namespace lockstep::train
