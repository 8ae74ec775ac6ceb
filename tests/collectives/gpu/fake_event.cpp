// SPDX-License-Identifier: Apache-2.0
#include "tests/collectives/gpu/fake_event.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <utility>

#include "topology/base/error.hpp"
#include "topology/base/text.hpp"

namespace lockstep::test {
namespace {

constexpr std::size_t ring = 64;  // of records under way at once

struct Names {
  pid_t process;
  int file;
};

std::atomic<bool> ends_with_process = true;

// Also where nobody has asked yet how it ended.
bool is_over(int process) {
  pollfd asked{process, POLLIN, 0};
  return ::poll(&asked, 1, 0) > 0;
}

}  // namespace

struct FakeEvent::Shared {
  std::atomic<std::uint64_t> recorded;
  std::array<std::atomic<std::uint64_t>, ring> reached;  // each record by itself: they may be in several streams
  std::atomic<bool> failed;
};

// Reached when its stream has come to it, also where that does nothing any more since something failed.
class FakeEvent::Record {
 public:
  Record(std::shared_ptr<Shared> shared, std::uint64_t number) : shared_(std::move(shared)), number_(number) {}
  ~Record() {
    if (!is_done_) shared_->failed = true;
    shared_->reached[number_ % ring].store(number_);
  }
  Record(const Record&) = delete;
  Record& operator=(const Record&) = delete;
  void set_done() { is_done_ = true; }

 private:
  std::shared_ptr<Shared> shared_;
  std::uint64_t number_;
  bool is_done_ = false;
};

FakeEvent::FakeEvent(Put put) : put_(std::move(put)) {
  static std::atomic<std::uint64_t> numbers = 0;
  number_ = ++numbers;
  file_ = ::memfd_create("fake-event", MFD_CLOEXEC);
  if (file_ < 0 || ::ftruncate(file_, sizeof(Shared)) != 0) throw system_error("making an event", errno, "");
  map();
}

FakeEvent::FakeEvent(const gpu::IpcEventHandle& theirs) {
  Names names{};
  std::memcpy(&names, theirs.handle.data(), sizeof names);
  const std::string path = text("/proc/", names.process, "/fd/", names.file);
  file_ = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (file_ < 0) throw Error(Code::device, text("opening ", path, ": ", std::strerror(errno)), "");
  process_ = {new int(static_cast<int>(::syscall(SYS_pidfd_open, names.process, 0))), [](const int* opened) {
                ::close(*opened);
                delete opened;
              }};
  map();
}

void FakeEvent::end_with_their_process(bool do_end) { ends_with_process = do_end; }

FakeEvent::~FakeEvent() { ::close(file_); }

void FakeEvent::map() {
  void* const memory = ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED, file_, 0);
  if (memory == MAP_FAILED) throw system_error("mapping an event", errno, "");
  shared_ = {static_cast<Shared*>(memory), [](Shared* mapped) { ::munmap(mapped, sizeof(Shared)); }};
}

void FakeEvent::record(gpu::Stream stream) {
  const std::uint64_t number = shared_->recorded.load() + 1;
  put_(stream, [record = std::make_shared<Record>(shared_, number)] { record->set_done(); });
  shared_->recorded.store(number);
}

std::optional<gpu::IpcEventHandle> FakeEvent::show() {
  gpu::IpcEventHandle shown{.number = number_};
  const Names names{::getpid(), file_};
  std::memcpy(shown.handle.data(), &names, sizeof names);
  return shown;
}

std::function<bool()> FakeEvent::when_reached() const {
  return [shared = shared_, process = process_, is_released = is_released_, number = shared_->recorded.load()] {
    if (number > 0 && shared->reached[number % ring].load() < number)
      return is_released->load() || (process != nullptr && ends_with_process && is_over(*process));
    if (shared->failed) throw Error(Code::device, "what was begun on a GPU: it fell off the bus", "look for it");
    return true;
  };
}

}  // namespace lockstep::test
