// SPDX-License-Identifier: Apache-2.0
// What members see when they do not make the same calls, when one fails, leaves, or does not come.
#include <gtest/gtest.h>

#include <cstring>

#include "collectives/node/room.hpp"
#include "tests/collectives/engine/engine_support.hpp"
#include "tests/support/holds.hpp"
#include "topology/base/shared_memory.hpp"

namespace lockstep::test {
namespace {

// Rank 0 makes `first`, rank 1 makes `second`, rank 2 like rank 0; all must see both sides.
void expect_mismatch(const std::function<std::shared_ptr<Plan>(int rank)>& usual,
                     const std::function<std::shared_ptr<Plan>(int rank)>& other, const std::string& text_of_usual,
                     const std::string& text_of_other, int warm_calls = 0) {
  on_engines(3, [&](RealEngine& engine, Exchange&) {
    const int rank = engine.rank();
    const std::vector<float> in = given(rank, 64);
    std::vector<float> out(64);
    for (int i = 0; i < warm_calls; ++i) {  // so that both kinds of calls have been agreed on before
      run(engine, call_of(usual(rank), in, out));
      run(engine, call_of(other(rank), in, out));
    }
    out.assign(64, -1);
    const auto begin = std::chrono::steady_clock::now();
    Code code{};
    const std::string what =
        thrown([&] { run(engine, call_of(rank == 1 ? other(rank) : usual(rank), in, out)); }, &code);
    EXPECT_EQ(code, Code::mismatch) << what;
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10));  // long before a warning
    EXPECT_PRED2(holds, what, text("is in ", text_of_usual));
    EXPECT_PRED2(holds, what, text("rank 1 is in ", text_of_other));
    EXPECT_PRED2(holds, what, text("(call ", 2 * warm_calls + 1, ")"));
    EXPECT_PRED2(holds, what, "\"test\"");
    EXPECT_PRED2(holds, what, "engine_failure_test.cpp:");
    if (warm_calls == 0) {
      EXPECT_EQ(out, std::vector<float>(64, -1));  // nothing moved
    }
    const std::string later = thrown([&] { run(engine, call_of(usual(rank), in, out)); }, &code);
    EXPECT_EQ(code, Code::already_failed) << later;
    EXPECT_PRED2(holds, later, text("rank 1 is in ", text_of_other));
  });
}

// As usual, but for what the change does.
auto all_reduce_with(const std::function<void(Plan&)>& change) {
  return [change](int rank) {
    auto plan = all_reduce_plan(3, rank, 64);
    change(*plan);
    return plan;
  };
}

TEST(EngineMismatch, EveryFieldIsSeen) {
  const auto usual = all_reduce_with([](Plan&) {});
  const std::string usual_text = "all_reduce of 64 f32, sum (call";
  expect_mismatch(
      usual, [](int rank) { return broadcast_plan(3, rank, 3, 1, DataType::f64); }, usual_text,
      "broadcast of 3 f64 from rank 1");
  expect_mismatch(
      usual, [](int rank) { return all_reduce_plan(3, rank, 63); }, usual_text, "all_reduce of 63 f32, sum");
  expect_mismatch(usual, all_reduce_with([](Plan& plan) { plan.spec.type = DataType::i32; }), usual_text,
                  "all_reduce of 64 i32, sum");
  expect_mismatch(usual, all_reduce_with([](Plan& plan) { plan.spec.op = ReduceOp::max; }), usual_text,
                  "all_reduce of 64 f32, max");
  expect_mismatch(usual, all_reduce_with([](Plan& plan) { plan.spec.order = Order::reproducible; }), usual_text,
                  "all_reduce of 64 f32, sum, reproducible");
  expect_mismatch([](int rank) { return broadcast_plan(3, rank, 64, 0); },
                  [](int rank) { return broadcast_plan(3, rank, 64, 2); }, "broadcast of 64 f32 from rank 0",
                  "broadcast of 64 f32 from rank 2");
}

TEST(EngineMismatch, AlsoAmongCallsThatWereAgreedOnBefore) {
  expect_mismatch([](int rank) { return all_reduce_plan(3, rank, 64); },
                  [](int rank) { return all_reduce_plan(3, rank, 63); }, "all_reduce of 64 f32, sum",
                  "all_reduce of 63 f32, sum", 1);
}

TEST(EngineMismatch, AnotherAlgorithm) {
  on_engines(3, [](RealEngine& engine, Exchange&) {
    const std::vector<float> in = given(engine.rank(), 64);
    std::vector<float> out(64);
    auto plan = all_reduce_plan(3, engine.rank(), 64);
    if (engine.rank() == 2) {
      plan->algorithm = "doubling";
      plan->choice.method_hash = 5;
    }
    Code code{};
    const std::string what = thrown([&] { run(engine, call_of(plan, in, out)); }, &code);
    EXPECT_EQ(code, Code::mismatch);
    EXPECT_PRED2(holds, what, "chose different algorithms for all_reduce of 64 f32, sum (call 1)");
    EXPECT_PRED2(holds, what, "rank 2 chose \"doubling\"");
  });
}

// A member makes one call less, and its next one is another.
TEST(EngineMismatch, AMemberThatLeftOutACall) {
  on_engines(4, [](RealEngine& engine, Exchange&) {
    const std::vector<float> in = given(engine.rank(), 64);
    std::vector<float> out(64);
    Code code{};
    const std::string what = thrown(
        [&] {
          if (engine.rank() != 3) run(engine, call_of(broadcast_plan(4, engine.rank(), 64, 0), in, out));
          run(engine, call_of(all_reduce_plan(4, engine.rank(), 64), in, out));
        },
        &code);
    EXPECT_EQ(code, Code::mismatch) << what;
    EXPECT_PRED2(holds, what, "rank 3 is in all_reduce of 64 f32, sum (call 1)");
    EXPECT_PRED2(holds, what, "is in broadcast of 64 f32 from rank 0 (call 1)");
  });
}

TEST(EngineFailure, AnExceptionOfTheUsersReductionIsTheirsAndNamesTheRankToOthers) {
  on_engines(3, [](RealEngine& engine, Exchange&) {
    const int rank = engine.rank();
    const std::vector<float> in = given(rank, 10);
    std::vector<float> out(10);
    Call call = call_of(all_reduce_plan(3, rank, 10, ReduceOp::user), in, out);
    const std::string here = text("engine_failure_test.cpp:", __LINE__ - 1);
    call.kernel = nullptr;
    call.user.apply = [](const void*, void* target, const void* left, const void* right, std::size_t count) {
      add_floats(target, left, right, count);
    };
    if (rank == 1) {
      call.user.apply = [](const void*, void*, const void*, const void*, std::size_t) {
        throw std::out_of_range("too far");
      };
    }
    Code code{};
    const std::string what = thrown([&] { run(engine, call); }, &code);
    if (rank == 1) {
      EXPECT_EQ(what, "too far");
    } else {
      EXPECT_EQ(code, Code::peer_failed);
      EXPECT_PRED2(holds, what, "rank 1: in all_reduce of 10 f32, user (call 1) at ");
      EXPECT_PRED2(holds, what, text(here, ": an exception of the user's own: too far"));
    }
    EXPECT_TRUE(engine.failed());
    ASSERT_TRUE(engine.failure());
    const std::string later = thrown([&] { engine.start(call); }, &code);
    EXPECT_EQ(code, Code::already_failed);
    EXPECT_PRED2(holds, later, "has failed before: ");
    EXPECT_PRED2(holds, later, "too far");
  });
}

TEST(EngineFailure, ReachesAllThatIsInFlight) {
  on_engines(2, [](RealEngine& engine, Exchange& exchange) {
    const std::vector<float> in = given(engine.rank(), 10);
    std::vector<float> a(10);
    std::vector<float> b(10);
    const auto plan = all_reduce_plan(2, engine.rank(), 10);
    if (engine.rank() == 0) {
      const CallTicket one = *engine.start(call_of(plan, in, a));
      const CallTicket two = *engine.start(call_of(plan, in, b));
      exchange.barrier("started");
      Code code{};
      EXPECT_PRED2(holds, thrown([&] { engine.wait(two); }, &code), "rank 1: the file is gone");
      EXPECT_EQ(code, Code::peer_failed);
      EXPECT_PRED2(holds, thrown([&] {
                     while (!engine.test(one)) continue;
                   }),
                   "rank 1: the file is gone");
      EXPECT_THROW(engine.wait(one), Error);  // spent
    } else {
      exchange.barrier("started");
      engine.refuse(Error(Code::usage, "the file is gone"));
      Code code{};
      thrown([&] { engine.start(call_of(plan, in, a)); }, &code);
      EXPECT_EQ(code, Code::already_failed);
    }
    exchange.barrier("seen");
  });
}

TEST(EngineFailure, ARequestThatNobodyWaitedFor) {
  Lines lines;
  const auto body = [](RealEngine& engine, Exchange&) {
    const std::vector<float> in = given(engine.rank(), 10);
    std::vector<float> out(10);
    const Call call = call_of(all_reduce_plan(3, engine.rank(), 10), in, out, Origin{"train.cpp", 40});
    if (engine.rank() == 2) {
      engine.drop(*engine.start(call));
      EXPECT_TRUE(engine.failed());
      EXPECT_PRED2(holds, thrown([&] { engine.start(call); }),
                   "the request of all_reduce of 10 f32, sum (call 1) on \"test\", started at train.cpp:40, was "
                   "destroyed before it was waited for");
      return;
    }
    Code code{};  // the first may have been over before
    const std::string what = thrown(
        [&] {
          for (int i = 0; i < 2; ++i) run(engine, call);
        },
        &code);
    EXPECT_EQ(code, Code::peer_failed);
    EXPECT_PRED2(holds, what, "rank 2: the request of all_reduce");
  };
  on_engines(3, body, {.log = lines.log()});
  EXPECT_PRED2(holds, lines.all(), "train.cpp:40, was destroyed before it was waited for");
}

// What is dropped on the way of an exception is no misuse, and no reason: that is the exception.
TEST(EngineFailure, ARequestThatAnExceptionOfTheUsersDropped) {
  Lines lines;
  const auto body = [](RealEngine& engine, Exchange&) {
    const std::vector<float> in = given(engine.rank(), 10);
    std::vector<float> out(10);
    const Call call = call_of(all_reduce_plan(3, engine.rank(), 10), in, out, Origin{"train.cpp", 40});
    struct Request {
      RealEngine& of;
      CallTicket ticket;
      ~Request() { of.drop(ticket); }
    };
    if (engine.rank() == 2) {
      const auto leave = [&] {
        const Request request{engine, *engine.start(call)};
        throw std::runtime_error("the disk is full");
      };
      EXPECT_THROW(leave(), std::runtime_error);
      return;
    }
    const std::string what = thrown([&] {
      for (int i = 0; i < 2; ++i) run(engine, call);
    });
    EXPECT_PRED2(holds, what, "train.cpp:40, was cancelled after another error of that rank");
  };
  on_engines(3, body, {.log = lines.log()});
  EXPECT_EQ(lines.all().find("LOCKSTEP-E001"), std::string::npos) << lines.all();
}

TEST(EngineFailure, TheEndOfACommunicatorWithCallsInFlight) {
  Lines lines;
  const auto exchanges_body = [&](Exchange& exchange) {
    auto engine = std::make_unique<RealEngine>(RealPlatform(local_transport(exchange), Waiter(1)),
                                               EngineOptions{.log = lines.log(), .name = "short"});
    const std::vector<float> in = given(exchange.rank(), 10);
    std::vector<float> out(10);
    const auto call = call_of(all_reduce_plan(2, exchange.rank(), 10), in, out, Origin{"train.cpp", 41});
    if (exchange.rank() == 0) {
      engine->start(call);
      engine.reset();
      exchange.barrier("gone");
      return;
    }
    exchange.barrier("gone");  // or the other's call might be over before it goes
    Code code{};
    const std::string what = thrown(
        [&] {
          for (int i = 0; i < 2; ++i) run(*engine, call);
        },
        &code);
    EXPECT_EQ(code, Code::peer_failed);
    EXPECT_PRED2(holds, what, "rank 0");
  };
  on_threads(2, exchanges_body);
  EXPECT_PRED2(holds, lines.all(), "\"short\" was destroyed with 1 call in flight, first all_reduce");
  EXPECT_PRED2(holds, lines.all(), "train.cpp:41");
}

// Who has failed and died before it told everybody is not the only one who says so.
TEST(EngineFailure, AMemberThatGoesOnWithoutOthersSaysWhy) {
  on_engines(2, [](RealEngine& engine, Exchange& exchange) {
    const Bytes part(3, std::byte{7});
    if (engine.rank() == 0) {
      engine.platform().transport().send_control(1, to_bytes(SurviveMessage{"rank 5 is gone", part}));
      exchange.barrier("it is said");
      EXPECT_TRUE(engine.begin_shrinking().empty());
      EXPECT_TRUE(engine.failed());
      return;
    }
    exchange.barrier("it is said");
    Code code{};
    std::vector<float> out(8);
    const std::string what = thrown([&] { run(engine, call_of(all_reduce_plan(2, 1, 8), given(1, 8), out)); }, &code);
    EXPECT_EQ(code, Code::peer_failed);
    EXPECT_PRED2(holds, what, "rank 0 continues with the survivors: rank 5 is gone");
    const auto said = engine.begin_shrinking();
    ASSERT_EQ(said.size(), 1U);
    EXPECT_EQ(said.front().peer, 0);
    EXPECT_EQ(said.front().bytes, part);
  });
}

TEST(EngineFailure, AMemberThatLeftIsNotWaitedFor) {
  on_threads(3, [](Exchange& exchange) {
    auto engine = std::make_unique<RealEngine>(RealPlatform(local_transport(exchange), Waiter(1)), EngineOptions{});
    const std::vector<float> in = given(exchange.rank(), 10);
    std::vector<float> out(10);
    const auto call = call_of(all_reduce_plan(3, exchange.rank(), 10), in, out);
    run(*engine, call);
    exchange.barrier("all have done the first call");
    if (exchange.rank() == 1) return;
    const auto begin = std::chrono::steady_clock::now();
    Code code{};
    const std::string what = thrown([&] { run(*engine, call); }, &code);
    EXPECT_EQ(code, Code::peer_failed);
    EXPECT_PRED2(holds, what, "rank 1 left \"world\" after call 1, and is not in all_reduce of 10 f32, sum (call 2)");
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5));
  });
}

TEST(EngineFailure, AMessageOfOneThatLeft) {
  on_threads(2, [](Exchange& exchange) {
    auto engine = std::make_unique<RealEngine>(RealPlatform(local_transport(exchange), Waiter(1)), EngineOptions{});
    if (exchange.rank() == 1) return;
    std::vector<float> out(10);
    Code code{};
    const std::string what = thrown([&] { run(*engine, call_of(message_plan(2, 0, false, 1, 10), out, out)); }, &code);
    EXPECT_EQ(code, Code::peer_failed);
    EXPECT_PRED2(holds, what, "rank 1 left \"world\" without the message that recv of 10 f32 (message 1)");
  });
}

TEST(EngineFailure, WordsThatMakeNoSense) {
  on_engines(2, [](RealEngine& engine, Exchange& exchange) {
    const std::vector<float> in(10);
    std::vector<float> out(10);
    if (engine.rank() == 1) engine.platform().transport().send_control(0, to_bytes("junk"));
    exchange.barrier("told");
    Code code{};
    const std::string what =
        thrown([&] { run(engine, call_of(all_reduce_plan(2, engine.rank(), 10), in, out)); }, &code);
    EXPECT_EQ(code, engine.rank() == 0 ? Code::bad_message : Code::peer_failed);
    EXPECT_PRED2(holds, what, "a message from rank 1 to \"test\" cannot be read");
  });
}

// The other side of two members says what it is told, and never sends data; what was posted cannot be called back.
class Stubborn final : public Transport {
 public:
  explicit Stubborn(std::vector<ReceiveDescriptor>& posted) : posted_(posted) {}
  int rank() const override { return 0; }
  int size() const override { return 2; }
  int lanes() const override { return 4; }
  std::uint32_t message_tags() const override { return 32; }
  void post(RoundTag /*round_tag*/, std::span<const SendDescriptor> /*sends*/,
            std::span<const ReceiveDescriptor> receives) override {
    posted_.assign(receives.begin(), receives.end());
  }
  bool done(int /*lane*/) override { return false; }
  bool abandon() override { return false; }
  void send_control(int peer, Bytes bytes) override { words_.push_back({peer, std::move(bytes)}); }
  std::optional<ReceivedControl> receive_control() override {
    if (words_.empty()) return std::nullopt;
    ReceivedControl word = std::move(words_.back());
    words_.pop_back();
    return word;
  }
  void sleep(std::int64_t /*nanoseconds*/) override {}

 private:
  std::vector<ReceiveDescriptor>& posted_;
  std::vector<ReceivedControl> words_;
};

TEST(EngineFailure, MemoryThatIsStillPostedOutlivesTheEngine) {
  std::vector<ReceiveDescriptor> posted;
  {
    const std::vector<float> in = given(0, 64);
    std::vector<float> out(64);
    RealEngine engine(RealPlatform(std::make_unique<Stubborn>(posted), Waiter(1)), {.log = Log(LogLevel::off)});
    const CallTicket ticket = *engine.start(call_of(all_reduce_plan(2, 0, 64), in, out));
    for (int i = 0; i < 10 && posted.empty(); ++i) EXPECT_FALSE(engine.test(ticket));
    ASSERT_EQ(posted.size(), 1U);
    EXPECT_FALSE(engine.keeps_memory());
    engine.drop(ticket);
    EXPECT_TRUE(engine.keeps_memory());
  }
  std::memset(posted[0].data, 1, posted[0].bytes);  // scratch of the engine's: for an address sanitizer to judge
}

TEST(EngineFailure, IsSeenInTheMemoryOfTheNodeBeforeAnybodyReachesFurther) {
  std::vector<ReceiveDescriptor> posted;
  const auto memory = SharedMemory::make(node::RoomMemory::bytes_for(2), false).memory();
  node::Room theirs(memory, 1, 2, true);
  RealEngine engine(
      RealPlatform(std::make_unique<Stubborn>(posted), Waiter(1), std::make_unique<node::Room>(memory, 0, 2, true)),
      {.log = Log(LogLevel::off)});
  ASSERT_TRUE(theirs.access().begin_peer_access());
  theirs.access().end_peer_access();
  engine.begin_shrinking();
  EXPECT_FALSE(theirs.access().begin_peer_access()) << "its memory may be the program's again";
}

}  // namespace
}  // namespace lockstep::test
