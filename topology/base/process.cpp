// SPDX-License-Identifier: Apache-2.0
// Watches processes by pidfds, and asks Linux how they ended.
#include "topology/base/process.hpp"

#include <poll.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <map>
#include <mutex>
#include <vector>

#include "topology/base/proc.hpp"
#include "topology/base/text.hpp"

namespace lockstep {
namespace {

// These are positions in the result of fields_of_process(), which begins with the third field of /proc/PID/stat.
constexpr std::size_t state_field = 0;
constexpr std::size_t begin_field = 19;
constexpr std::size_t status_field = 49;

std::optional<std::uint64_t> begin_of(const std::vector<std::string>& fields) {
  if (fields.size() <= begin_field) return std::nullopt;
  const auto begun = parse_integer(fields[begin_field]);
  return begun ? std::optional<std::uint64_t>(static_cast<std::uint64_t>(*begun)) : std::nullopt;
}

std::uint64_t read_own_space() {
  struct stat space {};
  const std::string boot = read_proc("/proc/sys/kernel/random/boot_id");
  if (boot.empty() || ::stat("/proc/self/ns/pid", &space) != 0) return 0;
  return hash(Writer().put(std::string_view(boot)).put(static_cast<std::uint64_t>(space.st_ino)).take());
}

// Returns the hash for this process, which may be the child of one that has asked before.
std::uint64_t own_space() {
  static std::mutex mutex;
  static std::pair<pid_t, std::uint64_t> found{};
  const std::lock_guard lock(mutex);
  if (found.first != ::getpid() || found.second == 0) found = {::getpid(), read_own_space()};
  return found.second;
}

// Mirrors the structure of linux/pidfd.h since Linux 6.15. Older kernels refuse, or leave the bit unset.
struct PidfdInfo {
  std::uint64_t mask;
  std::uint64_t cgroup;
  std::array<std::uint32_t, 11> numbers_and_owners;
  std::int32_t exit_code;
};
static_assert(sizeof(PidfdInfo) == 64);
constexpr std::uint64_t of_its_end = 1U << 3U;
constexpr unsigned long get_info = _IOWR(0xFF, 11, PidfdInfo);

// Returns the status of a process that has been waited for.
std::optional<int> status_of_waited_for(int descriptor) {
  PidfdInfo info{};
  info.mask = of_its_end;
  if (::ioctl(descriptor, get_info, &info) != 0 || (info.mask & of_its_end) == 0) return std::nullopt;
  return info.exit_code;
}

// Returns the status of a process that nobody has waited for yet.
std::optional<int> status_of_zombie(const ProcessName& name) {
  const std::vector<std::string> fields = fields_of_process(name.number);
  if (fields.size() <= status_field || begin_of(fields) != name.begun) return std::nullopt;
  if (fields[state_field] != "Z" && fields[state_field] != "X") return std::nullopt;
  const auto status = parse_integer(fields[status_field]);
  if (!status) return std::nullopt;
  // The kernel tells 0 to a process without the right to know. Such a process may not look at the program either; a
  // zombie has none.
  std::array<char, 1> program{};
  const bool may_know =
      ::readlink(text("/proc/", name.number, "/exe").c_str(), program.data(), 1) < 0 && errno == ENOENT;
  if (*status == 0 && !may_know) return std::nullopt;
  return static_cast<int>(*status);
}

struct ProcessRegistry {
  std::mutex mutex;
  std::map<std::pair<std::int64_t, std::uint64_t>, std::weak_ptr<const WatchedProcess>> all;
};
// Is never destroyed, because communicators may outlive main.
ProcessRegistry& known() {
  static ProcessRegistry* const one = new ProcessRegistry;
  return *one;
}

}  // namespace

void ProcessName::write(Writer& writer) const { writer.put(space).put(number).put(begun); }

ProcessName ProcessName::read(Reader& reader) {
  ProcessName name;
  name.space = reader.get<std::uint64_t>();
  name.number = reader.get<std::int64_t>();
  name.begun = reader.get<std::uint64_t>();
  return name;
}

ProcessName own_process() {
  static std::mutex mutex;
  static ProcessName found{};
  const auto number = static_cast<std::int64_t>(::getpid());
  const std::lock_guard lock(mutex);
  if (found.number == number && found.begun != 0) return found;
  const auto begun = begin_of(fields_of_process(number));
  return found = {begun ? own_space() : 0, number, begun.value_or(0)};
}

std::string how_it_ended(int status) {
  if (!WIFSIGNALED(status)) return text("ended with exit status ", WEXITSTATUS(status));
  const char* const words = ::sigdescr_np(WTERMSIG(status));
  return text("was ended by signal ", WTERMSIG(status), words == nullptr ? "" : text(" (", words, ')'));
}

std::shared_ptr<const WatchedProcess> WatchedProcess::find(const ProcessName& name) {
  if (name.space == 0 || name.space != own_space()) return nullptr;
  ProcessRegistry& others = known();
  const std::lock_guard lock(others.mutex);
  auto& kept = others.all[{name.number, name.begun}];
  if (auto here = kept.lock()) return here;
  const auto descriptor = static_cast<int>(::syscall(SYS_pidfd_open, static_cast<pid_t>(name.number), 0));
  if (descriptor < 0) return nullptr;
  std::shared_ptr<const WatchedProcess> found(new WatchedProcess(name, descriptor));
  if (begin_of(fields_of_process(name.number)) != name.begun) return nullptr;  // a later one of this number
  std::erase_if(others.all, [&](const auto& each) { return &each.second != &kept && each.second.expired(); });
  return kept = found, found;
}

WatchedProcess::~WatchedProcess() { ::close(descriptor_); }

bool WatchedProcess::has_ended(int within_ms) const noexcept {
  pollfd ended{descriptor_, POLLIN, 0};
  return ::poll(&ended, 1, within_ms) > 0;
}

// Asks twice for a waited-for process, because the wait may happen in between.
std::optional<int> WatchedProcess::status() const {
  if (const auto status = status_of_waited_for(descriptor_)) return status;
  if (const auto status = status_of_zombie(name_)) return status;
  return status_of_waited_for(descriptor_);
}

std::optional<std::string> WatchedProcess::how() const {
  if (!has_ended()) return std::nullopt;
  const auto its = status();
  return its ? std::optional(how_it_ended(*its)) : std::nullopt;
}

}  // namespace lockstep
