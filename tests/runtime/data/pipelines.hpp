// SPDX-License-Identifier: Apache-2.0
// Makes a pipeline of its text, as in pipelines.txt.
#pragma once

#include <sstream>
#include <string>
#include <tuple>
#include <variant>
#include <vector>

#include "runtime/data/dataset.hpp"
#include "tests/runtime/data/elements.hpp"

namespace lockstep::test {

using AnyDataset = std::variant<Dataset<Number>, Dataset<Array>, Dataset<std::tuple<Number, Number>>,
                                Dataset<std::tuple<Number, Array>>, Dataset<std::tuple<Array, Number>>>;

// Is one stage of the text: its verb and its words.
struct StageText {
  std::string verb;
  std::vector<std::string> words;
  std::int64_t number(std::size_t i, std::int64_t otherwise = 0) const {
    return i < words.size() && words[i] != "drop" ? std::stoll(words[i]) : otherwise;
  }
  bool drops() const { return !words.empty() && words.back() == "drop"; }
};

inline Dataset<Number> range_of(const StageText& stage) {
  if (stage.words.size() == 1) return data::range(stage.number(0));
  return data::range(stage.number(0), stage.number(1), stage.number(2, 1));
}

// Calculates with a number or with each element of an array.
template <class E, class F>
E each_of(const E& value, F&& function) {
  if constexpr (std::is_same_v<E, Number>) {
    return function(value);
  } else {
    E result = value;
    for (Number& one : result) one = function(one);
    return result;
  }
}

template <class E>
AnyDataset with_stage(const Dataset<E>& from, const StageText& stage) {
  const std::string& verb = stage.verb;
  if (verb == "repeat") return from.repeat(stage.number(0));
  if (verb == "take") return from.take(stage.number(0));
  if (verb == "skip") return from.skip(stage.number(0));
  if (verb == "shard") return from.shard(stage.number(0), stage.number(1));
  if (verb == "cache") return from.cache();
  if (verb == "prefetch") return from.prefetch(stage.number(0));
  if (verb == "shuffle") return from.shuffle(stage.number(0), {.seed = static_cast<std::uint64_t>(stage.number(1))});
  if constexpr (std::is_same_v<E, Number>) {
    if (verb == "concatenate") return from.concatenate(range_of(stage));
    if (verb == "filter" && stage.words[0] == "even") return from.filter([](Number x) { return x % 2 == 0; });
    if (verb == "filter") return from.filter([limit = stage.number(1)](Number x) { return x < limit; });
    if (verb == "flat_map") return from.flat_map([](Number x) { return data::range(x); });
    if (verb == "interleave")
      return from.interleave([](Number x) { return data::range(10 * x, 11 * x + 1); }, stage.number(0),
                             stage.number(1));
    if (verb == "map" && stage.words[0] == "fill") return from.map([](Number x) { return Array(TensorShape{x}, x); });
  }
  if constexpr (std::is_same_v<E, Array>) {
    if (verb == "unbatch") return from.unbatch();
    if (verb == "padded_batch") return from.padded_batch(stage.number(0), {.drop_remainder = stage.drops()});
  }
  if constexpr (std::is_same_v<E, Array> || std::is_same_v<E, Number>) {
    if (verb == "map") {
      const std::string& how = stage.words[0];
      return from.map([how](const E& value) {
        return each_of(value, [&](Number x) { return how == "double" ? 2 * x : how == "negate" ? -x : x * x; });
      });
    }
    if (verb == "batch") return from.batch(stage.number(0), {.drop_remainder = stage.drops()});
    if (verb == "zip") return data::zip(from, range_of(stage));
    if (verb == "enumerate") return from.enumerate(stage.number(0));
  }
  throw std::invalid_argument("a stage that these elements do not have: " + verb);
}

inline AnyDataset pipeline_of(const std::string& line) {
  std::istringstream stages(line);
  std::optional<AnyDataset> all;
  for (std::string part; std::getline(stages, part, '|');) {
    std::istringstream words(part);
    StageText stage;
    words >> stage.verb;
    for (std::string word; words >> word;) stage.words.push_back(word);
    if (!all)
      all = range_of(stage);
    else
      all = std::visit([&](const auto& from) { return with_stage(from, stage); }, *all);
  }
  return std::move(*all);
}

}  // namespace lockstep::test
