// SPDX-License-Identifier: Apache-2.0
// Reads and writes tf.train.Example: named lists of numbers or bytes, encoded as a protocol buffer.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace lockstep::data {

// Holds the features of an example.
class Example {
 public:
  using Floats = std::vector<float>;
  using Ints = std::vector<std::int64_t>;
  using Texts = std::vector<std::string>;

  // Return the values of a feature. Throw Error usage if there is none with this name and kind.
  const Floats& floats(std::string_view name) const;
  const Ints& ints(std::string_view name) const;
  const Texts& bytes(std::string_view name) const;
  bool has(std::string_view name) const { return features_.contains(name); }

  // Set a feature, in place of one with the same name.
  Example& set_floats(std::string name, Floats values) { return set(std::move(name), std::move(values)); }
  Example& set_ints(std::string name, Ints values) { return set(std::move(name), std::move(values)); }
  Example& set_bytes(std::string name, Texts values) { return set(std::move(name), std::move(values)); }

  // Returns the encoded example, with the features in the order of their names.
  std::string encode() const;
  bool operator==(const Example&) const = default;

 private:
  using Values = std::variant<Floats, Ints, Texts>;
  Example& set(std::string name, Values values) {
    features_.insert_or_assign(std::move(name), std::move(values));
    return *this;
  }
  template <class List>
  const List& find(std::string_view name) const;

  std::map<std::string, Values, std::less<>> features_;
};

// Decodes an example. Throws Error file for bytes that are none, with the place of the fault.
Example parse_example(std::string_view bytes);

}  // namespace lockstep::data
