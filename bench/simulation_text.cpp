// SPDX-License-Identifier: Apache-2.0
// Parses and prints scenarios, draws them, and makes them smaller.
#include <algorithm>
#include <array>
#include <charconv>
#include <random>
#include <utility>

#include "bench/simulation.hpp"
#include "collectives/plan_table.hpp"
#include "topology/base/text.hpp"

namespace lockstep::bench {
namespace {

constexpr std::array<std::string_view, 5> kinds = {"dies", "stops", "leaves", "differs", "flips"};
constexpr std::string_view calls_allowed =
    "write it like all_reduce:f32:sum:100, broadcast:u8:1k:root=2, all_gather:i32:64 or barrier; "
    "\"reproducible\" and \"in_place\" may follow";
constexpr std::string_view faults_allowed =
    "write it like 7@3 (rank 7 dies when it is about to make its third call), 7@3:stops:2s, 7@3:leaves, 7@3:differs or "
    "7@3:flips";
constexpr std::size_t most_count = std::size_t{1} << 30U;

std::vector<std::string_view> parts_of(std::string_view words, char between) {
  std::vector<std::string_view> parts;
  for (;;) {
    const std::size_t end = std::min(words.find(between), words.size());
    parts.push_back(words.substr(0, end));
    if (end == words.size()) return parts;
    words.remove_prefix(end + 1);
  }
}

std::optional<int> number_in(std::string_view word) {
  int number = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), number);
  if (error != std::errc{} || end != word.data() + word.size() || number < 0) return std::nullopt;
  return number;
}

bool has_type(Collective collective) { return collective != Collective::barrier; }

std::uint64_t drawn(std::mt19937_64& random, std::uint64_t end) { return random() % end; }

SimulatedCall draw_call(std::mt19937_64& random, int members) {
  constexpr std::array collectives = {Collective::all_reduce, Collective::all_reduce, Collective::reduce,
                                      Collective::broadcast,  Collective::barrier,    Collective::all_gather,
                                      Collective::gather,     Collective::scatter,    Collective::all_to_all,
                                      Collective::scan,       Collective::exscan,     Collective::reduce_scatter};
  constexpr std::array types = {DataType::i32, DataType::f32, DataType::u8, DataType::f64};
  constexpr std::array ops = {ReduceOp::sum, ReduceOp::max, ReduceOp::min};
  SimulatedCall call;
  Subject& subject = call.subject;
  subject.collective = collectives[drawn(random, collectives.size())];
  if (!has_type(subject.collective)) return call;
  subject.type = types[drawn(random, types.size())];
  subject.count = drawn(random, 4) == 0 ? drawn(random, 5000) : drawn(random, 40);
  if (is_rooted(subject.collective))
    subject.root = static_cast<int>(drawn(random, static_cast<std::uint64_t>(members)));
  if (reduces(subject.collective)) {
    subject.op = ops[drawn(random, ops.size())];
    if (drawn(random, 4) == 0) call.order = Order::reproducible;
  }
  subject.in_place = subject.collective == Collective::all_reduce && drawn(random, 3) == 0;
  return call;
}

}  // namespace

std::string SimulatedCall::to_text() const {
  std::string all(lockstep::to_string(subject.collective));
  if (!has_type(subject.collective)) return all;
  all += text(':', to_string(subject.type));
  if (reduces(subject.collective)) all += text(':', to_string(subject.op));
  all += text(':', subject.count);
  if (is_rooted(subject.collective)) all += text(":root=", subject.root);
  if (order == Order::reproducible) all += ":reproducible";
  if (subject.in_place) all += ":in_place";
  return all;
}

SimulatedCall parse_call(std::string_view words, int members) {
  const auto refuse = [&](std::string_view what) {
    throw Error(Code::usage, text("the call \"", printable(words), "\" ", what), calls_allowed);
  };
  const std::vector<std::string_view> parts = parts_of(words, ':');
  const auto collective = parse_collective(parts.front());
  if (!collective || *collective == Collective::sendrecv || is_unequal(*collective)) {
    refuse("is none of the collectives of equal counts");
  }
  SimulatedCall call;
  Subject& subject = call.subject;
  subject.collective = *collective;
  subject.count = has_type(*collective) ? 1 : 0;
  for (const std::string_view part : std::span(parts).subspan(1)) {
    if (const auto type = parse_data_type(part); type && has_type(*collective))
      subject.type = *type;
    else if (const auto op = parse_reduce_op(part); op && reduces(*collective))
      subject.op = *op;
    else if (part == "reproducible" && reduces(*collective))
      call.order = Order::reproducible;
    else if (part == "in_place" && *collective == Collective::all_reduce)
      subject.in_place = true;
    else if (const auto root = part.starts_with("root=") ? number_in(part.substr(5)) : std::nullopt;
             root && is_rooted(*collective) && *root < members)
      subject.root = *root;
    else if (const auto count = parse_amount(part); count && *count <= most_count && has_type(*collective))
      subject.count = *count;
    else
      refuse(text("has \"", printable(part), "\", which is not understood there"));
  }
  if (const std::string why = why_not(subject); !why.empty()) refuse(text("cannot be: ", why));
  return call;
}

std::string SimulatedFault::to_text() const {
  std::string all = text(member, '@', call);
  if (kind == SimulatedFaultKind::dies) return all;
  all += text(':', kinds[static_cast<std::size_t>(kind)]);
  if (kind == SimulatedFaultKind::stops)
    all += text(':', std::chrono::round<std::chrono::milliseconds>(lasts).count(), "ms");
  return all;
}

SimulatedFault parse_fault(std::string_view words) {
  const auto refuse = [&] {
    throw Error(Code::usage, text("the fault \"", printable(words), "\" is not understood"), faults_allowed);
  };
  SimulatedFault fault;
  const std::vector<std::string_view> parts = parts_of(words, ':');
  const std::vector<std::string_view> where = parts_of(parts.front(), '@');
  const auto member = number_in(where.front());
  const auto call = where.size() == 2 ? number_in(where.back()) : std::nullopt;
  if (!member || !call || *call < 1 || parts.size() > 3) refuse();
  fault.member = *member;
  fault.call = *call;
  if (parts.size() > 1) {
    const auto kind = std::ranges::find(kinds, parts[1]);
    if (kind == kinds.end()) refuse();
    fault.kind = static_cast<SimulatedFaultKind>(kind - kinds.begin());
  }
  if (parts.size() == 3) {
    const auto lasts = parse_duration(parts[2]);
    if (!lasts || fault.kind != SimulatedFaultKind::stops || *lasts > std::chrono::hours(1)) refuse();
    fault.lasts = *lasts;
  }
  return fault;
}

bool Scenario::has_checksums() const {
  return std::ranges::any_of(faults,
                             [](const SimulatedFault& fault) { return fault.kind == SimulatedFaultKind::flips; });
}

std::string Scenario::to_text() const {
  std::string all = text("--nodes ", nodes, " --ranks ", members, " --seed ", seed);
  for (const SimulatedCall& call : calls) all += text(" --call ", call.to_text());
  for (const SimulatedFault& fault : faults) all += text(" --fail ", fault.to_text());
  if (in_flight > 1) all += text(" --in-flight ", in_flight);
  if (!memory) all += " --no-memory";
  if (!algorithm.empty()) all += text(" --algorithm ", algorithm);
  return all;
}

std::vector<SimulatedCall> draw_calls(std::uint64_t seed, int members, int calls) {
  std::mt19937_64 random(seed * 2 + 1);
  std::vector<SimulatedCall> all;
  all.reserve(static_cast<std::size_t>(calls));
  for (int i = 0; i < calls; ++i) all.push_back(draw_call(random, members));
  return all;
}

Scenario draw_scenario(std::uint64_t seed) {
  std::mt19937_64 random(seed);
  Scenario scenario;
  scenario.seed = seed;
  scenario.nodes = 1 + static_cast<int>(drawn(random, 4));
  scenario.members = 1 + static_cast<int>(drawn(random, 4));
  if (scenario.size() == 1) scenario.members = 2;
  scenario.in_flight = 1 + drawn(random, 3);
  scenario.memory = drawn(random, 4) > 0;
  scenario.calls = draw_calls(seed, scenario.size(), 1 + static_cast<int>(drawn(random, 8)));
  if (drawn(random, 3) == 0) return scenario;
  SimulatedFault fault;
  fault.member = static_cast<int>(drawn(random, static_cast<std::uint64_t>(scenario.size())));
  fault.call = 1 + static_cast<int>(drawn(random, scenario.calls.size()));
  fault.kind = static_cast<SimulatedFaultKind>(drawn(random, kinds.size()));
  fault.lasts = std::chrono::milliseconds(10 + drawn(random, 6000));
  scenario.faults.push_back(fault);
  return scenario;
}

Scenario shrunk(Scenario scenario) {
  const auto is_wrong = [](const Scenario& smaller) { return !simulate(smaller).wrong.empty(); };
  for (bool again = true; again;) {
    again = false;
    const auto keep_if_wrong = [&](Scenario smaller) {
      if (!is_wrong(smaller)) return false;
      scenario = std::move(smaller);
      return again = true;
    };
    for (std::size_t call = scenario.calls.size(); call-- > 0 && scenario.calls.size() > 1;) {
      Scenario smaller = scenario;
      smaller.calls.erase(smaller.calls.begin() + static_cast<std::ptrdiff_t>(call));
      for (SimulatedFault& fault : smaller.faults) {
        if (static_cast<std::size_t>(fault.call) > call + 1) --fault.call;
        fault.call = std::min(fault.call, static_cast<int>(smaller.calls.size()));
      }
      keep_if_wrong(std::move(smaller));
    }
    for (std::size_t fault = scenario.faults.size(); fault-- > 0;) {
      Scenario smaller = scenario;
      smaller.faults.erase(smaller.faults.begin() + static_cast<std::ptrdiff_t>(fault));
      keep_if_wrong(std::move(smaller));
    }
    for (std::size_t call = 0; call < scenario.calls.size(); ++call) {
      Scenario smaller = scenario;
      std::size_t& count = smaller.calls[call].subject.count;
      count /= 2;
      if (count != scenario.calls[call].subject.count) keep_if_wrong(std::move(smaller));
    }
    for (const bool nodes : {true, false}) {
      Scenario smaller = scenario;
      if (--(nodes ? smaller.nodes : smaller.members) < 1 || smaller.size() < 2) continue;
      const auto fits = [&](int member) { return member < smaller.size(); };
      if (!std::ranges::all_of(smaller.faults, fits, &SimulatedFault::member)) continue;
      if (!std::ranges::all_of(smaller.calls, [&](const SimulatedCall& call) { return fits(call.subject.root); }))
        continue;
      keep_if_wrong(std::move(smaller));
    }
    Scenario smaller = scenario;
    if (std::exchange(smaller.in_flight, 1) > 1) keep_if_wrong(std::move(smaller));
  }
  return scenario;
}

}  // namespace lockstep::bench
