// SPDX-License-Identifier: Apache-2.0
// The rule by which lines and slots become free orders every write before the reads of its step, and those before the
// next write at that place, whatever the machine reorders. The ring of lines is shorter here than in the room, so that
// few steps go around it.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "collectives/node/room.hpp"
#include "tests/support/sanitized.hpp"
#include "topology/base/text.hpp"

namespace lockstep {
namespace {

constexpr int everybody = -1;
constexpr int nobody = -2;
constexpr int fewer = test::sanitized ? 2 : 0;  // steps

struct Protocol {
  int members;
  std::vector<int> needs;  // of each step: everybody, nobody, or one member that all others need
  std::vector<bool> late;  // of each step: what it gives is read after the next one was published
  unsigned lines = 0;      // which steps write no slot, as bits
  int slot_ring = static_cast<int>(node::slot_ring);
  int slot_behind = static_cast<int>(node::slot_ring - node::in_use);
  int line_ring = static_cast<int>(node::slot_ring) + 1;
  int line_behind = static_cast<int>(node::slot_ring - node::in_use) + 1;

  bool in_slot(int step) const { return (lines >> static_cast<unsigned>(step) & 1U) == 0; }
  int behind(int step) const { return in_slot(step) ? slot_behind : line_behind; }
  // Whether two steps are written in one place.
  bool meet(int one, int other) const {
    return one % line_ring == other % line_ring ||
           (in_slot(one) && in_slot(other) && one % slot_ring == other % slot_ring);
  }
};

// What a member does, one thing after the other.
struct Act {
  enum class Kind : std::uint8_t { begin_writing, end_writing, publish, see, begin_reading, end_reading };
  Kind kind;
  int step;
  int member;  // that is seen or read
};

// Everything that the member does.
std::vector<Act> acts_of(const Protocol& protocol, int me) {
  using Kind = Act::Kind;
  std::vector<Act> all;
  const auto steps = static_cast<int>(protocol.needs.size());
  const auto sources = [&](int step) {
    std::vector<int> members;
    for (int member = 0; member < protocol.members; ++member) {
      const int needed = protocol.needs[static_cast<std::size_t>(step)];
      if (member != me && (needed == everybody || needed == member)) members.push_back(member);
    }
    return members;
  };
  const auto read = [&](int step) {
    for (const int member : sources(step)) {
      all.push_back({Kind::begin_reading, step, member});
      all.push_back({Kind::end_reading, step, member});
    }
  };
  for (int step = 0; step < steps; ++step) {
    all.push_back({Kind::begin_writing, step, me});
    all.push_back({Kind::end_writing, step, me});
    all.push_back({Kind::publish, step, me});
    if (step > 0 && protocol.late[static_cast<std::size_t>(step) - 1]) read(step - 1);
    for (const int member : sources(step)) all.push_back({Kind::see, step, member});
    if (!protocol.late[static_cast<std::size_t>(step)] || step + 1 == steps) read(step);
  }
  return all;
}

// What happened before what, whatever the machine reorders: an act comes after those before it in its member, and what
// is seen brings with it all that its member did before it published that. Nothing newer is taken to be seen than what
// the member waits for, so this holds for every timing.
class Clocks {
 public:
  explicit Clocks(const Protocol& protocol) : protocol_(protocol) {
    const auto n = static_cast<std::size_t>(protocol.members);
    for (int member = 0; member < protocol.members; ++member) acts_.push_back(acts_of(protocol, member));
    before_.resize(n);
    for (bool moved = true; moved;) {
      moved = false;
      for (std::size_t member = 0; member < n; ++member) moved = get_on(member) || moved;
    }
  }

  // "" or which two acts nothing orders.
  std::string unordered() const {
    for (std::size_t reader = 0; reader < acts_.size(); ++reader) {
      if (before_[reader].size() != acts_[reader].size()) return "nobody gets on";
      for (std::size_t i = 0; i < acts_[reader].size(); ++i) {
        const Act& act = acts_[reader][i];
        const auto giver = static_cast<std::size_t>(act.member);
        if (act.kind == Act::Kind::begin_reading &&
            before_[reader][i][giver] <= place(giver, Act::Kind::end_writing, act.step))
          return text("member ", reader, " reads step ", act.step, " of member ", giver,
                      ", which may not be written yet");
        if (act.kind != Act::Kind::end_reading) continue;
        for (int later = act.step + 1; later < static_cast<int>(protocol_.needs.size()); ++later) {
          const std::size_t next = place(giver, Act::Kind::begin_writing, later);
          if (protocol_.meet(later, act.step) && before_[giver][next][reader] <= i)
            return text("member ", giver, " may write over step ", act.step, " while member ", reader, " reads it");
        }
      }
    }
    return {};
  }

 private:
  // Where the member does it; past the end: nowhere.
  std::size_t place(std::size_t member, Act::Kind kind, int step) const {
    const auto& acts = acts_[member];
    return static_cast<std::size_t>(
        std::ranges::find_if(acts, [&](const Act& act) { return act.kind == kind && act.step == step; }) -
        acts.begin());
  }

  // One act further, unless what it waits for has no clock yet.
  bool get_on(std::size_t member) {
    const std::size_t i = before_[member].size();
    if (i == acts_[member].size()) return false;
    const Act& act = acts_[member][i];
    std::vector<std::size_t> clock = i == 0 ? std::vector<std::size_t>(acts_.size()) : before_[member][i - 1];
    const bool writes = act.kind == Act::Kind::begin_writing;
    const int step = writes ? act.step - protocol_.behind(act.step) : act.step;
    for (std::size_t other = 0; other < acts_.size() && step >= 0; ++other) {
      const bool waits = writes || (act.kind == Act::Kind::see && act.member == static_cast<int>(other));
      if (!waits || other == member) continue;
      const std::size_t published = place(other, Act::Kind::publish, step);
      if (published >= before_[other].size()) return false;
      for (std::size_t m = 0; m < clock.size(); ++m) clock[m] = std::max(clock[m], before_[other][published][m]);
    }
    clock[member] = i + 1;
    before_[member].push_back(clock);
    return true;
  }

  Protocol protocol_;
  std::vector<std::vector<Act>> acts_;
  std::vector<std::vector<std::vector<std::size_t>>> before_;  // of each act: how many of each member's come before
};

// All kinds of steps in all their orders, all ways to read them, and several mixtures of lines and slots.
template <class Visit>
void each_protocol(int members, int steps, const std::vector<int>& kinds, const Visit& visit) {
  std::size_t patterns = 1;
  for (int step = 0; step < steps; ++step) patterns *= kinds.size();
  for (std::size_t pattern = 0; pattern < patterns; ++pattern) {
    for (const bool late : {false, true}) {
      for (const unsigned lines : {0U, ~0U, 0b0110110U, 0b1011010U}) {
        Protocol protocol{.members = members, .needs = {}, .late = {}, .lines = lines};
        std::size_t rest = pattern;
        for (int step = 0; step < steps; ++step, rest /= kinds.size()) {
          protocol.needs.push_back(kinds[rest % kinds.size()]);
          protocol.late.push_back(late);
        }
        visit(protocol);
      }
    }
  }
}

TEST(NodeProtocol, ReleaseAndAcquireOrderAllThatTouchesOneSlot) {
  const auto holds = [](const Protocol& protocol) {
    ASSERT_EQ(Clocks(protocol).unordered(), "") << protocol.members << " members";
  };
  each_protocol(2, 8 - fewer, {everybody, 0, 1, nobody}, holds);
  each_protocol(3, 7 - fewer, {everybody, 0, nobody}, holds);
  each_protocol(4, 7 - fewer, {everybody, 3, nobody}, holds);
  for (const unsigned lines : {0U, ~0U}) {
    for (const bool ahead : {true, false}) {
      Protocol protocol{
          .members = 3, .needs = std::vector<int>(7, 0), .late = std::vector<bool>(7, true), .lines = lines};
      for (int* const number : ahead ? std::array{&protocol.slot_behind, &protocol.line_behind}
                                     : std::array{&protocol.slot_ring, &protocol.line_ring})
        *number += ahead ? 1 : -1;
      EXPECT_NE(Clocks(protocol).unordered().find("may write over step"), std::string::npos);
    }
  }
}

// Messages between two members: their lengths, and the rings that they go through.
struct MessageModel {
  std::vector<int> lengths;  // in units of a ring of bytes; 0: the message is in its cell
  int cells = 3;
  int bytes = 4;
  int cells_ahead = 0;  // that the sender writes too early
  int bytes_ahead = 0;
};

// Finds a message that its sender may write while the receiver reads an earlier one in the same place. The sender has
// seen the receiver's counts, which the receiver changes after it has read; so a message that is counted was read.
std::string overwritten(const MessageModel& model) {
  std::vector<int> begins;
  std::vector<int> ends;
  int passed = 0;
  for (std::size_t i = 0; i < model.lengths.size(); ++i) {
    const int before_end = model.bytes - passed % model.bytes;
    begins.push_back(model.lengths[i] <= before_end ? passed : passed + before_end);
    ends.push_back(begins.back() + model.lengths[i]);
    if (model.lengths[i] > 0) passed = ends.back();
    // Counts the earlier messages that must have been read before this one is written.
    std::size_t read = 0;
    for (std::size_t earlier = 0; earlier < i; ++earlier) {
      const bool frees_cell = static_cast<int>(earlier) <= static_cast<int>(i) - model.cells - model.cells_ahead;
      const bool is_needed = model.lengths[i] > 0 && model.lengths[earlier] > 0 &&
                             begins[earlier] < ends[i] - model.bytes - model.bytes_ahead;
      if (frees_cell || is_needed) read = earlier + 1;
    }
    for (std::size_t earlier = read; earlier < i; ++earlier) {
      if (static_cast<int>(i - earlier) % model.cells == 0) return text("the cell of message ", earlier);
      for (int place = begins[i]; place < ends[i] && model.lengths[earlier] > 0; ++place) {
        for (int other = begins[earlier]; other < ends[earlier]; ++other) {
          if (place % model.bytes == other % model.bytes) return text("the bytes of message ", earlier);
        }
      }
    }
  }
  return {};
}

TEST(NodeProtocol, CountsOfTakenMessagesKeepTheirPlaces) {
  const auto each_model = [](MessageModel model, const auto& visit) {
    constexpr int messages = 7;
    int patterns = 1;
    for (int i = 0; i < messages; ++i) patterns *= 4;
    for (int pattern = 0; pattern < patterns; ++pattern) {
      model.lengths.clear();
      for (int i = 0, rest = pattern; i < messages; ++i, rest /= 4) model.lengths.push_back(rest % 4);
      visit(model);
    }
  };
  for (const int cells : {2, 3, 8}) {
    each_model({.lengths = {}, .cells = cells}, [](const MessageModel& model) { ASSERT_EQ(overwritten(model), ""); });
  }
  std::string cell;
  each_model({.lengths = {}, .cells_ahead = 1}, [&](const MessageModel& model) { cell += overwritten(model); });
  EXPECT_NE(cell.find("the cell of"), std::string::npos);
  std::string bytes;
  each_model({.lengths = {}, .cells = 8, .bytes_ahead = 1},
             [&](const MessageModel& model) { bytes += overwritten(model); });
  EXPECT_NE(bytes.find("the bytes of"), std::string::npos);
}

// A block that goes through a ring of chunks. The sender publishes each chunk by its counter, and the receiver frees
// the chunk by its own. Several blocks follow each other in one ring here, where the room has a ring in each of four
// slots.
struct Stream {
  int chunks;
  int ring;
  int ahead;  // chunks that the sender writes before it looks at the receiver's counter
};

// Returns which chunk is read before it is written, or written over while it is read; empty if none is. A clock of two
// counts tells how many acts of each side happened before an act. An act is a write, or a read, of one chunk.
std::string unordered(const Stream& stream) {
  std::vector<std::array<int, 2>> written(static_cast<std::size_t>(stream.chunks));
  std::vector<std::array<int, 2>> read(static_cast<std::size_t>(stream.chunks));
  std::array<int, 2> sender{};
  std::array<int, 2> receiver{};
  const auto see = [](std::array<int, 2>& mine, const std::array<int, 2>& theirs) {
    for (std::size_t i = 0; i < 2; ++i) mine[i] = std::max(mine[i], theirs[i]);
  };
  int sent = 0;
  int taken = 0;
  while (taken < stream.chunks) {
    const auto at = [](auto& acts, int chunk) -> auto& { return acts[static_cast<std::size_t>(chunk)]; };
    // Nothing newer is taken to be seen than what the side waits for.
    if (sent < stream.chunks && sent - stream.ahead < taken) {
      if (sent >= stream.ahead) see(sender, at(read, sent - stream.ahead));
      const int before = sent - stream.ring;
      if (before >= 0 && sender[1] <= before)
        return text("chunk ", sent, " is written over chunk ", before, ", which may be read");
      ++sender[0];
      at(written, sent++) = sender;
      continue;
    }
    if (sent <= taken) return "nobody gets on";
    see(receiver, at(written, taken));
    if (receiver[0] <= taken) return text("chunk ", taken, " is read before it is written");
    ++receiver[1];
    at(read, taken++) = receiver;
  }
  return {};
}

TEST(NodeProtocol, TwoCountersOrderTheChunksOfAStream) {
  for (int chunks = 1; chunks < 20; ++chunks) {
    for (int ring = 1; ring < 6; ++ring) {
      EXPECT_EQ(unordered({chunks, ring, ring}), "") << chunks << " chunks in a ring of " << ring;
      if (chunks > ring) {
        EXPECT_NE(unordered({chunks, ring, ring + 1}).find("is written over"), std::string::npos) << ring;
      }
    }
  }
}

}  // namespace
}  // namespace lockstep
