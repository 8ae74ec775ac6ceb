// SPDX-License-Identifier: Apache-2.0
// Starts the calls of a process's members, waits for them, and ends them together after a failure.
#include "runtime/replica_calls.hpp"

#include <algorithm>
#include <exception>
#include <optional>
#include <system_error>
#include <thread>

#include "collectives/call_tags.hpp"
#include "collectives/communicator/communicator_core.hpp"
#include "collectives/engine/stall.hpp"
#include "runtime/cross_device_ops.hpp"
#include "runtime/local_replicas.hpp"
#include "runtime/packs.hpp"
#include "runtime/replica_devices.hpp"
#include "runtime/replica_members.hpp"
#include "runtime/strategy_state.hpp"

namespace lockstep::detail {
namespace {

// Returns the error of the seats beside one that failed. A mismatch stays one for all members; its text names them.
Error error_beside(const std::exception& error) {
  const auto* const known = dynamic_cast<const Error*>(&error);
  if (known != nullptr && known->code() == Code::mismatch) return *known;
  return {Code::peer_failed, text("a replica beside this failed: ", error.what())};
}

}  // namespace

void check_parts(const Strategy& strategy, int parts) {
  const int replicas = strategy.num_local_replicas();
  if (parts == replicas) return;
  throw Error(Code::usage,
              text("a PerReplica of ", parts, " values in a strategy with ", replicas, " replicas in this process"),
              "use values with the strategy that made them");
}

// Calls inside merge_call use the run's guard.
class ReplicaCalls::CallGuard {
 public:
  explicit CallGuard(ReplicaCalls& calls) {
    refuse_helper("a collective for all replicas");
    if (is_merged(calls.strategy_) || !calls.replicas_.have_threads()) return;
    guard_.emplace(calls.replicas_, "reduce()");
    StrategyState::of(calls.strategy_).restore();
  }

 private:
  std::optional<LocalReplicas::RunGuard> guard_;
};

CallSubject ReplicaCalls::with_merges(CallSubject subject, int local) {
  subject.merges = replicas_.context(local).take_merges();
  return subject;
}

int ReplicaCalls::size() const { return config_.size(); }

bool ReplicaCalls::has_own_ops() const { return config_.has_own_ops(); }

void ReplicaCalls::run_here(const std::function<void()>& function) {
  const CallGuard guard(*this);
  function();
}

void ReplicaCalls::run_leader(const std::function<void(Communicator&)>& call) {
  const CallGuard guard(*this);
  call(channels_.at(Channel::training));
}

// Starts the call of every local member from this thread, then waits for all. With NCCL each member has a thread,
// because a start may block until the other members start.
void ReplicaCalls::run_all(const Start& start, Origin origin, const CallSubject& subject) {
  const CallGuard guard(*this);
  const ReplicaSeats& seats = replicas_.seats();
  if (config_.uses_nccl() && seats.count() > 1) return run_apart(start, origin, subject);
  std::vector<Request> requests;
  requests.reserve(static_cast<std::size_t>(seats.count()));
  try {
    for (int seat = 0; seat < seats.count(); ++seat) {
      const int local = seats.replica_of(seat);
      const ScopedCallSubject scoped_subject(members_.at(seat), with_merges(subject, local));
      requests.push_back(start(members_.at(seat), local));
    }
  } catch (const std::exception& error) {
    give_up(requests, error_beside(error), origin);
    throw;
  }
  wait_all(requests, origin);
}

// Runs the job of seat 0 in this thread, and the others in new ones.
void ReplicaCalls::run_in_new_threads(const std::function<void(int)>& job) {
  const int seats = replicas_.seats().count();
  std::vector<std::jthread> others;
  others.reserve(static_cast<std::size_t>(seats));
  try {
    for (int i = 1; i < seats; ++i) others.emplace_back(job, i);
  } catch (const std::system_error& error) {  // Threads that have started need not wait for the rest.
    const Error why = system_error(text("threads for the calls of ", replicas_.count(), " replicas"),
                                   error.code().value(), "raise the limit of threads (ulimit -u)");
    for (int i = static_cast<int>(others.size()) + 1; i < seats; ++i) members_.at(i).core()->member().refuse(why);
    members_.at(0).core()->member().refuse(why);
    throw why;
  }
  job(0);
}

// Runs each member's call in a thread of its own, on that seat's processors. Of several failures, the cause is
// thrown rather than its consequences.
void ReplicaCalls::run_apart(const Start& start, Origin origin, const CallSubject& subject) {
  const ReplicaSeats& seats = replicas_.seats();
  std::vector<std::exception_ptr> failures(static_cast<std::size_t>(seats.count()));
  const auto run_one = [&](int seat) {
    const int local = seats.replica_of(seat);
    const ScopedCpuBinding binding(devices_.placements()[static_cast<std::size_t>(seat)].cpus);
    Communicator& member = members_.at(seat);
    try {
      const ScopedCallSubject scoped_subject(member, with_merges(subject, local));
      start(member, local).wait(origin);
    } catch (const std::exception& error) {
      failures[static_cast<std::size_t>(seat)] = std::current_exception();
      member.core()->member().refuse(error_beside(error));
    }
  };
  if (is_merged(strategy_))
    run_in_new_threads(run_one);  // The replicas' own threads wait for this one.
  else
    replicas_.threads().run(run_one, [](int, const std::string&) {});
  auto first = std::ranges::find_if(failures, [](const auto& each) { return each && !is_consequence(each); });
  if (first == failures.end()) first = std::ranges::find_if(failures, [](const auto& each) { return each != nullptr; });
  if (first != failures.end()) std::rethrow_exception(*first);
}

// Ends started calls with the error of the call that could not start. All local members report it before other members
// see that one leave.
void ReplicaCalls::give_up(std::vector<Request>& begun, const Error& why, Origin origin) {
  for (int i = 0; i < replicas_.seats().count() && !begun.empty(); ++i) members_.at(i).core()->member().refuse(why);
  for (Request& each : begun) {
    try {
      each.wait(origin);
    } catch (const Error&) {
      continue;  // The caller throws the original error.
    }
  }
}

void ReplicaCalls::combine(NamedOp op, const std::vector<TensorViews>& values, const CommunicationOptions& options,
                           Origin origin, const CallSubject& subject) {
  config_.ops().combine(strategy_, op.op(), values, options, origin, subject);
}

void ReplicaCalls::concatenate(const TensorViews& value, const std::vector<std::size_t>& counts, const TensorView& all,
                               Origin origin) {
  config_.ops().concatenate(strategy_, value, counts, all, origin);
}

// Returns the subject that all local replicas have. Throws Error mismatch if they combine different values.
CallSubject ReplicaCalls::common_subject(Origin origin) {
  const CallSubject first = members_.at(0).core()->binder().subject();
  for (int local = 1; local < replicas_.count(); ++local) {
    const CallSubject other = members_.at(local).core()->binder().subject();
    if (other == first) continue;
    const bool is_same_variable =
        first.variable != other.variable && variable_in(first.variable) == variable_in(other.variable);
    const auto words = [](const CallSubject& subject) {
      const std::string tag = subject.tag == 0 ? std::string() : text(", tagged ", call_tag_text(subject.tag));
      return (subject.variable == 0 ? std::string("values") : text("variable ", variable_in(subject.variable))) + tag;
    };
    throw Error(Code::mismatch,
                text("replicas combine different things at ", place(origin), ": replica ",
                     replicas_.context(0).replica_id_in_sync_group(), ' ', words(first), ", replica ",
                     replicas_.context(local).replica_id_in_sync_group(), ' ', words(other),
                     is_same_variable ? "; they change it in different ways"
                     : other.layout == first.layout || other.tag != first.tag
                         ? ""
                         : "; their tensors differ in order, shape or key"),
                is_same_variable
                    ? same_change_remedy
                    : "let all replicas give the same tensors and change the same variables in the same order");
  }
  return first;
}

}  // namespace lockstep::detail
