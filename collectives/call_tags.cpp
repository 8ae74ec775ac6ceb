// SPDX-License-Identifier: Apache-2.0
// Remembers the names of tags.
#include "collectives/call_tags.hpp"

#include <map>
#include <mutex>

#include "collectives/fingerprints.hpp"
#include "topology/base/text.hpp"

namespace lockstep {
namespace {

struct TagNames {
  std::mutex mutex;
  std::map<std::uint64_t, std::string> names;
};

// Is never destroyed, because messages may be written while exit() destroys statics.
TagNames& tag_names() {
  static TagNames& all = *new TagNames();
  return all;
}

}  // namespace

std::uint64_t call_tag_of(std::string_view name) {
  constexpr std::size_t most_names = 4096;  // Bounds the memory of a program that makes new names in each step.
  if (name.empty()) return 0;
  const std::uint64_t tag = Fingerprint().add(name).value();
  thread_local std::uint64_t last = 0;  // Saves the lock for repeated calls.
  if (tag == last) return tag;
  TagNames& all = tag_names();
  const std::lock_guard lock(all.mutex);
  if (all.names.size() < most_names) all.names.try_emplace(tag, name);
  return last = tag;
}

std::string call_tag_text(std::uint64_t tag) {
  TagNames& all = tag_names();
  const std::lock_guard lock(all.mutex);
  if (const auto known = all.names.find(tag); known != all.names.end()) return text('"', printable(known->second), '"');
  constexpr std::string_view digits = "0123456789abcdef";
  std::string number = "#";
  for (int shift = 60; shift >= 32; shift -= 4) number += digits[tag >> shift & 15U];
  return number;
}

}  // namespace lockstep
