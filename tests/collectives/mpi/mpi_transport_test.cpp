// SPDX-License-Identifier: Apache-2.0
// The transport over MPI with real ranks under mpirun: every message arrives whole, in order and nowhere else, and
// what goes wrong is said.
#include <malloc.h>

#include <array>

#include "tests/collectives/mpi/mpi_transport_cases.hpp"
#include "tests/support/allocations.hpp"
#include "topology/local_exchange.hpp"

namespace lockstep {
namespace {

using namespace test;

TEST(MpiTransport, IsMadeOfAnExchangeOverMpiOnly) {
  const auto transport = mpi_transport(world());
  ASSERT_NE(transport, nullptr);
  EXPECT_EQ(transport->rank(), world().rank());
  EXPECT_EQ(transport->size(), world().size());
  EXPECT_GE(transport->lanes(), 4);
  EXPECT_EQ(mpi_transport(*make_local_exchanges(1).front()), nullptr);
}

TEST(MpiTransport, SendsEverySizeAround) {
  const auto transport = mpi_transport(world());
  for (int seed = 0; seed < 2; ++seed) {
    for (const std::size_t size : sizes) ring(*transport, {0, 1}, size, seed);
  }
}

TEST(MpiTransport, SendsBetweenAllPairsAtOnceItselfIncluded) {
  const auto transport = mpi_transport(world());
  const int me = transport->rank();
  for (std::size_t round = 0; round < 9; ++round) {
    std::vector<Bytes> out;
    std::vector<Bytes> in;
    std::vector<SendDescriptor> sends;
    std::vector<ReceiveDescriptor> receives;
    const auto size_of = [&](int from, int to) {
      return sizes[(round + static_cast<std::size_t>(from) * 3 + static_cast<std::size_t>(to)) % 9];
    };
    for (int peer = 0; peer < transport->size(); ++peer) {
      out.push_back(pattern(me, peer, size_of(me, peer)));
      in.emplace_back(size_of(peer, me));
      sends.push_back({peer, out.back().data(), out.back().size()});
      receives.push_back({peer, in.back().data(), in.back().size()});
    }
    transport->post({1, 7}, sends, receives);
    finish(*transport, 1);
    for (int peer = 0; peer < transport->size(); ++peer)
      ASSERT_EQ(in[static_cast<std::size_t>(peer)], pattern(peer, me, size_of(peer, me))) << "from " << peer;
  }
}

TEST(MpiTransport, KeepsTheOrderWithinALane) {
  const auto transport = mpi_transport(world());
  constexpr int messages = 30;
  for (const std::size_t size : {std::size_t{8}, std::size_t{100'000}}) {
    std::vector<Bytes> out;
    std::vector<Bytes> in(messages, Bytes(size));
    std::vector<SendDescriptor> sends;
    std::vector<ReceiveDescriptor> receives;
    for (int i = 0; i < messages; ++i) out.push_back(pattern(transport->rank(), 0, size, i));
    for (int i = 0; i < messages; ++i)
      sends.push_back({right_of(*transport), out[static_cast<std::size_t>(i)].data(), size});
    for (Bytes& each : in) receives.push_back({left_of(*transport), each.data(), size});
    transport->post({0, 1}, sends, receives);
    finish(*transport, 0);
    for (int i = 0; i < messages; ++i)
      ASSERT_EQ(in[static_cast<std::size_t>(i)], pattern(left_of(*transport), 0, size, i)) << "message " << i;
  }
  for (int i = 0; i < 100; ++i) ring(*transport, {0, 1}, 16, i);  // who is fast is ahead of its neighbour
}

// Sends and receives are posted apart: two transports on one channel.
TEST(MpiTransport, LanesDoNotWaitForEachOther) {
  const auto receiving = mpi_transport(world());
  const auto sending = mpi_transport(world());
  const int last = receiving->lanes() - 1;
  const std::size_t size = 64;
  const Bytes first = pattern(world().rank(), 0, size, 1);
  const Bytes second = pattern(world().rank(), 0, size, 2);
  Bytes on_last(size);
  Bytes on_zero(size);
  const ReceiveDescriptor in_last{left_of(*receiving), on_last.data(), size};
  const ReceiveDescriptor in_zero{left_of(*receiving), on_zero.data(), size};
  const SendDescriptor out_first{right_of(*sending), first.data(), size};
  const SendDescriptor out_second{right_of(*sending), second.data(), size};
  receiving->post({last, 1}, {}, {&in_last, 1});
  sending->post({0, 1}, {&out_first, 1}, {});
  world().barrier("all have sent on lane 0");
  for (int i = 0; i < 2000; ++i) ASSERT_FALSE(receiving->done(last));
  EXPECT_THROW(receiving->post({last, 1}, {}, {&in_last, 1}), Error) << "it has a round under way";
  world().barrier("all have seen that");
  sending->post({last, 1}, {&out_second, 1}, {});
  finish(*receiving, last);
  EXPECT_EQ(on_last, pattern(left_of(*receiving), 0, size, 2));
  receiving->post({0, 1}, {}, {&in_zero, 1});
  finish(*receiving, 0);
  EXPECT_EQ(on_zero, pattern(left_of(*receiving), 0, size, 1));
  finish(*sending, 0);
  finish(*sending, last);
}

TEST(MpiTransport, EveryLaneWorks) {
  const auto transport = mpi_transport(world());
  for (int lane = 0; lane < transport->lanes(); ++lane) ring(*transport, {lane, 1}, 64, lane);
}

TEST(MpiTransport, MessagesToOneselfKeepTheirOrderAndLength) {
  const auto transport = mpi_transport(world());
  const int me = transport->rank();
  const std::size_t size = 200'000;
  const Bytes a = pattern(me, me, size, 1);
  const Bytes b = pattern(me, me, size, 2);
  Bytes first(size);
  Bytes second(size);
  const std::array<SendDescriptor, 2> out{{{me, a.data(), size}, {me, b.data(), size}}};
  const std::array<ReceiveDescriptor, 2> in{{{me, first.data(), size}, {me, second.data(), size}}};
  transport->post({0, 1}, out, in);
  finish(*transport, 0);
  EXPECT_EQ(first, a);
  EXPECT_EQ(second, b);
}

TEST(MpiTransport, ARepeatedRoundAllocatesNothing) {
  const auto transport = mpi_transport(world());
  std::vector<SendDescriptor> sends;
  std::vector<ReceiveDescriptor> receives;
  const Bytes mine(2000);
  std::vector<Bytes> theirs(static_cast<std::size_t>(transport->size()), Bytes(2000));
  for (int peer = 0; peer < transport->size(); ++peer) {
    sends.push_back({peer, mine.data(), mine.size()});
    receives.push_back({peer, theirs[static_cast<std::size_t>(peer)].data(), mine.size()});
  }
  std::size_t before = 0;
  for (int round = 0; round < 200; ++round) {
    if (round == 1) before = allocations_made();
    transport->post({2, static_cast<std::uint32_t>(round)}, sends, receives);
    finish(*transport, 2);
  }
  EXPECT_EQ(allocations_made(), before);
}

TEST(MpiTransport, WordsComeFromAnybodyInOrder) {
  const auto transport = mpi_transport(world());
  constexpr int words = 60;
  const auto word = [](int from, int number) {
    return pattern(from, number, static_cast<std::size_t>(number * 37 % 300));
  };
  for (int i = 0; i < words; ++i) {
    for (int peer = 0; peer < transport->size(); ++peer) transport->send_control(peer, word(transport->rank(), i));
  }
  std::vector<int> next(static_cast<std::size_t>(transport->size()));
  for (int heard = 0; heard < words * transport->size();) {
    const auto one = transport->receive_control();
    if (!one) {
      transport->sleep(1000);
      continue;
    }
    ++heard;
    ASSERT_EQ(one->bytes, word(one->peer, next.at(static_cast<std::size_t>(one->peer))++)) << "from " << one->peer;
  }
  world().barrier("all have heard all");
  EXPECT_FALSE(transport->receive_control());
  transport->leave({});
}

TEST(MpiTransport, WordsDoNotPileUp) {
  const auto transport = mpi_transport(world());
  const std::ptrdiff_t before = allocations_living();
  constexpr int words = 1000;
  for (int told = 0, heard = 0; heard < words;) {
    if (told < words && told <= heard + 8)
      transport->send_control(right_of(*transport), Bytes(static_cast<std::size_t>(told++ % 50)));
    if (const auto one = transport->receive_control()) {
      ASSERT_EQ(one->peer, left_of(*transport));
      ASSERT_EQ(one->bytes.size(), static_cast<std::size_t>(heard++ % 50));
    }
  }
  EXPECT_LT(allocations_living() - before, 500);
}

class MpiTransportTwo : public NeedsRanks<2> {};

// Nobody hears the first word, so it is still there when the channel has its next user.
TEST_F(MpiTransportTwo, WordsToAnEarlierUserOfTheChannelAreDropped) {
  int channel = -1;
  {
    const auto place = world().duplicate();
    const auto& exchange = dynamic_cast<MpiExchange&>(*place);
    channel = exchange.channel_block().channel;
    const int right = exchange.process_of((place->rank() + 1) % place->size());
    Bytes word = Writer().put(exchange.generation()).put(std::string_view("old")).take();
    exchange.wire()->set_up().send(right, exchange.wire()->comm().tags().set_up(channel, MpiExchange::word_kind),
                                   std::move(word));
    world().barrier("all have spoken");
  }
  const auto place = world().duplicate();
  ASSERT_EQ(dynamic_cast<MpiExchange&>(*place).channel_block().channel, channel);
  const auto transport = mpi_transport(*place);
  transport->send_control(right_of(*transport), to_bytes("new"));
  std::optional<Transport::ReceivedControl> heard;
  while (!(heard = transport->receive_control())) std::this_thread::yield();
  EXPECT_EQ(to_string(heard->bytes), "new");
  EXPECT_EQ(heard->peer, left_of(*transport));
}

// MPI may give the context of the session's communicator to the next one, where they would arrive.
TEST_F(MpiTransportTwo, WordsThatNobodyHeardAreReceivedWhenTheSessionEnds) {
  if (test::session().backend()) GTEST_SKIP() << test::lacks("needs MPI, for a session of its own");
  for (int lap = 0; lap < 10; ++lap) {
    {
      Session own;
      const auto& exchange = dynamic_cast<MpiExchange&>(own.exchange());
      const int tag = exchange.wire()->comm().tags().set_up(exchange.channel_block().channel, MpiExchange::word_kind);
      const int right = (own.rank() + 1) % own.size();
      for (int word = 0; word <= lap * own.rank(); ++word)
        exchange.wire()->set_up().send(right, tag, Bytes(static_cast<std::size_t>(1 + word * 50'000)));
    }
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (Wire::has_ended() && std::chrono::steady_clock::now() < end) Wire::free_ended();
    ASSERT_FALSE(Wire::has_ended()) << "session " << lap;
  }
}

int channel_of(const Exchange& place) { return dynamic_cast<const MpiExchange&>(place).channel_block().channel; }

// Sends to the right. A message this small leaves at once, whether or not anybody receives it.
void send_small(Transport& transport, RoundTag round_tag, const Bytes& bytes) {
  const SendDescriptor out{right_of(transport), bytes.data(), bytes.size()};
  transport.post(round_tag, {&out, 1}, {});
  finish(transport, round_tag.lane);
}

// MPICH ends a send to oneself only once it is received.
#ifdef MPICH_VERSION
constexpr bool own_message_waits_for_its_receive = true;
#else
constexpr bool own_message_waits_for_its_receive = false;
#endif

// True where a member has no other than itself to send to, and that cannot be sent and left.
bool cannot_leave_messages() { return own_message_waits_for_its_receive && world().size() == 1; }

// Both for messages and for calls, whose marks may be equal.
TEST(MpiTransport, UnreceivedMessageDoesNotReachNextCommunicator) {
  if (cannot_leave_messages()) GTEST_SKIP() << test::lacks("with MPICH, needs another rank");
  for (const RoundTag round_tag : {RoundTag{0, 5, true}, RoundTag{0, 5, false}}) {
    int channel = -1;
    for (int lap = 0; lap < 3; ++lap) {
      const auto place = world().duplicate();
      ASSERT_TRUE(lap == 0 || channel_of(*place) == channel) << "the channel is used again";
      channel = channel_of(*place);
      if (lap > 0) {
        const auto transport = mpi_transport(*place);
        Bytes theirs(64);
        const ReceiveDescriptor in{left_of(*transport), theirs.data(), theirs.size()};
        transport->post(round_tag, {}, {&in, 1});
        world().barrier("all wait for a message");
        for (int i = 0; i < 100; ++i) ASSERT_FALSE(transport->done(round_tag.lane)) << "of lap " << lap - 1;
        world().barrier("nobody has one");
        send_small(*mpi_transport(*place), round_tag, pattern(world().rank(), 0, 64, lap));
        finish(*transport, round_tag.lane);
        EXPECT_EQ(theirs, pattern(left_of(*transport), 0, 64, lap));
      }
      for (int i = 0; i < 3; ++i) send_small(*mpi_transport(*place), round_tag, Bytes(64, std::byte{0xee}));
      world().barrier("all have sent");
    }
  }
}

// Of half a kilobyte each, to which MPI adds some.
TEST(MpiTransport, UnreceivedMessagesDoNotPileUp) {
  if (cannot_leave_messages()) GTEST_SKIP() << test::lacks("with MPICH, needs another rank");
  const int many = world().size() <= 2 ? 300 : 150;
  const auto leave_one = [] {
    const auto place = world().duplicate();
    send_small(*mpi_transport(*place), {0, 5, true}, Bytes(500));
    world().barrier("all have sent");
  };
  for (int i = 0; i < 50; ++i) leave_one();
  const std::size_t before = ::mallinfo2().uordblks + ::mallinfo2().hblkhd;
  for (int i = 0; i < many; ++i) leave_one();
  const std::size_t after = ::mallinfo2().uordblks + ::mallinfo2().hblkhd;
  EXPECT_LT(after, before + static_cast<std::size_t>(many) * 250);
}

// What is looked through for leftovers of one channel is received on the others as it was sent.
TEST(MpiTransport, ClearingOneChannelKeepsMessagesOfOthers) {
  if (cannot_leave_messages()) GTEST_SKIP() << test::lacks("with MPICH, needs another rank");
  const auto live = world().duplicate();
  const auto transport = mpi_transport(*live);
  const RoundTag round_tag{0, 5, true};
  constexpr int messages = 3;
  for (int lap = 0; lap < 3; ++lap) {
    const auto place = world().duplicate();
    for (int i = 0; i < messages; ++i)
      send_small(*transport, round_tag, pattern(world().rank(), 0, 100, lap * messages + i));
    transport->send_control(right_of(*transport), to_bytes(text("word ", lap)));
    send_small(*mpi_transport(*place), round_tag, Bytes(100, std::byte{0xee}));
    world().barrier("all have sent");
  }
  const auto last = world().duplicate();  // drops what the last lap left
  for (int i = 0; i < 3 * messages; ++i) {
    Bytes theirs(100);
    const ReceiveDescriptor in{left_of(*transport), theirs.data(), theirs.size()};
    transport->post(round_tag, {}, {&in, 1});
    finish(*transport, round_tag.lane);
    ASSERT_EQ(theirs, pattern(left_of(*transport), 0, 100, i)) << "message " << i;
  }
  for (int lap = 0; lap < 3; ++lap) {
    std::optional<Transport::ReceivedControl> heard;
    while (!(heard = transport->receive_control())) std::this_thread::yield();
    EXPECT_EQ(to_string(heard->bytes), text("word ", lap));
  }
}

TEST(MpiTransport, CutsLongMessagesAndPutsThemTogether) {
  auto& exchange = dynamic_cast<MpiExchange&>(world());
  MpiTransport transport(exchange, 1000);
  for (const int size : {0, 1, 999, 1000, 1001, 1002, 1003, 2001, 2002, 2003, 5000, 123'456}) {
    ring(transport, {0, 1}, static_cast<std::size_t>(size), 0);
  }
  MpiTransport large(exchange, 100'000);  // each part by rendezvous
  ring(large, {1, 1}, 1'234'567, 0);
}

}  // namespace
}  // namespace lockstep
