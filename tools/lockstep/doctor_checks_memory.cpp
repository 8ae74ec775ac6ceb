// SPDX-License-Identifier: Apache-2.0
// Checks the resources that members of a node share, and their limits: shared memory, each other's memory, locked
// memory and open files.
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>

#include "tools/lockstep/doctor_checks.hpp"
#include "tools/lockstep/doctor_probes.hpp"

namespace lockstep::command::check {
namespace {

std::string reason(int error) { return std::strerror(error); }  // NOLINT(concurrency-mt-unsafe): glibc's is safe

std::string larger_shared_memory(const Facts& facts) {
  if (facts.container == "kubernetes") {
    return "mount a volume \"emptyDir: {medium: Memory, sizeLimit: 1Gi}\" at /dev/shm in the pod";
  }
  if (!facts.container.empty()) return text(facts.container, " run --shm-size=1g ... (its default is 64 MB)");
  return "mount -o remount,size=50% /dev/shm (as root); or delete files that other programs left in it (ls -l "
         "/dev/shm)";
}

std::string mend_shared_memory(const Facts& facts) {
  switch (facts.shared_memory.error) {
    case EROFS:
      return facts.container.empty() ? "mount -o remount,rw /dev/shm (as root)"
                                     : "docker run --tmpfs /dev/shm:rw,size=1g ...; it is mounted read-only";
    case ENOENT:
    case ENOTDIR:
      return "mkdir -p /dev/shm && mount -t tmpfs -o size=50% tmpfs /dev/shm (as root)";
    case EACCES:
    case EPERM:
      return "chmod 1777 /dev/shm (as root); or check the security profile of the container";
    case EFBIG:
      return "ulimit -f unlimited, before mpirun and on every node";
    case EMFILE:
    case ENFILE:
      return "ulimit -n 65536, before mpirun and on every node";
    default:
      return larger_shared_memory(facts);
  }
}

constexpr std::string_view why_shared = "ranks of a node exchange data through it; without it, they use messages";

// Returns the sum of the grants on one node, and the first error among them.
Facts sum_of_node(const JobView& view, int node) {
  Facts sum = view.first_of_node(node);
  sum.shared_memory = {};
  for (const int rank : view.topology.ranks_of_node(node)) {
    const Facts& facts = view.of(rank);
    sum.shared_memory.wanted_bytes += facts.shared_memory.wanted_bytes;
    sum.shared_memory.got_bytes += facts.shared_memory.got_bytes;
    if (sum.shared_memory.error == 0) sum.shared_memory.error = facts.shared_memory.error;
    sum.shared_memory_is_disk = sum.shared_memory_is_disk || facts.shared_memory_is_disk;
  }
  return sum;
}

void judge_shared_memory(const Facts& sum, const IndexSet& ranks, CheckOutcome& outcome) {
  const ResourceGrant& tried = sum.shared_memory;
  const std::uint64_t each = tried.got_bytes / ranks.size();
  if (tried.got_bytes == 0 && tried.error != 0) {
    outcome.add({Grade::broken, ranks, text("nothing can be allocated in /dev/shm: ", reason(tried.error)),
                 std::string(why_shared), mend_shared_memory(sum)});
  } else if (tried.got_bytes < tried.wanted_bytes) {
    outcome.add({Grade::slow, ranks,
                 text("/dev/shm gives ", format_bytes(each),
                      " for each rank; wanted: ", format_bytes(wanted_shared_bytes), " (", reason(tried.error), ")",
                      each < least_shared_bytes ? text("; the engine needs ", format_bytes(least_shared_bytes)) : ""),
                 each < least_shared_bytes ? std::string(why_shared)
                                           : "large messages are cut into more pieces, and symmetric memory is short",
                 mend_shared_memory(sum)});
  }
  if (sum.shared_memory_is_disk) {
    outcome.add({Grade::slow, ranks, "/dev/shm is a directory on disk, not memory",
                 "data that ranks exchange is written to disk", "mount -t tmpfs -o size=50% tmpfs /dev/shm (as root)"});
  }
}

}  // namespace

CheckOutcome shared_memory(const JobView& view) {
  std::uint64_t least = std::numeric_limits<std::uint64_t>::max();
  CheckOutcome outcome;
  for (int node = 0; node < view.topology.node_count(); ++node) {
    const Facts sum = sum_of_node(view, node);
    const IndexSet ranks = view.ranks_of_node(node);
    least = std::min(least, sum.shared_memory.got_bytes / ranks.size());
    judge_shared_memory(sum, ranks, outcome);
  }
  const std::size_t ranks = static_cast<std::size_t>(view.size());
  const bool scarce = least < wanted_shared_bytes;
  outcome.summary = text(format_bytes(least), ranks == 1 ? " for " : " for each of ", counted(ranks, "rank"),
                         scarce ? " (no more was tried: memory is short)" : "");
  return outcome;
}

// Reports members with one kernel and one host name that are not one node, because they cannot share memory. If
// /dev/shm fails, that is a finding of its own.
CheckOutcome node_sharing(const JobView& view) {
  std::map<std::string, IndexSet> members;  // of one expected node
  std::map<std::string, IndexSet> nodes;
  for (int rank = 0; rank < view.size(); ++rank) {
    const Facts& facts = view.of(rank);
    if (facts.shared_memory.got_bytes == 0) continue;
    const std::string place = text(facts.kernel, " ", facts.host);
    members[place].insert(rank);
    nodes[place].insert(view.topology.member(rank).node);
  }
  CheckOutcome outcome{counted(static_cast<std::size_t>(view.topology.node_count()), "node"), {}};
  for (const auto& [place, ranks] : members) {
    const std::size_t count = nodes[place].size();
    if (count < 2) continue;
    outcome.add({Grade::slow, ranks,
                 text("on one machine, but without common shared memory: they count as ", count, " nodes"),
                 "they send each other messages through the network stack instead of reading memory",
                 "run all ranks of a machine in one container, or in containers with --pid=host"});
  }
  return outcome;
}

CheckOutcome huge_pages(const JobView& view) {
  CheckOutcome outcome;
  for (int rank = 0; rank < view.size(); ++rank) {
    const std::string& word = view.of(rank).huge_pages;
    if (word != "never" && word != "deny") continue;
    outcome.add({Grade::note,
                 {rank},
                 text("the kernel gives no huge pages to shared memory (\"", word, "\")"),
                 "large slots in shared memory cost more address translations; some per cent for large messages",
                 "echo advise > /sys/kernel/mm/transparent_hugepage/shmem_enabled (as root, on the host)"});
  }
  const std::string& word = view.of(0).huge_pages;
  outcome.summary = word.empty() ? "the kernel does not say" : text("\"", word, "\"");
  return outcome;
}

namespace {

std::string mend_reading(const Facts& facts) {
  if (facts.read_error == ESRCH || facts.read_error == 0)
    return "run all ranks of a machine in one container, or with --pid=host";
  if (facts.ptrace_scope > 0) {
    return text("sysctl -w kernel.yama.ptrace_scope=0 (as root; it is ", facts.ptrace_scope,
                facts.ptrace_scope == 1   ? ": only parents may read their children"
                : facts.ptrace_scope == 2 ? ": only root may"
                                          : ": nobody may, until reboot",
                ")");
  }
  if (facts.container == "kubernetes") return "add \"SYS_PTRACE\" to securityContext.capabilities of the pod";
  if (!facts.container.empty()) return text(facts.container, " run --cap-add=SYS_PTRACE ...");
  if (facts.read_error == ENOSYS) return "use a kernel with CONFIG_CROSS_MEMORY_ATTACH, or another seccomp profile";
  return "run all ranks as the same user, and not from a program with privileges of its own (getcap $(which lockstep))";
}

}  // namespace

CheckOutcome neighbour_memory(const JobView& view) {
  bool any = false;
  CheckOutcome outcome;
  for (int rank = 0; rank < view.size(); ++rank) {
    const Facts& facts = view.of(rank);
    const std::size_t neighbours = view.topology.ranks_of_node(view.topology.member(rank).node).size() - 1;
    any = any || neighbours > 0;
    if (facts.unreadable.empty()) continue;
    const bool all = facts.unreadable.size() == neighbours;
    outcome.add(
        {Grade::slow,
         {rank},
         text("the memory of ", all ? "its neighbours" : name_ranks(facts.unreadable),
              " cannot be read: ", facts.read_error == 0 ? "something else is there" : reason(facts.read_error)),
         text("large messages between ranks of a node are copied twice instead of once",
              is_open_mpi(facts) ? "; Open MPI may warn of vader and CMA" : ""),
         text(mend_reading(facts),
              is_open_mpi(facts) ? "; to silence Open MPI: mpirun --mca btl_vader_single_copy_mechanism none" : "")});
  }
  outcome.summary = any ? "every rank reads all its neighbours" : "no rank has a neighbour on its node";
  return outcome;
}

CheckOutcome locked_memory(const JobView& view) {
  std::uint64_t least = std::numeric_limits<std::uint64_t>::max();
  bool matters = false;
  CheckOutcome outcome;
  for (int rank = 0; rank < view.size(); ++rank) {
    const Facts& facts = view.of(rank);
    least = std::min(least, facts.locked_memory.got_bytes);
    const bool here = facts.rdma || !facts.gpu_ids.empty();
    matters = matters || here;
    if (!here || facts.locked_memory.got_bytes >= facts.locked_memory.wanted_bytes) continue;
    outcome.add(
        {Grade::slow,
         {rank},
         text(format_bytes(facts.locked_memory.wanted_bytes), " cannot be locked: the limit is ",
              format_bytes(facts.lock_limit_bytes)),
         text(facts.rdma ? "the network adapter" : "the GPU",
              " reads and writes only memory that is locked; without, all is copied once more"),
         facts.container.empty()
             ? "ulimit -l unlimited before mpirun; for good: \"* - memlock unlimited\" in /etc/security/limits.conf "
               "(and LimitMEMLOCK=infinity in the batch system's unit)"
             : "docker run --ulimit memlock=-1 ..."});
  }
  outcome.summary = text(least == 0 ? "none can be locked" : text(format_bytes(least), " locked"),
                         matters ? "" : "; no adapter or GPU needs it");
  return outcome;
}

CheckOutcome open_files(const JobView& view) {
  // Each rank needs a connection to every other rank, and the files that a program opens.
  const std::uint64_t wanted = 2 * static_cast<std::uint64_t>(view.size()) + 256;
  std::uint64_t least = std::numeric_limits<std::uint64_t>::max();
  CheckOutcome outcome;
  for (int rank = 0; rank < view.size(); ++rank) {
    const Facts& facts = view.of(rank);
    least = std::min(least, facts.open_files);
    if (facts.open_files >= wanted) continue;
    outcome.add({Grade::slow,
                 {rank},
                 text("at most ", facts.open_files, " files may be open, ", wanted, " are wise for ",
                      counted(static_cast<std::size_t>(view.size()), "rank")),
                 "connections between ranks are files; when the limit is reached, the job fails in mid-run",
                 facts.open_files_hard >= wanted
                     ? text("ulimit -n ", facts.open_files_hard, ", before mpirun and on every node")
                     : "\"* - nofile 65536\" in /etc/security/limits.conf on every node"});
  }
  const bool unlimited = least == std::numeric_limits<std::uint64_t>::max();
  outcome.summary = unlimited ? "no limit" : text("up to ", least);
  return outcome;
}

CheckOutcome thresholds(const JobView& view) {
  CheckOutcome outcome;
  for (int rank = 0; rank < view.size(); ++rank) {
    const Facts& facts = view.of(rank);
    for (const std::string& each : facts.unsure_thresholds) {
      const bool is_final = !facts.final_threshold_files.empty();
      outcome.add({Grade::note,
                   {rank},
                   text("thresholds of ", each),
                   "some sizes of calls may take up to twice as long as with measured thresholds",
                   is_final
                       ? text("rm ", join(facts.final_threshold_files, " "), ", then start a job on a quiet machine")
                       : "start a job while nothing else runs on the machine"});
    }
  }
  const std::vector<std::string>& known = view.of(0).thresholds;
  outcome.summary = known.empty() ? "not measured yet; each of the first jobs does" : join(known, "; ");
  return outcome;
}

}  // namespace lockstep::command::check
