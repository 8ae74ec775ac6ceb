// SPDX-License-Identifier: Apache-2.0
// Finds members that share memory: each offers some with a secret token, and tries to read that of the others.
#include "topology/machine/share.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <map>

#include "topology/base/descriptor.hpp"
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

// Offers memory with a token that nobody can guess. Other processes of this user reach it through /proc, as they reach
// the memory of rooms.
class Beacon {
 public:
  Beacon() : file_(::memfd_create("lockstep", MFD_CLOEXEC)) {
    if (!file_ || ::pwrite(file_.get(), token_.data(), token_.size(), 0) != static_cast<ssize_t>(token_.size()))
      problem_ = text("cannot make memory to share: ", reason(errno));
  }

  std::string path() const { return problem_.empty() ? text("/proc/", ::getpid(), "/fd/", file_.get()) : ""; }
  const BeaconToken& token() const { return token_; }
  const std::string& problem() const { return problem_; }

 private:
  BeaconToken token_ = random_token();
  OwnedDescriptor file_;
  std::string problem_;
};

// Is a member's offer to the others.
struct BeaconReport {
  int colour = 0;
  std::string path;  // empty: it could not make any
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

// True if this process can open the memory and finds the token there. What has the same path on another host has
// another token.
bool can_open(const BeaconReport& beacon) {
  if (beacon.path.empty()) return false;
  const OwnedDescriptor file(open_memory_file(beacon.path, O_RDWR));
  BeaconToken token{};
  return file && ::pread(file.get(), token.data(), token.size(), 0) == static_cast<ssize_t>(token.size()) &&
         token == beacon.token;
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
std::vector<std::string> explain(const std::vector<BeaconReport>& all, const std::vector<int>& representative) {
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
                           " are on one host by MPI's account but cannot share memory: they count as ", nodes.size(),
                           " nodes"));
  }
  for (const auto& [colour, ranks] : ranks_of_colour) {
    const std::string& problem = all.at(static_cast<std::size_t>(ranks.first())).problem;
    if (!problem.empty()) remarks.push_back(text("ranks ", ranks.to_string(), ": ", problem));
  }
  return remarks;
}

}  // namespace

// Each member offers memory, and tries that of lower ranks on its host. Members with the same lowest rank are a node.
SharedNodes find_shared_nodes(Exchange& exchange, int colour) {
  const Beacon beacon;
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
  nodes.remarks = explain(all, nodes.representative);
  return nodes;
}

}  // namespace lockstep
