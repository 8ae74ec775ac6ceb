// SPDX-License-Identifier: Apache-2.0
// Reads golden values from a file of tests/runtime/train/goldens. goldens.py there describes the format.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <map>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "runtime/values/tensor.hpp"

namespace lockstep::test {

class GoldenCase {
 public:
  explicit GoldenCase(std::string name) : name_(std::move(name)) {}
  const std::string& name() const { return name_; }
  // Take one line of the file: the words of a setting, and the shape and elements of a tensor.
  void set(const std::string& key, std::vector<std::string> words) { settings_[key] = std::move(words); }
  void put(const std::string& key, const std::string& shape, const std::vector<std::string>& elements) {
    std::vector<std::int64_t> lengths;
    for (std::istringstream in(shape == "-" ? "" : shape); in && in.peek() != EOF; in.ignore(1, 'x'))
      in >> lengths.emplace_back();
    std::vector<double> values;
    for (const std::string& each : elements) values.push_back(std::strtod(each.c_str(), nullptr));
    tensors_.insert_or_assign(key, Tensor<double>(TensorShape(std::move(lengths)), std::span<const double>(values)));
  }

  bool has(const std::string& key) const { return settings_.contains(key) || tensors_.contains(key); }
  // Return a tensor, converted to T, and the words of a setting. Throw std::out_of_range if the case has none.
  template <class T = float>
  Tensor<T> tensor(const std::string& key) const {
    return cast<T>(tensors_.at(key));
  }
  const std::vector<std::string>& words(const std::string& key) const { return settings_.at(key); }
  // Return a setting of one word, a number, or yes, and a default if there is none.
  std::string word(const std::string& key, const std::string& otherwise = {}) const {
    return settings_.contains(key) ? words(key).at(0) : otherwise;
  }
  double number(const std::string& key, double otherwise = 0) const {
    return settings_.contains(key) ? std::strtod(word(key).c_str(), nullptr) : otherwise;
  }
  bool is_set(const std::string& key, bool otherwise = false) const {
    return settings_.contains(key) ? word(key) == "yes" : otherwise;
  }
  std::vector<std::int64_t> integers(const std::string& key) const {
    std::vector<std::int64_t> all;
    for (const std::string& each : words(key)) all.push_back(std::strtoll(each.c_str(), nullptr, 10));
    return all;
  }
  // Returns the names of the tensors that begin with a prefix, without it.
  std::vector<std::string> tensors_with(const std::string& prefix) const {
    std::vector<std::string> all;
    for (const auto& [key, ignored] : tensors_) {
      if (key.starts_with(prefix)) all.push_back(key.substr(prefix.size()));
    }
    return all;
  }

 private:
  std::string name_;
  std::map<std::string, std::vector<std::string>> settings_;
  std::map<std::string, Tensor<double>> tensors_;
};

// Reads all cases of "layers", of "losses" and so on.
inline std::vector<GoldenCase> golden_cases(const std::string& file) {
  std::ifstream in(std::string(SOURCE_ROOT) + "/tests/runtime/train/goldens/" + file + ".txt");
  if (!in) throw std::runtime_error("no golden values " + file);
  std::vector<GoldenCase> all;
  for (std::string line; std::getline(in, line);) {
    if (line.empty() || line.front() == '#') continue;
    std::istringstream words(line);
    std::string key;
    std::string sign;
    words >> key >> sign;
    if (key == "case") {
      all.emplace_back(sign);
      continue;
    }
    std::string shape;
    std::string bar;
    if (sign == "=") words >> shape >> bar;
    std::vector<std::string> rest;
    for (std::string word; words >> word;) rest.push_back(word);
    if (sign == "=")
      all.back().put(key, shape, rest);
    else
      all.back().set(key, std::move(rest));
  }
  return all;
}

// Expects equal shapes, and elements that differ by at most `relative` of the largest one, and `absolute`.
template <class T>
void expect_near(const Tensor<T>& found, const Tensor<T>& golden, double relative = 1e-5, double absolute = 1e-6) {
  ASSERT_EQ(found.shape(), golden.shape());
  double largest = 0;
  for (const T& each : golden) {
    if (std::isfinite(static_cast<double>(each))) largest = std::max(largest, std::abs(static_cast<double>(each)));
  }
  for (std::size_t i = 0; i < golden.size(); ++i) {
    const auto mine = static_cast<double>(found[i]);
    const auto wanted = static_cast<double>(golden[i]);
    if (mine == wanted || (std::isnan(mine) && std::isnan(wanted))) continue;
    EXPECT_LE(std::abs(mine - wanted), absolute + relative * largest)
        << "element " << i << ": " << mine << " instead of " << wanted;
  }
}

}  // namespace lockstep::test
