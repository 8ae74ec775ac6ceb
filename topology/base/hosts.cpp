// SPDX-License-Identifier: Apache-2.0
// Parses Slurm's lists of hosts.
#include "topology/base/hosts.hpp"

#include "topology/base/text.hpp"

namespace lockstep {
namespace {

// Adds the hosts of one bracket, with their leading zeros: "1-3,07". Returns false if it is malformed, or there are too
// many.
bool expand_numbers(std::string_view bracket, std::string_view before, std::string_view after,
                    std::vector<std::string>& hosts) {
  for (const std::string& part : split(bracket, ',')) {
    const auto dash = part.find('-');
    const std::string low = part.substr(0, dash);
    const std::string high = dash == std::string::npos ? low : part.substr(dash + 1);
    const auto first = parse_integer(low);
    const auto last = parse_integer(high);
    if (!first || !last || *first < 0 || *first > *last || *last - *first > most_hosts) return false;
    if (static_cast<std::int64_t>(hosts.size()) + *last - *first > most_hosts) return false;
    for (std::int64_t number = *first; number <= *last; ++number) {
      std::string digits = text(number);
      if (digits.size() < low.size()) digits.insert(0, low.size() - digits.size(), '0');
      hosts.push_back(text(before, digits, after));
    }
  }
  return true;
}

// Cuts at the commas outside of brackets. Returns nothing if the brackets do not match.
std::optional<std::vector<std::string>> parts_of(std::string_view words) {
  std::vector<std::string> parts(1);
  int depth = 0;
  for (const char letter : words) {
    if (letter == '[') ++depth;
    if (letter == ']') --depth;
    if (depth < 0 || depth > 1) return std::nullopt;
    if (letter == ',' && depth == 0)
      parts.emplace_back();
    else
      parts.back() += letter;
  }
  if (depth != 0) return std::nullopt;
  return parts;
}

}  // namespace

std::optional<std::vector<std::string>> parse_hosts(std::string_view words) {
  const auto parts = parts_of(words);
  if (!parts) return std::nullopt;
  std::vector<std::string> hosts;
  for (const std::string& part : *parts) {
    const auto open = part.find('[');
    const auto close = part.find(']');
    if (part.empty() || hosts.size() > static_cast<std::size_t>(most_hosts)) return std::nullopt;
    if (open == std::string::npos) {
      hosts.push_back(part);
      continue;
    }
    const std::string_view whole = part;
    if (whole.find('[', close) != whole.npos) return std::nullopt;  // it has several dimensions
    if (!expand_numbers(whole.substr(open + 1, close - open - 1), whole.substr(0, open), whole.substr(close + 1),
                        hosts))
      return std::nullopt;
  }
  return hosts;
}

}  // namespace lockstep
