// SPDX-License-Identifier: Apache-2.0
#include "tests/collectives/execute.hpp"

#include <algorithm>

#include "topology/base/text.hpp"

namespace lockstep::test {

std::uint64_t Random::next() {
  std::uint64_t mixed = state_ += 0x9e3779b97f4a7c15U;
  mixed = (mixed ^ (mixed >> 30U)) * 0xbf58476d1ce4e5b9U;
  mixed = (mixed ^ (mixed >> 27U)) * 0x94d049bb133111ebU;
  return mixed ^ (mixed >> 31U);
}

Number combine(Op op, Number left, Number right) {
  if (op == Op::sum) return left + right;
  if (op == Op::tangle) return (left * 0x9e3779b97f4a7c15U) ^ ((right << 23U) | (right >> 41U)) * 0xbf58476d1ce4e5b9U;
  constexpr Number prime = 0x7fffffff;  // a map's a and b, modulo it, are the upper and the lower half
  const Number a1 = (left >> 32U) % prime;
  const Number b1 = (left & 0xffffffffU) % prime;
  const Number a2 = (right >> 32U) % prime;
  const Number b2 = (right & 0xffffffffU) % prime;
  return (a1 * a2 % prime) << 32U | (a2 * b1 + b2) % prime;
}

Schedule written_out(const Schedule& schedule) {
  Schedule all;
  all.scratch = schedule.scratch;
  for (const Round& round : schedule.rounds) {
    for (int lap = 0; lap < round.times; ++lap) {
      Round one;
      const auto add = [&](const std::vector<Message>& from, std::vector<Message>& to) {
        for (const Message& each : from) {
          if (each.slice.at(lap).count > 0) to.push_back({each.peer_at(lap), each.slice.at(lap)});
        }
      };
      add(round.sends, one.sends);
      add(round.receives, one.receives);
      for (const LocalStep& each : round.locals) {
        if (each.target.at(lap).count == 0) continue;
        one.locals.push_back({each.kind, each.target.at(lap), each.left.at(lap), each.right.at(lap)});
      }
      one.near = round.near;
      all.rounds.push_back(std::move(one));
    }
  }
  return all;
}

namespace {

struct Trouble {
  std::string text;
};

struct Place {
  Numbers* memory = nullptr;
  std::size_t begin = 0;
  std::size_t count = 0;
  Number* data() const { return memory->data() + begin; }
};

struct Transfer {
  int from;
  int to;
  Place source;
  Place target;
  bool sent = false;      // its send is posted
  bool received = false;  // its receive is posted
  bool is_read = false;
  bool ends_when_read = false;
  Numbers data = {};
};

struct Member {
  const Schedule* schedule = nullptr;
  std::size_t round = 0;
  int lap = 0;
  std::size_t waiting = 0;
  bool ended = false;
  bool is_near = false;  // in a round of its node, and others may not have come yet
  // The user's memory: where it has the input and the output, which may be one.
  Numbers user;
  Numbers scratch;
  std::size_t input_at = 0;
  std::size_t output_at = 0;
  std::size_t input_count = 0;
  std::size_t output_count = 0;
};

// What may happen next, in any order.
struct Event {
  enum class Kind : std::uint8_t { begin_round, read, write, meet_in_node, end_round };
  Kind kind;
  std::size_t of;  // a member or a transfer
};

class Executor {
 public:
  Executor(const Problem& problem, std::span<const Schedule> schedules, std::span<const Numbers> inputs,
           const Way& way);
  Execution run();

 private:
  Member& at(int member) { return members_[static_cast<std::size_t>(member)]; }
  std::vector<Numbers> outputs() const;
  void begin_member(const Problem& problem, int index, const Schedule& schedule, const Numbers& given);
  void happen(const Event& event);
  void run_events();
  Place place(Member& member, const Slice& slice);
  void begin_round(int index);
  void post(int from, int to, const Place& place, bool is_send);
  void meet(std::size_t number);
  void read(std::size_t number);
  void write(std::size_t number);
  void one_less(int index);
  void end_round(int index);
  void come_near(int index);
  void meet_in_node(int index);
  void do_near(const std::vector<int>& members, std::size_t which);
  Number combined(const std::vector<Number>& parts, std::size_t first, std::size_t last) const;
  void do_local(Member& member, const LocalStep& local);

  std::span<const Numbers> inputs_;
  Way way_;
  Random random_;
  std::vector<Member> members_;
  std::vector<Transfer> transfers_;
  std::vector<std::size_t> open_;  // transfers of which one side is posted, in their order
  std::vector<Event> events_;
};

Executor::Executor(const Problem& problem, std::span<const Schedule> schedules, std::span<const Numbers> inputs,
                   const Way& way)
    : inputs_(inputs), way_(way), random_(way.seed), members_(schedules.size()) {
  for (int i = 0; i < problem.size; ++i) {
    const auto number = static_cast<std::size_t>(i);
    begin_member(problem, i, schedules[number], inputs[number]);
    if (i != way.late) events_.push_back({Event::Kind::begin_round, number});
  }
}

void Executor::begin_member(const Problem& problem, int index, const Schedule& schedule, const Numbers& given) {
  Member& member = at(index);
  member.schedule = &schedule;
  member.input_count = input_count(problem, index);
  member.output_count = output_count(problem, index);
  member.output_at = member.input_count;
  if (problem.in_place && (!is_rooted(problem.collective) || index == problem.root)) {
    const Overlap overlap = overlap_in_place(problem, index);
    member.input_at = overlap.input;
    member.output_at = overlap.output;
  }
  member.user.resize(std::max(member.input_at + member.input_count, member.output_at + member.output_count));
  member.scratch.resize(schedule.scratch);
  for (Numbers* memory : {&member.user, &member.scratch})
    std::ranges::generate(*memory, [&] { return random_.next(); });
  std::ranges::copy(given, member.user.begin() + static_cast<std::ptrdiff_t>(member.input_at));
}

Place Executor::place(Member& member, const Slice& slice) {
  const std::size_t extent = slice.space == Space::input    ? member.input_count
                             : slice.space == Space::output ? member.output_count
                                                            : member.scratch.size();
  if (slice.count > 0 && slice.offset + slice.count > extent) throw Trouble{to_text(slice) + " lies outside"};
  if (slice.space == Space::scratch) return {&member.scratch, slice.offset, slice.count};
  const std::size_t base = slice.space == Space::input ? member.input_at : member.output_at;
  return {&member.user, base + slice.offset, slice.count};
}

void Executor::begin_round(int index) {
  Member& member = at(index);
  if (member.round == member.schedule->rounds.size()) {
    member.ended = true;
    return;
  }
  const Round& round = member.schedule->rounds[member.round];
  member.waiting = 1;  // this posting
  if (!round.near.empty()) return come_near(index);
  const auto each = [&](const Message& message, bool is_send) {
    const Place where = place(member, message.slice.at(member.lap));
    if (where.count == 0) return;
    const int peer = message.peer_at(member.lap);
    if (peer < 0 || peer >= static_cast<int>(members_.size()) || peer == index) throw Trouble{"no such peer"};
    ++member.waiting;
    is_send ? post(index, peer, where, true) : post(peer, index, where, false);
  };
  for (const Message& message : round.sends) each(message, true);
  for (const Message& message : round.receives) each(message, false);
  one_less(index);
}

// Meets the first that waits for it, or waits.
void Executor::post(int from, int to, const Place& where, bool is_send) {
  const auto waits = std::ranges::find_if(open_, [&](std::size_t number) {
    const Transfer& other = transfers_[number];
    return other.from == from && other.to == to && other.sent != is_send;
  });
  std::size_t number = transfers_.size();
  if (waits == open_.end()) {
    open_.push_back(number);
    transfers_.push_back({from, to, {}, {}});
  } else {
    number = *waits;
    open_.erase(waits);
  }
  Transfer& transfer = transfers_[number];
  if (is_send) {
    transfer.source = where;
    transfer.sent = true;
    transfer.ends_when_read = way_.sends == Sends::leave || (way_.sends == Sends::mixed && random_.chance(2));
    if (transfer.ends_when_read) events_.push_back({Event::Kind::read, number});
  } else {
    transfer.target = where;
    transfer.received = true;
  }
  if (transfer.sent && transfer.received) meet(number);
}

void Executor::meet(std::size_t number) {
  const Transfer& transfer = transfers_[number];
  if (transfer.source.count != transfer.target.count) throw Trouble{"a message has another length than is expected"};
  if (transfer.is_read)
    events_.push_back({Event::Kind::write, number});
  else if (!transfer.ends_when_read)
    events_.push_back({Event::Kind::read, number});
}

void Executor::read(std::size_t number) {
  Transfer& transfer = transfers_[number];
  transfer.data.assign(transfer.source.data(), transfer.source.data() + transfer.source.count);
  transfer.is_read = true;
  if (transfer.received) events_.push_back({Event::Kind::write, number});
  if (transfer.ends_when_read) one_less(transfer.from);
}

void Executor::write(std::size_t number) {
  const Transfer& transfer = transfers_[number];
  std::ranges::copy(transfer.data, transfer.target.data());
  one_less(transfer.to);
  if (!transfer.ends_when_read) one_less(transfer.from);
}

void Executor::one_less(int index) {
  if (--at(index).waiting == 0) events_.push_back({Event::Kind::end_round, static_cast<std::size_t>(index)});
}

void Executor::end_round(int index) {
  Member& member = at(index);
  const Round& round = member.schedule->rounds[member.round];
  for (const LocalStep& local : round.locals) do_local(member, local);
  if (++member.lap == round.times) {
    member.lap = 0;
    ++member.round;
  }
  events_.push_back({Event::Kind::begin_round, static_cast<std::size_t>(index)});
}

// The last one of the node to come brings about what all do.
void Executor::come_near(int index) {
  at(index).is_near = true;
  const IntraNodeStep& near = at(index).schedule->rounds[at(index).round].near.front();
  if (std::ranges::find(near.members, index) == near.members.end()) throw Trouble{"not in its own node"};
  const auto is_there = [&](int member) {
    if (member < 0 || member >= static_cast<int>(members_.size())) throw Trouble{"no such member of a node"};
    return at(member).is_near;
  };
  if (std::ranges::all_of(near.members, is_there))
    events_.push_back({Event::Kind::meet_in_node, static_cast<std::size_t>(index)});
}

void Executor::meet_in_node(int index) {
  const auto near_of = [&](int member) -> const std::vector<IntraNodeStep>& {
    return at(member).schedule->rounds[at(member).round].near;
  };
  const std::vector<int> members = near_of(index).front().members;
  for (const int member : members) {
    if (near_of(member).size() != near_of(index).size()) throw Trouble{"members of a node do unequally much"};
  }
  for (std::size_t which = 0; which < near_of(index).size(); ++which) do_near(members, which);
  for (const int member : members) {
    at(member).is_near = false;
    one_less(member);
  }
}

Number Executor::combined(const std::vector<Number>& parts, std::size_t first, std::size_t last) const {
  if (last - first == 1) return parts[first];
  std::size_t left = 1;
  while (2 * left < last - first) left *= 2;
  return combine(way_.op, combined(parts, first, first + left), combined(parts, first + left, last));
}

// Element by element, from either end: who writes what another still reads is found out.
void Executor::do_near(const std::vector<int>& members, std::size_t which) {
  const auto near_of = [&](std::size_t local) -> const IntraNodeStep& {
    const Member& member = at(members[local]);
    return member.schedule->rounds[member.round].near[which];
  };
  const IntraNodeStep& first = near_of(0);
  struct One {
    Number* to;
    std::vector<const Number*> from;
  };
  std::vector<One> all;
  for (std::size_t local = 0; local < members.size(); ++local) {
    const IntraNodeStep& near = near_of(local);
    if (near.collective != first.collective || near.members != first.members || near.root != first.root ||
        !(near.blocks == first.blocks))
      throw Trouble{"members of a node differ"};
    const auto root = static_cast<std::size_t>(near.root);
    const bool is_for_root = near.collective == Collective::reduce || near.collective == Collective::gather_v;
    if (near.collective == Collective::barrier || (is_for_root && local != root)) continue;
    if (near.to.count > 0 && near.to.space == Space::input) throw Trouble{"the input was written"};
    const Place to = place(at(members[local]), near.to);
    const auto add = [&](std::size_t skip, std::size_t count, const std::vector<std::size_t>& givers,
                         std::size_t giver_skip) {
      if (count > 0 && skip + count > to.count) throw Trouble{"a node's member takes too much"};
      for (std::size_t i = 0; i < count; ++i) {
        One& one = all.emplace_back(One{to.data() + skip + i, {}});
        for (const std::size_t giver : givers) {
          const Place from = place(at(members[giver]), near_of(giver).from);
          if (giver_skip + count > from.count) throw Trouble{"a node's member gives too little"};
          one.from.push_back(from.data() + giver_skip + i);
        }
      }
    };
    std::vector<std::size_t> everybody;
    for (std::size_t i = 0; i < members.size(); ++i) everybody.push_back(i);
    if (near.collective == Collective::broadcast) {
      add(0, to.count, {root}, 0);
    } else if (near.collective == Collective::all_gather_v || near.collective == Collective::gather_v) {
      for (std::size_t i = 0; i < members.size(); ++i) {
        const int block = static_cast<int>(i);
        add(near.blocks.offset(block), near.blocks.count(block), {i}, 0);
      }
    } else if (near.collective == Collective::reduce_scatter_v) {
      const int block = static_cast<int>(local);
      if (near.blocks.count(block) != to.count) throw Trouble{"a node's member takes too little"};
      add(0, to.count, everybody, near.blocks.offset(block));
    } else if (near.collective == Collective::scatter_v) {
      const int block = static_cast<int>(local);
      if (near.blocks.count(block) != to.count) throw Trouble{"a node's member takes too little"};
      add(0, to.count, {root}, near.blocks.offset(block));
    } else if (near.collective == Collective::scan || near.collective == Collective::exscan) {
      everybody.resize(local + (near.collective == Collective::scan ? 1 : 0));
      if (!everybody.empty()) add(0, to.count, everybody, 0);
    } else {
      add(0, to.count, everybody, 0);
    }
  }
  const bool forward = random_.chance(2);
  // In a scan nobody reads what was not handed out before.
  const bool is_kept = first.collective == Collective::scan || first.collective == Collective::exscan;
  std::vector<Number> kept;
  for (std::size_t i = 0; i < all.size(); ++i) {
    const One& one = all[forward ? i : all.size() - 1 - i];
    std::vector<Number> parts;
    for (const Number* from : one.from) parts.push_back(*from);
    (is_kept ? kept.emplace_back() : *one.to) = combined(parts, 0, parts.size());
  }
  for (std::size_t i = 0; i < kept.size(); ++i) *all[forward ? i : all.size() - 1 - i].to = kept[i];
}

// From either end, which shows when the target overlaps an operand.
void Executor::do_local(Member& member, const LocalStep& local) {
  const Place target = place(member, local.target.at(member.lap));
  const Place left = place(member, local.left.at(member.lap));
  const Place right = place(member, local.right.at(member.lap));
  const bool reduces = local.kind == LocalStepKind::reduce;
  if (left.count != target.count || (reduces && right.count != target.count)) throw Trouble{"unequal operands"};
  const bool forward = random_.chance(2);
  for (std::size_t i = 0; i < target.count; ++i) {
    const std::size_t j = forward ? i : target.count - 1 - i;
    target.data()[j] = reduces ? combine(way_.op, left.data()[j], right.data()[j]) : left.data()[j];
  }
}

void Executor::happen(const Event& event) {
  switch (event.kind) {
    case Event::Kind::begin_round:
      return begin_round(static_cast<int>(event.of));
    case Event::Kind::read:
      return read(event.of);
    case Event::Kind::write:
      return write(event.of);
    case Event::Kind::meet_in_node:
      return meet_in_node(static_cast<int>(event.of));
    case Event::Kind::end_round:
      return end_round(static_cast<int>(event.of));
  }
}

void Executor::run_events() {
  while (!events_.empty()) {
    std::swap(events_[random_.below(events_.size())], events_.back());
    const Event event = events_.back();
    events_.pop_back();
    happen(event);
  }
}

std::vector<Numbers> Executor::outputs() const {
  std::vector<Numbers> all;
  for (const Member& member : members_) {
    const auto begin = member.user.begin() + static_cast<std::ptrdiff_t>(member.output_at);
    all.emplace_back(begin, begin + static_cast<std::ptrdiff_t>(member.output_count));
  }
  return all;
}

Execution Executor::run() {
  Execution result;
  result.before = outputs();
  run_events();
  if (way_.late >= 0) {
    result.left_early = std::ranges::any_of(members_, &Member::ended);
    events_.push_back({Event::Kind::begin_round, static_cast<std::size_t>(way_.late)});
    run_events();
  }
  if (!std::ranges::all_of(members_, &Member::ended)) throw Trouble{"stuck"};
  for (std::size_t i = 0; i < members_.size(); ++i) {
    const Member& member = members_[i];
    const bool apart = member.output_at == member.input_count;
    if (apart && !std::equal(inputs_[i].begin(), inputs_[i].end(), member.user.begin()))
      throw Trouble{"the input was written"};
  }
  result.outputs = outputs();
  return result;
}

bool is_right(const Execution& result, std::span<const Numbers> right) {
  for (std::size_t i = 0; i < right.size(); ++i) {
    for (std::size_t j = 0; j < right[i].size(); ++j) {
      const Number wanted = right[i][j] == untouched ? result.before[i][j] : right[i][j];
      if (result.outputs[i][j] != wanted) return false;
    }
  }
  return true;
}

std::string find_early(const Problem& problem, std::span<const Schedule> schedules, std::span<const Numbers> inputs,
                       std::uint64_t seed) {
  for (int late = 0; late < problem.size; ++late) {
    const Execution result = execute(problem, schedules, inputs, {Op::sum, seed, Sends::leave, late});
    if (!result.trouble.empty()) return result.trouble;
    if (result.left_early && problem.size > 1) return text("somebody leaves before ", late, " comes");
  }
  return {};
}

}  // namespace

std::vector<Numbers> random_inputs(const Problem& problem, std::uint64_t seed) {
  Random random(seed);
  std::vector<Numbers> all(static_cast<std::size_t>(problem.size));
  for (int i = 0; i < problem.size; ++i) {
    Numbers& mine = all[static_cast<std::size_t>(i)];
    mine.resize(input_count(problem, i));
    std::ranges::generate(mine, [&] { return random.next(); });
  }
  return all;
}

Execution execute(const Problem& problem, std::span<const Schedule> schedules, std::span<const Numbers> inputs,
                  const Way& way) {
  try {
    return Executor(problem, schedules, inputs, way).run();
  } catch (const Trouble& trouble) {
    return {trouble.text, {}, {}};
  }
}

std::string find_trouble(const Problem& problem, std::span<const Schedule> schedules, std::uint64_t seed) {
  const std::vector<Numbers> inputs = random_inputs(problem, seed);
  const std::vector<Numbers> right = right_outputs(problem, inputs, Op::sum);
  for (const Sends sends : {Sends::meet, Sends::leave, Sends::mixed}) {
    const Execution result = execute(problem, schedules, inputs, {Op::sum, ++seed, sends});
    if (!result.trouble.empty()) return result.trouble;
    if (!is_right(result, right)) return "a wrong result";
  }
  if (problem.collective == Collective::barrier) return find_early(problem, schedules, inputs, seed);
  if (problem.collective == Collective::all_reduce) {
    const Execution result = execute(problem, schedules, inputs, {Op::tangle, seed});
    if (std::ranges::adjacent_find(result.outputs, std::ranges::not_equal_to()) != result.outputs.end())
      return "members combine in different ways";
  }
  return {};
}

bool gives(const Problem& problem, std::span<const Schedule> schedules, Op op, std::uint64_t seed) {
  const std::vector<Numbers> inputs = random_inputs(problem, seed);
  const Execution result = execute(problem, schedules, inputs, {op, seed});
  return result.trouble.empty() && is_right(result, right_outputs(problem, inputs, op));
}

}  // namespace lockstep::test
