// SPDX-License-Identifier: Apache-2.0
// Transports whose members can be threads: which messages meet, in which order, and that nothing is touched after
// giving up.
#include <gtest/gtest.h>

#include <unistd.h>

#include <atomic>
#include <map>
#include <mutex>
#include <numeric>
#include <thread>

#include "collectives/engine/forwarding_transport.hpp"
#include "collectives/engine/local_transport.hpp"
#include "collectives/engine/node_transport.hpp"
#include "collectives/engine/round_rules.hpp"
#include "collectives/node/make_room.hpp"
#include "collectives/tcp/tcp_transport.hpp"
#include "collectives/ucx/ucx_transport.hpp"
#include "tests/support/lacks.hpp"
#include "tests/support/sanitized.hpp"
#include "tests/support/threads.hpp"
#include "topology/base/error.hpp"

namespace lockstep {
namespace {

using test::lacks;
using test::on_threads;
using test::watched_for_races;

enum class Kind : std::uint8_t { local, node, parts, processes, crowded, ucx, sockets, tcp };

// Owns the room of a transport in the node's memory.
class RoomTransport final : public ForwardingTransport {
 public:
  RoomTransport(std::unique_ptr<Transport> local, std::unique_ptr<node::Room> room, std::vector<int> members)
      : ForwardingTransport(node_transport(std::move(local), *room, std::move(members))), room_(std::move(room)) {}
  // Gives up the room first, as an engine does.
  bool abandon() override { return room_->access().abandon() && to().abandon(); }

 private:
  std::unique_ptr<node::Room> room_;
};

// Returns a room whose members take large messages from each other's memory as threads of one process, or as processes
// that read each other, or not at all: then such messages come in parts. Crowded members share cores.
std::unique_ptr<node::Room> room_of(Exchange& exchange, Kind kind) {
  auto room = node::make_room(exchange, false);
  if (kind != Kind::node) {
    const auto members = static_cast<std::size_t>(exchange.size());
    node::ProcessMemoryReader reader(std::vector<pid_t>(members, kind == Kind::parts ? 0 : ::getpid()));
    if (kind == Kind::parts) reader = {};
    room = std::make_unique<node::Room>(room->memory().owner(), exchange.rank(), exchange.size(), false,
                                        std::move(reader));
    node::Tuning tuning = room->tuning();
    if (kind == Kind::processes) tuning.slow_write_from = 0;  // as for distant cores: 128 KiB and more are read
    room->thresholds().set(tuning, {}, {});
    room->buffers().set_crowded(kind == Kind::crowded);
    exchange.barrier("all rooms are made");
  }
  return room;
}

std::vector<int> all_members(const Exchange& exchange) {
  std::vector<int> members(static_cast<std::size_t>(exchange.size()));
  std::iota(members.begin(), members.end(), 0);
  return members;
}

// All members of a program share one UCX, as they do in a process of a cluster.
Ucx& ucx() {
  static Ucx one({.key = std::make_shared<const Secret>(Bytes(32, std::byte{7}), "a test"), .device = {}});
  return one;
}

// And one Tcp for each host: members of one go by the kernel's own sockets, others by TCP.
Tcp& tcp(const std::string& address) {
  static std::mutex mutex;
  static std::map<std::string, std::unique_ptr<Tcp>> all;
  const std::lock_guard lock(mutex);
  auto& one = all[address];
  if (!one)
    one = std::make_unique<Tcp>(
        TcpOptions{.key = std::make_shared<const Secret>(Bytes(32, std::byte{7}), "a test"), .address = address});
  return *one;
}

class EveryTransport : public testing::TestWithParam<Kind> {
 protected:
  void SetUp() override {
    if ((GetParam() == Kind::sockets || GetParam() == Kind::tcp) && why_no_tcp()) GTEST_SKIP() << lacks(*why_no_tcp());
    if (GetParam() == Kind::ucx && why_no_ucx()) GTEST_SKIP() << lacks(*why_no_ucx());
    if (GetParam() == Kind::ucx && watched_for_races)
      GTEST_SKIP() << lacks("needs a UCX that ThreadSanitizer sees into");
  }
  static std::unique_ptr<Transport> transport_over(Exchange& exchange) {
    if (GetParam() == Kind::local) return local_transport(exchange);
    if (GetParam() < Kind::ucx)
      return std::make_unique<RoomTransport>(local_transport(exchange), room_of(exchange, GetParam()),
                                             all_members(exchange));
    if (GetParam() == Kind::ucx) return ucx().transport(exchange);
    return tcp(GetParam() == Kind::sockets ? "127.0.0.1" : text("127.0.0.", exchange.rank() + 1)).transport(exchange);
  }
};
constexpr std::array names = {"threads", "node", "parts", "processes", "crowded", "ucx", "sockets", "tcp"};
INSTANTIATE_TEST_SUITE_P(Of, EveryTransport,
                         testing::Values(Kind::local, Kind::node, Kind::parts, Kind::processes, Kind::crowded,
                                         Kind::ucx, Kind::sockets, Kind::tcp),
                         [](const auto& each) { return names.at(static_cast<std::size_t>(each.param)); });

// Waits as a member does.
void finish(Transport& transport, int lane) {
  while (!transport.done(lane)) transport.sleep(200'000);
}

SendDescriptor from(int peer, const std::vector<int>& values) {
  return {peer, values.data(), values.size() * sizeof(int)};
}
ReceiveDescriptor into(int peer, std::vector<int>& values) {
  return {peer, values.data(), values.size() * sizeof(int)};
}

void post(Transport& transport, RoundTag round_tag, std::vector<SendDescriptor> sends,
          std::vector<ReceiveDescriptor> receives) {
  transport.post(round_tag, sends, receives);
}

TEST_P(EveryTransport, MessagesOfALaneMatchInTheOrderOfTheirPosting) {
  on_threads(2, [](Exchange& exchange) {
    const auto transport = transport_over(exchange);
    EXPECT_EQ(transport->rank(), exchange.rank());
    EXPECT_EQ(transport->size(), 2);
    const std::vector<int> a = {1, 2, 3};
    const std::vector<int> b = {4, 5, 6};
    std::vector<int> first(3);
    std::vector<int> second(3);
    const int peer = 1 - exchange.rank();
    for (int lap = 0; lap < 100; ++lap) {
      post(*transport, {3, 7}, {from(peer, a), from(peer, b)}, {into(peer, first), into(peer, second)});
      finish(*transport, 3);
      ASSERT_EQ(first, a);
      ASSERT_EQ(second, b);
      first.assign(3, 0);
      second.assign(3, 0);
    }
  });
}

// Whoever reads nothing for longer than a host may be silent is late, and not gone.
TEST(LateMember, ReceivesEarlierMessages) {
  if (why_no_tcp()) GTEST_SKIP() << lacks(*why_no_tcp());
  on_threads(2, [](Exchange& exchange) {
    Tcp own({.key = std::make_shared<const Secret>(Bytes(32, std::byte{7}), "a test"),
             .address = text("127.0.0.", exchange.rank() + 1),
             .silence = std::chrono::milliseconds(1000)});
    const auto transport = own.transport(exchange);
    std::vector<int> data(16U << 20U, exchange.rank());
    std::vector<int> first(1);
    const bool sends = exchange.rank() == 0;
    for (std::vector<int>* const each : {&first, &data}) {  // so that the second one has a connection
      if (!sends && each == &data) std::this_thread::sleep_for(std::chrono::milliseconds(3500));
      post(*transport, {0, 1}, sends ? std::vector{from(1, *each)} : std::vector<SendDescriptor>(),
           sends ? std::vector<ReceiveDescriptor>() : std::vector{into(0, *each)});
      if (each == &first) finish(*transport, 0);
    }
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (!transport->done(0) && std::chrono::steady_clock::now() < limit) {
      ASSERT_NO_THROW(transport->receive_control());
      transport->sleep(200'000);
    }
    ASSERT_TRUE(transport->done(0));
    EXPECT_EQ(data[1000], 0);
    exchange.barrier("all has come");
  });
}

TEST_P(EveryTransport, KeepsLanesApartAndEarlyMessages) {
  on_threads(2, [](Exchange& exchange) {
    const auto transport = transport_over(exchange);
    std::vector<int> values(static_cast<std::size_t>(transport->lanes()));
    std::iota(values.begin(), values.end(), 100);
    if (exchange.rank() == 0) {
      for (int lane = 0; lane < transport->lanes(); ++lane) {
        const SendDescriptor one{1, &values[static_cast<std::size_t>(lane)], sizeof(int)};
        transport->post({lane, 1}, {&one, 1}, {});
      }
      for (int lane = 0; lane < transport->lanes(); ++lane) finish(*transport, lane);
      return;
    }
    std::vector<int> got(values.size());
    for (int lane = transport->lanes() - 1; lane >= 0; --lane) {
      const ReceiveDescriptor one{0, &got[static_cast<std::size_t>(lane)], sizeof(int)};
      transport->post({lane, 1}, {}, {&one, 1});
      finish(*transport, lane);
    }
    EXPECT_EQ(got, values);
  });
}

TEST_P(EveryTransport, AnotherMarkIsNoMatchAndStays) {
  on_threads(2, [](Exchange& exchange) {
    const auto transport = transport_over(exchange);
    const std::vector<int> one = {1};
    const std::vector<int> two = {2};
    std::vector<int> got(1);
    if (exchange.rank() == 0) {
      post(*transport, {0, 11}, {from(1, one)}, {});
      post(*transport, {1, 22}, {from(1, two)}, {});
      finish(*transport, 1);
      transport->abandon();  // nobody receives the other one
      return;
    }
    post(*transport, {0, 12}, {}, {into(0, got)});  // never comes
    std::vector<int> other(1);
    post(*transport, {1, 22}, {}, {into(0, other)});
    finish(*transport, 1);
    EXPECT_EQ(other, two);
    EXPECT_FALSE(transport->done(0));
    EXPECT_EQ(got, std::vector<int>(1));
    transport->abandon();
  });
}

TEST_P(EveryTransport, MatchesRoundsAcrossLanes) {
  on_threads(2, [](Exchange& exchange) {
    const auto transport = transport_over(exchange);
    const int lanes = transport->lanes();
    const std::vector<int> values = {5, 6};
    std::vector<int> got(2);
    const int peer = 1 - exchange.rank();
    post(*transport, {lanes + 2 * exchange.rank(), 9, true}, {from(peer, values)}, {});
    post(*transport, {lanes + 7, 9, true}, {}, {into(peer, got)});
    finish(*transport, lanes + 7);
    finish(*transport, lanes + 2 * exchange.rank());
    EXPECT_EQ(got, values);
  });
}

TEST_P(EveryTransport, ToItselfAndNothingAtAll) {
  on_threads(2, [](Exchange& exchange) {
    const auto transport = transport_over(exchange);
    const std::vector<int> values = {7, exchange.rank()};
    std::vector<int> got(2);
    post(*transport, {2, 1}, {from(exchange.rank(), values)}, {into(exchange.rank(), got)});
    finish(*transport, 2);
    EXPECT_EQ(got, values);
    post(*transport, {2, 1}, {}, {});
    EXPECT_TRUE(transport->done(2));
    EXPECT_TRUE(transport->done(transport->lanes() - 1));  // nothing was ever posted
    post(*transport, {2, 1}, {{exchange.rank(), nullptr, 0}}, {{exchange.rank(), nullptr, 0}});
    finish(*transport, 2);
  });
}

TEST_P(EveryTransport, MoreMessagesThanTheRingHolds) {
  on_threads(2, [](Exchange& exchange) {
    const auto transport = transport_over(exchange);
    constexpr std::size_t count = 1000;
    std::vector<std::size_t> values(count);
    std::iota(values.begin(), values.end(), std::size_t{0});
    std::vector<std::size_t> got(count);
    std::vector<SendDescriptor> sends;
    std::vector<ReceiveDescriptor> receives;
    const int peer = 1 - exchange.rank();
    for (std::size_t i = 0; i < count; ++i) {
      sends.push_back({peer, &values[i], sizeof(std::size_t)});
      receives.push_back({peer, &got[i], sizeof(std::size_t)});
    }
    for (int lap = 0; lap < 20; ++lap) {
      transport->post({0, 1}, sends, receives);
      finish(*transport, 0);
      ASSERT_EQ(got, values);
      got.assign(count, 0);
    }
  });
}

// Lengths around those at which a message goes another way; tags are received in another order than they are sent.
TEST_P(EveryTransport, MessagesOfAllLengthsInBothDirections) {
  on_threads(3, [](Exchange& exchange) {
    const auto transport = transport_over(exchange);
    const std::vector<std::size_t> lengths = {
        0, 1, 80, 81, 2048, 4096, 4097, 8192, 32'768, 65'536, 65'537, 131'071, 131'072, 524'287, 524'288, 1'000'003, 5};
    const int next = (exchange.rank() + 1) % 3;
    const int before = (exchange.rank() + 2) % 3;
    const auto byte_of = [](int sender, std::size_t message, std::size_t place) {
      return static_cast<std::byte>(static_cast<std::size_t>(sender) * 91 + message * 17 + place * 7 + place / 251);
    };
    const int lanes = transport->lanes();
    for (int lap = 0; lap < 3; ++lap) {
      std::vector<std::vector<std::byte>> sent;
      std::vector<std::vector<std::byte>> got;
      for (std::size_t i = 0; i < lengths.size(); ++i) {
        sent.emplace_back(lengths[i]);
        for (std::size_t place = 0; place < lengths[i]; ++place) sent[i][place] = byte_of(exchange.rank(), i, place);
        got.emplace_back(lengths[i] + 2, std::byte{255});
        const SendDescriptor one{next, sent[i].data(), lengths[i]};
        transport->post({lanes + static_cast<int>(i), static_cast<std::uint32_t>(i % 3), true}, {&one, 1}, {});
      }
      for (const std::uint32_t tag : {2U, 0U, 1U}) {
        for (std::size_t i = 0; i < lengths.size(); ++i) {
          if (i % 3 != tag) continue;
          const ReceiveDescriptor one{before, got[i].data() + 1, lengths[i]};
          transport->post({lanes + 100 + static_cast<int>(i), tag, true}, {}, {&one, 1});
        }
      }
      for (std::size_t left = 2 * lengths.size(); left > 0;) {
        left = 2 * lengths.size();
        for (std::size_t i = 0; i < lengths.size(); ++i) {
          if (transport->done(lanes + static_cast<int>(i))) --left;
          if (transport->done(lanes + 100 + static_cast<int>(i))) --left;
        }
        if (left > 0) std::this_thread::yield();
      }
      for (std::size_t i = 0; i < lengths.size(); ++i) {
        ASSERT_TRUE(got[i].front() == std::byte{255} && got[i].back() == std::byte{255}) << lengths[i];
        for (std::size_t place = 0; place < lengths[i]; ++place)
          ASSERT_EQ(got[i][place + 1], byte_of(before, i, place)) << "byte " << place << " of " << lengths[i];
      }
    }
  });
}

// A message that can go at once needs no lane. It does not overtake one that waits.
TEST(NodeTransport, TriesMessagesInTheirOrder) {
  on_threads(2, [](Exchange& exchange) {
    std::vector<int> members = {0, 1};
    const auto room = node::make_room(exchange, false);
    const auto transport = node_transport(local_transport(exchange), *room, members);
    const int lane = transport->lanes();
    const std::vector<int> small = {1, 2, 3};
    std::vector<int> large(100'000, 4);
    std::vector<int> got(3);
    if (exchange.rank() == 0) {
      EXPECT_TRUE(transport->try_send(1, 5, small.data(), 12, false));
      EXPECT_FALSE(transport->try_send(1, 5, large.data(), 400'000, false)) << "threads read it where it lies";
      std::size_t sent = 0;
      while (sent < 1000 && transport->try_send(1, 6, small.data(), 12, false)) ++sent;
      EXPECT_LT(sent, 1000U) << "a ring is not that long";
      post(*transport, {lane, 7, true}, {from(1, small)}, {});
      exchange.barrier("the ring is full");
      while (!transport->done(lane)) std::this_thread::yield();
      exchange.barrier("all came");
      return;
    }
    exchange.barrier("the ring is full");
    EXPECT_EQ(transport->try_receive(0, 6, got.data(), 12), TryResult::needs_lane) << "another one is first";
    EXPECT_EQ(transport->try_receive(0, 5, got.data(), 12), TryResult::done);
    EXPECT_EQ(got, small);
    EXPECT_EQ(transport->try_receive(0, 6, got.data(), 8), TryResult::needs_lane) << "that length is wrong";
    post(*transport, {lane, 7, true}, {}, {into(0, got)});  // all with tag 6 come before it
    while (!transport->done(lane)) std::this_thread::yield();
    EXPECT_EQ(transport->try_receive(0, 6, got.data(), 12), TryResult::needs_lane) << "earlier ones were set aside";
    EXPECT_EQ(transport->try_receive(1, 6, got.data(), 12), TryResult::nothing_came);
    exchange.barrier("all came");
  });
}

// A large message goes at once if it is exchanged for another one, or if ranks share cores. When the ring is full, the
// rest goes in parts and keeps its order.
TEST(NodeTransport, ExchangesLargeMessagesAtOnce) {
  for (const Kind kind : {Kind::parts, Kind::crowded}) {
    on_threads(2, [&](Exchange& exchange) {
      const auto room = room_of(exchange, kind);
      const auto transport = node_transport(local_transport(exchange), *room, all_members(exchange));
      const int other = 1 - exchange.rank();
      constexpr std::size_t count = 75'000;
      constexpr std::size_t bytes = count * sizeof(int);
      constexpr int messages = 12;
      std::vector<std::vector<int>> sent;
      for (int i = 0; i < messages; ++i) sent.emplace_back(count, 100 * exchange.rank() + i);
      std::vector<std::vector<int>> got(messages, std::vector<int>(count));
      std::size_t at_once = transport->try_send(other, 9, sent[0].data(), bytes, false) ? 1 : 0;
      EXPECT_EQ(at_once == 1, kind == Kind::crowded);
      while (at_once < messages && transport->try_send(other, 9, sent[at_once].data(), bytes, true)) ++at_once;
      EXPECT_GE(at_once, 4U);
      EXPECT_LT(at_once, sent.size()) << "the ring holds 2 MiB";
      exchange.barrier("both rings are full");
      const int lanes = transport->lanes();
      for (int i = 0; i < messages; ++i) {
        const auto at = static_cast<std::size_t>(i);
        if (at >= at_once) post(*transport, {lanes + i, 9, true}, {from(other, sent[at])}, {});
        post(*transport, {lanes + messages + i, 9, true}, {}, {into(other, got[at])});
      }
      for (bool is_done = false; !is_done; std::this_thread::yield()) {
        is_done = true;
        for (int i = 0; i < 2 * messages; ++i) {
          if (i >= messages || static_cast<std::size_t>(i) >= at_once) is_done = transport->done(lanes + i) && is_done;
        }
      }
      for (int i = 0; i < messages; ++i)
        ASSERT_EQ(got[static_cast<std::size_t>(i)], std::vector(count, 100 * other + i)) << i;
      const std::vector<int> huge(2 * count);
      EXPECT_FALSE(transport->try_send(other, 9, huge.data(), 2 * bytes, true)) << "more than a quarter of the ring";
      exchange.barrier("all came");
    });
  }
}

TEST_P(EveryTransport, AnotherLengthIsAnErrorThatNamesBoth) {
  std::atomic<bool> is_seen = false;
  on_threads(2, [&](Exchange& exchange) {
    const auto transport = transport_over(exchange);
    std::vector<int> values(3);
    if (exchange.rank() == 0) {
      post(*transport, {0, 1}, {from(1, values)}, {});
      while (!is_seen) transport->done(0);
      exchange.barrier("seen");
      transport->abandon();
      return;
    }
    std::vector<int> got(5);
    try {
      post(*transport, {0, 1}, {}, {into(0, got)});
      finish(*transport, 0);
      ADD_FAILURE() << "no error";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::mismatch);
      EXPECT_NE(error.detail().find("rank 0 sent 12 bytes to rank 1, which receives 20"), std::string_view::npos);
    }
    is_seen = true;
    exchange.barrier("seen");
  });
}

TEST_P(EveryTransport, WordsArriveInTheirOrder) {
  on_threads(4, [](Exchange& exchange) {
    const auto transport = transport_over(exchange);
    constexpr int count = 50;
    for (int i = 0; i < count; ++i) {
      for (int peer = 0; peer < 4; ++peer) {
        if (peer != exchange.rank()) transport->send_control(peer, Writer().put(i).take());
      }
    }
    std::vector<int> next(4);
    for (int left = 3 * count; left > 0;) {
      const auto heard = transport->receive_control();
      if (!heard) {
        transport->sleep(1'000'000);
        continue;
      }
      Reader reader(heard->bytes);
      ASSERT_EQ(reader.get<int>(), next[static_cast<std::size_t>(heard->peer)]++);
      --left;
    }
    EXPECT_FALSE(transport->receive_control());
  });
}

TEST(UcxTransport, HearsNobodyWithoutTheKey) {
  if (why_no_ucx()) GTEST_SKIP() << lacks(*why_no_ucx());
  if (watched_for_races) GTEST_SKIP() << lacks("needs a UCX that ThreadSanitizer sees into");
  on_threads(2,
             [](Exchange& exchange) {
               const auto mine = static_cast<std::byte>(exchange.rank());
               Ucx own({.key = std::make_shared<const Secret>(Bytes(32, mine), "a test"), .device = {}});
               try {
                 own.transport(exchange);
                 ADD_FAILURE() << "they have different keys";
               } catch (const Error& error) {
                 EXPECT_EQ(error.code(), Code::stall);
                 EXPECT_NE(error.detail().find("for connections of UCX: nothing has come from rank"),
                           std::string_view::npos);
               }
             },
             {std::chrono::seconds(0), std::chrono::seconds(2)});
}

TEST(UcxTransport, NamesTheLostMember) {
  if (why_no_ucx()) GTEST_SKIP() << lacks(*why_no_ucx());
  if (watched_for_races) GTEST_SKIP() << lacks("needs a UCX that ThreadSanitizer sees into");
  std::atomic<bool> is_lost = false;
  on_threads(2, [&](Exchange& exchange) {
    const auto lost = [&]() -> std::optional<LostMember> {
      return is_lost ? std::optional(LostMember{-1, "rank 7 is gone"}) : std::nullopt;
    };
    const auto transport = ucx().transport(exchange, lost);
    EXPECT_FALSE(transport->receive_control());
    exchange.barrier("all are there");
    is_lost = true;
    try {
      for (int turn = 0; turn < 10'000; ++turn) {
        transport->receive_control();
        transport->sleep(1'000'000);
      }
      ADD_FAILURE() << "nobody was told";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::peer_failed);
      EXPECT_NE(error.detail().find("rank 7 is gone"), std::string_view::npos);
    }
    EXPECT_FALSE(transport->receive_control());  // once
    exchange.barrier("all were told");
  });
}

TEST_P(EveryTransport, SleepEndsWhenSomethingArrives) {
  on_threads(2, [](Exchange& exchange) {
    const auto transport = transport_over(exchange);
    const std::vector<int> values = {1};
    std::vector<int> got(1);
    const auto begin = std::chrono::steady_clock::now();
    for (int lap = 0; lap < 20; ++lap) {  // to and fro; each sleep alone could last longer than the limit below
      const bool sends = (lap % 2 == 0) == (exchange.rank() == 0);
      if (sends) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
        post(*transport, {0, 1}, {from(1 - exchange.rank(), values)}, {});
      } else {
        post(*transport, {0, 1}, {}, {into(1 - exchange.rank(), got)});
      }
      while (!transport->done(0)) transport->sleep(60'000'000'000);
    }
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(30));
  });
}

// Rank 1 gives up at any moment of rank 0's copying, and writes over its memory at once: a race that the sanitizer for
// threads would see, and a torn message that this test sees.
TEST(LocalTransport, AfterGivingUpNobodyReads) {
  for (int lap = 0; lap < 30; ++lap) {
    on_threads(2, [lap](Exchange& exchange) {
      const auto transport = local_transport(exchange);
      constexpr std::size_t count = 1 << 18;
      if (exchange.rank() == 1) {
        std::vector<int> values(count, 1);
        post(*transport, {0, 1}, {from(0, values)}, {});
        exchange.barrier("posted");
        if (lap % 3 > 0) std::this_thread::sleep_for(std::chrono::microseconds(10 * lap));
        transport->abandon();
        values.assign(count, 2);
        exchange.barrier("given up");
        return;
      }
      std::vector<int> got(count);
      post(*transport, {0, 1}, {}, {into(1, got)});
      exchange.barrier("posted");
      for (int turn = 0; turn < 100 && !transport->done(0); ++turn) std::this_thread::yield();
      transport->abandon();
      exchange.barrier("given up");
      for (const int each : got) ASSERT_TRUE(each == got[0] && each != 2);
    });
  }
}

TEST(LocalTransport, DoesNotDeliverWithdrawnMessages) {
  on_threads(2, [](Exchange& exchange) {
    const auto transport = local_transport(exchange);
    std::vector<int> values(3, 1);
    if (exchange.rank() == 0) {
      post(*transport, {0, 1}, {from(1, values), from(1, values)}, {});
      transport->abandon();
      EXPECT_THROW(post(*transport, {0, 1}, {from(1, values)}, {}), Error);
      exchange.barrier("given up");
      return;
    }
    exchange.barrier("given up");
    std::vector<int> got(3);
    post(*transport, {0, 1}, {}, {into(0, got)});
    for (int turn = 0; turn < 100; ++turn) EXPECT_FALSE(transport->done(0));
    EXPECT_EQ(got, std::vector<int>(3));
  });
}

TEST_P(EveryTransport, ManyThreadsAllToAll) {
  const int size = GetParam() == Kind::local ? 64 : 12;
  on_threads(size, [&](Exchange& exchange) {
    const auto transport = transport_over(exchange);
    std::vector<int> mine(static_cast<std::size_t>(size));
    std::vector<int> got(static_cast<std::size_t>(size));
    for (int lap = 0; lap < 5; ++lap) {
      std::vector<SendDescriptor> sends;
      std::vector<ReceiveDescriptor> receives;
      for (int peer = 0; peer < size; ++peer) {
        const auto at = static_cast<std::size_t>(peer);
        mine[at] = 10'000 * lap + 100 * exchange.rank() + peer;
        sends.push_back({peer, &mine[at], sizeof(int)});
        receives.push_back({peer, &got[at], sizeof(int)});
      }
      transport->post({lap % transport->lanes(), 1}, sends, receives);
      finish(*transport, lap % transport->lanes());
      for (int peer = 0; peer < size; ++peer)
        ASSERT_EQ(got[static_cast<std::size_t>(peer)], 10'000 * lap + 100 * peer + exchange.rank());
    }
  });
}

TEST(RoundRules, SplitASleepIntoSecondsAndNanoseconds) {
  const timespec time = round_rules::to_timespec(2'500'000'001);
  EXPECT_EQ(time.tv_sec, 2);
  EXPECT_EQ(time.tv_nsec, 500'000'001);
}

}  // namespace
}  // namespace lockstep
