// SPDX-License-Identifier: Apache-2.0
// Handles values in structures: tuples, pairs, arrays, maps, lists, optionals, nested in any way, and a program's own
// structs.
// Everything else is a leaf: a number, a tensor, a vector of numbers. It takes a replica's part out of a structure,
// and unites the replicas' structures. Pure.
#pragma once

#include <array>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "runtime/values/arithmetic.hpp"
#include "runtime/values/per_replica.hpp"
#include "runtime/values/tensor.hpp"

namespace lockstep {

// Makes a struct a structure. A program specialises it:
//   template <> struct lockstep::Fields<Losses> { static auto of(auto& losses) { return std::tie(losses.a, losses.b); }
//   };
template <class S>
struct Fields;

namespace detail {

// Tells which kind of structure a type is.
template <class T>
struct StructureTraits {
  static constexpr bool is_tuple = false, is_list = false, is_map = false, is_optional = false, is_own = false;
};
template <class... E>
struct StructureTraits<std::tuple<E...>> : StructureTraits<void> {
  static constexpr bool is_tuple = true;
};
template <class A, class B>
struct StructureTraits<std::pair<A, B>> : StructureTraits<void> {
  static constexpr bool is_tuple = true;
};
template <class E, std::size_t n>
struct StructureTraits<std::array<E, n>> : StructureTraits<void> {
  static constexpr bool is_list = !Number<E>;
};
template <class E>
struct StructureTraits<std::vector<E>> : StructureTraits<void> {
  static constexpr bool is_list = !Number<E>;
};
template <class K, class V>
struct StructureTraits<std::map<K, V>> : StructureTraits<void> {
  static constexpr bool is_map = true;
};
template <class E>
struct StructureTraits<std::optional<E>> : StructureTraits<void> {
  static constexpr bool is_optional = true;
};
template <class T>
struct StructureTraits<PerReplica<T>> : StructureTraits<void> {
  static constexpr bool is_own = true;
};
template <class T>
struct StructureTraits<Mirrored<T>> : StructureTraits<PerReplica<T>> {};
template <class P>
struct StructureTraits<PerReplicaPointer<P>> : StructureTraits<PerReplica<P>> {};

// Hold for the kinds of structures: tuples and pairs, lists, maps, and optionals.
template <class T>
concept TupleLike = StructureTraits<std::remove_cvref_t<T>>::is_tuple;
template <class T>
concept ListLike = StructureTraits<std::remove_cvref_t<T>>::is_list;
template <class T>
concept MapLike = StructureTraits<std::remove_cvref_t<T>>::is_map;
template <class T>
concept OptionalLike = StructureTraits<std::remove_cvref_t<T>>::is_optional;
template <class T>
concept IsPerReplica = StructureTraits<std::remove_cvref_t<T>>::is_own;  // Is a PerReplica or a Mirrored.
// Holds for a struct with a specialisation of Fields.
template <class T>
concept HasFields = requires(std::remove_reference_t<T>& value) {
  Fields<std::remove_cvref_t<T>>::of(value);
};
// Holds for every structure, and for no leaf.
template <class T>
concept Structure = TupleLike<T> || ListLike<T> || MapLike<T> || OptionalLike<T> || HasFields<T>;

// Tells whether a struct can have fields of other types: it is a template, and its arguments are the types of its
// fields, in order.
template <class S>
struct FieldTypes {
  static constexpr bool can_change = false;
};
template <template <class...> class S, class... F>
requires HasFields<S<F...>> &&
    std::is_same_v<decltype(Fields<S<F...>>::of(std::declval<S<F...>&>())), std::tuple<F&...>>
struct FieldTypes<S<F...>> {
  static constexpr bool can_change = true;
  template <class... G>
  using With = S<G...>;
};
template <class S>
concept HasChangeableFields = FieldTypes<S>::can_change;

// Calls `function` with every leaf, in order.
template <class S, class F>
void for_each_leaf(S& structure, F&& function) {
  if constexpr (HasFields<S>) {
    std::apply([&](auto&... each) { (for_each_leaf(each, function), ...); },
               Fields<std::remove_const_t<S>>::of(structure));
  } else if constexpr (TupleLike<S>) {
    std::apply([&](auto&... each) { (for_each_leaf(each, function), ...); }, structure);
  } else if constexpr (ListLike<S>) {
    for (auto& each : structure) for_each_leaf(each, function);
  } else if constexpr (MapLike<S>) {
    for (auto& [key, each] : structure) for_each_leaf(each, function);
  } else if constexpr (OptionalLike<S>) {
    if (structure) for_each_leaf(*structure, function);
  } else {
    function(structure);
  }
}

template <class S, class F>
constexpr bool all_leaves(F holds);
template <class S, class F, std::size_t... i>
constexpr bool all_leaves_of_fields([[maybe_unused]] F holds, std::index_sequence<i...> /*fields*/) {
  return (all_leaves<std::remove_cvref_t<std::tuple_element_t<i, S>>>(holds) && ...);
}
// True if `holds.template operator()<Leaf>()` is true for the types of all leaves.
template <class S, class F>
constexpr bool all_leaves(F holds) {
  if constexpr (HasFields<S>)
    return all_leaves<std::remove_cvref_t<decltype(Fields<S>::of(std::declval<S&>()))>>(holds);
  else if constexpr (TupleLike<S>)
    return all_leaves_of_fields<S>(holds, std::make_index_sequence<std::tuple_size_v<S>>());
  else if constexpr (MapLike<S>)
    return all_leaves<typename S::mapped_type>(holds);
  else if constexpr (ListLike<S> || OptionalLike<S>)
    return all_leaves<typename S::value_type>(holds);
  else
    return holds.template operator()<S>();
}

// Gives the type that a replica sees: T for PerReplica<T>, and the same structure with T inside for a structure of it.
// `differs` is true if that is another type.
template <class T>
struct PartOf {
  using Type = T;
  static constexpr bool differs = false;
};
template <class T>
struct PartOf<PerReplica<T>> {
  using Type = T;
  static constexpr bool differs = true;
};
template <class T>
struct PartOf<Mirrored<T>> : PartOf<PerReplica<T>> {};
template <class P>
struct PartOf<PerReplicaPointer<P>> : PartOf<PerReplica<P>> {};
template <class T>
struct PartOf<PerWorker<T>> : PartOf<PerReplica<T>> {};
template <class E>
struct PartOf<std::optional<E>> {
  using Type = std::optional<typename PartOf<E>::Type>;
  static constexpr bool differs = PartOf<E>::differs;
};
template <template <class...> class S, class... F>
requires HasChangeableFields<S<F...>>
struct PartOf<S<F...>> {
  using Type = S<typename PartOf<F>::Type...>;
  static constexpr bool differs = (PartOf<F>::differs || ...);
};
template <class... E>
struct PartOf<std::tuple<E...>> {
  using Type = std::tuple<typename PartOf<E>::Type...>;
  static constexpr bool differs = (PartOf<E>::differs || ...);
};
template <class A, class B>
struct PartOf<std::pair<A, B>> {
  using Type = std::pair<typename PartOf<A>::Type, typename PartOf<B>::Type>;
  static constexpr bool differs = PartOf<A>::differs || PartOf<B>::differs;
};
template <class E, std::size_t n>
struct PartOf<std::array<E, n>> {
  using Type = std::array<typename PartOf<E>::Type, n>;
  static constexpr bool differs = PartOf<E>::differs;
};
template <class E>
struct PartOf<std::vector<E>> {
  using Type = std::vector<typename PartOf<E>::Type>;
  static constexpr bool differs = PartOf<E>::differs;
};
template <class K, class V>
struct PartOf<std::map<K, V>> {
  using Type = std::map<K, typename PartOf<V>::Type>;
  static constexpr bool differs = PartOf<V>::differs;
};

// True for PerWorker.
template <class T>
inline constexpr bool is_per_worker = false;
template <class T>
inline constexpr bool is_per_worker<PerWorker<T>> = true;

// Returns a copy of the part of replica `local`.
template <class S>
typename PartOf<S>::Type take_part(const S& structure, int local) {
  using ReplicaValue = typename PartOf<S>::Type;
  if constexpr (IsPerReplica<S>) {
    return structure[local];
  } else if constexpr (is_per_worker<S>) {
    return structure.value();
  } else if constexpr (!PartOf<S>::differs) {
    return structure;
  } else if constexpr (HasFields<S>) {
    return std::apply([&](const auto&... each) { return ReplicaValue{take_part(each, local)...}; },
                      Fields<S>::of(structure));
  } else if constexpr (OptionalLike<S>) {
    return structure ? ReplicaValue(take_part(*structure, local)) : ReplicaValue();
  } else if constexpr (TupleLike<S>) {
    return std::apply([&](const auto&... each) { return ReplicaValue(take_part(each, local)...); }, structure);
  } else if constexpr (MapLike<S>) {
    ReplicaValue part;
    for (const auto& [key, each] : structure) part.emplace(key, take_part(each, local));
    return part;
  } else if constexpr (requires(ReplicaValue part) { part.reserve(1); }) {
    ReplicaValue part;
    part.reserve(structure.size());
    for (const auto& each : structure) part.push_back(take_part(each, local));
    return part;
  } else {
    ReplicaValue part{};
    for (std::size_t i = 0; i < structure.size(); ++i) part[i] = take_part(structure[i], local);
    return part;
  }
}

// Returns the argument of replica `local`, by reference if possible.
template <class T>
decltype(auto) part_of(T& argument, [[maybe_unused]] int local) {
  using S = std::remove_const_t<T>;
  if constexpr (IsPerReplica<S>)
    return (argument[local]);
  else if constexpr (is_per_worker<S>)
    return (argument.value());
  else if constexpr (PartOf<S>::differs)
    return take_part(argument, local);
  else
    return (argument);
}

// Calls `function` with the number of parts of every PerReplica in a structure.
template <class S, class F>
void for_each_number_of_parts(const S& structure, F&& function) {
  if constexpr (IsPerReplica<S>) {
    function(structure.size());
  } else if constexpr (!PartOf<S>::differs || is_per_worker<S>) {
    return;
  } else if constexpr (HasFields<S>) {
    std::apply([&](const auto&... each) { (for_each_number_of_parts(each, function), ...); }, Fields<S>::of(structure));
  } else if constexpr (OptionalLike<S>) {
    if (structure) for_each_number_of_parts(*structure, function);
  } else if constexpr (TupleLike<S>) {
    std::apply([&](const auto&... each) { (for_each_number_of_parts(each, function), ...); }, structure);
  } else if constexpr (MapLike<S>) {
    for (const auto& [key, each] : structure) for_each_number_of_parts(each, function);
  } else {
    for (const auto& each : structure) for_each_number_of_parts(each, function);
  }
}

// Is specialised for types of which all replicas hold the same object, as variables. `T unite(all)` returns it.
template <class T>
struct SharedObject;
template <class T>
concept IsSharedObject = requires(std::deque<T>& all) {
  SharedObject<T>::unite(all);
};

// Throws Error usage with the text "replicas returned ...", which the argument completes.
[[noreturn]] inline void refuse_regrouping(std::string_view what) {
  throw Error(Code::usage, text("replicas returned ", what), "let all replicas return values of the same structure");
}

// Throws Error usage for different shapes.
inline void require_same_shape(const TensorShape& a, const TensorShape& b) {
  if (a == b) return;
  throw Error(Code::usage, text("tensors of the shapes ", a.to_string(), " and ", b.to_string(), " are reduced"),
              "reduce along the axis in which they differ, or gather them");
}
// Throws Error usage if two values cannot be combined.
template <class T>
void require_alike(const Tensor<T>& a, const Tensor<T>& b) {
  require_same_shape(a.shape(), b.shape());
}
template <class T>
// Compares nothing: the collective compares the numbers of elements.
void require_alike(const T& /*a*/, const T& /*b*/) {}

template <class T>
auto regroup(std::deque<T> all);

// Regroups field number i of tuples.
template <class T, std::size_t i>
auto regroup_field(std::deque<T>& all) {
  std::deque<std::tuple_element_t<i, T>> fields;
  for (T& each : all) fields.push_back(std::move(std::get<i>(each)));
  return regroup(std::move(fields));
}

// Regroups lists. Throws Error usage if their lengths differ.
template <class T>
auto regroup_list(std::deque<T>& all) {
  using RegroupedItem = decltype(regroup(std::deque<typename T::value_type>()));
  std::vector<RegroupedItem> whole;
  const std::size_t size = all.front().size();
  for (const T& each : all) {
    if (each.size() != size) refuse_regrouping(text("lists of ", size, " and ", each.size(), " values"));
  }
  for (std::size_t i = 0; i < size; ++i) {
    std::deque<typename T::value_type> items;
    for (T& each : all) items.push_back(std::move(each[i]));
    whole.push_back(regroup(std::move(items)));
  }
  return whole;
}

// Regroups maps. Throws Error usage if their keys differ.
template <class T>
auto regroup_map(std::deque<T>& all) {
  std::map<typename T::key_type, decltype(regroup(std::deque<typename T::mapped_type>()))> whole;
  for (const T& each : all) {
    if (each.size() != all.front().size())
      refuse_regrouping(text("maps of ", all.front().size(), " and ", each.size(), " keys"));
  }
  for (auto& [key, ignored] : all.front()) {
    std::deque<typename T::mapped_type> items;
    for (T& each : all) {
      const auto found = each.find(key);
      if (found == each.end()) refuse_regrouping("maps with different keys");
      items.push_back(std::move(found->second));
    }
    whole.emplace(key, regroup(std::move(items)));
  }
  return whole;
}

// Regroups optionals. Throws Error usage if some are empty.
template <class T>
auto regroup_optional(std::deque<T>& all) {
  std::deque<typename T::value_type> values;
  for (T& each : all) {
    if (each) values.push_back(std::move(*each));
  }
  std::optional<decltype(regroup(std::move(values)))> whole;
  if (!values.empty() && values.size() != all.size())
    refuse_regrouping(text("an empty optional in ", all.size() - values.size(), " of ", all.size(), " replicas"));
  if (!values.empty()) whole.emplace(regroup(std::move(values)));
  return whole;
}

// Regroups structs into one whose fields have other types.
template <class T>
auto regroup_fields(std::deque<T>& all) {
  const auto field = [&]<std::size_t i>(std::integral_constant<std::size_t, i> /*its number*/) {
    using Tied = decltype(Fields<T>::of(all.front()));
    std::deque<std::remove_cvref_t<std::tuple_element_t<i, Tied>>> fields;
    for (T& each : all) fields.push_back(std::move(std::get<i>(Fields<T>::of(each))));
    return regroup(std::move(fields));
  };
  return [&]<std::size_t... i>(std::index_sequence<i...> /*fields*/) {
    using Whole = typename FieldTypes<T>::template With<decltype(field(std::integral_constant<std::size_t, i>()))...>;
    return Whole{field(std::integral_constant<std::size_t, i>())...};
  }
  (std::make_index_sequence<std::tuple_size_v<decltype(Fields<T>::of(all.front()))>>());
}

// True for pointers that several replicas can have.
template <class T>
inline constexpr bool is_shareable_pointer = std::is_pointer_v<T>;
template <class T>
inline constexpr bool is_shareable_pointer<std::shared_ptr<T>> = true;

// Unites the replicas' structures into one of the same form with PerReplica leaves. An empty type, as std::monostate,
// and a shared object stay themselves. Throws Error usage if the structures differ.
template <class T>
auto regroup(std::deque<T> all) {
  if constexpr (IsSharedObject<T>) {
    return SharedObject<T>::unite(all);
  } else if constexpr (TupleLike<T>) {
    return [&]<std::size_t... i>(std::index_sequence<i...> /*fields*/) {
      return std::make_tuple(regroup_field<T, i>(all)...);
    }
    (std::make_index_sequence<std::tuple_size_v<T>>());
  } else if constexpr (ListLike<T>) {
    return regroup_list(all);
  } else if constexpr (MapLike<T>) {
    return regroup_map(all);
  } else if constexpr (OptionalLike<T>) {
    return regroup_optional(all);
  } else if constexpr (HasChangeableFields<T>) {
    return regroup_fields(all);
  } else if constexpr (is_shareable_pointer<T>) {
    return PerReplicaPointer<T>(std::move(all));
  } else if constexpr (std::is_empty_v<T>) {
    return T(std::move(all.front()));
  } else {
    return PerReplica<T>(std::move(all));
  }
}

}  // namespace detail

// Returns the part of replica `local` of this process.
template <class S>
auto select_replica(int local, const S& structure) {
  return detail::take_part(structure, local);
}

}  // namespace lockstep
