// SPDX-License-Identifier: Apache-2.0
#include "runtime/strategy.hpp"

#include <algorithm>
#include <exception>
#include <numeric>
#include <thread>

#include "collectives/communicator/local.hpp"
#include "collectives/engine/local_transport.hpp"
#include "collectives/nccl/library.hpp"
#include "runtime/cross_device_ops.hpp"
#include "runtime/default_strategy.hpp"
#include "topology/base/settings.hpp"
#include "topology/local_exchange.hpp"

namespace lockstep {
namespace {

// For every thread by itself: nobody need know that somebody else uses it as well.
class DefaultStrategy final : public Strategy {
 public:
  DefaultStrategy() : Strategy("the default strategy", terms_here({})) { add_replica(0, 1); }

 private:
  Keeps keeps() const override { return Keeps::plain; }
  void run_job(const Crew::Job& job) override {
    const detail::Enter inside(*this, &replica(0));
    try {
      job(0);
    } catch (...) {
      throw_first({{0, std::current_exception()}});
    }
  }
  Communicator& member(int /*local*/) override {
    thread_local std::unique_ptr<Communicator> mine;
    if (!mine || mine->failed()) mine = members_here(1, terms())(0);
    return *mine;
  }
};

// Whether it is only what others felt of a failure.
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

Strategy& default_strategy() {
  static DefaultStrategy one;
  return one;
}

// Taken by whoever speaks for all replicas: runs do not nest, and do not overlap.
class Strategy::Turn {
 public:
  Turn(Strategy& strategy, std::string_view call) : flag_(strategy.running_) {
    if (flag_.exchange(true))
      throw Error(Code::usage,
                  text(call, " of ", strategy.describe(), " while it runs: inside merge_call, or in another thread"),
                  "let one run() end before the next");
  }
  ~Turn() { flag_ = false; }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

 private:
  std::atomic<bool>& flag_;
};

Strategy::Terms Strategy::terms_here(const StrategyOptions& options) {
  const Settings settings = Settings::from_environment();
  return {.order = options.order,
          .patience = options.patience.value_or(Patience{settings.stall_warn(), settings.timeout()}),
          .log = options.log.value_or(Log(settings.log_level())),
          .algorithm = settings.algorithm(),
          .node_memory = settings.node_memory(),
          .nccl = settings.nccl(),
          .pin = options.pin,
          .ops = options.cross_device_ops,
          .communication = options.communication};
}

Strategy::Strategy(std::string name, Terms terms)
    : name_(std::move(name)),
      terms_(std::move(terms)),
      ops_(terms_.ops ? terms_.ops : std::make_shared<PackedOps>("all_reduce", 1)) {
  terms_.communication.checked();
}

void Strategy::sit(std::vector<detail::Seat> seats, int replicas) {
  seats_ = std::move(seats);
  for (detail::Seat& each : seats_) {
    if (!terms_.pin && each.gpu() != gpu::Where::host) each.cpus.clear();
  }
  std::vector<std::string> types;
  for (const detail::Seat& each : seats_) types.push_back(each.device.type);
  if (types.empty()) types.emplace_back("CPU");
  way_ = way_of(communication().implementation, types, terms_.nccl && nccl::library() != nullptr, terms_.order);
  // A replica on no device in particular may have data on any. Several of those that one thread starts may not ask each
  // other where they have it.
  terms_.nccl = terms_.nccl && (way_.by == Way::By::nccl || (seats_.empty() && replicas == 1));
  const bool is_free = terms_.algorithm.empty() || terms_.algorithm == "auto";
  if (way_.by != Way::By::ring) return;
  if (is_free)
    terms_.algorithm = "all_reduce:ring,all_gather:ring";
  else
    way_ = {Way::By::own, text("LOCKSTEP_ALGORITHM says otherwise: ", terms_.algorithm), false};
}

Strategy::MakeMember Strategy::members_here(int size, const Terms& terms) {
  std::vector<int> ranks(static_cast<std::size_t>(size));
  std::iota(ranks.begin(), ranks.end(), 0);
  const auto exchanges =
      std::make_shared<std::vector<std::unique_ptr<Exchange>>>(make_local_exchanges(size, terms.patience, terms.log));
  const CommunicatorOptions options{.order = terms.order,
                                    .name = "replicas",
                                    .node_memory = terms.node_memory,
                                    .algorithm = terms.algorithm,
                                    .nccl = terms.nccl};
  return [=, topology = local_topology(size)](int local) {
    return std::make_unique<Communicator>(*exchanges->at(static_cast<std::size_t>(local)), topology, ranks,
                                          local_transport, options);
  };
}

Strategy::~Strategy() {
  detail::forget(*this);
  end_members();
}

void Strategy::add_replica(int global, int size) {
  size_ = size;
  replicas_.emplace_back(*this, static_cast<int>(replicas_.size()), global, size);
}

void Strategy::begin(int local, int first, int size, const MakeMember& make) {
  for (int i = 0; i < local; ++i) add_replica(first + i, size);
  progress_ = std::make_unique<Progress[]>(static_cast<std::size_t>(local));
  meeting_ = std::make_unique<Meeting>(local, terms_.patience, terms_.log);
  std::vector<std::vector<int>> cpus;
  for (const detail::Seat& each : seats_) cpus.push_back(each.cpus);
  std::vector<Span> within(static_cast<std::size_t>(local));
  for (std::size_t i = 0; i < seats_.size(); ++i) within[i] = seats_[i].within;
  levels_ = detail::levels_of(within);
  crew_ = std::make_unique<Crew>(local, std::move(cpus));
  make_members(make);
  say_way();
}

void Strategy::begin_here(int replicas) {
  if (replicas < 1 || replicas > most_here)
    throw Error(Code::usage, text("a ", name_, " with ", replicas, " replicas"), text("there can be 1 to ", most_here));
  // One has it all: nothing to read of the machine, and nothing to divide.
  if (terms_.pin && replicas > 1) return begin_here(detail::seats_for(replicas));
  sit({}, replicas);
  begin(replicas, 0, replicas, members_here(replicas, terms_));
}

void Strategy::begin_here(std::vector<detail::Seat> seats) {
  const int replicas = static_cast<int>(seats.size());
  sit(std::move(seats), replicas);
  begin(replicas, 0, replicas, members_here(replicas, terms_));
}

// What GPUs have not ended is waited for, by all members together; not where an exception is on its way.
void Strategy::end_members() noexcept {
  if (way_.by == Way::By::nccl && communicators_.size() > 1) {
    const bool is_left = std::uncaught_exceptions() > 0;
    for (const auto& each : communicators_) {
      if (is_left) each->team()->refuse(Error(Code::peer_failed, "an exception ends the strategy"));
    }
    crew_->run([&](int local) { communicators_[static_cast<std::size_t>(local)].reset(); },
               [](int, const std::string&) {});
  }
}

// Each thread makes its own, since all of them make them together.
void Strategy::make_members(const MakeMember& make) {
  end_members();
  communicators_.clear();
  std::vector<std::unique_ptr<Communicator>> made(replicas_.size());
  const auto failures = crew_->run([&](int local) { made[static_cast<std::size_t>(local)] = make(local); },
                                   [](int, const std::string&) {});
  if (!failures.empty()) std::rethrow_exception(failures.front().cause);
  communicators_ = std::move(made);
  for (const auto& each : communicators_) each->set_timeout(limit());
}

void Strategy::set_leader(std::unique_ptr<Communicator> leader) {
  leader_ = std::move(leader);
  leader_->set_timeout(limit());
}

// What failed before is made again, where it can be; where it cannot, it says itself that it failed.
void Strategy::mend() {
  const auto failed = [](const auto& each) { return each->failed(); };
  if (!communicators_.empty() && std::ranges::none_of(communicators_, failed)) return;
  if (const MakeMember make = make_again()) make_members(make);
  if (communicators_.empty())
    throw Error(Code::poisoned, text(describe(), " could not be made again after a failure"), "make a new strategy");
}

void Strategy::run_job(const Crew::Job& job) {
  detail::require_cross_replica(*this, "run");
  const Turn turn(*this, "run()");
  mend();
  meeting_->begin();
  for (std::size_t i = 0; i < replicas_.size(); ++i) {
    progress_[i].begun.store(0, std::memory_order_relaxed);
    progress_[i].left.store(false, std::memory_order_relaxed);
  }
  const auto whole = [&](int local) {
    const detail::Enter inside(*this, &replica(local));
    job(local);
    leave(local);
  };
  const auto failures = crew_->run(whole, [&](int local, const std::string& what) { alarm(local, what); });
  if (!failures.empty()) throw_first(failures);
  if (std::ranges::any_of(communicators_, [](const auto& each) { return each->failed(); }))
    throw Error(Code::poisoned, text("a collective of a run of ", describe(), " failed, and no replica said so"),
                "let its error out of the replica's function, and wait for every request");
}

// The first by time, but for those who only felt it.
void Strategy::throw_first(const std::vector<Crew::Failure>& failures) const {
  auto first = std::ranges::find_if_not(failures, is_consequence, &Crew::Failure::cause);
  if (first == failures.end()) first = failures.begin();
  const int global = replicas_.at(static_cast<std::size_t>(first->replica)).replica_id_in_sync_group();
  throw ReplicaError(global, size_, first->cause, num_local_replicas() == size_);
}

void Strategy::alarm(int local, const std::string& what) {
  const std::string why = text("replica ", replica(local).replica_id_in_sync_group(), " failed: ", what);
  meeting_->cancel(why);
  member(local).team()->refuse(Error(Code::peer_failed, why));
  if (leader_) leader_->team()->refuse(Error(Code::peer_failed, why));
}

CrossDeviceOps& Strategy::cross_device_ops() { return *ops_; }

void Strategy::combine(NamedOp op, const std::vector<Views>& values, const CommunicationOptions& options,
                       Origin origin) {
  cross_device_ops().combine(*this, op.op(), values, options, origin);
}

// For a call for all, unless a run has it that calls for all in its merge_call.
void Strategy::take_turn(std::optional<Turn>& turn) {
  if (detail::is_merged(*this) || !crew_) return;
  turn.emplace(*this, "reduce()");
  mend();
}

void Strategy::run_leader(const std::function<void(Communicator&)>& call) {
  std::optional<Turn> turn;
  take_turn(turn);
  call(leader_ ? *leader_ : member(0));
}

void Strategy::run_all(const std::function<Request(Communicator&, int)>& start, Origin origin) {
  std::optional<Turn> turn;
  take_turn(turn);
  if (way_.by == Way::By::nccl && replicas_.size() > 1) return run_apart(start, origin);
  std::vector<Request> requests;
  requests.reserve(replicas_.size());
  try {
    for (int i = 0; i < num_local_replicas(); ++i) requests.push_back(start(member(i), i));
  } catch (const std::exception& error) {
    give_up(requests, error.what(), origin);
    throw;
  }
  wait_all(requests, origin);
}

void Strategy::in_new_threads(const Crew::Job& job) {
  std::vector<std::jthread> others;
  others.reserve(replicas_.size());
  try {
    for (int i = 1; i < num_local_replicas(); ++i) others.emplace_back(job, i);
  } catch (const std::system_error& error) {  // those that have begun need not wait for the rest
    const Error why = system_error(text("threads for the calls of ", replicas_.size(), " replicas"),
                                   error.code().value(), "raise the limit of threads (ulimit -u)");
    for (std::size_t i = others.size() + 1; i < replicas_.size(); ++i) member(static_cast<int>(i)).team()->refuse(why);
    member(0).team()->refuse(why);
    throw why;
  }
  job(0);
}

void Strategy::run_apart(const std::function<Request(Communicator&, int)>& start, Origin origin) {
  std::vector<std::exception_ptr> failures(replicas_.size());
  const auto run_one = [&](int local) {
    const detail::Seated seated(seats_[static_cast<std::size_t>(local)].cpus);
    try {
      start(member(local), local).wait(origin);
    } catch (const std::exception& error) {
      failures[static_cast<std::size_t>(local)] = std::current_exception();
      member(local).team()->refuse(Error(Code::peer_failed, text("a replica beside this failed: ", error.what())));
    }
  };
  if (detail::is_merged(*this))
    in_new_threads(run_one);  // the replicas' own wait for this one
  else
    crew_->run(run_one, [](int, const std::string&) {});
  auto first = std::ranges::find_if(failures, [](const auto& each) { return each && !is_consequence(each); });
  if (first == failures.end()) first = std::ranges::find_if(failures, [](const auto& each) { return each != nullptr; });
  if (first != failures.end()) std::rethrow_exception(*first);
}

// What was begun ends with the words of the one that could not be. All say them, before others hear that one leave.
void Strategy::give_up(std::vector<Request>& begun, const char* what, Origin origin) {
  const Error why(Code::peer_failed, text("a replica beside this failed: ", what));
  for (int i = 0; i < num_local_replicas() && !begun.empty(); ++i) member(i).team()->refuse(why);
  for (Request& each : begun) {
    try {
      each.wait(origin);
    } catch (const Error&) {
      continue;  // the one that is told is that of `what`
    }
  }
}

// Sequentially consistent on both sides: of a replica that begins one more and one that leaves, one sees the other.
void Strategy::count_collective(int local, Origin origin) {
  if (replicas_.size() < 2) return;
  Progress& mine = progress_[static_cast<std::size_t>(local)];
  mine.file.store(origin.file, std::memory_order_relaxed);
  mine.line.store(origin.line, std::memory_order_relaxed);
  const std::uint64_t begun = mine.begun.fetch_add(1) + 1;
  for (std::size_t i = 0; i < replicas_.size(); ++i) {
    if (progress_[i].left.load() && progress_[i].begun.load() < begun) refuse_difference(local, static_cast<int>(i));
  }
}

void Strategy::leave(int local) {
  meeting_->leave(local);
  Progress& mine = progress_[static_cast<std::size_t>(local)];
  mine.left.store(true);
  for (std::size_t i = 0; i < replicas_.size(); ++i) {
    if (progress_[i].begun.load() > mine.begun.load()) refuse_difference(static_cast<int>(i), local);
  }
}

// `local` has made more collectives than `other`, which has returned.
void Strategy::refuse_difference(int local, int other) const {
  const auto of = [&](int which) -> const Progress& { return progress_[static_cast<std::size_t>(which)]; };
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
