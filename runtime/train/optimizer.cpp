// SPDX-License-Identifier: Apache-2.0
// Implements optimizers: who sums gradients, and who changes which parts of variables.
#include "runtime/train/optimizer.hpp"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <optional>
#include <unordered_map>
#include <utility>

#include "collectives/kernels/kernels.hpp"
#include "runtime/train/gradient_exchange.hpp"
#include "runtime/train/host_part.hpp"
#include "runtime/virtual_replicas.hpp"
#include "topology/base/text.hpp"

namespace lockstep::train {
namespace {

// Tells where a call comes from: a replica, or all code of a strategy with one replica.
struct CallerPosition {
  Strategy* strategy = nullptr;
  ReplicaContext* replica = nullptr;
  int local() const { return replica == nullptr ? 0 : replica->local_id(); }
};

CallerPosition position_of(std::string_view call, Strategy& of_variables) {
  ReplicaContext* const replica = replica_context();
  const bool is_outside = !has_strategy();
  Strategy& here = is_outside ? of_variables : get_strategy();
  if (&here != &of_variables)
    throw Error(Code::usage,
                text(call, " in ", here.describe(), " for variables that were made in ", of_variables.describe()),
                "make the model and the optimizer in the scope of the strategy that trains them");
  if (replica != nullptr && &replica->strategy() == &here) return {&here, replica};
  if (here.num_replicas_in_sync() == 1) return {&here, nullptr};
  throw Error(Code::usage, text(call, " cannot be called in cross-replica context, of ", here.describe()),
              "call it in the function of strategy.run(), which enters replica context");
}

std::string names_of(const std::vector<AnyVariable>& variables) {
  std::string all;
  for (const AnyVariable& each : variables) all += text(all.empty() ? "'" : ", '", printable(each.path()), '\'');
  return all;
}

// Sums squares in lanes of f64, whose number does not depend on the machine's vectors.
double sum_of_squares(std::span<const float> all) {
  constexpr std::size_t lanes = 8;
  double sums[lanes] = {};
  std::size_t i = 0;
  for (; i + lanes <= all.size(); i += lanes) {
    for (std::size_t lane = 0; lane < lanes; ++lane) {
      const auto number = static_cast<double>(all[i + lane]);
      sums[lane] += number * number;
    }
  }
  for (; i < all.size(); ++i) sums[i % lanes] += static_cast<double>(all[i]) * static_cast<double>(all[i]);
  double sum = 0;
  for (const double each : sums) sum += each;
  return sum;
}

void scale_by(std::span<float> all, float factor) {
  for (float& each : all) each *= factor;
}

// Scales gradients whose norm is greater than the limit. Numbers that are not finite make all of them NaN.
void clip_by_global_norm(std::vector<SummedGradient>& gradients, float limit) {
  double squares = 0;
  for (const SummedGradient& each : gradients)
    squares += sum_of_squares(each.rows ? each.rows->values().span() : std::span<const float>(each.elements));
  const auto norm = static_cast<float>(std::sqrt(squares));
  if (norm <= limit) return;
  const float factor = limit * (1 / norm) + (norm - norm);
  for (SummedGradient& each : gradients) {
    scale_by(each.elements, factor);
    if (!each.rows) continue;
    Tensor<float> values = each.rows->values();
    scale_by(values.span(), factor);
    each.rows = IndexedSlices<float>(std::move(values), each.rows->indices(), each.rows->dense_shape());
  }
}

Optimizer optimizer_of_word(std::string_view word) {
  std::string lower(word);
  for (char& each : lower) each = each >= 'A' && each <= 'Z' ? static_cast<char>(each - 'A' + 'a') : each;
  if (lower == "sgd") return SGD();
  if (lower == "adam") return Adam();
  if (lower == "adamw") return AdamW();
  if (lower == "adagrad") return Adagrad();
  throw Error(Code::usage, text("unknown optimizer: '", printable(word), '\''),
              "name one of sgd, adam, adamw and adagrad, or give an optimizer");
}

}  // namespace

// Is shared by all handles. Replicas only read it; the optimizer's variables are made while all of them wait.
class Optimizer::Core {
 public:
  // Holds the optimizer's variables for one variable.
  struct Slots {
    std::vector<AnyVariable> of_rule;
    std::optional<AnyVariable> sum;  // Is each replica's own sum of gradients between two messages.
    std::vector<char> has_sum;       // Is 1 for a local replica whose sum has a gradient.
  };
  class Step;

  Core(std::shared_ptr<const UpdateRule> rule, LearningRate rate, OptimizerOptions options)
      : rule_(std::move(rule)), rate_(std::move(rate)), options_(std::move(options)), exchange_(exchange_options()) {
    if (options_.name.empty()) options_.name = rule_->name();
    if (options_.accumulate_steps < 1)
      throw Error(Code::usage, text("an optimizer with accumulate_steps = ", options_.accumulate_steps),
                  "1 changes the variables in each step");
    if (!(options_.clip_norm >= 0))
      throw Error(Code::usage, text("an optimizer with clip_norm = ", options_.clip_norm), "0 means no limit");
  }

  void build(const std::vector<AnyVariable>& variables, Origin origin) {
    if (variables.empty()) return;
    make_in(variables, origin);
    exchange_.prepare(variables.front().strategy(), variables);
  }
  // Makes the variables that are missing; replicas make them together.
  void make_in(const std::vector<AnyVariable>& variables, Origin origin);
  // Returns the number of steps, of which `accumulate_steps` change the variables once.
  std::int64_t calls() const { return iteration_ ? value_of(*iteration_).to<std::int64_t>().item() : 0; }
  std::int64_t iterations() const { return calls() / options_.accumulate_steps; }
  float rate_at(std::int64_t step) const {
    const float number = number_.load(std::memory_order_relaxed);
    return std::isnan(number) ? rate_.at(step) : number;
  }
  void set_rate(float number);
  // Changes a part by a summed gradient.
  void change(const StepNumbers& now, const AnyVariable& variable, std::size_t part, const SummedGradient& gradient);

  const std::string& name() const { return options_.name; }
  const std::vector<AnyVariable>& variables() const { return variables_; }
  GradientExchange& exchange() { return exchange_; }

 private:
  ExchangeOptions exchange_options() const {
    ExchangeOptions all;
    all.wire = options_.wire;
    all.buckets.bytes = options_.bucket_bytes;
    all.buckets.first_bytes = options_.first_bucket_bytes;
    all.keeps_rows = options_.clip_norm > 0 || (rule_->takes_rows() && !rule_->adds_rows());
    return all;
  }
  bool is_built(const std::vector<AnyVariable>& variables) const {
    return iteration_ && std::ranges::all_of(variables, [&](const AnyVariable& each) { return slots_.contains(each); });
  }
  void make(Strategy& strategy, const std::vector<AnyVariable>& variables);

  std::shared_ptr<const UpdateRule> rule_;
  LearningRate rate_;
  std::atomic<float> number_ = NAN;  // Replaces the rate, unless it is NaN.
  OptimizerOptions options_;
  GradientExchange exchange_;
  std::optional<AnyVariable> iteration_;
  std::unordered_map<AnyVariable, Slots> slots_;
  std::vector<std::vector<AnyVariable>> lists_;  // Holds for each local replica the list whose gradients it adds up.
  std::vector<AnyVariable> variables_;
};

void Optimizer::Core::make_in(const std::vector<AnyVariable>& variables, Origin origin) {
  if (is_built(variables)) return;
  Strategy& strategy = variables.front().strategy();
  ReplicaContext* const replica = replica_context();
  if (replica != nullptr && &replica->strategy() == &strategy)
    replica->merge_call([&](Strategy& all) { make(all, variables); }, origin);
  else
    make(strategy, variables);
}

void Optimizer::Core::make(Strategy& strategy, const std::vector<AnyVariable>& variables) {
  for (const AnyVariable& each : variables) {
    if (each.type() != DataType::f32)
      throw Error(Code::usage,
                  text("optimizer '", options_.name, "' for variable '", printable(each.path()), "' of ",
                       to_string(each.type())),
                  "train variables of f32");
    if (&each.strategy() != &strategy)
      throw Error(Code::usage,
                  text("optimizer '", options_.name, "' for variable '", printable(each.path()), "' of ",
                       each.strategy().describe(), ", and for others of ", strategy.describe()),
                  "make all of them in the scope of one strategy");
  }
  lists_.resize(std::max(lists_.size(), static_cast<std::size_t>(strategy.num_local_replicas())));
  if (!iteration_) {
    const Scope inside(strategy);
    iteration_ = Variable(std::int64_t{0}, {.name = text(options_.name, "/iteration"),
                                            .aggregation = Aggregation::only_first_replica,
                                            .trainable = false});
    variables_.push_back(*iteration_);
  }
  for (const AnyVariable& each : variables) {
    if (slots_.contains(each)) continue;
    Slots made;
    for (const UpdateRule::Slot& slot : rule_->slots()) {
      const ColocationScope inside(strategy, each.layout());
      made.of_rule.emplace_back(Variable(Tensor<float>(each.shape(), slot.initial),
                                         {.name = text(options_.name, '/', slot.name, '/', each.path()),
                                          .aggregation = Aggregation::only_first_replica,
                                          .trainable = false}));
      variables_.push_back(made.of_rule.back());
    }
    if (options_.accumulate_steps > 1) {
      const Scope inside(strategy);
      made.sum = Variable(Tensor<float>(each.shape(), 0.F), {.name = text(options_.name, "/sum/", each.path()),
                                                             .synchronization = Synchronization::on_read,
                                                             .aggregation = Aggregation::sum});
      variables_.push_back(*made.sum);
      made.has_sum.resize(static_cast<std::size_t>(strategy.num_local_replicas()));
    }
    slots_.emplace(each, std::move(made));
  }
}

void Optimizer::Core::set_rate(float number) {
  if (rate_.is_schedule())
    throw Error(Code::usage, text("set_learning_rate of optimizer '", options_.name, "', which has a schedule"),
                "make the optimizer with a number as its learning rate, or change the schedule");
  if (std::isnan(number))
    throw Error(Code::usage, text("set_learning_rate of optimizer '", options_.name, "' to NaN"), "give a number");
  number_.store(number, std::memory_order_relaxed);
}

void Optimizer::Core::change(const StepNumbers& now, const AnyVariable& variable, std::size_t part,
                             const SummedGradient& gradient) {
  const Slots& slots = slots_.at(variable);
  HostPart<float> elements(variable, part);
  std::vector<HostPart<float>> parts;
  std::vector<float*> memory;
  for (const AnyVariable& each : slots.of_rule) memory.push_back(parts.emplace_back(each, part).span().data());
  const UpdatedMemory all{elements.span(), memory};
  if (!gradient.rows)
    rule_->change(now, all, gradient.elements.data());
  else if (rule_->takes_rows())
    rule_->change_rows(now, all, *gradient.rows);
  else
    rule_->change(now, all, gradient.rows->dense().data());
  elements.put_back();
  for (HostPart<float>& each : parts) each.put_back();
}

// Is one step of a replica. A tape hands it the gradients.
class Optimizer::Core::Step final : public GradientReceiver {
 public:
  Step(Core& core, std::string_view call, const std::vector<AnyVariable>& variables, bool aggregate, Origin origin)
      : core_(core),
        variables_(variables),
        origin_(origin),
        here_(position_of(call, variables.front().strategy())),
        exchange_(core.exchange_, *here_.strategy, here_.local(), aggregate ? here_.replica : nullptr, variables,
                  origin) {
    if (!aggregate && std::ranges::any_of(variables, [](const AnyVariable& each) { return each.layout().is_shared; }))
      throw Error(Code::usage, text(call, " without aggregation in ", here_.strategy->describe()),
                  "its replicas share the variables, so let the optimizer sum the gradients");
    core.make_in(variables, origin);
    const std::int64_t calls = core.calls();
    if (steps() > 1) check_list(calls);
    is_last_ = (calls + 1) % steps() == 0;
    now_.step = calls / steps() + 1;
    now_.learning_rate = core.rate_at(calls);
  }

  const CallerPosition& here() const { return here_; }
  void begin(const std::vector<bool>& has_gradient) override {
    if (std::ranges::find(has_gradient, true) == has_gradient.end())
      throw Error(Code::usage, text("No gradients provided for any variable: ", names_of(variables_)),
                  "let the loss depend on one of the variables, and compute it while the tape records");
    if (!is_last_) return;
    std::vector<bool> any = has_gradient;
    for (std::size_t i = 0; steps() > 1 && i < any.size(); ++i) any[i] = any[i] || has_sum(i) != 0;
    exchange_.begin(any);
  }
  AnyTensor memory(std::size_t which) override { return exchange_.memory(which); }
  void take(std::size_t which, Gradient gradient) override {
    if (steps() == 1)
      exchange_.take(which, gradient);
    else
      accumulate(which, gradient.dense());
  }
  // Changes the variables, if it is a step that does.
  void finish();

 private:
  std::int64_t steps() const { return core_.options_.accumulate_steps; }
  // Returns the index of this replica's part.
  std::size_t part_of(const AnyVariable& variable) const {
    return variable.layout().part_of[static_cast<std::size_t>(here_.local())];
  }
  char& has_sum(std::size_t which) const {
    return core_.slots_.at(variables_[which]).has_sum[static_cast<std::size_t>(here_.local())];
  }
  void check_list(std::int64_t calls) const;
  void accumulate(std::size_t which, const AnyTensor& gradient);
  // Changes those variables that replicas share, or the others.
  void change(std::span<const SummedGradient> gradients, bool shared);

  Core& core_;
  const std::vector<AnyVariable>& variables_;
  Origin origin_;
  CallerPosition here_;
  GradientExchange::Step exchange_;
  bool is_last_ = true;
  StepNumbers now_;
};

// A round of steps is about one list: the steps of two lists would be counted together.
void Optimizer::Core::Step::check_list(std::int64_t calls) const {
  std::vector<AnyVariable>& list = core_.lists_[static_cast<std::size_t>(here_.local())];
  if (calls % steps() == 0) list = variables_;
  if (list != variables_)
    throw Error(Code::usage,
                text("optimizer '", core_.name(), "' adds up ", steps(),
                     " steps, and got other variables than in the step before: ", names_of(variables_)),
                "make an optimizer for each list of variables");
}

void Optimizer::Core::Step::accumulate(std::size_t which, const AnyTensor& gradient) {
  has_sum(which) = is_last_ ? 0 : 1;
  const AnyVariable& kept = *core_.slots_.at(variables_[which]).sum;
  const AnyTensor to = memory(which);
  if (to.view().data != gradient.view().data) to.assign(gradient);
  HostPart<float> part(kept, part_of(kept));
  const std::span<float> sum = part.span();
  const std::span<float> mine = to.span<float>();
  if (is_last_) {
    const auto number = static_cast<float>(steps());
    for (std::size_t i = 0; i < sum.size(); ++i) mine[i] = (sum[i] + mine[i]) / number;
    std::ranges::fill(sum, 0.F);
  } else {
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += mine[i];
  }
  part.put_back();
  if (is_last_) exchange_.take(which, Gradient(to));
}

void Optimizer::Core::Step::change(std::span<const SummedGradient> gradients, bool shared) {
  for (const SummedGradient& each : gradients) {
    const AnyVariable& variable = variables_[each.variable];
    if (variable.layout().is_shared == shared) core_.change(now_, variable, part_of(variable), each);
  }
  if (core_.iteration_->layout().is_shared != shared) return;
  HostPart<std::int64_t> iteration(*core_.iteration_, part_of(*core_.iteration_));
  ++iteration.span().front();
  iteration.put_back();
}

void Optimizer::Core::Step::finish() {
  for (std::size_t i = variables_.size(); is_last_ && steps() > 1 && i-- > 0;) {
    // The last step does not depend on this variable, and others do.
    if (has_sum(i) != 0) accumulate(i, Tensor<float>(variables_[i].shape()));
  }
  std::vector<SummedGradient> gradients;
  if (is_last_) gradients = exchange_.finish();
  if (core_.options_.clip_norm > 0) clip_by_global_norm(gradients, core_.options_.clip_norm);
  change(gradients, false);
  const auto is_shared = [&](const SummedGradient& each) { return variables_[each.variable].layout().is_shared; };
  if (!core_.iteration_->layout().is_shared && std::ranges::none_of(gradients, is_shared)) return;
  // All replicas have the same sums, so one of them changes the shared parts.
  here_.replica->merge_call([&](Strategy& /*strategy*/) { change(gradients, true); }, origin_);
}

namespace {

// Keeps the gradients of one virtual replica, or the sum of several.
class PartGradients final : public GradientReceiver {
 public:
  explicit PartGradients(const std::vector<AnyVariable>& variables) : variables_(variables), all_(variables.size()) {}
  void begin(const std::vector<bool>& /*has_gradient*/) override {}
  AnyTensor memory(std::size_t which) override {
    if (!made_) made_.emplace(variables_.size());
    if (!(*made_)[which]) (*made_)[which] = uninitialized_tensor(DataType::f32, variables_[which].shape());
    return *(*made_)[which];
  }
  void take(std::size_t which, Gradient gradient) override { all_[which] = gradient.dense(); }
  const std::optional<AnyTensor>& of(std::size_t which) const { return all_[which]; }
  void add(const PartGradients& right) {
    for (std::size_t i = 0; i < all_.size(); ++i) {
      if (!all_[i])
        all_[i] = right.all_[i];
      else if (right.all_[i])
        lockstep::detail::reduce_into(ReduceOp::sum, all_[i]->view(), right.all_[i]->view());
    }
  }

 private:
  const std::vector<AnyVariable>& variables_;
  std::vector<std::optional<AnyTensor>> all_;
  std::optional<std::vector<std::optional<AnyTensor>>> made_;
};

// Is the sum of a whole branch of the tree.
struct PartsBranch {
  int parts = 1;
  float loss = 0;
  std::unique_ptr<PartGradients> gradients;
};

// Adds each gradient of the last part to the branches before it, and lets the sum travel.
class LastPart final : public GradientReceiver {
 public:
  LastPart(GradientReceiver& to, const std::vector<PartsBranch>& branches, std::size_t number)
      : to_(to), branches_(branches), is_taken_(number) {}
  void begin(const std::vector<bool>& has_gradient) override {
    std::vector<bool> any = has_gradient;
    for (std::size_t i = 0; i < any.size(); ++i) any[i] = any[i] || has_earlier(i);
    to_.begin(any);
  }
  AnyTensor memory(std::size_t which) override { return to_.memory(which); }
  void take(std::size_t which, Gradient gradient) override { fold(which, gradient.dense()); }
  // Gives the sums of variables on which the last part does not depend.
  void finish() {
    for (std::size_t i = is_taken_.size(); i-- > 0;) {
      if (!is_taken_[i] && has_earlier(i)) fold(i, std::nullopt);
    }
  }

 private:
  bool has_earlier(std::size_t which) const {
    return std::ranges::any_of(branches_,
                               [&](const PartsBranch& each) { return each.gradients->of(which).has_value(); });
  }
  void fold(std::size_t which, std::optional<AnyTensor> sum) {
    is_taken_[which] = true;
    const AnyTensor to = to_.memory(which);
    if (sum && sum->view().data != to.view().data) to.assign(*sum);
    for (std::size_t i = branches_.size(); i-- > 0;) {
      const std::optional<AnyTensor>& each = branches_[i].gradients->of(which);
      if (each && sum)
        lockstep::detail::reduce_into(ReduceOp::sum, to.view(), each->view());
      else if (each)
        to.assign(*each);
      if (each) sum = to;
    }
    to_.take(which, Gradient(to));
  }

  GradientReceiver& to_;
  const std::vector<PartsBranch>& branches_;
  std::vector<bool> is_taken_;
};

}  // namespace

Optimizer::Optimizer(std::string_view name) : Optimizer(optimizer_of_word(name)) {}

Optimizer::Optimizer(std::shared_ptr<const UpdateRule> rule, LearningRate learning_rate, OptimizerOptions options)
    : core_(std::make_shared<Core>(std::move(rule), std::move(learning_rate), std::move(options))) {}

void Optimizer::minimize(Tape& tape, const TapeTensor& loss, const std::vector<AnyVariable>& variables, Origin origin) {
  if (variables.empty()) return;
  Core::Step step(*core_, "minimize", variables, true, origin);
  tape.gradient(loss, variables, step);
  step.finish();
}

float Optimizer::minimize(int parts, const std::function<TapeTensor(int part)>& loss_of,
                          const std::vector<AnyVariable>& variables, Origin origin) {
  if (variables.empty()) return 0;
  Core::Step step(*core_, "minimize", variables, true, origin);
  const CallerPosition& here = step.here();
  const ReplicaContext& replica = here.replica == nullptr ? here.strategy->replica(0) : *here.replica;
  const auto mine = lockstep::detail::virtual_replicas_of(replica, parts);
  std::vector<PartsBranch> branches;
  for (int i = 0; i + 1 < mine.count; ++i) {
    Tape tape;
    const TapeTensor loss = loss_of(mine.first + i);
    branches.push_back({1, loss.item(), std::make_unique<PartGradients>(variables)});
    tape.gradient(loss, variables, *branches.back().gradients);
    while (branches.size() > 1 && branches[branches.size() - 2].parts == branches.back().parts) {
      const PartsBranch right = std::move(branches.back());
      branches.pop_back();
      branches.back().gradients->add(*right.gradients);
      branches.back().loss += right.loss;
      branches.back().parts += right.parts;
    }
  }
  Tape tape;
  const TapeTensor loss = loss_of(mine.first + mine.count - 1);
  LastPart last(step, branches, variables.size());
  tape.gradient(loss, variables, last);
  last.finish();
  step.finish();
  float sum = loss.item();
  for (std::size_t i = branches.size(); i-- > 0;) sum = branches[i].loss + sum;
  return sum;
}

void Optimizer::apply(const std::vector<VariableGradient>& gradients, ApplyOptions options, Origin origin) {
  if (gradients.empty()) return;
  std::vector<AnyVariable> variables;
  std::vector<bool> has_gradient;
  for (const VariableGradient& each : gradients) {
    variables.push_back(each.variable);
    has_gradient.push_back(each.gradient.has_value());
    if (each.gradient.is_sparse() && each.gradient.rows().dense_shape() != each.variable.shape())
      throw Error(Code::usage,
                  text("rows of a tensor of shape ", each.gradient.rows().dense_shape().to_string(),
                       " as the gradient of variable '", printable(each.variable.path()), "' of shape ",
                       each.variable.shape().to_string()),
                  "give the gradient of this variable");
  }
  Core::Step step(*core_, "apply", variables, options.aggregate, origin);
  step.begin(has_gradient);
  for (std::size_t i = gradients.size(); i-- > 0;) {
    if (has_gradient[i]) step.take(i, gradients[i].gradient);
  }
  step.finish();
}

void Optimizer::build(const std::vector<AnyVariable>& variables, Origin origin) { core_->build(variables, origin); }
std::int64_t Optimizer::iterations() const { return core_->iterations(); }
float Optimizer::learning_rate() const { return core_->rate_at(core_->calls()); }
std::vector<AnyVariable> Optimizer::variables() const { return core_->variables(); }
void Optimizer::set_learning_rate(float rate) { core_->set_rate(rate); }
const std::string& Optimizer::name() const { return core_->name(); }

GradientReducer& Optimizer::reducer() const {
  GradientReducer* const found = core_->exchange().reducer();
  if (found != nullptr) return *found;
  throw Error(Code::usage, text("reducer() of optimizer '", name(), "', which has no gradients yet"),
              "call build() with the model's trainable variables before");
}

}  // namespace lockstep::train
