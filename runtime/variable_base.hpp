// SPDX-License-Identifier: Apache-2.0
// Implements the parts of a variable that don't depend on its elements: its name, its synchronization, its strategy,
// and the calls allowed in each context.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/strategy.hpp"

namespace lockstep {

// Turns off a false warning: g++ 12 says that names of a scoped enumeration hide others of the same name.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wshadow"
// Tells when the replicas' parts are combined. on_write combines them when they are written (mirrored variables, equal
// at all times). on_read combines them when they are read for all replicas (metrics, statistics). automatic means
// on_write; strategies refuse none.
enum class Synchronization { automatic, none, on_write, on_read };
// Tells how parts are combined. none allows no combined reading. sum excludes bool, and mean takes only types with
// fractions.
enum class Aggregation { none, sum, mean, only_first_replica };
#pragma GCC diagnostic pop

// Holds the options of a new variable.
struct VariableOptions {
  std::string name = "Variable";
  Synchronization synchronization = Synchronization::automatic;
  Aggregation aggregation = Aggregation::none;
  std::optional<bool> trainable = std::nullopt;  // Defaults to true, except for a variable synchronised on read.
};

namespace detail {

std::string_view name_of(Aggregation aggregation);
std::string numpy_name(DataType type);  // Returns "float32", for instance.
// Checks the names that this process's replicas give to one variable. Throws Error usage if they differ by more than a
// number at the end: "foo_0" and "foo_1" are alike.
void check_names(const PerReplica<std::string>& names, Origin origin);

// Is the base of a variable's state. It must not be used after its strategy has ended; calls check that.
class VariableBase {
 public:
  // Takes a `number` from next_number(). `has_fractions` and `adds` describe the element type.
  VariableBase(Strategy& strategy, std::uint64_t number, VariableOptions options, bool has_fractions, bool adds);

  // Returns the next number of a variable of the strategy, from 1. All processes get the same number, even if one
  // fails to make its variable.
  static std::uint64_t next_number(Strategy& strategy);
  // Return the subjects by which members compare calls about the variable, and about changes of it.
  CallSubject subject() const { return {.variable = number_}; }
  CallSubject subject(UpdateOp how, bool of_rows) const {
    const int way = 1 + 2 * static_cast<int>(how) + (of_rows ? 1 : 0);
    return {.variable = variable_changed(number_, static_cast<std::uint8_t>(way))};
  }
  const VariableOptions& options() const { return options_; }
  // True if the parts are combined when they are read.
  bool is_on_read() const { return options_.synchronization == Synchronization::on_read; }
  // True if all replicas share one part.
  bool is_central() const { return placement_ == Strategy::VariablePlacement::central && !is_on_read(); }
  // Returns the number of parts in this process.
  int parts() const { return is_central() ? 1 : local_; }
  // Returns the GPU that holds a part, or gpu::MemoryLocation::host.
  int gpu_of(int part) const;
  Strategy& strategy() const;  // Throws Error usage once the strategy has ended.

  // Compares the shapes of the first value on all processes before any of them waits for data. Null means that this
  // process could not make its value. Throws an Error on all processes if one could not, or if the shapes differ.
  static void agree_on_shape(Strategy& strategy, const TensorShape* mine, Origin origin);
  // Throws Error usage unless the call speaks for all replicas.
  void require_all(std::string_view call) const;
  // Returns the position of the caller.
  CallerContext caller_context(std::string_view call) const;
  // True if an assignment in a replica needs an agreement of all replicas.
  bool is_agreed(const CallerContext& who) const;
  // Starts a call of each part's member, and waits for all.
  void run_all(const std::function<Request(Communicator&, int local)>& start, Origin origin) const;
  // True if other processes have replicas as well.
  bool is_spread() const;
  int replicas() const { return size_; }
  bool has_first_replica() const { return first_ == 0; }

  // Throw Error usage if the call is not allowed.
  void refuse_reading_for_all() const;
  [[noreturn]] void refuse_part(std::string_view call) const;
  [[noreturn]] void refuse_place(std::string_view call, bool is_here) const;
  void refuse_change_for_all(std::string_view call) const;
  void refuse_scatter(std::string_view call, bool only_of_one, bool in_replica) const;
  void check_shape(const TensorShape& mine, const TensorShape& given, std::string_view call) const;
  // Throws Error out_of_sync if the parts differ between replicas. Each part is given as bytes, with elements of
  // `element` bytes.
  void check_sync(const std::vector<std::span<const std::byte>>& parts, std::size_t element, Origin origin) const;

  // Returns "MirroredVariable:{...}" around the texts of the parts.
  std::string to_text(const std::vector<std::string>& values, const TensorShape& shape, DataType type) const;

 private:
  void say_difference(const std::vector<std::span<const std::byte>>& parts, std::size_t element,
                      const std::vector<std::uint64_t>& digests, Origin origin) const;

  std::weak_ptr<const Strategy*> here_;
  Strategy* strategy_;
  std::uint64_t number_;
  VariableOptions options_;
  Strategy::VariablePlacement placement_;
  int local_;
  int size_;
  int first_;  // Is the number of this process's first replica.
};

}  // namespace detail
}  // namespace lockstep
