// SPDX-License-Identifier: Apache-2.0
// Where a program begins: starts MPI if nobody did, or stands on something else, finds the other members, learns the
// topology, and ends what it started. MPI's own header is not needed to include this one; a communicator of the
// user's is taken by topology/machine/session_mpi.hpp.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "topology/base/error.hpp"
#include "topology/base/settings.hpp"
#include "topology/exchange.hpp"
#include "topology/machine/device.hpp"
#include "topology/topology.hpp"

namespace lockstep {

enum class ThreadLevel : std::uint8_t { single, funneled, serialized, multiple };

std::string_view to_string(ThreadLevel level);

class Communicator;
struct CommunicatorOptions;
class Transport;

// What a session stands on where it is not MPI: how its members found each other, and what carries their messages.
class SessionBackend {
 public:
  virtual ~SessionBackend() = default;
  // Of all members, for the session; once.
  virtual std::unique_ptr<Exchange> exchange(Patience patience, const Log& log) = 0;
  // New ones, for each thread of this process: of so many in each process.
  virtual std::vector<std::unique_ptr<Exchange>> of_threads(const std::vector<int>& numbers, Exchange& processes) = 0;
  virtual std::unique_ptr<Transport> transport(Exchange& exchange) = 0;
  // A member was lost, so that not all will come to the end.
  virtual bool failed() const { return false; }
  // The session is over; communicators may still be there.
  virtual void end() noexcept = 0;
  // For messages: "tasks of TF_CONFIG".
  virtual std::string describe() const = 0;
};

// Members that are threads: an exchange for each of this process, and how many there are, by process.
struct ThreadMembers {
  std::shared_ptr<std::vector<std::unique_ptr<Exchange>>> exchanges;
  std::vector<int> numbers;
};

// What a higher layer hangs on a session, to be ended before it.
struct Attachment {
  virtual ~Attachment() = default;
  virtual bool failed() const = 0;  // so that the others may never come
};

struct SessionOptions {
  // What the program wants set, whatever the environment says.
  std::optional<Settings> settings = std::nullopt;
  // Where log lines go; standard error if empty.
  Log::Sink log = {};
  // What to ask MPI for when we start it: with `serialized`, members may be driven from any thread,
  // one at a time inside MPI.
  ThreadLevel thread_level = ThreadLevel::serialized;
  // Something else than MPI names the cluster (a resolver), so that a world of one is meant.
  bool cluster_named = false;
  // What the program is about: members that meet with different purposes are told so.
  std::string purpose = {};
  // For tools that look at broken set-ups: differing settings and builds are no error.
  bool tolerant = false;
};

class Session {
 public:
  explicit Session(SessionOptions options = {});
  Session(int& argc, char**& argv, SessionOptions options = {});
  ~Session();
  Session(Session&&) noexcept;
  Session& operator=(Session&&) noexcept;

  int rank() const;
  int size() const;
  Exchange& exchange();
  const Topology& topology() const;
  std::shared_ptr<const Topology> shared_topology() const;
  void set_network(const Topology::Network& measured);  // the same on all members
  const VisibleGpus& devices() const;                   // of this process
  const Settings& settings() const;
  const Log& log() const;
  ThreadLevel thread_level() const;  // what MPI granted
  bool started_mpi() const;
  // Nothing: it stands on MPI.
  const std::shared_ptr<SessionBackend>& backend() const;

  // All members; made at the first call, which all of them make. Defined with the collectives, which this layer does
  // not know: a program that calls it links them.
  Communicator& world();
  std::unique_ptr<Attachment>& attachment();
  // What lives until all members have come to the end of the session: the others may still need it.
  std::shared_ptr<Attachment>& until_the_end();

  // Several members in each of several processes, each driven by a thread of its own: `mine` of this one. All
  // processes call it, with at least 1. Needs MPI_THREAD_SERIALIZED. members() gives what makes the communicator of
  // each, once; its thread calls it.
  ThreadMembers threads_of_all(int mine);
  std::function<std::unique_ptr<Communicator>(int mine)> members(ThreadMembers threads, CommunicatorOptions options);

  struct Parts;
  explicit Session(std::unique_ptr<Parts> parts);
  // Without MPI. The backend stays for as long as something of the session needs it; nothing is ended but by it.
  explicit Session(std::shared_ptr<SessionBackend> backend, SessionOptions options = {});

 private:
  std::unique_ptr<Parts> parts_;
};

// For a program's main, after an error: ends all members of the job with this exit code. Returns only
// where MPI is not running, or this process is alone.
void end_job(Exit code);

// "Open MPI 4.1.4", of the library in use.
std::string mpi_version();

// Lockstep's own: "0.1.0".
std::string_view version();
std::string_view commit();  // of the source it was built from

}  // namespace lockstep
