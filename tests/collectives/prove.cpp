// SPDX-License-Identifier: Apache-2.0
// Executes the schedules: posts each member's rounds, matches sends with receives, and does the local steps.
#include "tests/collectives/prove.hpp"

#include <algorithm>

#include "collectives/algorithms/algorithms.hpp"
#include "tests/collectives/prover.hpp"
#include "topology/base/text.hpp"

namespace lockstep {
namespace symbols {

void MemberState::fail(std::string_view what) const {
  throw Fault{text("member ", index, ", round ", round, ", lap ", lap, ": ", what)};
}

Location MemberState::locate(const Slice& slice) const {
  const std::size_t end = slice.offset + slice.count;
  if (slice.count > 0 && end > extents[static_cast<int>(slice.space)]) fail(text(to_text(slice), " lies outside"));
  const auto place = [&](Space memory, std::size_t shift) {
    return Location{static_cast<int>(memory), static_cast<std::int64_t>(slice.offset + shift),
                    static_cast<std::int64_t>(end + shift)};
  };
  if (!as_one || slice.space == Space::scratch) return place(slice.space, 0);
  return place(Space::output, slice.space == Space::input ? as_one->input : as_one->output);
}

void MemberState::read(const Location& where, std::vector<SymbolicRange>& pieces, std::string_view doing) const {
  memories[where.memory].get(where.begin, where.end, pieces);
  for (const SymbolicRange& piece : pieces) {
    if (piece.value.expression == unset) fail(text(doing, " elements that nobody has set"));
  }
}

namespace {

// Checks that the messages of a round write to no place that another one of them uses.
void check_races(const MemberState& member, std::size_t first_send, std::size_t first_receive) {
  std::vector<Location> written;
  for (std::size_t i = first_receive; i < member.receives.size(); ++i) written.push_back(member.receives[i].where);
  std::ranges::sort(written, {}, [](const Location& each) { return std::pair(each.memory, each.begin); });
  for (std::size_t i = 1; i < written.size(); ++i) {
    if (written[i].overlaps(written[i - 1])) member.fail("two messages of one round are received into one place");
  }
  if (written.empty()) return;
  for (std::size_t i = first_send; i < member.sends.size(); ++i) {
    const Location& sent = member.sends[i].where;
    auto next_write = std::ranges::upper_bound(written, std::pair(sent.memory, sent.begin), {},
                                               [](const Location& each) { return std::pair(each.memory, each.begin); });
    const bool after = next_write != written.end() && next_write->overlaps(sent);
    const bool before = next_write != written.begin() && std::prev(next_write)->overlaps(sent);
    if (after || before) member.fail("a place is sent and received into in one round");
  }
}

}  // namespace

void ScheduleProver::begin_member(int index, const Schedule& schedule) {
  MemberState& member = at(index);
  member.index = index;
  member.schedule = &schedule;
  member.shape = shape_of(problem_, index);
  member.extents[static_cast<int>(Space::input)] = input_count(problem_, index);
  member.extents[static_cast<int>(Space::output)] = output_count(problem_, index);
  member.extents[static_cast<int>(Space::scratch)] = schedule.scratch;
  if (problem_.in_place && (!is_rooted(problem_.collective) || index == problem_.root))
    member.as_one = overlap_in_place(problem_, index);
  member.heard.resize(members_.size());
  member.heard[static_cast<std::size_t>(index)] = true;
  const Location given = member.locate({Space::input, 0, member.extents[static_cast<int>(Space::input)]});
  const SymbolicValue own{static_cast<Expression>(index), -given.begin};
  if (problem_.stride == 0 || !cuts_input(problem_.collective) || given.begin == given.end) {
    member.memories[given.memory].set(given.begin, given.end, own);
  } else {  // nothing is given between blocks that lie apart
    for (int block = 0; block < member.shape.input_blocks.parts(); ++block) {
      const Location part = member.locate(member.shape.input_blocks.slice(Space::input, block));
      member.memories[given.memory].set(part.begin, part.end, own);
    }
  }
  ready_.push_back(index);
}

void ScheduleProver::post(MemberState& member) {
  const Round& round = member.current();
  if (!round.node_steps.empty()) {
    if (round.times != 1 || !round.sends.empty() || !round.receives.empty() || !round.locals.empty())
      member.fail("does something else in a round of its node");
    member.node_steps = &round.node_steps;
    member.posted = true;
    member.ended = member.begun;
    member.waiting = 1;
    return;
  }
  const std::size_t first_send = member.sends.size();
  const std::size_t first_receive = member.receives.size();
  const auto each = [&](const Message& message, std::vector<PostedMessage>& list) {
    const Slice slice = message.slice.at(member.lap);
    if (slice.count == 0) return;
    const int peer = message.peer_at(member.lap);
    if (peer < 0 || peer >= problem_.size || peer == member.index) member.fail(text("a message with member ", peer));
    list.push_back({member.index, peer, member.locate(slice), member.begun});
  };
  for (const Message& message : round.sends) each(message, member.sends);
  for (const Message& message : round.receives) {
    if (message.slice.space() == Space::input) member.fail("receives into its input");
    each(message, member.receives);
  }
  check_races(member, first_send, first_receive);
  member.posted = true;
  if (problem_.collective == Collective::barrier) member.told = member.heard;
  member.ended = member.begun;
  member.waiting = member.sends.size() + member.receives.size();
  for (std::size_t i = first_send; i < member.sends.size(); ++i)
    member.sent += static_cast<std::size_t>(member.sends[i].where.end - member.sends[i].where.begin);
}

void ScheduleProver::match(PostedMessage& send, PostedMessage& receive) {
  MemberState& from = at(send.member);
  MemberState& to = at(receive.member);
  const std::int64_t length = send.where.end - send.where.begin;
  if (length != receive.where.end - receive.where.begin) {
    to.fail(text("expects ", receive.where.end - receive.where.begin, " elements from member ", send.member,
                 ", which sends ", length));
  }
  from.read(send.where, left_, "sends");
  const std::int64_t way = receive.where.begin - send.where.begin;
  for (const SymbolicRange& piece : left_) {
    to.memories[receive.where.memory].set(piece.begin + way, piece.end + way,
                                          {piece.value.expression, piece.value.shift - way});
  }
  for (std::size_t i = 0; i < from.told.size(); ++i) {
    if (from.told[i]) to.heard[i] = true;
  }
  const std::size_t end = std::max(send.begun, receive.begun) + 1;
  for (MemberState* each : {&from, &to}) {
    each->ended = std::max(each->ended, end);
    --each->waiting;
  }
}

// Matches the first send of `from` to `to` with the first receive of `to` from `from`. Returns false if one is missing.
bool ScheduleProver::find_partner(std::vector<PostedMessage>& sends, std::vector<PostedMessage>& receives, int from,
                                  int to) {
  const auto send = std::ranges::find(sends, to, &PostedMessage::peer);
  const auto receive = std::ranges::find(receives, from, &PostedMessage::peer);
  if (send == sends.end() || receive == receives.end()) return false;
  match(*send, *receive);
  sends.erase(send);
  receives.erase(receive);
  return true;
}

void ScheduleProver::end_round(MemberState& member) {
  const Round& round = member.current();
  for (const LocalStep& local : round.locals) do_local(member, local);
  member.begun = member.ended;
  member.posted = false;
  if (++member.lap == round.times) {
    member.lap = 0;
    ++member.round;
  }
}

void ScheduleProver::do_local(MemberState& member, const LocalStep& local) {
  const int lap = member.lap;
  const Slice slice = local.target.at(lap);
  if (slice.count == 0) return;
  if (slice.space == Space::input) member.fail("writes its input");
  const Location target = member.locate(slice);
  const Location left = member.locate(local.left.at(lap));
  const Location right = member.locate(local.right.at(lap));
  const std::int64_t length = target.end - target.begin;
  for (const Location& source : {left, right}) {
    if (source.end - source.begin != length) member.fail("combines slices of different lengths");
    if (source != target && source.overlaps(target)) member.fail("a target overlaps its source");
  }
  if (local.kind == LocalStepKind::reduce) {
    reduce(member, target, left, right);
    return;
  }
  if (left == target) return;
  member.read(left, left_, "copies");
  const std::int64_t way = target.begin - left.begin;
  for (const SymbolicRange& piece : left_) {
    member.memories[target.memory].set(piece.begin + way, piece.end + way,
                                       {piece.value.expression, piece.value.shift - way});
  }
}

void ScheduleProver::reduce(MemberState& member, const Location& target, const Location& left, const Location& right) {
  member.read(left, left_, "reduces");
  member.read(right, right_, "reduces");
  SymbolicMemory& memory = member.memories[target.memory];
  std::size_t i = 0;
  std::size_t j = 0;
  std::int64_t done = 0;  // elements from the beginning
  while (done < target.end - target.begin) {
    const SymbolicRange& a = left_[i];
    const SymbolicRange& b = right_[j];
    const std::int64_t end = std::min(a.end - left.begin, b.end - right.begin);
    const std::int64_t id_a = left.begin + a.value.shift;  // of element 0
    const std::int64_t id_b = right.begin + b.value.shift;
    if (id_a != id_b) member.fail("combines elements of different positions");
    if (!expressions_.disjoint(a.value.expression, b.value.expression)) member.fail("counts a contribution twice");
    const Expression sum = expressions_.combine(a.value.expression, b.value.expression);
    memory.set(target.begin + done, target.begin + end, {sum, id_a - target.begin});
    done = end;
    if (a.end - left.begin == end) ++i;
    if (b.end - right.begin == end) ++j;
  }
}

// A member that is not done when nothing can advance waits for ever.
void ScheduleProver::check_deadlock() const {
  for (int i = 0; i < problem_.size; ++i) {
    const MemberState& member = members_[static_cast<std::size_t>(i)];
    if (member.done()) continue;
    if (member.node_steps != nullptr) member.fail("waits for ever for the others of its node");
    const PostedMessage& stuck = member.sends.empty() ? member.receives.front() : member.sends.front();
    member.fail(
        text(member.sends.empty() ? "waits for ever to receive from member " : "waits for ever to send to member ",
             stuck.peer));
  }
}

// Tries each pair of this member until nothing of it matches. Messages of a pair are matched in their order.
void ScheduleProver::match_posted(MemberState& member) {
  const auto peers_of = [](const std::vector<PostedMessage>& messages) {
    std::vector<int> peers;
    for (const PostedMessage& each : messages) peers.push_back(each.peer);
    return peers;
  };
  for (const int peer : peers_of(member.sends)) {
    if (find_partner(member.sends, at(peer).receives, member.index, peer) && at(peer).waiting == 0)
      ready_.push_back(peer);
  }
  for (const int peer : peers_of(member.receives)) {
    if (find_partner(at(peer).sends, member.receives, peer, member.index) && at(peer).waiting == 0)
      ready_.push_back(peer);
  }
}

// Advances members until none can. Their order does not matter, since messages of a pair match in the order of posting.
Proof ScheduleProver::run() {
  Proof proof;
  while (!ready_.empty()) {
    MemberState& member = at(ready_.front());
    ready_.pop_front();
    while (!member.done()) {
      if (!member.posted) {
        post(member);
        if (member.node_steps != nullptr) {
          for (const int other : intra_node_.meet(member.index)) ready_.push_back(other);
        }
        match_posted(member);
      }
      if (member.waiting > 0) break;
      end_round(member);
    }
  }
  check_deadlock();
  proof.in_order = true;
  proof.balanced = true;
  ResultProver results(problem_, members_, expressions_);
  for (int i = 0; i < problem_.size; ++i) {
    results.check(i, proof);
    proof.cost.rounds = std::max(proof.cost.rounds, at(i).begun);
    proof.cost.sent_most = std::max(proof.cost.sent_most, at(i).sent);
    proof.cost.sent_total += at(i).sent;
  }
  return proof;
}

}  // namespace symbols

Proof prove(const Problem& problem, std::span<const Schedule> schedules) {
  try {
    if (static_cast<int>(schedules.size()) != problem.size) throw symbols::Fault{"not one schedule for each member"};
    return symbols::ScheduleProver(problem, schedules).run();
  } catch (const symbols::Fault& fault) {
    Proof proof;
    proof.fault = fault.text;
    return proof;
  }
}

}  // namespace lockstep
