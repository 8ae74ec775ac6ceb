// SPDX-License-Identifier: Apache-2.0
// Keeps the variables of a strategy.
#include "runtime/variable_registry.hpp"

#include <algorithm>

#include "topology/base/text.hpp"

namespace lockstep::detail {

// A path such as "w_2" is used if a variable had that name, or if the numbers behind "w" have passed it.
bool VariableRegistry::is_used(const std::string& path) const {
  if (names_.contains(path)) return true;
  const std::size_t end = path.rfind('_');
  if (end == std::string::npos) return false;
  const auto base = names_.find(std::string_view(path).substr(0, end));
  const auto number = parse_integer(path.substr(end + 1));
  return base != names_.end() && number && *number >= 1 && static_cast<std::uint64_t>(*number) < base->second &&
         path == text(base->first, '_', *number);
}

VariableIdentity VariableRegistry::next(const std::string& name) {
  const std::lock_guard lock(mutex_);
  VariableIdentity identity{++number_, name};
  const bool is_used_before = is_used(name);
  std::uint64_t& tried = names_.try_emplace(name, 1).first->second;
  if (!is_used_before) return identity;
  do identity.path = text(name, '_', tried++);
  while (names_.contains(identity.path));
  return identity;
}

void VariableRegistry::add(const std::shared_ptr<VariableBase>& variable) {
  const std::lock_guard lock(mutex_);
  if (all_.size() >= most_) {
    std::erase_if(all_, [](const auto& each) { return each.expired(); });
    most_ = std::max<std::size_t>(64, 2 * all_.size());
  }
  all_.push_back(variable);
}

std::vector<std::shared_ptr<VariableBase>> VariableRegistry::variables() const {
  const std::lock_guard lock(mutex_);
  std::vector<std::shared_ptr<VariableBase>> living;
  for (const auto& each : all_) {
    if (std::shared_ptr<VariableBase> here = each.lock()) living.push_back(std::move(here));
  }
  return living;
}

}  // namespace lockstep::detail
