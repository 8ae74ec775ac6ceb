// SPDX-License-Identifier: Apache-2.0
// The transport over MPI where things go wrong: other lengths, other calls, members that give up while others send;
// and where several threads use it, or one that may not.
#include <mpi.h>
#include <sys/mman.h>

#include <atomic>

#include "tests/collectives/mpi/mpi_transport_cases.hpp"
#include "tests/support/lacks.hpp"

namespace {

// Whether two threads were ever inside MPI at once.
std::atomic<int> inside = 0;
std::atomic<bool> met = false;
std::atomic<bool> watching = false;
std::atomic<int> longest_matched = 0;  // of the messages that were received after MPI_Improbe

template <class Call>
int watched(const Call& call) {
  if (++inside > 1) met = true;
  if (watching) std::this_thread::yield();
  const int code = call();
  --inside;
  return code;
}

}  // namespace

// MPI's own way to look at its calls: ours come here first.
int MPI_Isend(const void* from, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm, MPI_Request* request) {
  return watched([&] { return PMPI_Isend(from, count, type, to, tag, comm, request); });
}
int MPI_Irecv(void* into, int count, MPI_Datatype type, int from, int tag, MPI_Comm comm, MPI_Request* request) {
  return watched([&] { return PMPI_Irecv(into, count, type, from, tag, comm, request); });
}
int MPI_Iprobe(int from, int tag, MPI_Comm comm, int* here, MPI_Status* status) {
  return watched([&] { return PMPI_Iprobe(from, tag, comm, here, status); });
}
int MPI_Improbe(int from, int tag, MPI_Comm comm, int* here, MPI_Message* message, MPI_Status* status) {
  return watched([&] { return PMPI_Improbe(from, tag, comm, here, message, status); });
}
int MPI_Imrecv(void* into, int count, MPI_Datatype type, MPI_Message* message, MPI_Request* request) {
  if (count > longest_matched) longest_matched = count;
  return watched([&] { return PMPI_Imrecv(into, count, type, message, request); });
}
int MPI_Testsome(int count, MPI_Request* requests, int* done, int* which, MPI_Status* statuses) {
  return watched([&] { return PMPI_Testsome(count, requests, done, which, statuses); });
}

namespace lockstep {
namespace {

using namespace test;
using namespace std::chrono_literals;

TEST(MpiTransportFailure, AnotherLengthIsAnErrorThatNamesBoth) {
  for (const std::size_t expected : {std::size_t{100}, std::size_t{500'000}}) {
    for (const std::size_t sent : {std::size_t{40}, expected / 2, expected + 1, 2 * expected}) {
      const auto place = world().duplicate();
      const auto transport = mpi_transport(*place);
      const Bytes mine(sent);
      Bytes theirs(expected);
      const SendDescriptor out{right_of(*transport), mine.data(), sent};
      const ReceiveDescriptor in{left_of(*transport), theirs.data(), expected};
      transport->post({0, 1}, {&out, 1}, {&in, 1});
      const std::string end = ending([&] { finish(*transport, 0); });
      EXPECT_NE(end.find("LOCKSTEP-E016"), std::string::npos) << end;
      EXPECT_NE(end.find(text("rank ", left_of(*transport), " sent ")), std::string::npos) << end;
      EXPECT_NE(end.find(text(" ", sent, " bytes")), std::string::npos) << end;
      EXPECT_NE(end.find(text(" ", expected, " were expected")), std::string::npos) << end;
      transport->abandon();
      world().barrier("all have seen it");
    }
  }
}

TEST(MpiTransportFailure, AnotherLengthInPartsIsSeen) {
  for (const auto& [sent, expected] : {std::pair{5000, 4000}, {4000, 5000}, {1001, 1002}, {1002, 1001}, {9000, 9003}}) {
    const auto place = world().duplicate();
    MpiTransport transport(dynamic_cast<MpiExchange&>(*place), 1000);
    const Bytes mine(static_cast<std::size_t>(sent));
    Bytes theirs(static_cast<std::size_t>(expected));
    const SendDescriptor out{right_of(transport), mine.data(), mine.size()};
    const ReceiveDescriptor in{left_of(transport), theirs.data(), theirs.size()};
    transport.post({0, 1}, {&out, 1}, {&in, 1});
    const std::string end = ending([&] { finish(transport, 0); });
    EXPECT_NE(end.find("LOCKSTEP-E016"), std::string::npos) << end;
    EXPECT_NE(end.find(text("rank ", left_of(transport), " sent ")), std::string::npos) << end;
    EXPECT_NE(end.find(text(" ", expected, " ")), std::string::npos) << end;
    transport.abandon();
    world().barrier("all have seen it");
  }
}

TEST(MpiTransportFailure, WithNothingInFlightTheEndIsSilent) {
  Loud loud;
  {
    MpiTransport transport(loud.exchange);
    ring(transport, {0, 1}, 100'000, 0);
    transport.send_control(right_of(transport), to_bytes("unheard"));
    world().barrier("all have spoken");
  }
  EXPECT_TRUE(loud.lines->empty()) << loud.lines->front();
}

// Nobody else can take it out of the way.
TEST(MpiTransportFailure, AMessageToOneselfIsGivenUpAtOnce) {
  for (const std::size_t size : {std::size_t{64}, std::size_t{1'000'000}}) {
    Loud loud;
    MpiTransport transport(loud.exchange);
    const Bytes mine(size);
    Bytes theirs(size + 1);
    const SendDescriptor out{transport.rank(), mine.data(), size};
    const ReceiveDescriptor in{transport.rank(), theirs.data(), size + 1};
    transport.post({0, 1}, {&out, 1}, {&in, 1});
    EXPECT_THROW(finish(transport, 0), Error);
    EXPECT_THROW(transport.done(0), Error) << "still";
    transport.abandon();
    EXPECT_TRUE(transport.done(0));
    EXPECT_TRUE(loud.lines->empty()) << loud.lines->front();
  }
}

class MpiTransportFailureTwo : public NeedsRanks<2> {};

// Sends and receives are posted apart: two transports on one channel.
TEST_F(MpiTransportFailureTwo, MarksKeepCallsApart) {
  const auto place = world().duplicate();
  const auto receiving = mpi_transport(*place);
  const auto sending = mpi_transport(*place);
  const Bytes mine = pattern(place->rank(), 0, 64);
  const Bytes untouched(64, std::byte{0xee});
  Bytes theirs = untouched;
  const SendDescriptor out{right_of(*sending), mine.data(), 64};
  const ReceiveDescriptor in{left_of(*receiving), theirs.data(), 64};
  receiving->post({0, 5}, {}, {&in, 1});
  sending->post({0, 6}, {&out, 1}, {});
  finish(*sending, 0);  // a message this small leaves at once
  world().barrier("all have sent");
  for (int i = 0; i < 2000; ++i) ASSERT_FALSE(receiving->done(0));
  receiving->abandon();
  EXPECT_TRUE(receiving->done(0)) << "nothing is posted any more";
  EXPECT_EQ(theirs, untouched);
  world().barrier("all have given up");
  ring(*sending, {0, 5}, 64, 0);
}

// Rank 0 gives up, then the others send: what they send stays out of its memory.
TEST_F(MpiTransportFailureTwo, AbandonedBuffersAreNotWritten) {
  for (const std::size_t size : {std::size_t{64}, std::size_t{3'000'000}}) {
    Loud loud;
    MpiTransport transport(loud.exchange);
    const Bytes mine = pattern(world().rank(), 0, size);
    const Bytes untouched(size, std::byte{0xee});
    std::vector<Bytes> theirs(static_cast<std::size_t>(world().size()), untouched);
    if (world().rank() == 0) {
      std::vector<ReceiveDescriptor> receives;
      for (int peer = 1; peer < world().size(); ++peer)
        receives.push_back({peer, theirs[static_cast<std::size_t>(peer)].data(), size});
      transport.post({0, 1}, {}, receives);
      EXPECT_FALSE(transport.done(0));
      const auto begin = std::chrono::steady_clock::now();
      transport.abandon();
      EXPECT_LT(std::chrono::steady_clock::now() - begin, 900ms) << "nothing was on its way";
      EXPECT_TRUE(loud.lines->empty());
    }
    world().barrier("rank 0 has given up");
    if (world().rank() != 0) {
      const SendDescriptor out{0, mine.data(), size};
      transport.post({0, 1}, {&out, 1}, {});
      const auto end = std::chrono::steady_clock::now() + 300ms;
      while (!transport.done(0) && std::chrono::steady_clock::now() < end) std::this_thread::yield();
      const bool left = transport.done(0);
      EXPECT_TRUE(left || size > 64) << "small messages leave at once";
      transport.abandon();
      ASSERT_EQ(loud.lines->size(), left ? 0U : 1U);
      if (!left) {
        EXPECT_NE(loud.lines->front().find(text(size, " bytes to rank 0")), std::string::npos) << loud.lines->front();
      }
    }
    world().barrier("the others have sent");
    for (const Bytes& each : theirs) EXPECT_EQ(each, untouched);
  }
}

// The sender has given up and its memory is gone: the next communicator neither gets the message nor reads the memory.
TEST_F(MpiTransportFailureTwo, GivenUpMessageDoesNotReachNextCommunicator) {
  const std::size_t size = 3'000'000;
  int channel = -1;
  {
    const auto place = world().duplicate();
    const auto& exchange = dynamic_cast<MpiExchange&>(*place);
    channel = exchange.channel_block().channel;
    void* const memory = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(memory, MAP_FAILED);
    if (world().rank() == 1) {
      const auto transport = mpi_transport(*place);
      const SendDescriptor out{0, memory, size};
      transport->post({0, 5, true}, {&out, 1}, {});
      EXPECT_FALSE(transport->abandon());
    }
    ::munmap(memory, size);
    world().barrier("rank 1 has given up");
  }
  longest_matched = 0;
  const auto place = world().duplicate();
  ASSERT_EQ(dynamic_cast<MpiExchange&>(*place).channel_block().channel, channel) << "the channel is used again";
  EXPECT_LT(longest_matched, 10'000) << "it is not read";
  const auto transport = mpi_transport(*place);
  ring(*transport, {0, 5, true}, size, 0);
}

// Rank 1 begins a large message and is away from MPI while rank 0, who has begun to take it, gives up. Where memory
// is shared the message may come all the same; where it does not, rank 0 says what it leaves behind.
TEST_F(MpiTransportFailureTwo, NamesMessagesThatCannotBeAbandoned) {
  if (world().size() > 3) return;  // more ranks only wait
  const std::size_t size = 8'000'000;
  Loud loud;
  MpiTransport transport(loud.exchange);
  static const Bytes mine = pattern(1, 0, size);  // lives on: MPI may read them later
  static Bytes theirs(size);
  if (world().rank() == 1) {
    const SendDescriptor out{0, mine.data(), size};
    transport.post({0, 1}, {&out, 1}, {});
  }
  world().barrier("rank 1 has begun to send");
  if (world().rank() == 1) std::this_thread::sleep_for(2500ms);
  if (world().rank() == 0) {
    std::this_thread::sleep_for(100ms);
    const ReceiveDescriptor in{1, theirs.data(), size};
    transport.post({0, 1}, {}, {&in, 1});
    for (int i = 0; i < 1000; ++i) transport.done(0);
    const auto begin = std::chrono::steady_clock::now();
    transport.abandon();
    EXPECT_LT(std::chrono::steady_clock::now() - begin, 2s);
    const bool named = !loud.lines->empty();
    EXPECT_TRUE(!named || loud.lines->front().find(text(size, " bytes from rank 1")) != std::string::npos);
    const Bytes then = theirs;
    world().barrier("rank 1 is back");
    EXPECT_TRUE(named || theirs == then);
    return;
  }
  world().barrier("rank 1 is back");
  transport.abandon();
}

// Thread 0 is the main one; each has its own members, lane and data.
void in_two_threads(Exchange& one, Exchange& other) {
  const auto work = [](Exchange& exchange, int seed) {
    const auto transport = mpi_transport(exchange);
    for (int i = 0; i < 80; ++i) {
      ring(*transport, {i % transport->lanes(), 1}, sizes[static_cast<std::size_t>(i) % 8], seed + i);
      transport->send_control(right_of(*transport), to_bytes(text(seed + i)));
      std::optional<Transport::ReceivedControl> heard;
      while (!(heard = transport->receive_control())) std::this_thread::yield();
      ASSERT_EQ(to_string(heard->bytes), text(seed + i));
    }
  };
  met = false;
  watching = true;
  std::thread second([&] { work(other, 1000); });
  work(one, 0);
  second.join();
  watching = false;
  EXPECT_TRUE(!met || session().thread_level() == ThreadLevel::multiple) << "two threads in MPI at once";
}

TEST(MpiTransportThreads, TwoTransportsOverPartsOfOneSession) {
  if (session().thread_level() < ThreadLevel::serialized) GTEST_SKIP() << lacks("needs MPI_THREAD_SERIALIZED");
  const auto one = world().duplicate();
  const auto other = world().split(world().rank() % 2, world().rank());
  in_two_threads(*one, *other);
}

TEST(MpiTransportThreads, TwoTransportsOverTwoSessions) {
  if (session().thread_level() < ThreadLevel::serialized) GTEST_SKIP() << lacks("needs MPI_THREAD_SERIALIZED");
  Session inner;
  in_two_threads(world(), inner.exchange());
}

TEST(MpiTransportThreads, BelowSerializedASecondThreadIsRefused) {
  MPI_Comm self = MPI_COMM_NULL;
  MPI_Comm_dup(MPI_COMM_SELF, &self);
  for (const ThreadLevel level : {ThreadLevel::single, ThreadLevel::funneled}) {
    MPI_Comm own = MPI_COMM_NULL;
    MPI_Comm_dup(self, &own);
    MpiExchange alone(std::make_shared<Wire>(own, level), {}, Log());
    MpiTransport transport(alone);
    ring(transport, {0, 1}, 1000, 0);
    std::string end;
    std::thread([&] { end = ending([&] { ring(transport, {0, 1}, 1000, 0); }); }).join();
    EXPECT_NE(end.find("LOCKSTEP-E011"), std::string::npos) << end;
    std::thread([&] { end = ending([&] { transport.receive_control(); }); }).join();
    EXPECT_NE(end.find("LOCKSTEP-E011"), std::string::npos) << end;
  }
  MPI_Comm_free(&self);
}

}  // namespace
}  // namespace lockstep
