// SPDX-License-Identifier: Apache-2.0
// Folds long lists of names and numbers for topo_kinds.hpp, as a person would write them.
#include <algorithm>
#include <map>
#include <tuple>

#include "tools/lockstep/topo_kinds.hpp"
#include "topology/base/text.hpp"

namespace lockstep::command {
namespace {

// Returns the first ones, and the number of those left.
std::string first_of(std::vector<std::string> parts, std::size_t most, std::string_view between) {
  if (parts.size() <= most + 1) return join(parts, between);
  const std::size_t left = parts.size() - most;
  parts.resize(most);
  return text(join(parts, between), between, "and ", left, " more");
}

bool is_digit(char letter) { return letter >= '0' && letter <= '9'; }

// Splits "node007.cluster" into "node", 7, ".cluster" with three digits. The number is the last one before a slash, as
// in "10.0.0.1/24".
struct NumberedName {
  std::string before;
  std::string after;
  std::size_t digits = 0;  // 0 if there is no number, or no leading zero to keep
  int number = none;
  auto key() const { return std::tie(before, after, digits); }
};

NumberedName take_apart(const std::string& name) {
  std::size_t end = std::min(name.find('/'), name.size());
  while (end > 0 && !is_digit(name[end - 1])) --end;
  std::size_t begin = end;
  while (begin > 0 && is_digit(name[begin - 1])) --begin;
  constexpr std::size_t longest = 8;
  if (begin == end || end - begin > longest) return {.before = name, .after = "", .digits = 0, .number = none};
  const bool padded = name[begin] == '0' && end - begin > 1;
  const auto number = parse_integer(std::string_view(name).substr(begin, end - begin));
  return {.before = name.substr(0, begin),
          .after = name.substr(end),
          .digits = padded ? end - begin : 0,
          .number = static_cast<int>(number.value_or(0))};
}

std::string zero_padded(int number, std::size_t digits) {
  std::string all = text(number);
  return all.size() < digits ? std::string(digits - all.size(), '0') + all : all;
}

// Holds names that differ in one number only.
struct NameFamily {
  NumberedName first;
  IndexSet numbers;
};

// Returns "node[1-4,7]" or, for a single name, the name itself.
std::string family_name(const NameFamily& family) {
  if (family.numbers.empty()) return printable(family.first.before);
  std::vector<std::string> ranges;
  for (const auto& [first, last] : family.numbers.ranges()) {
    const std::string begin = zero_padded(first, family.first.digits);
    ranges.push_back(first == last ? begin : text(begin, "-", zero_padded(last, family.first.digits)));
  }
  const bool one = family.numbers.size() == 1;
  const std::string inside = first_of(ranges, 4, ",");
  return text(printable(family.first.before, 40), one ? "" : "[", inside, one ? "" : "]",
              printable(family.first.after, 40));
}

// Returns the end (one past the last) of the longest run with equal steps that begins at `begin`. Two make a run only
// if they are neighbours.
std::size_t run_end(std::span<const int> numbers, std::size_t begin) {
  if (begin + 1 >= numbers.size()) return begin + 1;
  const int step = numbers[begin + 1] - numbers[begin];
  std::size_t end = begin + 2;
  while (end < numbers.size() && numbers[end] - numbers[end - 1] == step) ++end;
  return end - begin > 2 || step == 1 ? end : begin + 1;
}

}  // namespace

// Keeps the order of the first name of each family.
std::string fold_names(std::span<const std::string> names, std::size_t most) {
  std::vector<NameFamily> families;
  std::map<std::tuple<std::string, std::string, std::size_t>, std::size_t> known;
  std::vector<NumberedName> all;
  all.reserve(names.size());
  for (const std::string& name : names) all.push_back(take_apart(name));
  // Names of equal width with a leading zero somewhere, such as "node099" and "node100", are of one family.
  std::map<std::tuple<std::string, std::string, std::size_t>, bool> widths;
  for (const NumberedName& each : all) {
    if (each.digits > 0) widths[each.key()] = true;
  }
  for (NumberedName& each : all) {
    const std::size_t width = text(each.number).size();
    if (each.digits == 0 && each.number != none && widths.contains({each.before, each.after, width}))
      each.digits = width;
    const auto [found, is_new] = known.emplace(each.key(), families.size());
    if (is_new) families.push_back({each, {}});
    if (each.number != none) families[found->second].numbers.insert(each.number);
  }
  std::vector<std::string> parts;
  parts.reserve(families.size());
  for (const NameFamily& family : families) parts.push_back(family_name(family));
  return first_of(std::move(parts), most, ", ");
}

// Folds runs with equal steps: "0-6 by 2, 9".
std::string fold_numbers(std::span<const int> numbers, std::size_t most) {
  std::vector<std::string> parts;
  for (std::size_t begin = 0; begin < numbers.size();) {
    const std::size_t end = run_end(numbers, begin);
    const int step = end - begin > 1 ? numbers[begin + 1] - numbers[begin] : 0;
    std::string part = text(numbers[begin]);
    if (end - begin > 1) part += text("-", numbers[end - 1]);
    if (end - begin > 1 && step != 1) part += text(" by ", step);
    parts.push_back(std::move(part));
    begin = end;
  }
  return first_of(std::move(parts), most, ", ");
}

std::string fold_numbers(const IndexSet& numbers, std::size_t most) { return fold_numbers(numbers.members(), most); }

}  // namespace lockstep::command
