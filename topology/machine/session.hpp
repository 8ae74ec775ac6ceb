// SPDX-License-Identifier: Apache-2.0
// The begin and end of a program's work with Lockstep. A session starts MPI if nobody did, or stands on another
// backend. It finds the other members, learns the topology, and ends the MPI that it started.
// topology/machine/session_mpi.hpp makes one over a communicator of the user's; this header does not need MPI's.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "topology/base/error.hpp"
#include "topology/base/settings.hpp"
#include "topology/topology.hpp"

namespace lockstep {

// Orders MPI's levels of thread support, from least to most.
enum class ThreadLevel : std::uint8_t { single, funneled, serialized, multiple };

std::string_view to_string(ThreadLevel level);

class Communicator;
struct CommunicatorOptions;
class Exchange;
struct Patience;
struct VisibleGpus;
class Transport;

// Stands below a session without MPI: it lets members find each other, and carries their messages.
class SessionBackend {
 public:
  virtual ~SessionBackend() = default;
  // Returns the exchange of all members for the session. It is called once.
  virtual std::unique_ptr<Exchange> exchange(Patience patience, const Log& log) = 0;
  // Returns new exchanges, one for each thread of this process. numbers[p] is the number of threads in process p. All
  // processes call it in the same order.
  virtual std::vector<std::unique_ptr<Exchange>> of_threads(const std::vector<int>& numbers, Exchange& processes) = 0;
  // Makes the transport of a communicator over `exchange`, which must outlive it.
  virtual std::unique_ptr<Transport> transport(Exchange& exchange) = 0;
  // True if a member was lost, so that not all will come to the end.
  virtual bool failed() const { return false; }
  // Ends the session's use; communicators may still be there.
  virtual void end() noexcept = 0;
  // Returns a name for messages: "tasks of TF_CONFIG".
  virtual std::string describe() const = 0;
};

// Holds the exchanges of members that are threads of this process, and the number of such members in each process.
struct ThreadMembers {
  std::shared_ptr<std::vector<std::unique_ptr<Exchange>>> exchanges;
  std::vector<int> numbers;
};

// Is a base for objects that a higher layer hangs on a session. They end before it.
struct Attachment {
  virtual ~Attachment() = default;
  virtual bool failed() const = 0;  // true if other members may never come
};

// Holds the wishes of a program for its session.
struct SessionOptions {
  // Replaces the settings of the environment.
  std::optional<Settings> settings = std::nullopt;
  // Takes the log lines; if empty, they go to standard error.
  Log::Sink log = {};
  // Is asked of MPI if the session starts it. With `serialized`, any thread may drive members, one at a time inside
  // MPI.
  ThreadLevel thread_level = ThreadLevel::serialized;
  // True if something else than MPI names the cluster (a resolver), so that a world of one is meant.
  bool cluster_named = false;
  // Names the program's purpose. Members with different purposes get an Error mismatch.
  std::string purpose = {};
  // True for tools that look at broken set-ups: differing settings and builds are then no error.
  bool tolerant = false;
};

// Owns the world of a program: its exchange, topology, settings and log. All members begin and end it. Moves, and does
// not copy.
class Session {
 public:
  // Starts MPI if it is not running, and connects all ranks of MPI_COMM_WORLD. Throws Error mpi_ended, singleton,
  // versions_differ, settings_differ, stall or peer_failed. The first form passes no arguments to MPI_Init_thread.
  explicit Session(SessionOptions options = {});
  Session(int& argc, char**& argv, SessionOptions options = {});
  // Waits for the other ranks only if it must end MPI, or stands on a backend. After an error it neither waits nor
  // calls MPI_Finalize, since others may never come.
  ~Session();
  Session(Session&&) noexcept;
  Session& operator=(Session&&) noexcept;

  // Return parts of the session, which owns them. shared_topology() shares the ownership.
  int rank() const;
  int size() const;
  Exchange& exchange();
  const Topology& topology() const;
  std::shared_ptr<const Topology> shared_topology() const;
  void set_network(const Topology::Network& measured);  // needs the same on all members
  const VisibleGpus& devices() const;                   // the GPUs of this process
  const Settings& settings() const;
  const Log& log() const;
  ThreadLevel thread_level() const;  // as granted by MPI; `multiple` on a backend
  // True if this session has started MPI.
  bool started_mpi() const;
  // Returns the backend; null if the session stands on MPI.
  const std::shared_ptr<SessionBackend>& backend() const;

  // Returns the communicator of all members. The first call makes it, and all members make that call. It is defined
  // with the collectives, which this layer does not know: a program that calls it links them.
  Communicator& world();
  // Refers to the owner of an object that ends before the session.
  std::unique_ptr<Attachment>& attachment();
  // Refers to the owner of an object that lives until all members have come to the end of the session, since others may
  // still need it.
  std::shared_ptr<Attachment>& until_the_end();

  // Gives each of `mine` threads of this process a member of its own. All processes call it, with at least 1. It needs
  // two processes or more, and MPI_THREAD_SERIALIZED. Throws Error usage or thread_level.
  ThreadMembers threads_of_all(int mine);
  // Returns a function that makes the communicator of each such thread, once. The thread calls it itself, with its
  // number within the process. It is defined with the collectives.
  std::function<std::unique_ptr<Communicator>(int mine)> members(ThreadMembers threads, CommunicatorOptions options);

  struct Parts;
  explicit Session(std::unique_ptr<Parts> parts);
  // Makes a session without MPI. The backend stays as long as a part of the session needs it, and only the backend ends
  // anything.
  explicit Session(std::shared_ptr<SessionBackend> backend, SessionOptions options = {});

 private:
  std::unique_ptr<Parts> parts_;
};

// Ends all members of the job with this exit code; a program's main calls it after an error. It returns only if MPI is
// not running, or this process is alone.
void end_job(Exit code);

// Returns the MPI library in use, as "Open MPI 4.1.4".
std::string mpi_version();

// Returns Lockstep's own version: "0.1.0".
std::string_view version();
std::string_view commit();  // the commit of the source that this was built from

}  // namespace lockstep
