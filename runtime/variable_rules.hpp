// SPDX-License-Identifier: Apache-2.0
// Checks the options of a variable, and tells which calls they allow.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "runtime/strategy.hpp"
#include "runtime/variable_layout.hpp"

namespace lockstep {

namespace detail {

std::string_view name_of(Aggregation aggregation);
// Checks the names that this process's replicas give to one variable. Throws Error usage if they differ by more than a
// number at the end: "foo_0" and "foo_1" are alike.
void check_names(const PerReplica<std::string>& names, Origin origin);

// Belongs to one variable. It knows nothing of its value.
class VariableRules {
 public:
  // Fills in the defaults. `has_fractions` and `adds` describe the element type. Throws Error usage for options that
  // are wrong, or wrong for that type.
  VariableRules(VariableOptions options, const VariableLayout& layout, bool has_fractions, bool adds);

  // Returns the checked options.
  const VariableOptions& options() const { return options_; }
  // True if the parts are combined when they are read.
  bool is_on_read() const { return options_.synchronization == Synchronization::on_read; }
  // Returns "variable 'name'", for messages.
  std::string quoted() const;
  // Returns "MirroredVariable:{...}" around the texts of the parts.
  std::string to_text(const VariableLayout& layout, const std::vector<std::string>& values, const TensorShape& shape,
                      DataType type) const;

  // Throw Error usage if the call is not allowed.
  [[noreturn]] void refuse_reading_for_all() const;
  [[noreturn]] void refuse_part(std::string_view call) const;
  [[noreturn]] void refuse_place(std::string_view call, bool is_here) const;
  [[noreturn]] void refuse_change_for_all(std::string_view call) const;
  // `in_one_of_several` is true in a replica that has others beside it.
  void check_scatter(std::string_view call, bool only_of_one, bool in_one_of_several) const;
  void check_shape(const TensorShape& mine, const TensorShape& given, std::string_view call) const;

 private:
  VariableOptions options_;
};

}  // namespace detail
}  // namespace lockstep
