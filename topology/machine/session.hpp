// SPDX-License-Identifier: Apache-2.0
// Declares Session, the first object of a program that uses Lockstep.
//
// A session connects the ranks of a job, reads the machine, and holds the settings. It starts MPI if MPI is not
// running, and ends it only in that case. Processes that TF_CONFIG names use a SessionBackend instead of MPI.
//
// topology/machine/session_mpi.hpp declares session_over(), for programs that start MPI themselves. This header does
// not include MPI's.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "topology/base/error.hpp"
#include "topology/base/settings.hpp"
#include "topology/topology.hpp"

namespace lockstep {

// Names MPI's levels of thread support (MPI_THREAD_SINGLE, ...), from least to most.
enum class ThreadLevel : std::uint8_t { single, funneled, serialized, multiple };

std::string_view to_string(ThreadLevel level);

class Communicator;
struct CommunicatorOptions;
class Exchange;
struct WaitLimits;
struct VisibleGpus;
class Transport;

// Is the interface below a session without MPI. It connects the members and carries their messages. Users do not
// implement it; lockstep::start() makes one for tasks of TF_CONFIG.
class SessionBackend {
 public:
  virtual ~SessionBackend() = default;
  // Returns the exchange of all members, for set-up data. The session calls it once.
  virtual std::unique_ptr<Exchange> exchange(WaitLimits wait_limits, const Log& log) = 0;
  // Returns one new exchange for each thread of this process that becomes a member. numbers[p] is the number of such
  // threads in process p. All processes call it, in the same order.
  virtual std::vector<std::unique_ptr<Exchange>> of_threads(const std::vector<int>& numbers, Exchange& processes) = 0;
  // Makes the transport of a communicator over `exchange`, which must outlive it.
  virtual std::unique_ptr<Transport> transport(Exchange& exchange) = 0;
  // True if a member was lost. The session then does not wait for the others at its end.
  virtual bool failed() const { return false; }
  // Ends the session's use of the backend. Communicators may still exist.
  virtual void end() noexcept = 0;
  // Returns a name for log lines and errors, such as "tasks of TF_CONFIG".
  virtual std::string describe() const = 0;
};

// Holds the exchanges of members that are threads of this process, and the number of such members in each process.
struct ThreadMembers {
  std::shared_ptr<std::vector<std::unique_ptr<Exchange>>> exchanges;
  std::vector<int> numbers;
};

// Is the base of objects that a higher layer attaches to a session. The session owns and ends them.
struct Attachment {
  virtual ~Attachment() = default;
  virtual bool failed() const = 0;  // true if some members may never reach the end
};

// Holds the options of a session. The defaults suit most programs.
struct SessionOptions {
  // Replaces the settings from the environment (LOCKSTEP_...). Empty: the environment is read.
  std::optional<Settings> settings = std::nullopt;
  // Receives the log lines. Empty: they go to standard error.
  Log::Sink log = {};
  // Is the thread level that the session requests if it starts MPI. With `serialized`, any thread may call Lockstep,
  // but only one at a time is inside MPI.
  ThreadLevel thread_level = ThreadLevel::serialized;
  // True if a resolver, not MPI, names the cluster. A single MPI rank is then no error.
  bool cluster_named = false;
  // Names the program's purpose. All members must give the same, or they get an Error mismatch.
  std::string purpose = {};
  // True for tools that look at broken set-ups: differing settings and builds are then no error.
  bool tolerant = false;
};

// Is a program's connection to the other ranks. It owns the world communicator, the exchange, the topology, the
// settings and the log. All ranks make one and destroy it. It can be moved, not copied.
class Session {
 public:
  // Connects all ranks of MPI_COMM_WORLD, and starts MPI if it is not running. The second form passes the program's
  // arguments to MPI_Init_thread. Throws Error mpi_ended, singleton, versions_differ, settings_differ, stall or
  // peer_failed.
  explicit Session(SessionOptions options = {});
  Session(int& argc, char**& argv, SessionOptions options = {});
  // Ends MPI if this session started it; only then, or with a backend, does it wait for the other ranks. After an error
  // it neither waits nor calls MPI_Finalize, because other ranks may never come.
  ~Session();
  Session(Session&&) noexcept;
  Session& operator=(Session&&) noexcept;

  // Return this process's rank and the number of ranks, and parts that the session owns. shared_topology() shares
  // ownership with the session.
  int rank() const;
  int size() const;
  Exchange& exchange();
  const Topology& topology() const;
  std::shared_ptr<const Topology> shared_topology() const;
  void set_network(const Topology::Network& measured);  // all members give the same
  const VisibleGpus& devices() const;                   // the GPUs that this process sees
  const Settings& settings() const;
  const Log& log() const;
  ThreadLevel thread_level() const;  // as granted by MPI; `multiple` on a backend
  // True if this session has started MPI.
  bool started_mpi() const;
  // Returns the backend; null if the session stands on MPI.
  const std::shared_ptr<SessionBackend>& backend() const;

  // Returns the communicator of all ranks, which the session owns. The first call makes it, so all ranks must make that
  // call. The library of collectives defines this function.
  Communicator& world();
  // Returns the slot of an attachment that ends before the session.
  std::unique_ptr<Attachment>& attachment();
  // Returns the slot of an attachment that ends after all members have reached the end of the session, because other
  // members may need it until then.
  std::shared_ptr<Attachment>& kept_attachment();

  // Makes each of `mine` threads of this process a member. All processes call it, with 1 or more. It needs two or more
  // processes and MPI_THREAD_SERIALIZED. Throws Error usage or thread_level.
  ThreadMembers threads_of_all(int mine);
  // Returns a function that makes the communicator of such a thread. Each thread calls it once, with its number in the
  // process. The library of collectives defines this function.
  std::function<std::unique_ptr<Communicator>(int mine)> members(ThreadMembers threads, CommunicatorOptions options);

  // Is for session_over(), which makes the parts.
  struct Parts;
  explicit Session(std::unique_ptr<Parts> parts);
  // Makes a session without MPI. The session shares ownership of the backend with its communicators.
  explicit Session(std::shared_ptr<SessionBackend> backend, SessionOptions options = {});

 private:
  std::unique_ptr<Parts> parts_;
};

// Ends all ranks of the job with this exit code (MPI_Abort). A program's main calls it after an error. It returns only
// if MPI is not running or this process is the only rank.
void end_job(Exit code);

// Returns the name and version of the MPI library in use, such as "Open MPI 4.1.4".
std::string mpi_version();

// Returns the version of Lockstep, such as "0.1.0".
std::string_view version();
std::string_view commit();  // the commit of the source that this was built from

}  // namespace lockstep
