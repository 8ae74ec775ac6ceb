// SPDX-License-Identifier: Apache-2.0
// Finds members that share memory: each offers a file with a secret token, and tries to read those of the others.
#include "topology/machine/share.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <map>

#include "topology/base/error.hpp"
#include "topology/base/index_set.hpp"
#include "topology/base/proc.hpp"
#include "topology/base/text.hpp"

namespace lockstep {
namespace {

using BeaconToken = std::array<std::byte, 16>;

BeaconToken random_token() {
  BeaconToken token{};
  if (::getrandom(token.data(), token.size(), 0) != static_cast<ssize_t>(token.size())) {
    throw system_error("no random numbers", errno);
  }
  return token;
}

std::string reason(int error) { return std::strerror(error); }  // NOLINT(concurrency-mt-unsafe): glibc's is safe

// Removes files of this user that nobody locks any more. Members that were killed while they tried have left them.
void sweep(const std::string& directory) {
  constexpr std::string_view prefix = "lockstep-";
  constexpr std::size_t digits = 2 * sizeof(BeaconToken);
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(directory, error)) {
    const std::string name = entry.path().filename();
    const bool ours = name.size() == prefix.size() + digits && name.starts_with(prefix) &&
                      name.find_first_not_of("0123456789abcdef", prefix.size()) == std::string::npos;
    if (!ours) continue;
    const int file = ::open(entry.path().c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (file < 0) continue;
    struct stat status {};
    const bool abandoned = ::fstat(file, &status) == 0 && status.st_uid == ::geteuid() &&
                           ::time(nullptr) - status.st_mtime > 60 && ::flock(file, LOCK_EX | LOCK_NB) == 0;
    if (abandoned) ::unlink(entry.path().c_str());
    ::close(file);
  }
}

// Offers a file in shared memory with a token that nobody can guess. The file is locked while this object lives, and
// then removed.
class Beacon {
 public:
  Beacon(const std::string& directory, bool nameless) {
    make_named(directory);
    if (!problem_.empty() && nameless) make_nameless();
  }
  ~Beacon() { remove(); }
  Beacon(const Beacon&) = delete;
  Beacon& operator=(const Beacon&) = delete;

  const std::string& path() const { return path_; }
  const BeaconToken& token() const { return token_; }
  const std::string& problem() const { return problem_; }

 private:
  // Creates a file that others can open by its path.
  void make_named(const std::string& directory) {
    sweep(directory);
    const std::string path = text(directory, "/lockstep-", to_hexadecimal(random_token()));
    file_ = ::open(path.c_str(), O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (file_ < 0) {
      problem_ = text("cannot create a file in ", directory, ": ", reason(errno));
      return;
    }
    path_ = path;
    ::flock(file_, LOCK_EX | LOCK_NB);
    // The allocation turns a full file system into an error here instead of a SIGBUS later.
    const int error = ::posix_fallocate(file_, 0, 4096);
    if (error != 0) {
      problem_ = text("no space in ", directory, ": ", reason(error));
    } else if (::pwrite(file_, token_.data(), token_.size(), 0) != static_cast<ssize_t>(token_.size())) {
      problem_ = text("cannot write a file in ", directory, ": ", reason(errno));
    }
    if (!problem_.empty()) remove();
  }

  // Creates memory without a name, which other processes of this user reach through /proc. It serves hosts without
  // /dev/shm.
  void make_nameless() {
    file_ = ::memfd_create("lockstep", MFD_CLOEXEC);
    if (file_ < 0) return;
    nameless_ = true;
    path_ = text("/proc/", ::getpid(), "/fd/", file_);
    if (::pwrite(file_, token_.data(), token_.size(), 0) == static_cast<ssize_t>(token_.size()))
      problem_.clear();
    else
      remove();
  }

  void remove() {
    if (file_ < 0) return;
    if (!nameless_) ::unlink(path_.c_str());
    ::close(file_);
    file_ = -1;
    path_.clear();
  }

  BeaconToken token_ = random_token();
  int file_ = -1;
  bool nameless_ = false;
  std::string path_;
  std::string problem_;
};

// Is a member's offer to the others.
struct BeaconReport {
  int colour = 0;
  std::string path;  // empty: it could not create one
  BeaconToken token{};
  std::string problem;
};

Bytes write(const BeaconReport& report) {
  Writer writer;
  writer.put(report.colour).put(report.path).put(std::span<const std::byte>(report.token)).put(report.problem);
  return writer.take();
}

BeaconReport read_beacon_report(std::span<const std::byte> bytes) {
  Reader reader(bytes);
  BeaconReport report;
  report.colour = reader.get<int>();
  report.path = reader.get_string();
  const Bytes token = reader.get_bytes();
  if (token.size() == report.token.size()) std::memcpy(report.token.data(), token.data(), token.size());
  report.problem = reader.get_string();
  return report;
}

// True if this process can open the file and finds the token there. A file of the same name on another host has another
// token.
bool can_open(const BeaconReport& beacon) {
  if (beacon.path.empty()) return false;
  const int file = beacon.path.starts_with("/proc/")
                       ? open_memory_file(beacon.path, O_RDWR)
                       : ::open(beacon.path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (file < 0) return false;
  BeaconToken token{};
  const bool read_it = ::pread(file, token.data(), token.size(), 0) == static_cast<ssize_t>(token.size());
  ::close(file);
  return read_it && token == beacon.token;
}

// Returns the lowest rank with a beacon that this rank can open. It names the node, since sharing is an equivalence.
int lowest_shared(const std::vector<BeaconReport>& all, int me) {
  const BeaconReport& mine = all.at(static_cast<std::size_t>(me));
  for (int rank = 0; rank < me; ++rank) {
    const BeaconReport& other = all.at(static_cast<std::size_t>(rank));
    if (other.colour == mine.colour && can_open(other)) return rank;
  }
  return me;
}

// Returns remarks about members that MPI places on one host but that cannot share memory.
std::vector<std::string> explain(const std::vector<BeaconReport>& all, const std::vector<int>& representative,
                                 const std::string& directory) {
  std::vector<std::string> remarks;
  std::map<int, IndexSet> nodes_of_colour;
  std::map<int, IndexSet> ranks_of_colour;
  for (std::size_t i = 0; i < all.size(); ++i) {
    const int rank = static_cast<int>(i);
    nodes_of_colour[all[i].colour].insert(representative[i]);
    ranks_of_colour[all[i].colour].insert(rank);
  }
  for (const auto& [colour, nodes] : nodes_of_colour) {
    if (nodes.size() == 1) continue;
    remarks.push_back(text("ranks ", ranks_of_colour[colour].to_string(),
                           " are on one host by MPI's account but cannot ", "share memory in ", directory,
                           ": they count as ", nodes.size(), " nodes"));
  }
  for (const auto& [colour, ranks] : ranks_of_colour) {
    const std::string& problem = all.at(static_cast<std::size_t>(ranks.first())).problem;
    if (!problem.empty()) remarks.push_back(text("ranks ", ranks.to_string(), ": ", problem));
  }
  return remarks;
}

}  // namespace

// Each member offers a file, and tries those of lower ranks on its host. Members with the same lowest rank are a node.
SharedNodes find_shared_nodes(Exchange& exchange, int colour, const std::string& directory, bool nameless) {
  const Beacon beacon(directory, nameless);
  const BeaconReport mine{colour, beacon.path(), beacon.token(), beacon.problem()};
  std::vector<BeaconReport> all;
  for (const Bytes& bytes : exchange.all_gather("shared memory: offer", write(mine)))
    all.push_back(read_beacon_report(bytes));
  Writer answer;
  answer.put(lowest_shared(all, exchange.rank()));
  SharedNodes nodes;
  for (const Bytes& bytes : exchange.all_gather("shared memory: answer", answer.take())) {
    Reader reader(bytes);
    const int lowest = reader.get<int>();
    if (lowest < 0 || lowest > static_cast<int>(nodes.representative.size())) {
      throw Error(Code::bad_message,
                  text("rank ", nodes.representative.size(), " says it shares memory with rank ", lowest));
    }
    const bool itself = lowest == static_cast<int>(nodes.representative.size());
    nodes.representative.push_back(itself ? lowest : nodes.representative.at(static_cast<std::size_t>(lowest)));
  }
  nodes.remarks = explain(all, nodes.representative, directory);
  return nodes;
}

}  // namespace lockstep
