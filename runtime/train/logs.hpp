// SPDX-License-Identifier: Apache-2.0
// Holds the numbers that training reports: those of one moment, and those of all epochs.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lockstep::train {

// Holds numbers by name, in the order in which they came: "loss" first, then the metrics, then "val_loss".
class Logs {
 public:
  using Entries = std::vector<std::pair<std::string, double>>;
  Logs() = default;
  Logs(std::initializer_list<Entries::value_type> entries) : entries_(entries) {}

  // Returns the number of a name; nothing if there is none.
  std::optional<double> find(std::string_view name) const {
    const auto at = std::ranges::find(entries_, name, &Entries::value_type::first);
    return at == entries_.end() ? std::nullopt : std::optional(at->second);
  }
  // Returns the number of a name. Throws Error usage, which lists the names, if there is none.
  double operator[](std::string_view name) const;
  // Gives a name a number, in place of one that it has.
  void set(std::string_view name, double value) {
    const auto at = std::ranges::find(entries_, name, &Entries::value_type::first);
    if (at == entries_.end())
      entries_.emplace_back(name, value);
    else
      at->second = value;
  }
  bool empty() const { return entries_.empty(); }
  std::size_t size() const { return entries_.size(); }
  Entries::const_iterator begin() const { return entries_.begin(); }
  Entries::const_iterator end() const { return entries_.end(); }

 private:
  Entries entries_;
};

// Is what fit() returns.
struct History {
  std::vector<std::int64_t> epochs;                   // Holds the numbers of the epochs, from 0.
  std::map<std::string, std::vector<double>> values;  // Holds a number for each epoch. Validation is "val_loss", ...

  // Returns the numbers of a name, one for each epoch. Throws Error usage, which lists the names, if there are none.
  const std::vector<double>& operator[](const std::string& name) const;
  void add(std::int64_t epoch, const Logs& logs) {
    epochs.push_back(epoch);
    for (const auto& [name, value] : logs) values[name].push_back(value);
  }
};

}  // namespace lockstep::train
