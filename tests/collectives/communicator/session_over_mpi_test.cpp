// SPDX-License-Identifier: Apache-2.0
// Sessions over communicators of a program that uses MPI itself, before, beside and after them.
#include <mpi.h>

#include <algorithm>
#include <mutex>
#include <optional>
#include <set>
#include <vector>

#include "collectives/communicator/communicator.hpp"
#include "tests/support/mpi_test.hpp"
#include "topology/base/error.hpp"
#include "topology/exchange.hpp"
#include "topology/machine/session_mpi.hpp"

namespace {

// Communicators made by MPI_Comm_create and not freed yet: those of sessions.
struct Created {
  std::mutex mutex;
  int number = 0;  // freed or not
  std::set<MPI_Comm> comms;
};

Created& created() {
  static Created all;
  return all;
}

}  // namespace

extern "C" int MPI_Comm_create(MPI_Comm comm, MPI_Group group, MPI_Comm* made) {
  const int code = PMPI_Comm_create(comm, group, made);
  const std::lock_guard lock(created().mutex);
  created().comms.insert(*made);
  ++created().number;
  return code;
}

extern "C" int MPI_Comm_free(MPI_Comm* comm) {
  {
    const std::lock_guard lock(created().mutex);
    created().comms.erase(*comm);
  }
  return PMPI_Comm_free(comm);
}

namespace lockstep {
namespace {

using test::world;

std::size_t count_unfreed() {
  const std::lock_guard lock(created().mutex);
  return created().comms.size();
}

// A message that arrives in the wrong communicator breaks this, or hangs it.
void use_mpi() {
  MPI_Comm copy = MPI_COMM_NULL;
  MPI_Comm_dup(MPI_COMM_WORLD, &copy);
  const int rank = world().rank();
  const int size = world().size();
  const int left = (rank + size - 1) % size;
  const int one = 1;
  int total = 0;
  MPI_Allreduce(&one, &total, 1, MPI_INT, MPI_SUM, copy);
  EXPECT_EQ(total, size);
  constexpr int messages = 200;  // a strange message with a later number waits for those before it
  for (int i = 0; i < messages; ++i) {
    const int sent = rank * messages + i;
    int received = -1;
    MPI_Sendrecv(&sent, 1, MPI_INT, (rank + 1) % size, 0, &received, 1, MPI_INT, left, 0, copy, MPI_STATUS_IGNORE);
    ASSERT_EQ(received, left * messages + i);
  }
  MPI_Comm_free(&copy);
}

TEST(SessionOver, CommunicatorOutlivesSession) {
  for (int round = 0; round < 4; ++round) {
    std::optional<Communicator> kept;
    {
      Session session = session_over(MPI_COMM_WORLD);
      kept = session.world().split(0);
    }
    EXPECT_EQ(kept->all_reduce(1, sum), world().size());
    // The last words of the others come to a rank that has ended the communicator already.
    if (world().rank() == 0) kept.reset();
    MPI_Barrier(MPI_COMM_WORLD);
    kept.reset();
    MPI_Barrier(MPI_COMM_WORLD);
    use_mpi();
  }
}

// Each rank ends one session, lets the next rank go on, and ends the other one: whoever waits for others hangs.
TEST(SessionOver, EndsInAnyOrder) {
  MPI_Comm comm = MPI_COMM_NULL;
  MPI_Comm_dup(MPI_COMM_WORLD, &comm);
  std::optional<Session> one = session_over(MPI_COMM_WORLD);
  std::optional<Session> other = session_over(comm);
  EXPECT_EQ(one->world().all_reduce(1, sum), world().size());
  EXPECT_EQ(other->world().all_reduce(1, sum), world().size());
  const int rank = world().rank();
  int token = 0;
  if (rank > 0) MPI_Recv(&token, 1, MPI_INT, rank - 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  (rank % 2 == 0 ? one : other).reset();
  if (rank + 1 < world().size()) MPI_Send(&token, 1, MPI_INT, rank + 1, 0, MPI_COMM_WORLD);
  (rank % 2 == 0 ? other : one).reset();
  MPI_Comm_free(&comm);
  use_mpi();
}

TEST(SessionOver, RunsNoAttributeCallbacks) {
  int called = 0;
  const auto copy = [](MPI_Comm, int, void* count, void*, void*, int* flag) {
    ++*static_cast<int*>(count);
    *flag = 0;
    return MPI_SUCCESS;
  };
  const auto remove = [](MPI_Comm, int, void*, void* count) {
    ++*static_cast<int*>(count);
    return MPI_SUCCESS;
  };
  MPI_Comm comm = MPI_COMM_NULL;
  MPI_Comm_dup(MPI_COMM_WORLD, &comm);
  int key = MPI_KEYVAL_INVALID;
  MPI_Comm_create_keyval(copy, remove, &key, &called);
  MPI_Comm_set_attr(comm, key, nullptr);
  { const Session session = session_over(comm); }
  EXPECT_EQ(called, 0);
  MPI_Comm_free(&comm);
  MPI_Comm_free_keyval(&key);
  EXPECT_EQ(called, 1);
}

// MPICH has 2048 communicators.
TEST(SessionOver, FreesItsCommunicators) {
  constexpr int rounds = 5;
  const int made_before = created().number;
  for (int round = 0; round < rounds; ++round) {
    Session session = session_over(MPI_COMM_WORLD);
    EXPECT_EQ(session.world().all_reduce(1, sum), world().size());
  }
  EXPECT_EQ(created().number, made_before + rounds);
  // Other ranks may not have ended the last ones; the session of the whole program has one more.
  constexpr std::size_t most_unfreed = 3;
  EXPECT_LE(count_unfreed(), most_unfreed);
}

// A member that waits in Lockstep still answers the requests of MPI. Otherwise this is a circle: member 1 waits for the
// rest of the message, and member 0 for member 1.
TEST(SessionOver, MessagesOfMpiArriveWhileTheirSenderWaits) {
  constexpr int long_message = 4 << 20;
  std::vector<int> numbers(long_message, world().rank() + 1);
  Session session = session_over(MPI_COMM_WORLD);
  session.world().barrier();  // so that it is set up
  if (world().rank() == 0) {
    MPI_Request sent = MPI_REQUEST_NULL;
    MPI_Isend(numbers.data(), long_message, MPI_INT, 1, 0, MPI_COMM_WORLD, &sent);
    session.world().barrier();
    MPI_Wait(&sent, MPI_STATUS_IGNORE);
  } else {
    if (world().rank() == 1) MPI_Recv(numbers.data(), long_message, MPI_INT, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    session.world().barrier();
    if (world().rank() == 1) {
      EXPECT_EQ(std::ranges::count(numbers, 1), long_message);
    }
  }
}

TEST(SessionOver, RefusesInterCommunicators) {
  MPI_Comm half = MPI_COMM_NULL;
  MPI_Comm inter = MPI_COMM_NULL;
  const int colour = world().rank() % 2;
  MPI_Comm_split(MPI_COMM_WORLD, colour, 0, &half);
  MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, 1 - colour, 0, &inter);
  try {
    const Session session = session_over(inter);
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::usage) << error.what();
  }
  MPI_Comm_free(&inter);
  MPI_Comm_free(&half);
}

}  // namespace
}  // namespace lockstep
