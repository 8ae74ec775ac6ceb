// SPDX-License-Identifier: Apache-2.0
// Implements tapes. A slot stands for one followed tensor: the result of a recorded op, a watched tensor, or a
// variable. All reads of a variable share its slot. Records lie in the order of the calls, so going backward needs no
// search.
#include "runtime/train/tape.hpp"

#include <algorithm>
#include <atomic>
#include <limits>
#include <unordered_map>
#include <utility>

#include "runtime/train/accumulate.hpp"
#include "topology/base/error.hpp"
#include "topology/base/text.hpp"

namespace lockstep::train {
namespace {

constexpr std::size_t no_slot = std::numeric_limits<std::size_t>::max();

bool has_gradients(DataType type) { return type == DataType::f32 || type == DataType::f64; }

// Returns the tensor, or a copy if it is in a GPU's memory, for which ops have no kernels yet.
AnyTensor on_host(const AnyTensor& tensor) { return tensor.location().on_device() ? tensor.copy_at({}) : tensor; }

// Returns a number that no other tensor of the program has.
std::uint64_t new_id() {
  static std::atomic<std::uint64_t> threads{0};
  thread_local std::uint64_t next = threads.fetch_add(1, std::memory_order_relaxed) << 40U;
  return ++next;
}

thread_local std::vector<Tape*> tapes;  // Are those of this thread, the outermost first.
thread_local int pauses = 0;

// Holds the gradient of a slot while contributions come.
struct Accumulator {
  Gradient gradient;
  bool is_own = false;              // True if the memory of the elements is this slot's alone.
  std::optional<AnyTensor> memory;  // Is where the gradient shall be at the end.
};

}  // namespace

// Holds a call of an op. All tapes of the thread share it.
class Tape::Call {
 public:
  Call(const Op& which, OpAttributes with, std::vector<AnyTensor> from, AnyTensor to, std::vector<AnyTensor> beside)
      : op(which),
        attributes(std::move(with)),
        inputs(std::move(from)),
        output(std::move(to)),
        saved(std::move(beside)) {}
  OpCall as_call() const { return {attributes, inputs, output, saved}; }

  const Op& op;
  OpAttributes attributes;
  std::vector<AnyTensor> inputs;
  AnyTensor output;
  std::vector<AnyTensor> saved;
};

class Tape::Records {
 public:
  // Says which slots a call connects. Those of its inputs lie in input_slots_.
  struct Record {
    std::shared_ptr<const Call> call;
    std::size_t first_input = 0;
    std::size_t output_slot = 0;
  };

  std::size_t slot_of(std::uint64_t id) const {
    const auto found = std::ranges::lower_bound(slots_, id, {}, &Slot::id);
    return found == slots_.end() || found->id != id ? no_slot : found->number;
  }
  std::size_t slot_of(const AnyVariable& variable) const {
    const auto found = variables_.find(variable);
    return found == variables_.end() ? no_slot : found->second;
  }
  std::vector<std::size_t> slots_of(const std::vector<AnyVariable>& variables) const {
    std::vector<std::size_t> slots(variables.size());
    std::ranges::transform(variables, slots.begin(), [&](const AnyVariable& each) { return slot_of(each); });
    return slots;
  }
  void watch(std::uint64_t id) {
    if (slot_of(id) == no_slot) place(id, number_++);
  }
  std::size_t watch(const AnyVariable& variable) {
    const auto [found, is_new] = variables_.try_emplace(variable, number_);
    if (is_new) ++number_;
    return found->second;
  }
  void read(std::uint64_t id, const AnyVariable& variable, bool follows) {
    const std::size_t slot = follows ? watch(variable) : slot_of(variable);
    if (slot != no_slot) place(id, slot);
  }
  bool follows_one_of(std::span<const TapeTensor> inputs) const {
    return std::ranges::any_of(inputs, [&](const TapeTensor& each) { return slot_of(each.id()) != no_slot; });
  }
  void add(const std::shared_ptr<const Call>& call, std::span<const TapeTensor> inputs, std::uint64_t output) {
    records_.push_back({call, input_slots_.size(), number_});
    for (const TapeTensor& each : inputs) input_slots_.push_back(slot_of(each.id()));
    place(output, number_++);
  }

  // Goes backward from the target's slot. `take(source)` is called once for each source that has a gradient, when it is
  // finished; sources are numbered as their slots are given.
  void go_back(const AnyTensor& target, std::size_t target_slot, const std::vector<std::size_t>& sources,
               const std::function<void(const std::vector<bool>&)>& begin,
               const std::function<std::optional<AnyTensor>(std::size_t)>& memory,
               const std::function<void(std::size_t, Gradient)>& take, bool keeps_records);

 private:
  struct Slot {
    std::uint64_t id = 0;
    std::size_t number = 0;
  };
  // Tells which slots lie between the target and the sources.
  struct Path {
    std::vector<bool> is_reached;  // The target depends on them.
    std::vector<bool> leads;       // They depend on a source.
  };
  // Keeps the slots sorted by id. New tensors of the thread have the largest ids.
  void place(std::uint64_t id, std::size_t number) {
    auto at = slots_.end();
    if (!slots_.empty() && slots_.back().id > id) at = std::ranges::lower_bound(slots_, id, {}, &Slot::id);
    slots_.insert(at, {id, number});
  }
  std::span<const std::size_t> inputs_of(const Record& record) const {
    return std::span(input_slots_).subspan(record.first_input, record.call->inputs.size());
  }
  Path find_path(std::size_t target, const std::vector<std::size_t>& sources) const;
  static bool is_on(const Path& path, const Record& record) {
    return path.is_reached[record.output_slot] && path.leads[record.output_slot];
  }
  void call_backward(const Record& record, const Path& path, std::vector<Accumulator>& sums, bool is_source) const;

  std::vector<Record> records_;
  std::vector<std::size_t> input_slots_;
  std::vector<Slot> slots_;
  std::unordered_map<AnyVariable, std::size_t> variables_;
  std::size_t number_ = 0;
};

Tape::Records::Path Tape::Records::find_path(std::size_t target, const std::vector<std::size_t>& sources) const {
  Path path{std::vector<bool>(number_), std::vector<bool>(number_)};
  for (const std::size_t source : sources) {
    if (source != no_slot) path.leads[source] = true;
  }
  for (const Record& record : records_) {
    path.leads[record.output_slot] =
        path.leads[record.output_slot] ||
        std::ranges::any_of(inputs_of(record), [&](std::size_t slot) { return slot != no_slot && path.leads[slot]; });
  }
  if (target == no_slot) return path;
  path.is_reached[target] = true;
  for (std::size_t at = records_.size(); at-- > 0;) {
    const Record& record = records_[at];
    if (!path.is_reached[record.output_slot] || record.call->op.backward == nullptr) continue;
    for (const std::size_t slot : inputs_of(record)) {
      if (slot != no_slot) path.is_reached[slot] = true;
    }
  }
  return path;
}

// The gradient of the output ends here, unless the output is a source itself.
void Tape::Records::call_backward(const Record& record, const Path& path, std::vector<Accumulator>& sums,
                                  bool is_source) const {
  Accumulator& mine = sums[record.output_slot];
  const Op& op = record.call->op;
  if (!mine.gradient.has_value() || op.backward == nullptr) return;
  const AnyTensor gradient = is_source ? mine.gradient.dense() : mine.gradient.take_dense();
  const OpCall call = record.call->as_call();
  BackwardCall back(call, gradient);
  const std::span<const std::size_t> slots = inputs_of(record);
  for (std::size_t i = 0; i < slots.size(); ++i) {
    if (slots[i] == no_slot || !path.leads[slots[i]]) continue;
    const bool is_first = !sums[slots[i]].gradient.has_value() &&
                          std::ranges::find(slots, slots[i]) == slots.begin() + static_cast<long>(i);
    back.want(i, is_first ? sums[slots[i]].memory : std::nullopt);
  }
  op.backward(back);
  for (std::size_t i = 0; i < slots.size(); ++i) {
    if (!back.wants(i)) continue;
    const bool is_own = back.is_own(i);
    Gradient part = back.take(i);
    if (!part.has_value()) continue;
    Accumulator& sum = sums[slots[i]];
    if (!sum.gradient.has_value()) {
      sum.gradient = std::move(part);
      sum.is_own = is_own;
    } else {
      sum.gradient.add(std::move(part), sum.is_own);
      sum.is_own = true;
    }
  }
}

void Tape::Records::go_back(const AnyTensor& target, std::size_t target_slot, const std::vector<std::size_t>& sources,
                            const std::function<void(const std::vector<bool>&)>& begin,
                            const std::function<std::optional<AnyTensor>(std::size_t)>& memory,
                            const std::function<void(std::size_t, Gradient)>& take, bool keeps_records) {
  const Path path = find_path(target_slot, sources);
  std::vector<bool> has_gradient;
  has_gradient.reserve(sources.size());
  for (const std::size_t source : sources) has_gradient.push_back(source != no_slot && path.is_reached[source]);
  begin(has_gradient);
  std::vector<Accumulator> sums(number_);
  std::vector<std::vector<std::size_t>> sources_of(number_);
  for (std::size_t i = 0; i < sources.size(); ++i) {
    if (!has_gradient[i]) continue;
    sources_of[sources[i]].push_back(i);
    if (sources_of[sources[i]].size() == 1) sums[sources[i]].memory = memory(i);
  }
  if (target_slot != no_slot) {
    sums[target_slot].gradient = Gradient(filled(target.type(), target.shape(), 1));
    sums[target_slot].is_own = true;
  }
  // A source is finished at the first record that uses it, since the records are visited from the last one.
  std::vector<std::vector<std::size_t>> finished(records_.size() + 1);
  std::vector<bool> is_placed(number_);
  for (std::size_t at = 0; at < records_.size(); ++at) {
    if (!is_on(path, records_[at])) continue;
    for (const std::size_t slot : inputs_of(records_[at])) {
      if (slot == no_slot || is_placed[slot] || sources_of[slot].empty()) continue;
      is_placed[slot] = true;
      finished[at].push_back(slot);
    }
  }
  const auto finish = [&](std::size_t slot) {
    for (const std::size_t source : sources_of[slot]) {
      Gradient whole = sums[slot].gradient;
      const std::optional<AnyTensor> at = memory(source);
      // An op on the path may give none, as a cross-entropy gives its labels none.
      if (at && !whole.has_value()) whole = Gradient(filled(at->type(), at->shape(), 0));
      if (at && !whole.is_sparse() && whole.dense().view().data != at->view().data) {
        at->assign(whole.dense());
        whole = Gradient(*at);
      }
      take(source, std::move(whole));
    }
  };
  for (std::size_t slot = 0; slot < number_; ++slot) {
    if (!sources_of[slot].empty() && !is_placed[slot]) finish(slot);  // It is the target itself.
  }
  for (std::size_t at = records_.size(); at-- > 0;) {
    const Record& record = records_[at];
    const bool is_source = !sources_of[record.output_slot].empty();
    if (is_on(path, record)) call_backward(record, path, sums, is_source);
    if (!is_source) sums[record.output_slot] = {};
    if (!keeps_records) records_.pop_back();
    for (const std::size_t slot : finished[at]) finish(slot);
  }
}

Tape::Tape(TapeOptions options) : records_(std::make_unique<Records>()), options_(options) { tapes.push_back(this); }

Tape::~Tape() { std::erase(tapes, this); }

void Tape::watch(const TapeTensor& tensor) {
  if (!has_gradients(tensor.type()))
    throw Error(Code::usage, text("a tape cannot follow a tensor of ", lockstep::to_string(tensor.type())),
                "watch tensors of f32 or f64");
  records_->watch(tensor.id());
}

void Tape::watch(const AnyVariable& variable) { records_->watch(variable); }

void Tape::reset() {
  records_ = std::make_unique<Records>();
  is_used_ = false;
}

Tape::Pause::Pause() { ++pauses; }
Tape::Pause::~Pause() { --pauses; }

std::uint64_t Tape::id_of_variable(const AnyVariable& variable) {
  const std::uint64_t id = new_id();
  if (pauses > 0 || !has_gradients(variable.type())) return id;
  for (Tape* tape : tapes) tape->records_->read(id, variable, tape->options_.watch_variables && variable.trainable());
  return id;
}

void Tape::begin_gradient() {
  if (is_used_ && !options_.persistent)
    throw Error(Code::usage, "a second gradient() of a tape that is not persistent",
                "make it with Tape({.persistent = true}), or take all gradients in one call");
  is_used_ = true;
  if (!options_.persistent) std::erase(tapes, this);
}

std::vector<Gradient> Tape::gradient(const TapeTensor& target, std::span<const TapeTensor> sources) {
  begin_gradient();
  std::vector<std::size_t> slots(sources.size());
  std::ranges::transform(sources, slots.begin(), [&](const TapeTensor& each) { return records_->slot_of(each.id()); });
  std::vector<Gradient> all(sources.size());
  records_->go_back(
      target.tensor(), records_->slot_of(target.id()), slots, [](const std::vector<bool>&) {},
      [](std::size_t) { return std::nullopt; }, [&](std::size_t i, Gradient gradient) { all[i] = std::move(gradient); },
      options_.persistent);
  return all;
}

Gradient Tape::gradient(const TapeTensor& target, const TapeTensor& source) {
  return std::move(gradient(target, std::span(&source, 1)).front());
}

Gradient Tape::gradient(const TapeTensor& target, const AnyVariable& source) {
  return std::move(gradient(target, std::vector{source}).front().gradient);
}

std::vector<VariableGradient> Tape::gradient(const TapeTensor& target, const std::vector<AnyVariable>& sources) {
  begin_gradient();
  std::vector<VariableGradient> all;
  all.reserve(sources.size());
  for (const AnyVariable& each : sources) all.push_back({each, {}});
  records_->go_back(
      target.tensor(), records_->slot_of(target.id()), records_->slots_of(sources), [](const std::vector<bool>&) {},
      [](std::size_t) { return std::nullopt; },
      [&](std::size_t i, Gradient gradient) { all[i].gradient = std::move(gradient); }, options_.persistent);
  return all;
}

void Tape::gradient(const TapeTensor& target, const std::vector<AnyVariable>& sources, GradientReceiver& receiver) {
  begin_gradient();
  records_->go_back(
      target.tensor(), records_->slot_of(target.id()), records_->slots_of(sources),
      [&](const std::vector<bool>& has_gradient) { receiver.begin(has_gradient); },
      [&](std::size_t i) { return std::optional(receiver.memory(i)); },
      [&](std::size_t i, Gradient gradient) { receiver.take(i, std::move(gradient)); }, options_.persistent);
}

TapeTensor::TapeTensor(AnyTensor tensor) : tensor_(std::move(tensor)), id_(new_id()) {}

TapeTensor::TapeTensor(const AnyVariable& variable)
    : tensor_(on_host(value_of(variable))), id_(Tape::id_of_variable(variable)) {}

std::string to_string(const TapeTensor& tensor) { return to_string(tensor.tensor()); }
std::ostream& operator<<(std::ostream& out, const TapeTensor& tensor) { return out << tensor.tensor(); }

TapeTensor stop_gradient(const TapeTensor& tensor) { return {tensor.tensor()}; }

TapeTensor apply(const Op& op, std::span<const TapeTensor> inputs, OpAttributes attributes) {
  std::vector<AnyTensor> tensors;
  tensors.reserve(inputs.size());
  for (const TapeTensor& each : inputs) {
    if (each.tensor().location().on_device())
      refuse_inputs(op.name, "its input is in the memory of a GPU, and ops have no kernels for GPUs yet",
                    "copy it: tensor.copy_at({})");
    tensors.push_back(each.tensor());
  }
  TensorShape shape = op.shape(attributes, tensors);
  const DataType type = op.type == nullptr ? tensors.front().type() : op.type(attributes, tensors);
  const bool shares = op.forward == nullptr;
  OpCall call{attributes,
              tensors,
              shares ? tensors.front().reshaped(std::move(shape)) : uninitialized_tensor(type, std::move(shape)),
              {}};
  if (!shares) op.forward(call);
  TapeTensor result(call.output);
  if (pauses > 0 || tapes.empty() || !has_gradients(type)) return result;
  std::vector<Tape*> following;
  std::ranges::copy_if(tapes, std::back_inserter(following),
                       [&](const Tape* tape) { return tape->records_->follows_one_of(inputs); });
  if (following.empty()) return result;
  const auto recorded = std::make_shared<const Tape::Call>(op, std::move(attributes), std::move(tensors),
                                                           std::move(call.output), std::move(call.saved));
  for (Tape* tape : following) tape->records_->add(recorded, inputs, result.id());
  return result;
}

}  // namespace lockstep::train
