// SPDX-License-Identifier: Apache-2.0
// Holds a value of each replica of this process. The compiler refuses its use as one value: reduce it, gather it, or
// take its parts.
#pragma once

#include <deque>
#include <initializer_list>
#include <ostream>
#include <string>
#include <utility>

#include "runtime/values/arithmetic.hpp"
#include "runtime/values/print.hpp"
#include "topology/base/error.hpp"
#include "topology/base/text.hpp"

namespace lockstep {

// Owns one value for each local replica.
template <class T>
class PerReplica {
 public:
  using value_type = T;
  // Takes the values in the order of the replicas of this process.
  explicit PerReplica(std::deque<T> local) : local_(std::move(local)) {}
  PerReplica(std::initializer_list<T> local) : local_(local) {}

  // Returns the number of local replicas.
  int size() const { return static_cast<int>(local_.size()); }
  // Throws Error usage if there is no such local replica.
  const T& operator[](int local) const { return local_[check(local)]; }
  T& operator[](int local) { return local_[check(local)]; }
  const std::deque<T>& local() const { return local_; }
  // Returns one member of the replicas' structs: `results.field(&Losses::total)`.
  template <class Member, class Struct>
  requires std::is_base_of_v<Struct, T> PerReplica<Member> field(Member Struct::*member)
  const {
    std::deque<Member> all;
    for (const T& each : local_) all.push_back(each.*member);
    return PerReplica<Member>(std::move(all));
  }
  bool operator==(const PerReplica&) const = default;

 private:
  std::size_t check(int local) const {
    if (local < 0 || local >= size())
      throw Error(Code::usage, text("there is no replica ", local, " in a PerReplica of ", size()),
                  "replicas of a process count from 0");
    return static_cast<std::size_t>(local);
  }

  std::deque<T> local_;  // A vector would pack bool.
};

// Promises that the parts are equal, as results of a reduction are. Nothing checks it.
template <class T>
class Mirrored : public PerReplica<T> {
 public:
  using PerReplica<T>::PerReplica;
  // Returns the common value.
  const T& value() const { return (*this)[0]; }
};

// Holds a pointer of each local replica. It stands for the pointer itself if all replicas have the same one.
template <class P>
class PerReplicaPointer : public PerReplica<P> {
 public:
  using PerReplica<P>::PerReplica;
  // True if the replicas have the same pointer.
  bool is_common() const {
    for (const P& each : this->local()) {
      if (each != this->local().front()) return false;
    }
    return true;
  }
  // Return the pointer of all replicas. Throw Error usage if they have different ones.
  const P& common() const {
    if (!is_common())
      throw Error(Code::usage, "replicas returned different pointers, which are used as one",
                  "take each by its number");
    return this->local().front();
  }
  operator const P&() const { return common(); }  // NOLINT(google-explicit-constructor): stands for it
  auto& operator*() const { return *common(); }
  auto* operator->() const { return &*common(); }
};

// Holds one value for each process, which all of its replicas see.
template <class T>
class PerWorker {
 public:
  using value_type = T;
  // Holds `value`, which value() returns.
  explicit PerWorker(T value) : value_(std::move(value)) {}
  const T& value() const { return value_; }
  T& value() { return value_; }
  bool operator==(const PerWorker&) const = default;

 private:
  T value_;
};

namespace detail {
template <class T>
std::ostream& print_parts(std::ostream& out, const char* name, const PerReplica<T>& value) {
  out << name << ":{";
  for (int i = 0; i < value.size(); ++i) {
    out << (i == 0 ? "\n  " : ",\n  ") << i << ": ";
    if constexpr (Number<T>)
      out << scalar_words(value[i]);
    else
      out << value[i];
  }
  return out << "\n}";
}
}  // namespace detail

// Returns TensorFlow's text of the parts inside of a list.
template <class T>
std::string to_list_text(const PerReplica<T>& value) {
  std::string all = "PerReplica:{";
  for (int i = 0; i < value.size(); ++i) all += text(i == 0 ? "\n  " : ",\n  ", i, ": ", to_list_text(value[i]));
  return all + "\n}";
}

template <class T>
std::ostream& operator<<(std::ostream& out, const PerReplica<T>& value) {
  return detail::print_parts(out, "PerReplica", value);
}
template <class T>
std::ostream& operator<<(std::ostream& out, const PerWorker<T>& value) {
  return out << "PerWorker:{" << value.value() << '}';
}
template <class T>
std::ostream& operator<<(std::ostream& out, const Mirrored<T>& value) {
  return detail::print_parts(out, "Mirrored", value);
}

}  // namespace lockstep
