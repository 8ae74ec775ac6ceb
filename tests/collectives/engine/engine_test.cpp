// SPDX-License-Identifier: Apache-2.0
// The engine over threads, with schedules written by hand: right results, many calls at once, segments, messages.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <random>
#include <thread>

#include "collectives/call_tags.hpp"
#include "collectives/engine/checked_transport.hpp"
#include "collectives/engine/control_message.hpp"
#include "collectives/engine/forwarding_transport.hpp"
#include "collectives/engine/rescue.hpp"
#include "tests/collectives/engine/engine_support.hpp"
#include "topology/base/progress_hooks.hpp"

namespace lockstep::test {
namespace {

TEST(Engine, AllReduceOfAnySize) {
  for (int size = 1; size <= 8; ++size) {
    on_engines(size, [size](RealEngine& engine, Exchange&) {
      for (const std::size_t count : {0U, 1U, 2U, 7U, 8U, 1000U}) {
        const auto plan = all_reduce_plan(size, engine.rank(), count);
        const std::vector<float> in = given(engine.rank(), count);
        std::vector<float> out(count);
        for (int lap = 0; lap < 3; ++lap) {
          out.assign(count, -1);
          run(engine, call_of(plan, in, out));
          ASSERT_EQ(out, summed(size, count)) << count;
        }
      }
    });
  }
}

TEST(Engine, SegmentsFlowThroughLanes) {
  for (const int size : {1, 2, 3, 5}) {
    on_engines(size, [size](RealEngine& engine, Exchange&) {
      for (int depth = 1; depth <= 4; ++depth) {
        for (const std::size_t segment : {1U, 7U, 16U, 100U}) {
          constexpr std::size_t count = 100;
          const auto plan = all_reduce_plan(size, engine.rank(), count, ReduceOp::sum, {segment, depth});
          const std::vector<float> in = given(engine.rank(), count);
          std::vector<float> out(count);
          run(engine, call_of(plan, in, out));
          ASSERT_EQ(out, summed(size, count)) << "depth " << depth << ", segments of " << segment;
        }
      }
    });
  }
}

// The other member may wait for a message of MPI, which needs a function of MPI here. This must come before tests in
// which a member fails: no MPI is called after that.
TEST(Engine, LongWaitsLetMpiMakeProgress) {
  std::atomic<bool> moved = false;
  const OutsideProgress progress([&] { moved = true; });
  on_engines(2, [&](RealEngine& engine, Exchange&) {
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (engine.rank() == 1 && !moved && std::chrono::steady_clock::now() < limit)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    const auto plan = all_reduce_plan(2, engine.rank(), 1);
    const std::vector<float> in = given(engine.rank(), 1);
    std::vector<float> out(1);
    run(engine, call_of(plan, in, out));
  });
  EXPECT_TRUE(moved);
}

// More than there are lanes, of several kinds, waited for in an order of each member's own.
TEST(Engine, ManyAtOnce) {
  on_engines(4, [](RealEngine& engine, Exchange&) {
    constexpr std::size_t calls = 100;
    const int rank = engine.rank();
    std::vector<std::vector<float>> ins(calls);
    std::vector<std::vector<float>> outs(calls);
    std::vector<CallTicket> tickets;
    for (std::size_t i = 0; i < calls; ++i) {
      const std::size_t count = 10 * (i % 5);
      ins[i] = given(rank, count, static_cast<int>(i));
      outs[i].resize(count);
      const Cut cut{i % 3 == 0 ? 9U : 0U, 3};
      const auto plan = i % 4 == 1 ? broadcast_plan(4, rank, count, static_cast<int>(i) % 3)
                                   : all_reduce_plan(4, rank, count, ReduceOp::sum, cut);
      tickets.push_back(*engine.start(call_of(plan, ins[i], outs[i])));
    }
    std::vector<std::size_t> order(calls);
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::shuffle(order.begin(), order.end(), std::mt19937(static_cast<unsigned>(rank)));
    for (const std::size_t i : order) {
      if (i % 2 == 0) {
        engine.wait(tickets[i]);
      } else {
        while (!engine.test(tickets[i])) std::this_thread::yield();
      }
      const auto salt = static_cast<int>(i);
      const auto expected = i % 4 == 1 ? given(salt % 3, outs[i].size(), salt) : summed(4, outs[i].size(), salt);
      ASSERT_EQ(outs[i], expected) << "call " << i;
    }
  });
}

// Members that exchange messages make different numbers of calls; collective calls of all go on in between.
TEST(Engine, MessagesBetweenSomeDoNotDisturbTheOthers) {
  constexpr int size = 5;
  on_engines(size, [](RealEngine& engine, Exchange&) {
    const int rank = engine.rank();
    const std::vector<float> in = given(rank, 33);
    std::vector<float> out(33);
    const auto plan = all_reduce_plan(size, rank, 33);
    std::vector<std::vector<float>> got(30, std::vector<float>(4));
    const std::vector<float> mine = given(rank, 4);
    std::vector<CallTicket> tickets;
    if (rank < 2) {  // all sends before all receives, more than any fixed number of lanes
      for (std::size_t i = 0; i < got.size(); ++i)
        tickets.push_back(*engine.start(call_of(message_plan(size, rank, true, 1 - rank, 4), mine, out)));
      for (auto& each : got)
        tickets.push_back(*engine.start(call_of(message_plan(size, rank, false, 1 - rank, 4), mine, each)));
    }
    for (int lap = 0; lap < 3; ++lap) {
      run(engine, call_of(plan, in, out));
      ASSERT_EQ(out, summed(size, 33));
    }
    for (const CallTicket& ticket : tickets) engine.wait(ticket);
    if (rank < 2) {
      for (const auto& each : got) EXPECT_EQ(each, given(1 - rank, 4));
    }
  });
}

TEST(Checksums, DifferWhereABitDoes) {
  std::vector<std::byte> data(100);
  for (std::size_t i = 0; i < data.size(); ++i) data[i] = static_cast<std::byte>(i * 37);
  for (std::size_t length = 0; length <= data.size(); ++length) {
    const auto bytes = std::span(data).first(length);
    const std::uint64_t right = checksum(bytes);
    EXPECT_EQ(checksum(bytes), right);
    if (length > 0) {
      EXPECT_NE(checksum(bytes.first(length - 1)), right);
    }
    for (std::size_t bit = 0; bit < 8 * length; ++bit) {
      bytes[bit / 8] ^= std::byte{1} << (bit % 8);
      EXPECT_NE(checksum(bytes), right) << length << ' ' << bit;
      bytes[bit / 8] ^= std::byte{1} << (bit % 8);
    }
  }
}

// Words to one member wait until their sender has looked so often, as words to somebody who is not connected yet do.
class SlowWords final : public ForwardingTransport {
 public:
  SlowWords(std::unique_ptr<Transport> to, int peer) : ForwardingTransport(std::move(to)), peer_(peer) {}

  void send_control(int peer, Bytes bytes) override {
    if (peer != peer_) return to().send_control(peer, std::move(bytes));
    held_.push_back(std::move(bytes));
    looks_ = 0;
  }
  bool is_control_sent(int peer) override { return peer != peer_ || held_.empty(); }
  std::optional<ReceivedControl> receive_control() override {
    constexpr int enough = 200;
    if (++looks_ == enough) {
      for (Bytes& each : std::exchange(held_, {})) to().send_control(peer_, std::move(each));
    }
    return to().receive_control();
  }

 private:
  int peer_;
  std::vector<Bytes> held_;
  int looks_ = 0;
};

// Who is through a call may do anything else then, for as long as it likes: others must not wait for what it has said.
TEST(Engine, NoMemberEndsACallBeforeItsMessagesAreSent) {
  constexpr int size = 4;
  on_threads(size, [&](Exchange& exchange) {
    const int rank = exchange.rank();
    std::unique_ptr<Transport> transport = local_transport(exchange);
    if (rank == 0) transport = std::make_unique<SlowWords>(std::move(transport), 1);
    RealEngine engine(RealPlatform(std::move(transport), Waiter(size)),
                      {.wait_limits = {std::chrono::seconds(5), std::chrono::seconds(10)}, .name = "slow words"});
    std::vector<float> in;
    std::vector<float> out;
    run(engine, call_of(broadcast_plan(size, rank, 0, 0), in, out));  // nothing but words
    exchange.barrier("all have made their call, and rank 0 moves nothing any more");
  });
}

// What was said by a way that has been given up since, such as why, gets there all the same.
TEST(Rescue, DeliversEarlierMessagesWhileOthersMeet) {
  on_threads(2, [&](Exchange& exchange) {
    constexpr int enough = 100'000;
    auto usual = local_transport(exchange);
    auto rescue = local_transport(exchange);
    const auto heard_by = [](Transport& transport) {
      for (int i = 0; i < enough; ++i) {
        if (const auto heard = transport.receive_control()) return to_string(heard->bytes);
        transport.sleep(100'000);
      }
      return std::string("nothing");
    };
    if (exchange.rank() == 0) {
      const auto both = with_rescue(std::make_unique<SlowWords>(std::move(usual), 1), std::move(rescue));
      both->send_control(1, to_bytes(std::string_view("it has failed")));
      both->begin_regrouping();
      both->send_control(1, to_bytes(std::string_view("who is left?")));
      EXPECT_EQ(heard_by(*both), "both of us");
    } else {
      EXPECT_EQ(heard_by(*rescue), "who is left?");
      EXPECT_EQ(heard_by(*usual), "it has failed");
      rescue->send_control(0, to_bytes(std::string_view("both of us")));
    }
    exchange.barrier("all have heard");
  });
}

TEST(Signature, TextNamesEverythingThatMustMatch) {
  Spec spec{.collective = Collective::all_reduce, .count = 1000};
  EXPECT_EQ(to_text(signature_of(spec)), "all_reduce of 1000 f32, sum");
  spec.order = Order::reproducible;
  EXPECT_EQ(to_text(signature_of(spec)), "all_reduce of 1000 f32, sum, reproducible");
  spec = {.collective = Collective::broadcast, .type = DataType::f64, .element_bytes = 8, .count = 3, .root = 1};
  EXPECT_EQ(to_text(signature_of(spec)), "broadcast of 3 f64 from rank 1");
  spec = {.collective = Collective::reduce, .op = ReduceOp::max, .count = 3, .root = 2};
  EXPECT_EQ(to_text(signature_of(spec)), "reduce of 3 f32 to rank 2, max");
  spec = {.collective = Collective::gather, .type = DataType::opaque, .element_bytes = 24, .count = 3, .root = 2};
  EXPECT_EQ(to_text(signature_of(spec)), "gather of 3 elements of 24 bytes to rank 2");
  spec = {.collective = Collective::gather_v, .count = 3, .root = 2};
  EXPECT_EQ(to_text(signature_of(spec)), "gather_v of f32 to rank 2");
  EXPECT_EQ(to_text(signature_of({.collective = Collective::barrier, .count = 1})), "barrier");
  spec = {.op = ReduceOp::user, .count = 3, .commutes = false, .fingerprints = {.layout = layout_of(99, 2)}};
  EXPECT_EQ(to_text(signature_of(spec)), "all_reduce of 3 f32 in 2 tensors, user, ordered");
  EXPECT_EQ(to_text(signature_of({.count = 3, .fingerprints = {.variable = 4}})),
            "all_reduce of 3 f32, sum, for variable 4");
  EXPECT_EQ(to_text(signature_of({.count = 3, .fingerprints = {.tag = call_tag_of("loss")}})),
            "all_reduce of 3 f32, sum, tagged \"loss\"");
  EXPECT_EQ(to_text(signature_of({.count = 3, .fingerprints = {.tag = 0x12345678abcdef00}})),
            "all_reduce of 3 f32, sum, tagged #12345678");
}

TEST(Signature, HoldsOnlyTheArgumentsThatAllShare) {
  const std::size_t counts[] = {1, 2, 3};
  const std::size_t others[] = {1, 3, 2};
  const std::size_t offsets[] = {10, 20, 30};
  Spec a{.collective = Collective::all_gather_v, .count = 1, .output_blocks = Blocks::packed(counts)};
  Spec b = a;
  b.count = 2;  // a member's own
  b.in_place = true;
  b.output_blocks = Blocks::placed(offsets, counts);
  EXPECT_EQ(signature_of(a), signature_of(b));
  EXPECT_EQ(hash(signature_of(a)), hash(signature_of(b)));
  b.output_blocks = Blocks::packed(others);
  EXPECT_NE(signature_of(a), signature_of(b));
  a.collective = b.collective = Collective::gather_v;
  EXPECT_EQ(signature_of(a), signature_of(b));

  Spec c{.collective = Collective::broadcast, .op = ReduceOp::max};
  EXPECT_EQ(signature_of(c), signature_of({.collective = Collective::broadcast}));
  c.collective = Collective::all_reduce;
  EXPECT_NE(signature_of(c), signature_of({.collective = Collective::all_reduce}));
  EXPECT_NE(hash(signature_of(c)), hash(signature_of({.collective = Collective::all_reduce})));
}

TEST(Words, GoToBytesAndBack) {
  const Signature signature =
      signature_of({.collective = Collective::reduce,
                    .op = ReduceOp::user,
                    .count = 5,
                    .root = 3,
                    .commutes = false,
                    .fingerprints = {.layout = 6, .function = 7, .variable = 8, .tag = 10, .merges = 11, .place = 9}});
  ASSERT_EQ(signature.fingerprints.place, 9U);
  ASSERT_EQ(signature.fingerprints.tag, 10U);
  ASSERT_EQ(signature.fingerprints.merges, 11U);
  const CallDescription call{12, signature, 99, "ring", "a.cpp:7"};
  for (const ControlMessage& word :
       {ControlMessage(AgreeMessage{call}), ControlMessage(QueryMessage{3}),
        ControlMessage(AnswerMessage{3, CallProgress::in_progress, 2, 3, {call}}), ControlMessage(AnswerMessage{}),
        ControlMessage(FailMessage{{Code::mismatch, "no"}}), ControlMessage(LeaveMessage{7, {call, call}}),
        ControlMessage(SurviveMessage{"why", Bytes(5)})}) {
    EXPECT_EQ(parse_control_message(to_bytes(word)), word);
  }
}

TEST(Words, JunkIsRefused) {
  const Bytes good = to_bytes(AgreeMessage{CallDescription{12, {}, 99, "ring", "a.cpp:7"}});
  for (std::size_t length = 0; length < good.size(); ++length)
    EXPECT_THROW(parse_control_message(std::span(good).first(length)), Error);
  Bytes longer = good;
  longer.push_back({});
  EXPECT_THROW(parse_control_message(longer), Error);
  std::mt19937 random(1);
  for (int lap = 0; lap < 20'000; ++lap) {
    Bytes junk = good;
    for (int i = 0; i < 3; ++i) junk[random() % junk.size()] = static_cast<std::byte>(random());
    try {
      parse_control_message(junk);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::bad_message);
    }
  }
}

}  // namespace
}  // namespace lockstep::test
