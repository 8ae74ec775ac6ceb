// SPDX-License-Identifier: Apache-2.0
// Gives every replica its own part of a variable. Equal changes keep the parts equal; with synchronization on read,
// the parts are combined when they are read for all. A variable belongs to the strategy of the scope in which it was
// made. A move keeps its identity.
#pragma once

#include <cstring>
#include <deque>
#include <memory>
#include <optional>
#include <ostream>
#include <span>
#include <utility>
#include <vector>

#include "runtime/any_variable.hpp"
#include "runtime/replica_storage.hpp"
#include "runtime/variable_base.hpp"
#include "runtime/variable_scope.hpp"

namespace lockstep {

// Refers to state that the variables of all local replicas share. It can be moved, but not copied.
template <class T>
class Variable {
  static_assert(detail::Number<T>, "lockstep: a variable's elements are numbers");

 public:
  using value_type = T;
  using UpdateOp = detail::UpdateOp;

  // Makes the variable. In a scope, all processes of the strategy make it together, and replica 0's initial value is
  // copied to all. In replicas, all of them make it, and share one variable.
  explicit Variable(Tensor<T> initial, VariableOptions options = {}, Origin origin = Origin::here())
      : Variable([&] { return std::move(initial); }, std::move(options), origin) {}
  // Takes the initial value from a function, which is called once in this process.
  template <class F>
  requires(std::is_invocable_r_v<Tensor<T>, F&>) explicit Variable(F make, VariableOptions options = {},
                                                                   Origin origin = Origin::here());
  Variable(Variable&&) noexcept = default;
  Variable& operator=(Variable&&) noexcept = default;

  // Return the options with which the variable was made, its shape, and its strategy. The name has the name scopes
  // before it; AnyVariable has the path, which is unique, and the layout.
  const std::string& name() const { return state().rules().options().name; }
  const TensorShape& shape() const { return state().shape(); }
  bool trainable() const { return *state().rules().options().trainable; }
  Synchronization synchronization() const { return state().rules().options().synchronization; }
  Aggregation aggregation() const { return state().rules().options().aggregation; }
  Strategy& strategy() const { return state().home().strategy(); }

  // Returns the replica's part in a replica. For all replicas, it returns the common value. A variable synchronised on
  // read combines its parts by its aggregation, so that all processes must call this.
  Tensor<T> read(Origin origin = Origin::here()) const;
  // Returns the value that read() would copy, if it is one part in the host's memory. The next change of the variable
  // changes the view.
  TensorSpan<const T> view() const;
  // Return the part of a replica, in it or in update(), for reading and writing without a copy. A program that writes
  // to one part of a mirrored variable must write the same to all. If the replica is on a GPU, its part is in GPU
  // memory, which only kernels and collectives reach: use local_on_gpu(). The memory belongs to the variable.
  std::span<T> local() { return own_part("local", true); }
  std::span<T> local_on_gpu() { return own_part("local_on_gpu", false); }

  // Change the value. In a replica, a mirrored variable takes the values of all replicas, combined by its aggregation.
  // Without an aggregation each replica changes its own part alone. For all replicas, or in update(), the value is
  // taken as it is. A sum synchronised on read then accepts only assign().
  void assign(const Tensor<T>& value, Origin origin = Origin::here()) {
    change(UpdateOp::assign, value, "assign", origin);
  }
  void assign_add(const Tensor<T>& value, Origin origin = Origin::here()) {
    change(UpdateOp::add, value, "assign_add", origin);
  }
  void assign_sub(const Tensor<T>& value, Origin origin = Origin::here()) {
    change(UpdateOp::subtract, value, "assign_sub", origin);
  }
  // Take the value of all replicas. Throw Error usage in a replica, whose own value is wanted there.
  void assign(const Mirrored<Tensor<T>>& value, Origin origin = Origin::here()) {
    state().refuse_in_replica("assign");
    assign(value.value(), origin);
  }
  void assign_add(const Mirrored<Tensor<T>>& value, Origin origin = Origin::here()) {
    state().refuse_in_replica("assign_add");
    assign_add(value.value(), origin);
  }
  void assign_sub(const Mirrored<Tensor<T>>& value, Origin origin = Origin::here()) {
    state().refuse_in_replica("assign_sub");
    assign_sub(value.value(), origin);
  }
  // Are deleted, because one variable cannot take different values of replicas. Reduce them first.
  template <class U>
  void assign(const PerReplica<U>& value) = delete;
  template <class U>
  void assign_add(const PerReplica<U>& value) = delete;
  template <class U>
  void assign_sub(const PerReplica<U>& value) = delete;

  // Change some rows, in the same way. An index may come more than once.
  void scatter_add(const IndexedSlices<T>& rows, Origin origin = Origin::here()) {
    scatter(UpdateOp::add, rows, "scatter_add", origin);
  }
  void scatter_sub(const IndexedSlices<T>& rows, Origin origin = Origin::here()) {
    scatter(UpdateOp::subtract, rows, "scatter_sub", origin);
  }
  void scatter_mul(const IndexedSlices<T>& rows, Origin origin = Origin::here()) {
    scatter(UpdateOp::multiply, rows, "scatter_mul", origin);
  }
  void scatter_div(const IndexedSlices<T>& rows, Origin origin = Origin::here()) {
    scatter(UpdateOp::divide, rows, "scatter_div", origin);
  }
  void scatter_min(const IndexedSlices<T>& rows, Origin origin = Origin::here()) {
    scatter(UpdateOp::min, rows, "scatter_min", origin);
  }
  void scatter_max(const IndexedSlices<T>& rows, Origin origin = Origin::here()) {
    scatter(UpdateOp::max, rows, "scatter_max", origin);
  }
  void scatter_update(const IndexedSlices<T>& rows, Origin origin = Origin::here()) {
    scatter(UpdateOp::assign, rows, "scatter_update", origin);
  }

  // Returns the value for a checkpoint: read() for all, or the first part if there is no aggregation. All processes
  // must call it.
  Tensor<T> saved(Origin origin = Origin::here()) const;
  // Assigns a value from a checkpoint for all replicas. A sum is restored exactly, for every type and number of
  // replicas.
  void restore(const Tensor<T>& value, Origin origin = Origin::here());
  // Compares the replicas' parts on all processes. Throws Error out_of_sync, which names the elements and the replicas
  // that differ.
  void check_sync(Origin origin = Origin::here()) const;

  std::string to_string() const;  // Returns TensorFlow's text of the variable.
  // Returns copies of this process's parts.
  std::vector<Tensor<T>> parts() const {
    std::vector<Tensor<T>> all;
    for (const detail::ReplicaStorage<T>& each : state().values) all.push_back(each.value());
    return all;
  }

 private:
  friend class AnyVariable;
  friend class Strategy;
  template <class U>
  friend struct detail::SharedObject;
  using CallerContext = detail::CallerContext;
  using CallerKind = detail::CallerKind;
  using Storage = detail::ReplicaStorage<T>;
  struct VariableState;

  explicit Variable(std::shared_ptr<VariableState> state) : state_(std::move(state)) {}

  // Throws Error usage for a variable that was moved from.
  VariableState& state() const {
    if (!state_) throw Error(Code::usage, "a Variable that was moved from", "use the one it was moved to");
    return *state_;
  }
  // Makes the parts of this process, and agrees with the other processes on the shape and on replica 0's value.
  template <class F>
  static std::shared_ptr<VariableState> make_state(Strategy& strategy, F& make, const VariableOptions& options,
                                                   Origin origin);
  // Changes one part.
  static void set(UpdateOp how, Storage& part, const Tensor<T>& value) {
    if (how == UpdateOp::assign) return part.assign(value);
    part.change([&](Tensor<T>& all) {
      for (std::size_t i = 0; i < all.size(); ++i) all[i] = detail::changed(how, all[i], value[i]);
    });
  }
  static void set(UpdateOp how, Storage& part, const IndexedSlices<T>& rows) {
    part.change([&](Tensor<T>& all) {
      rows.scatter(all, [&](T& element, const T& by) { element = detail::changed(how, element, by); });
    });
  }
  // Returns the caller's part. Throws Error usage if the caller has none, or if it is on the wrong side of host and
  // GPU.
  std::span<T> own_part(std::string_view call, bool for_host);
  // Changes all parts of this process in the same way.
  template <class Value>
  void set_all(UpdateOp how, const Value& value) {
    for (std::size_t i = 0; i < state().values.size(); ++i) set(how, state().part_to_change(i), value);
  }
  // Assigns a value for all replicas to a variable that is synchronised on read. Its parts combine to that value.
  void set_on_read(UpdateOp how, const Tensor<T>& value, std::string_view call);
  // Change elements or rows, as the caller's position demands. `call` names the function in errors.
  void change(UpdateOp how, const Tensor<T>& value, std::string_view call, Origin origin);
  void scatter(UpdateOp how, const IndexedSlices<T>& rows, std::string_view call, Origin origin);
  // Combine a replica's value with those of the other replicas.
  void agree(ReplicaContext& replica, Tensor<T>& value, Origin origin) const;
  IndexedSlices<T> agree(ReplicaContext& replica, const IndexedSlices<T>& rows, Origin origin) const;
  // Agrees with all replicas on the value, then changes the own part, or the central one.
  template <class Value>
  void change_in_replica(const CallerContext& who, UpdateOp how, Value value, Origin origin);
  // Returns the parts combined by the aggregation. All processes call it.
  Tensor<T> combined(Origin origin) const;

  std::shared_ptr<VariableState> state_;
};

template <class T>
Variable(T, VariableOptions = {}) -> Variable<T>;
template <class T>
Variable(Tensor<T>, VariableOptions = {}) -> Variable<T>;

template <class T>
AnyVariable::AnyVariable(const Variable<T>& variable) : state_(variable.state().shared_from_this()) {}

template <class T>
Variable<T> AnyVariable::as() const {
  auto typed = std::dynamic_pointer_cast<typename Variable<T>::VariableState>(state().shared_from_this());
  if (!typed) refuse_type(data_type_of<T>);
  return Variable<T>(std::move(typed));
}

namespace detail {

// Returns the number that changes no other one when it is added: -0.0 of types that have it.
template <class T>
T neutral_of_sum() {
  if constexpr (is_fractional_number<T>)
    return calculate(T{}, T{}, [](auto zero, auto) { return -zero; });
  else
    return T{};
}

// Unites the variables that replicas made together: they share one state.
template <class T>
struct SharedObject<Variable<T>> {
  static Variable<T> unite(std::deque<Variable<T>>& all) {
    for (const Variable<T>& each : all) {
      if (each.state_ != all.front().state_) refuse_regrouping("different variables");
    }
    return std::move(all.front());
  }
};

}  // namespace detail

// Holds the parts of this process.
template <class T>
struct Variable<T>::VariableState final : detail::VariableBase {
  using VariableBase::VariableBase;
  std::deque<Storage> values;
  Storage& part(int local) { return values[part_of(local)]; }
  // Returns a part that changes. Inside a step, it first keeps the part's value.
  Storage& part_to_change(std::size_t part);
  // Makes the first parts.
  void lay_out_with(const Tensor<T>& initial);
  // Returns a handle of this state.
  Variable handle() { return Variable(std::static_pointer_cast<VariableState>(shared_from_this())); }

 private:
  // Holds the value of a part before the last step that changed it, and the number of that step.
  struct FormerValue {
    std::uint64_t step = 0;
    std::optional<Storage> value;
  };
  std::deque<FormerValue> former_values_;

  void* memory_of(std::size_t part) override { return part_to_change(part).span().data(); }
  void save(std::span<std::byte> to, Origin origin) override {
    const Tensor<T> value = handle().saved(origin);
    if (!to.empty()) std::memcpy(to.data(), value.data(), to.size());
  }
  void restore_from(std::span<const std::byte> from, Origin origin) override {
    Tensor<T> value(shape());
    if (!from.empty()) std::memcpy(value.data(), from.data(), from.size());
    handle().restore(value, origin);
  }
  void check_all(Origin origin) override { handle().check_sync(origin); }
  std::string printed() override { return handle().to_string(); }
  AnyTensor value(Origin origin) override;
  void lay_out(const VariableLayout& layout) override;
  void spread(Origin origin) override {
    run_all([&](Communicator& member, int local) { return member.broadcast_async(part(local).span(), 0, origin); },
            origin);
  }
  // Returns the value of a part among `parts` new ones.
  Tensor<T> value_among(std::size_t part, std::size_t parts) const;
};

template <class T>
template <class F>
requires(std::is_invocable_r_v<Tensor<T>, F&>) Variable<T>::Variable(F make, VariableOptions options, Origin origin) {
  options.name = detail::variable_scope().prefix + options.name;
  ReplicaContext* const replica = replica_context();
  const auto here = [&](Strategy& strategy, auto& initial) { return make_state(strategy, initial, options, origin); };
  const auto for_all = [&](Strategy& strategy, const PerReplica<std::string>& names) {
    auto named = [&] {
      detail::check_names(names, origin);
      return make();
    };
    return here(strategy, named);
  };
  const bool is_shared = replica != nullptr && has_strategy();
  state_ = is_shared ? replica->merge(origin, true, for_all, options.name) : here(get_strategy(), make);
}

template <class T>
template <class F>
std::shared_ptr<typename Variable<T>::VariableState> Variable<T>::make_state(Strategy& strategy, F& make,
                                                                             const VariableOptions& options,
                                                                             Origin origin) {
  detail::VariableHome home(strategy, options);
  std::shared_ptr<VariableState> state;
  try {
    const Tensor<T> initial = make();
    detail::VariableRules rules(options, home.layout(), detail::is_fractional_number<T>, !std::is_same_v<T, bool>);
    state = std::make_shared<VariableState>(std::move(home), std::move(rules), data_type_of<T>, initial.shape());
    state->lay_out_with(initial);
  } catch (...) {
    detail::agree_on_shape(strategy, nullptr, origin);  // Tells the others, so that they don't wait.
    throw;
  }
  state->begin(origin);
  return state;
}

template <class T>
Tensor<T> Variable<T>::VariableState::value_among(std::size_t part, std::size_t parts) const {
  const Aggregation how = rules().options().aggregation;
  if (!rules().is_on_read()) return values.front().value();
  if (parts == values.size()) return values[part].value();
  if (how == Aggregation::none || how == Aggregation::only_first_replica) return values.front().value();
  if (how == Aggregation::sum && part > 0) return Tensor<T>(shape(), detail::neutral_of_sum<T>());
  Tensor<T> all = values.front().value();
  for (std::size_t i = 1; i < values.size(); ++i) {
    const Tensor<T> more = values[i].value();
    for (std::size_t at = 0; at < all.size(); ++at) all[at] = detail::changed(UpdateOp::add, all[at], more[at]);
  }
  if (how == Aggregation::sum) return all;
  const T number = static_cast<T>(static_cast<float>(values.size()));
  for (T& each : all) each = detail::changed(UpdateOp::divide, each, number);
  return all;
}

template <class T>
void Variable<T>::VariableState::lay_out(const VariableLayout& layout) {
  std::deque<Storage> made;
  for (std::size_t part = 0; part < layout.parts.size(); ++part)
    made.emplace_back(value_among(part, layout.parts.size()), layout.parts[part].gpu);
  values = std::move(made);
  former_values_ = std::deque<FormerValue>(values.size());
}

template <class T>
void Variable<T>::VariableState::lay_out_with(const Tensor<T>& initial) {
  for (const VariableLayout::Part& each : home().layout().parts) values.emplace_back(initial, each.gpu);
  former_values_ = std::deque<FormerValue>(values.size());
}

template <class T>
typename Variable<T>::Storage& Variable<T>::VariableState::part_to_change(std::size_t part) {
  detail::UndoLog* const log = detail::UndoLog::of_this_thread();
  if (log == nullptr || former_values_[part].step == log->step()) return values[part];
  FormerValue& former = former_values_[part];
  if (former.value)
    former.value->assign(values[part]);  // Uses the memory of an earlier step.
  else
    former.value.emplace(values[part].copy());
  former.step = log->step();
  log->add([state = std::static_pointer_cast<VariableState>(this->shared_from_this()), part] {
    state->values[part].assign(*state->former_values_[part].value);
  });
  return values[part];
}

// Works on copies, because reading must not change the parts.
template <class T>
Tensor<T> Variable<T>::combined(Origin origin) const {
  VariableState& mine = state();
  const Aggregation how = mine.rules().options().aggregation;
  if (how == Aggregation::none) mine.rules().refuse_reading_for_all();
  if (how == Aggregation::only_first_replica && !mine.home().is_spread()) return mine.values.front().value();
  std::vector<Tensor<T>> copies = parts();
  mine.run_all(
      [&](Communicator& member, int local) -> Request {
        Tensor<T>& copy = copies[static_cast<std::size_t>(local)];
        if constexpr (!std::is_same_v<T, bool>) {
          if (how == Aggregation::sum) return member.all_reduce_async(copy, sum, origin);
          if (how == Aggregation::mean) return member.all_reduce_async(copy, avg, origin);
        }
        return member.broadcast_async(copy, 0, origin);
      },
      origin);
  return std::move(copies.front());
}

template <class T>
Tensor<T> Variable<T>::read(Origin origin) const {
  VariableState& mine = state();
  const CallerContext who = mine.caller_context("read");
  const bool is_local = who.kind == CallerKind::replica || who.kind == CallerKind::part;
  if (is_local) return mine.part(who.local).value();
  return mine.rules().is_on_read() ? combined(origin) : mine.values.front().value();
}

template <class T>
TensorSpan<const T> Variable<T>::view() const {
  VariableState& mine = state();
  const CallerContext who = mine.caller_context("view");
  const bool is_local = who.kind == CallerKind::replica || who.kind == CallerKind::part;
  if (!is_local && mine.rules().is_on_read()) mine.rules().refuse_part("view");
  Storage& part = is_local ? mine.part(who.local) : mine.values.front();
  if (!part.is_here()) mine.rules().refuse_place("view", false);
  return {part.shape(), part.span().data()};
}

template <class T>
AnyTensor Variable<T>::VariableState::value(Origin origin) {
  const CallerContext who = caller_context("read");
  const bool is_local = who.kind == CallerKind::replica || who.kind == CallerKind::part;
  Storage& mine = is_local ? part(who.local) : values.front();
  if (!mine.is_here() || (!is_local && rules().is_on_read())) return handle().read(origin);
  auto* const memory = reinterpret_cast<std::byte*>(mine.span().data());
  return AnyTensor::in_memory({this->shared_from_this(), memory}, data_type_of<T>, shape());
}

template <class T>
std::span<T> Variable<T>::own_part(std::string_view call, bool for_host) {
  VariableState& mine = state();
  const CallerContext who = mine.caller_context(call);
  const bool is_only = who.kind == CallerKind::all && mine.values.size() == 1 && mine.home().replicas() == 1;
  const bool is_mine =
      who.kind == CallerKind::part || (who.kind == CallerKind::replica && !mine.home().layout().is_shared);
  if (!is_mine && !is_only) mine.rules().refuse_part(call);
  Storage& part = mine.part_to_change(is_only ? 0 : mine.part_of(who.local));
  if (part.is_here() != for_host) mine.rules().refuse_place(call, part.is_here());
  return part.span();
}

template <class T>
void Variable<T>::set_on_read(UpdateOp how, const Tensor<T>& value, std::string_view call) {
  VariableState& mine = state();
  if (mine.rules().options().aggregation != Aggregation::sum) return set_all(how, value);
  if (how != UpdateOp::assign) mine.rules().refuse_change_for_all(call);
  // The first replica keeps the whole value, because equal shares need not add up to it.
  for (std::size_t i = 0; i < mine.values.size(); ++i)
    set(how, mine.part_to_change(i), Tensor<T>(shape(), detail::neutral_of_sum<T>()));
  if (mine.home().has_first_replica()) set(how, mine.part_to_change(0), value);
}

template <class T>
Tensor<T> Variable<T>::saved(Origin origin) const {
  VariableState& mine = state();
  mine.require_all("saved");
  return mine.rules().is_on_read() && aggregation() != Aggregation::none ? combined(origin)
                                                                         : mine.values.front().value();
}

template <class T>
void Variable<T>::restore(const Tensor<T>& value, Origin origin) {
  state().require_all("restore");
  change(UpdateOp::assign, value, "restore", origin);
}

template <class T>
void Variable<T>::check_sync(Origin origin) const {
  state().require_all("check_sync");
  std::deque<Tensor<T>> copies;
  std::vector<std::span<const std::byte>> bytes;
  for (Storage& part : state().values)
    bytes.push_back(std::as_bytes(part.is_here() ? part.span() : copies.emplace_back(part.value()).span()));
  state().compare_parts(bytes, sizeof(T), origin);
}

template <class T>
std::ostream& operator<<(std::ostream& out, const Variable<T>& variable) {
  return out << variable.to_string();
}

template <class T>
std::string Variable<T>::to_string() const {
  std::vector<std::string> values;
  for (const Tensor<T>& part : parts())
    values.push_back(part.shape().rank() == 0 ? lockstep::to_string(part)
                                              : text("array(", lockstep::to_string(part),
                                                     ", dtype=", detail::numpy_name(data_type_of<T>), ')'));
  return state().rules().to_text(state().home().layout(), values, shape(), data_type_of<T>);
}

}  // namespace lockstep

#include "runtime/update.hpp"               // functions of strategies on variables
#include "runtime/variable_arithmetic.hpp"  // w -= 0.1F * g
#include "runtime/variable_changes.hpp"     // how replicas agree on a change
