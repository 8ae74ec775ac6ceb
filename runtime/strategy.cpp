// SPDX-License-Identifier: Apache-2.0
// Implements the life of a strategy: its options, its members, its runs, and its failures.
#include "runtime/strategy.hpp"

#include <algorithm>
#include <exception>
#include <numeric>
#include <thread>

#include "collectives/communicator/communicator_core.hpp"
#include "collectives/communicator/local.hpp"
#include "collectives/engine/local_transport.hpp"
#include "collectives/engine/stall.hpp"
#include "collectives/nccl/library.hpp"
#include "runtime/cross_device_ops.hpp"
#include "runtime/default_strategy.hpp"
#include "topology/base/settings.hpp"
#include "topology/local_exchange.hpp"

namespace lockstep {
namespace {

// Serves every thread by itself, so that threads need not know of each other.
class DefaultStrategy final : public Strategy {
 public:
  DefaultStrategy() : Strategy("the default strategy", resolved_options_here({})) { add_replica(0, 1); }

 private:
  VariablePlacement variable_placement() const override { return VariablePlacement::plain; }
  void run_job(const ReplicaThreads::ReplicaFunction& job) override {
    const detail::ScopedContext inside(*this, &replica(0));
    try {
      job(0);
    } catch (...) {
      throw_first({{0, std::current_exception()}});
    }
  }
  Communicator& member(int /*local*/) override {
    thread_local std::unique_ptr<Communicator> mine;
    if (!mine || mine->failed()) mine = members_here(1, resolved_options())(0);
    return *mine;
  }
};

// True if the exception only reports another replica's failure.
bool is_consequence(const std::exception_ptr& cause) {
  try {
    std::rethrow_exception(cause);
  } catch (const Error& error) {
    return error.code() == Code::peer_failed || error.code() == Code::poisoned;
  } catch (...) {
    return false;
  }
}

}  // namespace

// Never destroys it, because exit() may be called in its replica's function.
Strategy& default_strategy() {
  static DefaultStrategy* const one = new DefaultStrategy;
  return *one;
}

// Lets one caller speak for all replicas: runs neither nest nor overlap.
class Strategy::RunGuard {
 public:
  RunGuard(Strategy& strategy, std::string_view call) : flag_(strategy.running_) {
    if (flag_.exchange(true))
      throw Error(Code::usage,
                  text(call, " of ", strategy.describe(), " while it runs: inside merge_call, or in another thread"),
                  "let one run() end before the next");
  }
  ~RunGuard() { flag_ = false; }
  RunGuard(const RunGuard&) = delete;
  RunGuard& operator=(const RunGuard&) = delete;

 private:
  std::atomic<bool>& flag_;
};

Strategy::ResolvedOptions Strategy::resolved_options_here(const StrategyOptions& options) {
  const Settings settings = Settings::from_environment();
  return {.order = options.order,
          .patience = options.patience.value_or(Patience{settings.stall_warn(), settings.timeout()}),
          .log = options.log.value_or(Log(settings.log_level())),
          .algorithm = settings.algorithm(),
          .node_memory = settings.node_memory(),
          .nccl = settings.nccl(),
          .strict = settings.strict(),
          .pin = options.pin,
          .ops = options.cross_device_ops,
          .communication = options.communication};
}

Strategy::Strategy(std::string name, ResolvedOptions resolved_options) {
  here_ = std::make_shared<const Strategy*>(this);
  name_ = std::move(name);
  resolved_options_ = std::move(resolved_options);
  ops_ = resolved_options_.ops ? resolved_options_.ops : std::make_shared<PackedOps>("all_reduce", 1);
  resolved_options_.communication.checked();
}

void Strategy::set_placements(std::vector<detail::ReplicaPlacement> placements, int replicas) {
  placements_ = std::move(placements);
  for (detail::ReplicaPlacement& each : placements_) {
    if (!resolved_options_.pin && each.gpu() != gpu::MemoryLocation::host) each.cpus.clear();
  }
  std::vector<std::string> types;
  for (const detail::ReplicaPlacement& each : placements_) types.push_back(each.device.type);
  if (types.empty()) types.emplace_back("CPU");
  communication_choice_ =
      choose_communication(communication().implementation, types, resolved_options_.nccl && nccl::library() != nullptr,
                           resolved_options_.order);
  // A replica without a device may have its data anywhere. If one thread starts the calls of several such replicas,
  // they cannot ask each other for the place.
  resolved_options_.nccl = resolved_options_.nccl && (communication_choice_.backend == CommunicationBackend::nccl ||
                                                      (placements_.empty() && replicas == 1));
  const bool is_free = resolved_options_.algorithm.empty() || resolved_options_.algorithm == "auto";
  if (communication_choice_.backend != CommunicationBackend::ring) return;
  if (is_free)
    resolved_options_.algorithm = "all_reduce:ring,all_gather:ring";
  else
    communication_choice_ = {CommunicationBackend::own,
                             text("LOCKSTEP_ALGORITHM says otherwise: ", resolved_options_.algorithm), false};
}

Strategy::MakeMember Strategy::members_here(int size, const ResolvedOptions& resolved_options) {
  std::vector<int> ranks(static_cast<std::size_t>(size));
  std::iota(ranks.begin(), ranks.end(), 0);
  const auto exchanges = std::make_shared<std::vector<std::unique_ptr<Exchange>>>(
      make_local_exchanges(size, resolved_options.patience, resolved_options.log));
  const CommunicatorOptions options{.order = resolved_options.order,
                                    .name = "replicas",
                                    .node_memory = resolved_options.node_memory,
                                    .algorithm = resolved_options.algorithm,
                                    .nccl = resolved_options.nccl,
                                    .strict = resolved_options.strict};
  return [=, topology = local_topology(size)](int local) {
    return std::make_unique<Communicator>(*exchanges->at(static_cast<std::size_t>(local)), topology, ranks,
                                          local_transport, options);
  };
}

Strategy::~Strategy() {
  detail::forget(*this);
  // exit() was called in a replica's function: the others may still run, and nothing can wait for them.
  if (running_)
    static_cast<void>(state_.release());
  else
    end_members();
}

void Strategy::add_replica(int global, int size) {
  size_ = size;
  replicas_.emplace_back(*this, static_cast<int>(replicas_.size()), global, size);
}

void Strategy::begin(int local, int first, int size, const MakeMember& make) {
  for (int i = 0; i < local; ++i) add_replica(first + i, size);
  progress_ = std::make_unique<ReplicaProgress[]>(static_cast<std::size_t>(local));
  barrier_ = std::make_unique<ReplicaBarrier>(local, resolved_options_.patience, resolved_options_.log);
  std::vector<std::vector<int>> cpus;
  for (const detail::ReplicaPlacement& each : placements_) cpus.push_back(each.cpus);
  std::vector<SharedUnits> within(static_cast<std::size_t>(local));
  for (std::size_t i = 0; i < placements_.size(); ++i) within[i] = placements_[i].within;
  levels_ = detail::replica_levels(within);
  replica_threads_ = std::make_unique<ReplicaThreads>(local, std::move(cpus));
  make_members(make);
  log_communication_choice();
}

void Strategy::begin_here(int replicas) {
  if (replicas < 1 || replicas > most_here)
    throw Error(Code::usage, text("a ", name_, " with ", replicas, " replicas"), text("there can be 1 to ", most_here));
  // A single replica needs no part of the machine, so the machine is not read.
  if (resolved_options_.pin && replicas > 1) return begin_here(detail::placements_for(replicas));
  set_placements({}, replicas);
  begin(replicas, 0, replicas, members_here(replicas, resolved_options_));
}

void Strategy::begin_here(std::vector<detail::ReplicaPlacement> placements) {
  const int replicas = static_cast<int>(placements.size());
  set_placements(std::move(placements), replicas);
  begin(replicas, 0, replicas, members_here(replicas, resolved_options_));
}

// Waits for unfinished GPU work, by all members together, unless an exception is in flight.
void Strategy::end_members() noexcept {
  if (communication_choice_.backend == CommunicationBackend::nccl && communicators_.size() > 1) {
    const bool is_left = std::uncaught_exceptions() > 0;
    for (const auto& each : communicators_) {
      if (is_left) each->core()->members().refuse(Error(Code::peer_failed, "an exception ends the strategy"));
    }
    replica_threads_->run([&](int local) { communicators_[static_cast<std::size_t>(local)].reset(); },
                          [](int, const std::string&) {});
  }
}

// Makes each member in its own thread, since members are made together.
void Strategy::make_members(const MakeMember& make) {
  end_members();
  communicators_.clear();
  std::vector<std::unique_ptr<Communicator>> made(replicas_.size());
  const auto failures = replica_threads_->run([&](int local) { made[static_cast<std::size_t>(local)] = make(local); },
                                              [](int, const std::string&) {});
  if (!failures.empty()) std::rethrow_exception(failures.front().cause);
  communicators_ = std::move(made);
  for (const auto& each : communicators_) each->set_timeout(limit());
}

void Strategy::set_leader(std::unique_ptr<Communicator> leader) {
  leader_ = std::move(leader);
  leader_->set_timeout(limit());
}

// Makes failed members again, if possible. Otherwise their next call throws that they have failed.
void Strategy::mend() {
  const auto failed = [](const auto& each) { return each->failed(); };
  if (!communicators_.empty() && std::ranges::none_of(communicators_, failed)) return;
  if (const MakeMember make = make_again()) make_members(make);
  if (communicators_.empty())
    throw Error(Code::poisoned, text(describe(), " could not be made again after a failure"), "make a new strategy");
}

void Strategy::run_job(const ReplicaThreads::ReplicaFunction& job) {
  detail::require_cross_replica(*this, "run");
  const RunGuard guard(*this, "run()");
  mend();
  barrier_->begin();
  for (std::size_t i = 0; i < replicas_.size(); ++i) {
    progress_[i].begun.store(0, std::memory_order_relaxed);
    progress_[i].left.store(false, std::memory_order_relaxed);
  }
  const auto whole = [&](int local) {
    const detail::ScopedContext inside(*this, &replica(local));
    job(local);
    leave(local);
  };
  const auto failures =
      replica_threads_->run(whole, [&](int local, const std::string& what) { handle_failure(local, what); });
  if (!failures.empty()) throw_first(failures);
  if (std::ranges::any_of(communicators_, [](const auto& each) { return each->failed(); }))
    throw Error(Code::poisoned, text("a collective of a run of ", describe(), " failed, and no replica said so"),
                "let its error out of the replica's function, and wait for every request");
}

// Throws the first failure by time that is not a consequence of another.
void Strategy::throw_first(const std::vector<ReplicaThreads::ReplicaFailure>& failures) const {
  auto first = std::ranges::find_if_not(failures, is_consequence, &ReplicaThreads::ReplicaFailure::cause);
  if (first == failures.end()) first = failures.begin();
  const int global = replicas_.at(static_cast<std::size_t>(first->replica)).replica_id_in_sync_group();
  throw ReplicaError(global, size_, first->cause, num_local_replicas() == size_);
}

void Strategy::handle_failure(int local, const std::string& what) {
  const std::string why = text("replica ", replica(local).replica_id_in_sync_group(), " failed: ", what);
  barrier_->cancel(why);
  member(local).core()->members().refuse(Error(Code::peer_failed, why));
  if (leader_) leader_->core()->members().refuse(Error(Code::peer_failed, why));
}

CrossDeviceOps& Strategy::cross_device_ops() { return *ops_; }

void Strategy::combine(NamedOp op, const std::vector<TensorViews>& values, const CommunicationOptions& options,
                       Origin origin, const detail::CallSubject& subject) {
  cross_device_ops().combine(*this, op.op(), values, options, origin, subject);
}

detail::CallSubject Strategy::common_subject(Origin origin) {
  const detail::CallSubject first = member(0).core()->binder().subject();
  for (int local = 1; local < num_local_replicas(); ++local) {
    const detail::CallSubject other = member(local).core()->binder().subject();
    if (other == first) continue;
    const bool is_same_variable =
        first.variable != other.variable && variable_in(first.variable) == variable_in(other.variable);
    const auto words = [](const detail::CallSubject& subject) {
      return subject.variable == 0 ? std::string("values") : text("variable ", variable_in(subject.variable));
    };
    throw Error(Code::mismatch,
                text("replicas combine different things at ", place(origin), ": replica ",
                     replica(0).replica_id_in_sync_group(), ' ', words(first), ", replica ",
                     replica(local).replica_id_in_sync_group(), ' ', words(other),
                     is_same_variable               ? "; they change it in different ways"
                     : other.layout == first.layout ? ""
                                                    : "; their tensors differ in order, shape or key"),
                is_same_variable
                    ? same_change_remedy
                    : "let all replicas give the same tensors and change the same variables in the same order");
  }
  return first;
}

// Takes the guard for a call for all replicas. Calls inside merge_call use the run's guard.
void Strategy::acquire_run_guard(std::optional<RunGuard>& guard) {
  if (detail::is_merged(*this) || !replica_threads_) return;
  guard.emplace(*this, "reduce()");
  mend();
}

void Strategy::run_leader(const std::function<void(Communicator&)>& call) {
  std::optional<RunGuard> guard;
  acquire_run_guard(guard);
  call(leader_ ? *leader_ : member(0));
}

void Strategy::run_all(const std::function<Request(Communicator&, int)>& start, Origin origin,
                       const detail::CallSubject& subject) {
  std::optional<RunGuard> guard;
  acquire_run_guard(guard);
  if (communication_choice_.backend == CommunicationBackend::nccl && replicas_.size() > 1)
    return run_apart(start, origin, subject);
  std::vector<Request> requests;
  requests.reserve(replicas_.size());
  try {
    for (int i = 0; i < num_local_replicas(); ++i) {
      const detail::ScopedCallSubject scoped_subject(member(i), subject);
      requests.push_back(start(member(i), i));
    }
  } catch (const std::exception& error) {
    give_up(requests, error.what(), origin);
    throw;
  }
  wait_all(requests, origin);
}

void Strategy::in_new_threads(const ReplicaThreads::ReplicaFunction& job) {
  std::vector<std::jthread> others;
  others.reserve(replicas_.size());
  try {
    for (int i = 1; i < num_local_replicas(); ++i) others.emplace_back(job, i);
  } catch (const std::system_error& error) {  // Threads that have started need not wait for the rest.
    const Error why = system_error(text("threads for the calls of ", replicas_.size(), " replicas"),
                                   error.code().value(), "raise the limit of threads (ulimit -u)");
    for (std::size_t i = others.size() + 1; i < replicas_.size(); ++i)
      member(static_cast<int>(i)).core()->members().refuse(why);
    member(0).core()->members().refuse(why);
    throw why;
  }
  job(0);
}

void Strategy::run_apart(const std::function<Request(Communicator&, int)>& start, Origin origin,
                         const detail::CallSubject& subject) {
  std::vector<std::exception_ptr> failures(replicas_.size());
  const auto run_one = [&](int local) {
    const detail::ScopedCpuBinding binding(placements_[static_cast<std::size_t>(local)].cpus);
    try {
      const detail::ScopedCallSubject scoped_subject(member(local), subject);
      start(member(local), local).wait(origin);
    } catch (const std::exception& error) {
      failures[static_cast<std::size_t>(local)] = std::current_exception();
      member(local).core()->members().refuse(
          Error(Code::peer_failed, text("a replica beside this failed: ", error.what())));
    }
  };
  if (detail::is_merged(*this))
    in_new_threads(run_one);  // The replicas' own threads wait for this one.
  else
    replica_threads_->run(run_one, [](int, const std::string&) {});
  auto first = std::ranges::find_if(failures, [](const auto& each) { return each && !is_consequence(each); });
  if (first == failures.end()) first = std::ranges::find_if(failures, [](const auto& each) { return each != nullptr; });
  if (first != failures.end()) std::rethrow_exception(*first);
}

// Ends started calls with the error of the call that could not start. All local members report it before other members
// see that one leave.
void Strategy::give_up(std::vector<Request>& begun, const char* what, Origin origin) {
  const Error why(Code::peer_failed, text("a replica beside this failed: ", what));
  for (int i = 0; i < num_local_replicas() && !begun.empty(); ++i) member(i).core()->members().refuse(why);
  for (Request& each : begun) {
    try {
      each.wait(origin);
    } catch (const Error&) {
      continue;  // The caller throws the original error.
    }
  }
}

// Is sequentially consistent on both sides: if one replica begins a collective while another leaves, one of them sees
// the other.
void Strategy::count_collective(int local, Origin origin) {
  if (replicas_.size() < 2) return;
  ReplicaProgress& mine = progress_[static_cast<std::size_t>(local)];
  mine.file.store(origin.file, std::memory_order_relaxed);
  mine.line.store(origin.line, std::memory_order_relaxed);
  const std::uint64_t begun = mine.begun.fetch_add(1) + 1;
  for (std::size_t i = 0; i < replicas_.size(); ++i) {
    if (progress_[i].left.load() && progress_[i].begun.load() < begun) refuse_difference(local, static_cast<int>(i));
  }
}

void Strategy::leave(int local) {
  barrier_->leave(local);
  ReplicaProgress& mine = progress_[static_cast<std::size_t>(local)];
  mine.left.store(true);
  for (std::size_t i = 0; i < replicas_.size(); ++i) {
    if (progress_[i].begun.load() > mine.begun.load()) refuse_difference(static_cast<int>(i), local);
  }
}

// Reports that `local` has made more collectives than `other`, which has returned.
void Strategy::refuse_difference(int local, int other) const {
  const auto of = [&](int which) -> const ReplicaProgress& { return progress_[static_cast<std::size_t>(which)]; };
  const auto name = [&](int which) { return replicas_[static_cast<std::size_t>(which)].replica_id_in_sync_group(); };
  const auto at = [&](int which) { return place({of(which).file.load(), of(which).line.load()}); };
  const std::uint64_t done = of(other).begun.load();
  throw Error(
      Code::mismatch,
      text("replica ", name(local), " is in collective ", of(local).begun.load(), " of this run, at ", at(local),
           "; replica ", name(other), " has returned after ", done, done == 0 ? "" : text(", the last at ", at(other))),
      "make the same calls in all replicas");
}

void Strategy::refuse_ambiguous(NamedOp op, double value) const {
  if (size_ == 1 || (op.op() != ReduceOp::sum && op.op() != ReduceOp::prod)) return;
  if (value == 0 && op.op() == ReduceOp::sum) return;
  throw Error(Code::usage,
              text("a value that is not each replica's own cannot be reduced with the given reduce op ",
                   op.op() == ReduceOp::sum ? "SUM" : "PROD", " over ", size_, " replicas"),
              "return it from run(), or say whether it is meant once (no reduce) or for each replica (multiply it)");
}

void Strategy::check_parts(int parts) const {
  if (parts == num_local_replicas()) return;
  throw Error(
      Code::usage,
      text("a PerReplica of ", parts, " values in a strategy with ", num_local_replicas(), " replicas in this process"),
      "use values with the strategy that made them");
}

}  // namespace lockstep
