// SPDX-License-Identifier: Apache-2.0
// Numbers and names the variables of a strategy, and finds those that still exist.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::detail {

class VariableBase;

// Tells a variable from the others of its strategy.
struct VariableIdentity {
  std::uint64_t number = 0;  // Counts from 1 in the order of creation.
  std::string path;          // Is the name, with "_1", "_2" and so on behind it if others had that name before.
};

// Belongs to one strategy. All processes get the same identities, because they make their variables in the same order.
// Any thread may call it.
class VariableRegistry {
 public:
  // Returns the identity of a new variable. It is used up even if the variable cannot be made.
  VariableIdentity next(const std::string& name);
  // Remembers a variable as long as it exists.
  void add(const std::shared_ptr<VariableBase>& variable);
  // Returns the variables that exist, in the order of their addition.
  std::vector<std::shared_ptr<VariableBase>> variables() const;

 private:
  bool is_used(const std::string& path) const;

  mutable std::mutex mutex_;
  std::uint64_t number_ = 0;
  std::map<std::string, std::uint64_t, std::less<>> names_;  // Holds the next number to try behind each name.
  std::vector<std::weak_ptr<VariableBase>> all_;
  std::size_t most_ = 64;  // Is the number of variables at which those that are gone are removed.
};

}  // namespace lockstep::detail
