// SPDX-License-Identifier: Apache-2.0
// Implements the exchange. A plan describes the flat memory for one set of gradients.
#include "runtime/train/gradient_exchange.hpp"

#include <algorithm>
#include <numeric>
#include <string>

#include "collectives/kernels/kernels.hpp"
#include "runtime/strategy_state.hpp"
#include "topology/base/text.hpp"

namespace lockstep::train {
namespace {

constexpr std::size_t line_floats = 16;  // Lets each gradient begin at a cache line.

DataType type_of_wire(WireFormat wire) {
  return wire == WireFormat::bf16 ? DataType::bf16 : wire == WireFormat::f16 ? DataType::f16 : DataType::f32;
}

template <class T>
std::span<T> typed_span(const AnyTensor& flat, std::size_t first, std::size_t count) {
  return {reinterpret_cast<T*>(flat.view().data) + first, count};
}

}  // namespace

struct GradientExchange::Plan {
  // Tells where the gradient of a variable is.
  struct Entry {
    bool has_gradient = false;
    bool is_sparse = false;
    int number = 0;         // Is that of the reducer.
    std::size_t first = 0;  // Is the first element in the flat memory.
    std::size_t count = 0;
  };
  // Belongs to one replica, which makes it at its first step.
  struct Memory {
    std::optional<AnyTensor> elements;
    std::optional<AnyTensor> narrow;
  };

  std::weak_ptr<const Strategy*> strategy;
  std::vector<AnyVariable> variables;
  std::vector<bool> has_gradient;
  std::vector<bool> is_sparse;
  bool is_used = false;  // False if it was only prepared.
  WireFormat wire = WireFormat::as_is;
  std::vector<Entry> entries;
  std::size_t floats = 0;
  std::optional<GradientReducer> reducer;
  std::vector<Memory> memories;  // Is indexed by local replica.

  Memory& memory_of(std::size_t local) {
    Memory& mine = memories[local];
    if (mine.elements) return mine;
    const TensorShape shape{static_cast<std::int64_t>(floats)};
    mine.elements = uninitialized_tensor(DataType::f32, shape);
    if (wire != WireFormat::as_is) mine.narrow = uninitialized_tensor(type_of_wire(wire), shape);
    return mine;
  }
};

GradientExchange::GradientExchange(ExchangeOptions options) : options_(std::move(options)) {}

GradientExchange::~GradientExchange() = default;

GradientReducer* GradientExchange::reducer() const {
  const std::lock_guard lock(mutex_);
  const auto latest =
      std::find_if(plans_.rbegin(), plans_.rend(), [](const auto& plan) { return plan->reducer.has_value(); });
  return latest == plans_.rend() ? nullptr : &*(*latest)->reducer;
}

void GradientExchange::prepare(Strategy& strategy, const std::vector<AnyVariable>& variables) {
  make(strategy, variables, std::vector<bool>(variables.size(), true), std::vector<bool>(variables.size()), false);
}

GradientExchange::Plan* GradientExchange::find(Strategy& strategy, const std::vector<AnyVariable>& variables,
                                               const std::vector<bool>& has_gradient) {
  const auto& here = lockstep::detail::StrategyState::of(strategy).here;
  const std::lock_guard lock(mutex_);
  for (const auto& each : plans_) {
    if (each->is_used && each->strategy.lock() == here && each->has_gradient == has_gradient &&
        each->variables == variables)
      return each.get();
  }
  return nullptr;
}

GradientExchange::Plan& GradientExchange::make(Strategy& strategy, const std::vector<AnyVariable>& variables,
                                               const std::vector<bool>& has_gradient,
                                               const std::vector<bool>& is_sparse, bool is_used) {
  auto plan = std::make_unique<Plan>();
  plan->strategy = lockstep::detail::StrategyState::of(strategy).here;
  plan->variables = variables;
  plan->has_gradient = has_gradient;
  plan->is_sparse = is_sparse;
  plan->is_used = is_used;
  if (strategy.num_replicas_in_sync() > 1) plan->wire = options_.wire;
  plan->memories.resize(static_cast<std::size_t>(strategy.num_local_replicas()));
  std::vector<GradientSpec> specs;
  std::string without;
  for (std::size_t i = 0; i < variables.size(); ++i) {
    Plan::Entry entry{has_gradient[i], is_sparse[i], static_cast<int>(specs.size()), plan->floats,
                      variables[i].shape().count()};
    plan->entries.push_back(entry);
    if (!entry.has_gradient) without += text(without.empty() ? "'" : ", '", printable(variables[i].path()), '\'');
    if (!entry.has_gradient || entry.is_sparse) continue;
    specs.push_back({variables[i].path(), type_of_wire(plan->wire), entry.count});
    plan->floats += (entry.count + line_floats - 1) / line_floats * line_floats;
  }
  if (!specs.empty()) plan->reducer.emplace(strategy, std::move(specs), options_.buckets);
  const std::lock_guard lock(mutex_);
  for (const auto& each : plans_) {
    if (each->strategy.lock() == plan->strategy.lock() && each->has_gradient == has_gradient &&
        each->is_sparse == is_sparse && each->variables == variables) {
      each->is_used = each->is_used || is_used;
      return *each;
    }
  }
  if (!without.empty() && strategy.replica(0).replica_id_in_sync_group() == 0)
    strategy.log().warn(text("gradients do not exist for the variables ", without, " when minimizing the loss"));
  std::erase_if(plans_, [](const auto& each) { return each->strategy.expired(); });
  return *plans_.emplace_back(std::move(plan));
}

GradientExchange::Step::Step(GradientExchange& exchange, Strategy& strategy, int local, ReplicaContext* replica,
                             const std::vector<AnyVariable>& variables, Origin origin)
    : exchange_(exchange),
      strategy_(strategy),
      local_(static_cast<std::size_t>(local)),
      replica_(replica),
      variables_(variables),
      origin_(origin),
      scratch_(variables.size()),
      rows_(variables.size()) {}

GradientExchange::Step::~Step() = default;

void GradientExchange::Step::begin(const std::vector<bool>& has_gradient) {
  has_gradient_ = has_gradient;
  Plan* const known = exchange_.find(strategy_, variables_, has_gradient);
  if (known != nullptr) start(*known);
}

void GradientExchange::Step::start(Plan& plan) {
  plan_ = &plan;
  plan.memory_of(local_);
  if (replica_ == nullptr || !plan.reducer) return;
  // The gradients of one replica are their sum.
  if (strategy_.num_replicas_in_sync() > 1 || plan.reducer->is_carrying() ||
      lockstep::detail::StrategyState::of(strategy_).config.has_own_ops())
    pass_.emplace(*plan.reducer, *replica_);
}

AnyTensor GradientExchange::Step::memory(std::size_t which) {
  if (plan_ != nullptr && !plan_->entries[which].is_sparse) {
    const Plan::Entry& entry = plan_->entries[which];
    return plan_->memory_of(local_)
        .elements->rows(static_cast<std::int64_t>(entry.first), static_cast<std::int64_t>(entry.count))
        .reshaped(variables_[which].shape());
  }
  if (!scratch_[which]) scratch_[which] = uninitialized_tensor(DataType::f32, variables_[which].shape());
  return *scratch_[which];
}

void GradientExchange::Step::take(std::size_t which, const Gradient& gradient) {
  if (plan_ != nullptr)
    send(which, gradient);
  else
    learned_.emplace_back(which, gradient);
}

// Returns all rows of a gradient that has elements.
IndexedSlices<float> GradientExchange::Step::rows_of(std::size_t which, const Gradient& gradient) const {
  if (gradient.is_sparse()) return gradient.rows();
  std::vector<std::int64_t> all(static_cast<std::size_t>(variables_[which].shape()[0]));
  std::iota(all.begin(), all.end(), 0);
  return {gradient.to<float>(), std::move(all), variables_[which].shape()};
}

void GradientExchange::Step::send(std::size_t which, const Gradient& gradient) {
  const Plan::Entry& entry = plan_->entries[which];
  if (entry.is_sparse) {
    rows_[which] = rows_of(which, gradient);
    return;
  }
  const AnyTensor to = memory(which);
  const AnyTensor from = gradient.dense();
  if (from.view().data != to.view().data) to.assign(from);
  const Plan::Memory& mine = plan_->memory_of(local_);
  if (!pass_) return;
  if (plan_->wire == WireFormat::as_is)
    return pass_->ready(entry.number, typed_span<float>(*mine.elements, entry.first, entry.count), origin_);
  const auto narrow = [&]<class T>(T /*type*/) {
    const std::span<T> all = typed_span<T>(*mine.narrow, entry.first, entry.count);
    wire_kernel(plan_->wire).narrow(all.data(), to.view().data, entry.count);
    pass_->ready(entry.number, all, origin_);
  };
  plan_->wire == WireFormat::bf16 ? narrow(bf16{}) : narrow(f16{});
}

IndexedSlices<float> GradientExchange::Step::sum_of_rows(const IndexedSlices<float>& mine) const {
  if (!exchange_.options_.keeps_rows) return replica_->all_reduce(mine, sum, origin_);
  const Tensor<std::int64_t> indices = replica_->all_gather(row(mine.indices()), 0, origin_);
  return {replica_->all_gather(mine.values(), 0, origin_), {indices.begin(), indices.end()}, mine.dense_shape()};
}

std::vector<SummedGradient> GradientExchange::Step::finish() {
  if (plan_ == nullptr) {
    std::vector<bool> is_sparse(variables_.size());
    for (const auto& [which, gradient] : learned_) is_sparse[which] = gradient.is_sparse();
    start(exchange_.make(strategy_, variables_, has_gradient_, is_sparse, true));
    for (const auto& [which, gradient] : learned_) send(which, gradient);
    learned_.clear();
  }
  const bool is_narrow = pass_ && plan_->wire != WireFormat::as_is;
  if (pass_) pass_->finish(origin_);
  pass_.reset();
  const Plan::Memory& mine = plan_->memory_of(local_);
  std::vector<SummedGradient> all;
  for (std::size_t i = 0; i < variables_.size(); ++i) {
    const Plan::Entry& entry = plan_->entries[i];
    if (!entry.has_gradient) continue;
    all.push_back({i, {}, std::nullopt});
    if (entry.is_sparse) {
      all.back().rows = replica_ == nullptr ? std::move(*rows_[i]) : sum_of_rows(*rows_[i]);
      continue;
    }
    all.back().elements = typed_span<float>(*mine.elements, entry.first, entry.count);
    if (is_narrow)
      wire_kernel(plan_->wire)
          .widen(all.back().elements.data(), typed_span<bf16>(*mine.narrow, entry.first, 0).data(), entry.count);
  }
  return all;
}

}  // namespace lockstep::train
