// SPDX-License-Identifier: Apache-2.0
// A value that each replica has its own of. It holds those of this process only; reading it as one value is an error of
// the compiler: reduce it, gather it, or take its parts.
#pragma once

#include <deque>
#include <initializer_list>
#include <ostream>
#include <type_traits>
#include <utility>

namespace lockstep {

template <class T>
class PerReplica {
 public:
  using value_type = T;
  // By number in this process.
  explicit PerReplica(std::deque<T> local) : local_(std::move(local)) {}
  PerReplica(std::initializer_list<T> local) : local_(local) {}

  int size() const { return static_cast<int>(local_.size()); }
  const T& operator[](int local) const { return local_.at(static_cast<std::size_t>(local)); }
  T& operator[](int local) { return local_.at(static_cast<std::size_t>(local)); }
  const std::deque<T>& local() const { return local_; }
  bool operator==(const PerReplica&) const = default;

 private:
  std::deque<T> local_;  // not a vector, which packs bool
};

template <class T>
std::ostream& operator<<(std::ostream& out, const PerReplica<T>& value) {
  out << "PerReplica:{";
  for (int i = 0; i < value.size(); ++i) out << (i == 0 ? "\n  " : ",\n  ") << i << ": " << value[i];
  return out << "\n}";
}

namespace detail {

// PerReplica<T> is T at each replica.
template <class T>
struct AtReplica {
  using Type = T;
  static constexpr bool own = false;
};
template <class T>
struct AtReplica<PerReplica<T>> {
  using Type = T;
  static constexpr bool own = true;
};

// What replica `local` sees of an argument: its part of what each has its own of, everything else whole.
template <class T>
decltype(auto) part_of(T& argument, [[maybe_unused]] int local) {
  if constexpr (AtReplica<std::remove_const_t<T>>::own)
    return (argument[local]);
  else
    return (argument);
}

}  // namespace detail
}  // namespace lockstep
