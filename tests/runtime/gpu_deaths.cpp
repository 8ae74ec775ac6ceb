// SPDX-License-Identifier: Apache-2.0
// A program for tests of what happens to processes that share a GPU when one of them dies there: a GPU of the tests'
// own making, or the machine's, a few good calls, and then one in which a rank is killed at a moment that is named.
// What the others were told and when, and what they still have after it, is said on standard output.
//   gpu_deaths MOMENT RANK CALL HOW AFTER
//   MOMENT  meeting (the rank shows its memory), mapping (others', for the first time), remapping or opening (it has
//   said where its memory and its events are, and the others look for them when it is dead), ordering (in its stream,
//   before its part of a call), reduction (in the middle of it), copying, waiting (on the host, when its part is done)
//   CALL    all_reduce or all_gather
//   HOW     host, stream, or request (in a stream, and waited for)
//   AFTER   ends or stays: what becomes of waits in streams for what the dead one would have done; real: the machine's
//   first GPU decides that. Exit status 77: there is none.
#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <lockstep.hpp>

#include <chrono>
#include <functional>
#include <iostream>
#include <optional>
#include <thread>

#include "collectives/gpu/memory.hpp"
#include "tests/collectives/gpu/fake_event.hpp"
#include "tests/runtime/gpu_deaths.hpp"

namespace {

using lockstep::Communicator;
using lockstep::DeviceVector;
using lockstep::Error;
using lockstep::test::DeadlyGpus;
using lockstep::test::FakeEvent;
using lockstep::test::FakeGpus;
using Moment = DeadlyGpus::Moment;

constexpr std::size_t count = 60'000;

long long now_ns() { return std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1); }

void die() {
  const std::string words = lockstep::text("dies ", now_ns(), '\n');
  [[maybe_unused]] const auto written = ::write(STDOUT_FILENO, words.data(), words.size());
  ::kill(::getpid(), SIGKILL);
}

void wait_for_end_of(pid_t process) {
  constexpr int longest_ms = 10'000;
  pollfd ended{static_cast<int>(::syscall(SYS_pidfd_open, process, 0)), POLLIN, 0};
  if (ended.fd < 0) return;
  ::poll(&ended, 1, longest_ms);
  ::close(ended.fd);
}

struct Asked {
  std::string moment;
  int rank;
  std::string call;
  std::string how;
  std::string after;
};

class OwnOnes final : public DeadlyGpus {
 public:
  void at(Moment moment, std::function<void()> hook) override { gpus().at(moment, std::move(hook)); }
  void before_copies(std::function<void()> hook) override {
    gpus().before_copies([hook = std::move(hook)](FakeGpus::Way, std::size_t) { hook(); });
  }
  void put(lockstep::gpu::Stream stream, std::function<void()> work) override { gpus().put(stream, std::move(work)); }
  std::size_t living() const override { return gpus().living(); }

 private:
  FakeGpus& gpus() const { return static_cast<FakeGpus&>(instead_.backend()); }
  lockstep::gpu::BackendOverride instead_{std::make_unique<FakeGpus>(1)};
};

class Member {
 public:
  Member(DeadlyGpus& gpus, Communicator& world, const Asked& asked)
      : gpus_(gpus),
        backend_(*lockstep::gpu::backend()),
        asked_(asked),
        is_mine_(world.rank() == asked.rank),
        own_(world.duplicate("shared")),
        stream_(backend_.make_stream(0)),
        in_(std::vector<int>(count, 1)),
        out_(count * static_cast<std::size_t>(world.size())) {}

  // The words of the error in which it ended.
  void run() {
    if (asked_.moment != "mapping") {
      for (int turn = 0; turn < 3; ++turn) call();
      backend_.wait(stream_);
    }
    std::vector<pid_t> processes(static_cast<std::size_t>(own_->size()));
    own_->all_gather(std::vector{::getpid()}, processes);
    const pid_t dying = processes[static_cast<std::size_t>(asked_.rank)];
    std::cout << "ready" << std::endl;
    if (is_mine_) arm();
    const std::function<void()> when_dead = is_mine_ ? std::function(die) : [dying] { wait_for_end_of(dying); };
    if (asked_.moment == "opening") gpus_.at(Moment::opening, when_dead);
    if (asked_.moment == "remapping") {
      in_ = DeviceVector<int>(std::vector<int>(count, 2));
      gpus_.at(Moment::mapping, when_dead);
    }
    std::string first = ended();
    std::cout << "ended " << now_ns() << ' ' << first << std::endl;
    std::cout << "again " << ended() << std::endl;
    release();
  }

 private:
  void call() {
    const auto make = [&](auto& members) {
      if (asked_.call == "all_reduce")
        members.all_reduce(in_, lockstep::sum);
      else
        members.all_gather(in_, out_);
    };
    if (asked_.how == "host") return make(*own_);
    auto ordered = own_->on(stream_);
    if (asked_.how == "stream") return make(ordered);
    if (asked_.call == "all_reduce")
      ordered.all_reduce_async(in_, lockstep::sum).wait();
    else
      ordered.all_gather_async(in_, out_).wait();
  }

  // Calls in streams may have been put there before it died, however many there were in the meantime. Not so many that
  // a slow machine is long busy with them.
  std::string ended() {
    constexpr int at_once = 10;
    const auto longest = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    for (int turn = 0; std::chrono::steady_clock::now() < longest; ++turn) {
      try {
        call();
      } catch (const Error& error) {
        return lockstep::text(error.what());
      }
      if (turn > at_once) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return "not at all";
  }

  void arm() {
    if (asked_.moment == "meeting") gpus_.at(Moment::showing, die);
    if (asked_.moment == "mapping") gpus_.at(Moment::mapping, die);
    if (asked_.moment == "reduction") gpus_.at(Moment::combining, die);
    if (asked_.moment == "copying") gpus_.before_copies(die);
    if (asked_.moment == "ordering") {
      gpus_.put(stream_, [] {
        std::this_thread::sleep_for(std::chrono::milliseconds(50));  // the others have put what comes behind it
        die();
      });
    }
    if (asked_.moment == "waiting") {
      call();
      backend_.wait(stream_);
      die();
    }
  }

  // What the GPU still has of this process when nothing of the communicator is left, and the others have left as well.
  // Like every user, it frees its memory when nothing works with it any more: its streams go on when it has been told.
  void release() {
    wait_for_stream();
    in_ = {};
    out_ = {};
    own_.reset();
    const auto longest = std::chrono::steady_clock::now() + std::chrono::seconds(5);
    while (backend_.events_in_use() > 0 && std::chrono::steady_clock::now() < longest)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    std::cout << "left " << gpus_.living() << ' ' << backend_.events_in_use() << std::endl;
  }

  void wait_for_stream() {
    try {
      backend_.wait(stream_);
    } catch (const Error&) {  // what was under way has failed, and is over
    }
  }

  DeadlyGpus& gpus_;
  lockstep::gpu::DeviceBackend& backend_;
  const Asked& asked_;
  bool is_mine_;
  std::optional<Communicator> own_;
  lockstep::gpu::Stream stream_;  // not ended, since something may wait in it for ever
  DeviceVector<int> in_;
  DeviceVector<int> out_;
};

int run(int argc, char** argv) {
  constexpr int no_gpu = 77;
  if (argc != 6) throw std::invalid_argument("usage: gpu_deaths MOMENT RANK CALL HOW AFTER");
  const Asked asked{argv[1], std::atoi(argv[2]), argv[3], argv[4], argv[5]};
  FakeEvent::end_with_their_process(asked.after == "ends");
  // Their streams may never end.
  auto* const gpus = asked.after == "real" ? lockstep::test::deadly_gpus_of_the_machine().release() : new OwnOnes;
  if (gpus == nullptr) {
    std::cout << "no GPU: " << lockstep::gpu::why_none() << std::endl;
    return no_gpu;
  }
  lockstep::Session session = lockstep::start(argc, argv);
  Member member(*gpus, session.world(), asked);
  member.run();
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const Error& error) {
    std::cerr << error.what() << std::endl;
    return static_cast<int>(exit_of(error.code()));
  } catch (const std::exception& error) {
    std::cerr << error.what() << std::endl;
    return 1;
  }
}
