// SPDX-License-Identifier: Apache-2.0
// Parses fabrics, and implements the queues of their links.
#include "collectives/simulated/fabric.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>

#include "topology/base/error.hpp"
#include "topology/base/text.hpp"

namespace lockstep::simulated {
namespace {

constexpr std::string_view words_allowed =
    "give words such as rate=100G latency=700ns switch=16 uplinks=8 memory=80G memory-latency=400ns message=600ns "
    "receive=40G combine=64G";
constexpr double most_seconds = 1;

[[noreturn]] void refuse(std::string_view word, std::string_view what) {
  throw Error(Code::usage, text("the fabric's \"", printable(word), "\" ", what), words_allowed);
}

// Converts bits per second, such as "100G", to bytes per microsecond.
double rate_of(std::string_view word, std::string_view value) {
  double number = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
  const std::string_view unit(end, static_cast<std::size_t>(value.data() + value.size() - end));
  const double scale = unit == "M" ? 1e6 : unit == "G" ? 1e9 : unit == "T" ? 1e12 : 0;
  const double rate = number * scale / 8e6;
  if (error != std::errc{} || !(rate >= 0.125) || !(rate <= 1.25e7)) refuse(word, "has no rate of 1M to 100T");
  return rate;
}

// Converts a duration, such as "700ns", to microseconds.
double us_of(std::string_view word, std::string_view value) {
  const auto time = parse_duration(value);
  if (!time || *time < Duration{} || *time > std::chrono::duration<double>(most_seconds))
    refuse(word, "has no time of up to a second");
  return static_cast<double>(time->count()) / 1000;
}

int number_of(std::string_view word, std::string_view value) {
  int number = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
  if (error != std::errc{} || end != value.data() + value.size() || number < 1 || number > 65536)
    refuse(word, "has no number of 1 to 65536");
  return number;
}

void set(FabricShape& shape, std::string_view word) {
  const std::size_t equals = word.find('=');
  if (equals == std::string_view::npos) refuse(word, "does not describe a fabric");
  const std::string_view name = word.substr(0, equals);
  const std::string_view value = word.substr(equals + 1);
  if (name == "rate")
    shape.network_bytes_per_us = rate_of(word, value);
  else if (name == "latency")
    shape.network_us = us_of(word, value);
  else if (name == "switch")
    shape.nodes_per_switch = number_of(word, value);
  else if (name == "uplinks")
    shape.uplinks = number_of(word, value);
  else if (name == "memory")
    shape.memory_bytes_per_us = rate_of(word, value);
  else if (name == "memory-latency")
    shape.memory_us = us_of(word, value);
  else if (name == "message")
    shape.message_us = us_of(word, value);
  else if (name == "receive")
    shape.received_bytes_per_us = rate_of(word, value);
  else if (name == "combine")
    shape.combined_bytes_per_us = rate_of(word, value);
  else
    refuse(word, "does not describe a fabric");
}

}  // namespace

FabricShape parse_fabric(std::string_view words, FabricShape shape) {
  while (!words.empty()) {
    const std::size_t end = std::min(words.find(' '), words.size());
    if (end > 0) set(shape, words.substr(0, end));
    words.remove_prefix(std::min(end + 1, words.size()));
  }
  if (shape.uplinks > 0 && shape.nodes_per_switch == 0)
    throw Error(Code::usage, "the fabric has uplinks, but one switch for all nodes", "add switch=N, its nodes");
  return shape;
}

Fabric::Fabric(const FabricShape& shape) : shape_(shape) {
  uplinks_ = shape.switches() == 1 ? 0 : shape.uplinks > 0 ? shape.uplinks : shape.nodes_per_switch;
  constexpr double at_once = 1e6;  // bytes per nanosecond: the receiver's core copies, and needs no link
  const FabricLink memory_link{at_once, of_us(shape.memory_us), {}};
  const FabricLink far{shape.network_bytes_per_us / 1000, of_us(shape.network_us), {}};
  links_.assign(static_cast<std::size_t>(up(0)), memory_link);
  links_.resize(static_cast<std::size_t>(downlink(shape.switches(), 0)), far);
}

std::vector<int> Fabric::path(int from, int to) const {
  const int source = node_of(from);
  const int target = node_of(to);
  if (source == target) return {memory(from)};
  if (uplinks_ == 0) return {up(source), down(target)};
  const int here = source / shape_.nodes_per_switch;
  const int there = target / shape_.nodes_per_switch;
  if (here == there) return {up(source), down(target)};
  const int which = target % uplinks_;
  return {up(source), uplink(here, which), downlink(there, which), down(target)};
}

Fabric::PacketTiming Fabric::pass(int number, std::size_t bytes, Duration head_at, Duration tail_at) {
  FabricLink& link = links_[static_cast<std::size_t>(number)];
  const Duration begin = std::max(head_at, link.free);
  const Duration busy_time(std::llround(static_cast<double>(bytes) / link.bytes_per_ns));
  link.free = std::max(begin + busy_time, tail_at);
  return {begin + link.latency, link.free + link.latency};
}

}  // namespace lockstep::simulated
