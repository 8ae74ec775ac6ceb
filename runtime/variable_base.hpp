// SPDX-License-Identifier: Apache-2.0
// What a variable is without its elements: its name, how its replicas are kept equal, whose it is, and what may be done
// with it where.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/strategy.hpp"

namespace lockstep {

// Names of a scoped enumeration hide nothing, but g++ 12 says so of those that other things have as well.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wshadow"
// When replicas' parts are brought together: when they are written (mirrored variables, equal at all times), or when
// somebody reads them for all (metrics, statistics).
enum class Synchronization { automatic, none, on_write, on_read };
// How they become one.
enum class Aggregation { none, sum, mean, only_first_replica };
#pragma GCC diagnostic pop

struct VariableOptions {
  std::string name = "Variable";
  Synchronization synchronization = Synchronization::automatic;
  Aggregation aggregation = Aggregation::none;
  std::optional<bool> trainable = std::nullopt;  // nothing: unless it is synchronised on read
};

namespace detail {

std::string_view name_of(Aggregation aggregation);
std::string numpy_name(DataType type);  // "float32"
// Of the replicas of this process, which make one variable together. An Error usage where they name it differently, but
// for a number at the end: "foo_0" and "foo_1" are alike.
void check_names(const PerReplica<std::string>& names, Origin origin);

class VariableBase {
 public:
  // `number` is from next_number().
  VariableBase(Strategy& strategy, std::uint64_t number, VariableOptions options, bool has_fractions, bool adds);

  // Of the variables of a strategy, from 1; the same on all processes, also where one cannot make its variable.
  static std::uint64_t next_number(Strategy& strategy);
  // By which members compare calls about it, and about changes of it.
  CallSubject subject() const { return {.variable = number_}; }
  CallSubject subject(UpdateOp how, bool of_rows) const {
    const int way = 1 + 2 * static_cast<int>(how) + (of_rows ? 1 : 0);
    return {.variable = variable_changed(number_, static_cast<std::uint8_t>(way))};
  }
  const VariableOptions& options() const { return options_; }
  bool is_on_read() const { return options_.synchronization == Synchronization::on_read; }
  // One part that all replicas read.
  bool is_central() const { return placement_ == Strategy::VariablePlacement::central && !is_on_read(); }
  int parts() const { return is_central() ? 1 : local_; }
  // In whose memory a part is: gpu::MemoryLocation::host, or a GPU's.
  int gpu_of(int part) const;
  Strategy& strategy() const;  // an Error usage once it is gone

  // Before others are waited for: each process's first value has this shape, or could not be made. An Error at all
  // where one could not, or where they differ.
  static void agree_on_shape(Strategy& strategy, const TensorShape* mine, Origin origin);
  // An Error usage unless the call speaks for all replicas.
  void require_all(std::string_view call) const;
  // For whom the call speaks.
  CallerContext caller_context(std::string_view call) const;
  // Of a replica, on the way to an assignment for all of them: whether there is anything to agree on.
  bool is_agreed(const CallerContext& who) const;
  // Each part starts a call of its member, and all are waited for.
  void run_all(const std::function<Request(Communicator&, int local)>& start, Origin origin) const;
  // Whether other processes have replicas as well.
  bool is_spread() const;
  int replicas() const { return size_; }
  bool has_first_replica() const { return first_ == 0; }

  void refuse_reading_for_all() const;
  [[noreturn]] void refuse_part(std::string_view call) const;
  [[noreturn]] void refuse_place(std::string_view call, bool is_here) const;
  void refuse_change_for_all(std::string_view call) const;
  void refuse_scatter(std::string_view call, bool only_of_one, bool in_replica) const;
  void check_shape(const TensorShape& mine, const TensorShape& given, std::string_view call) const;
  // An Error out_of_sync where the parts, as bytes of elements so long, are not everywhere the same.
  void check_sync(const std::vector<std::span<const std::byte>>& parts, std::size_t element, Origin origin) const;

  // "MirroredVariable:{...}" around each part's words.
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
  int first_;  // the number of the first replica of this process
};

}  // namespace detail
}  // namespace lockstep
