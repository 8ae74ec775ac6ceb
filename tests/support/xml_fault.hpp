// SPDX-License-Identifier: Apache-2.0
// A strict judge of XML that we write ourselves: elements, attributes and the five named characters; no comments and
// the like, which our pictures and pages do not have.
#pragma once

#include <algorithm>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "topology/base/text.hpp"

namespace lockstep::test {

inline std::size_t count(std::string_view all, std::string_view part) {
  std::size_t times = 0;
  for (std::size_t at = all.find(part); at != std::string_view::npos; at = all.find(part, at + 1)) ++times;
  return times;
}

// What is wrong with the content of an element or attribute; empty when it is well.
inline std::string text_fault(std::string_view content) {
  for (std::size_t at = content.find_first_of("<&"); at != std::string_view::npos;
       at = content.find_first_of("<&", at + 1)) {
    if (content[at] == '<') return "a bare <";
    const std::string_view name = content.substr(at, content.find(';', at) - at + 1);
    const std::set<std::string_view> known{"&amp;", "&lt;", "&gt;", "&quot;", "&apos;"};
    if (!known.contains(name)) return text("an unknown entity ", name.substr(0, 10));
  }
  const bool control =
      std::ranges::any_of(content, [](char letter) { return letter >= 0 && letter < 0x20 && letter != '\n'; });
  return control ? "a control character" : "";
}

// Returns the first shape or text of an SVG that has neither a fill nor a stroke of its own, which a viewer without
// styles draws black; empty if there is none.
inline std::string unpainted(std::string_view svg) {
  for (std::size_t at = svg.find('<'); at != std::string_view::npos; at = svg.find('<', at + 1)) {
    const std::string_view tag = svg.substr(at, svg.find('>', at) - at);
    const auto is = [&](std::string_view name) { return tag.starts_with(text('<', name, ' ')); };
    if (!is("rect") && !is("path") && !is("text") && !is("circle") && !is("line") && !is("polygon")) continue;
    if (tag.find(" fill=\"") == std::string_view::npos && tag.find(" stroke=\"") == std::string_view::npos)
      return std::string(tag);
  }
  return {};
}

// Attributes of the form name="value", each name once.
inline std::string attribute_fault(std::string_view words) {
  std::set<std::string_view> names;
  while (!trim(words).empty()) {
    words = words.substr(words.find_first_not_of(" \n"));
    const std::size_t equal = words.find("=\"");
    if (equal == std::string_view::npos) return text("no value in ", words);
    const std::size_t end = words.find('"', equal + 2);
    if (end == std::string_view::npos) return text("an open quote in ", words);
    if (!names.insert(words.substr(0, equal)).second) return text("twice ", words.substr(0, equal));
    if (std::string fault = text_fault(words.substr(equal + 2, end - equal - 2)); !fault.empty()) return fault;
    words.remove_prefix(end + 1);
    if (!words.empty() && words[0] != ' ') return text("no blank before ", words);
  }
  return {};
}

// A small reader of XML without comments and the like, which the picture does not have.
inline std::string xml_fault(std::string_view xml) {
  std::vector<std::string_view> open;
  bool ended = false;
  while (!trim(xml).empty()) {
    const std::size_t begin = xml.find('<');
    if (std::string fault = text_fault(xml.substr(0, begin)); !fault.empty()) return fault;
    if (begin == std::string_view::npos || ended) return "words outside of the root";
    const std::size_t end = xml.find('>', begin);
    if (end == std::string_view::npos) return "an open tag";
    std::string_view tag = xml.substr(begin + 1, end - begin - 1);
    xml.remove_prefix(end + 1);
    if (tag.starts_with('/')) {
      if (open.empty() || open.back() != tag.substr(1)) return text("</", tag.substr(1), "> closes nothing");
      open.pop_back();
    } else {
      const bool closed = tag.ends_with('/');
      if (closed) tag.remove_suffix(1);
      const std::size_t space = std::min(tag.find(' '), tag.size());
      if (std::string fault = attribute_fault(tag.substr(space)); !fault.empty()) return fault;
      if (!closed) open.push_back(tag.substr(0, space));
    }
    ended = open.empty();
  }
  return open.empty() ? "" : text("<", open.back(), "> stays open");
}

}  // namespace lockstep::test
