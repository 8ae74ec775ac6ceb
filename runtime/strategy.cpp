// SPDX-License-Identifier: Apache-2.0
#include "runtime/strategy.hpp"

#include <algorithm>
#include <cctype>
#include <numeric>

#include "collectives/communicator/local.hpp"
#include "collectives/engine/local_transport.hpp"
#include "runtime/default_strategy.hpp"
#include "topology/local_exchange.hpp"

namespace lockstep {
namespace {

// How threads of this process become members of one communicator. What it returns is called once by each of them.
std::function<std::unique_ptr<Communicator>(int)> members_here(int size, const StrategyOptions& options) {
  std::vector<int> ranks(static_cast<std::size_t>(size));
  std::iota(ranks.begin(), ranks.end(), 0);
  const auto exchanges = std::make_shared<std::vector<std::unique_ptr<Exchange>>>(
      make_local_exchanges(size, options.patience, options.log));
  return [=, topology = local_topology(size), order = options.order](int local) {
    return std::make_unique<Communicator>(*exchanges->at(static_cast<std::size_t>(local)), topology, ranks,
                                          local_transport, CommunicatorOptions{.order = order, .name = "replicas"});
  };
}

class DefaultStrategy final : public Strategy {
 public:
  DefaultStrategy() : Strategy("the default strategy", {}) { begin(1, 0, 1, members_here(1, options())); }

 private:
  MakeMember make_again() override { return members_here(1, options()); }
};

}  // namespace

NamedOp::NamedOp(std::string_view name) {
  constexpr std::pair<std::string_view, ReduceOp> names[] = {{"SUM", ReduceOp::sum},
                                                             {"MEAN", ReduceOp::avg},
                                                             {"MIN", ReduceOp::min},
                                                             {"MAX", ReduceOp::max},
                                                             {"PROD", ReduceOp::prod}};
  std::string upper(name);
  std::ranges::transform(upper, upper.begin(),
                         [](unsigned char letter) { return static_cast<char>(std::toupper(letter)); });
  const auto* const found = std::ranges::find(names, upper, &std::pair<std::string_view, ReduceOp>::first);
  if (found == std::end(names))
    throw Error(Code::usage, text("there is no reduction '", printable(name), '\''), "say SUM, MEAN, MIN, MAX or PROD");
  op_ = found->second;
}

Strategy& default_strategy() {
  static DefaultStrategy one;
  return one;
}

Strategy::Strategy(std::string name, StrategyOptions options) : name_(std::move(name)), options_(std::move(options)) {}
Strategy::~Strategy() = default;

std::string Strategy::describe() const { return text(name_, " with ", size_, size_ == 1 ? " replica" : " replicas"); }

void Strategy::begin(int local, int first, int size, const MakeMember& make) {
  size_ = size;
  for (int i = 0; i < local; ++i) replicas_.emplace_back(*this, i, first + i, size);
  progress_ = std::make_unique<Progress[]>(static_cast<std::size_t>(local));
  meeting_ = std::make_unique<Meeting>(local, options_.patience);
  crew_ = std::make_unique<Crew>(local);
  make_members(make);
}

// Each thread makes its own, since all of them make them together.
void Strategy::make_members(const MakeMember& make) {
  communicators_.clear();
  communicators_.resize(replicas_.size());
  const auto failures = crew_->run([&](int local) { communicators_[static_cast<std::size_t>(local)] = make(local); },
                                   [](int, const std::string&) {});
  if (!failures.empty()) std::rethrow_exception(failures.front().cause);
}

void Strategy::run_job(const Crew::Job& job) {
  detail::require_cross_replica(*this, "run");
  const struct Running {
    explicit Running(Strategy& strategy) : flag(strategy.running_) {
      if (flag.exchange(true))
        throw Error(
            Code::usage,
            text("run() of ", strategy.describe(), " while it runs already: inside merge_call, or in another thread"),
            "let one run() end before the next");
    }
    ~Running() { flag = false; }
    std::atomic<bool>& flag;
  } running(*this);
  if (broken_) {
    if (const MakeMember make = make_again()) make_members(make);
    broken_ = false;
  }
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
  if (failures.empty()) return;
  broken_ = true;
  const Crew::Failure& first = failures.front();
  throw ReplicaError(replica(first.replica).replica_id_in_sync_group(), size_, first.what, first.cause);
}

void Strategy::alarm(int local, const std::string& what) {
  const std::string why = text("replica ", replica(local).replica_id_in_sync_group(), " failed: ", what);
  meeting_->cancel(why);
  communicators_[static_cast<std::size_t>(local)]->team()->refuse(Error(Code::peer_failed, why));
}

// Sequentially consistent on both sides: of a replica that begins one more and one that leaves, one sees the other.
void Strategy::count_collective(int local, Origin origin) {
  const std::uint64_t mine = progress_[static_cast<std::size_t>(local)].begun.fetch_add(1) + 1;
  for (std::size_t i = 0; i < replicas_.size(); ++i) {
    if (progress_[i].left.load() && progress_[i].begun.load() < mine)
      throw Error(Code::mismatch,
                  text("replica ", replica(local).replica_id_in_sync_group(), " is in collective ", mine,
                       " of this run, at ", place(origin), "; replica ", replicas_[i].replica_id_in_sync_group(),
                       " has returned after ", progress_[i].begun.load()),
                  "make the same calls in all replicas");
  }
}

void Strategy::leave(int local) {
  meeting_->leave(local);
  Progress& mine = progress_[static_cast<std::size_t>(local)];
  mine.left.store(true);
  for (std::size_t i = 0; i < replicas_.size(); ++i) {
    if (progress_[i].begun.load() > mine.begun.load())
      throw Error(Code::mismatch,
                  text("replica ", replica(local).replica_id_in_sync_group(), " has returned after ", mine.begun.load(),
                       " collectives; replica ", replicas_[i].replica_id_in_sync_group(), " has made ",
                       progress_[i].begun.load()),
                  "make the same calls in all replicas");
  }
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

Communicator& ReplicaContext::next(Origin origin) {
  strategy_->count_collective(local_, origin);
  return strategy_->communicator(local_);
}

void ReplicaContext::meet(Origin origin, void* mine, const Meeting::Lead& lead) {
  if (replica_context() != this)
    throw Error(Code::usage, "mismatching ReplicaContext: merge_call of another replica, or outside of run()",
                "call it on the context that the replica's function is given");
  strategy_->meeting_->meet(local_, origin, mine, [&](const std::vector<void*>& brought) {
    const detail::Enter merged(*strategy_, nullptr);
    lead(brought);
  });
}

MirroredStrategy::MirroredStrategy(int replicas, StrategyOptions given)
    : Strategy("MirroredStrategy", std::move(given)) {
  constexpr int most = 256;
  if (replicas < 1 || replicas > most)
    throw Error(Code::usage, text("a MirroredStrategy with ", replicas, " replicas"), text("there can be 1 to ", most));
  begin(replicas, 0, replicas, members_here(replicas, options()));
}
Strategy::MakeMember MirroredStrategy::make_again() { return members_here(num_local_replicas(), options()); }

OneDeviceStrategy::OneDeviceStrategy(StrategyOptions given) : Strategy("OneDeviceStrategy", std::move(given)) {
  begin(1, 0, 1, members_here(1, options()));
}
Strategy::MakeMember OneDeviceStrategy::make_again() { return members_here(1, options()); }

MultiWorkerMirroredStrategy::MultiWorkerMirroredStrategy(Session& session, StrategyOptions given)
    : Strategy("MultiWorkerMirroredStrategy", std::move(given)) {
  begin(1, session.rank(), session.size(), [&](int) {
    Communicator& world = session.world();
    return std::make_unique<Communicator>(options().order == Order::reproducible ? world.reproducible("replicas")
                                                                                 : world.duplicate("replicas"));
  });
}

}  // namespace lockstep
