// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <iostream>

#include "tests/support/mpi_test.hpp"
#include "tests/support/watchdog.hpp"
#include "topology/base/duration.hpp"
#include "topology/exchange.hpp"

namespace lockstep::test {
namespace {

struct Harness {
  Session* session = nullptr;
  WaitLimits wait_limits;           // in the lane at the end of a test
  std::unique_ptr<Exchange> lane;   // the harness's own: tests never use it
  std::unique_ptr<Exchange> world;  // the running test's
};

Harness& harness() {
  static Harness one;
  return one;
}

std::string full_name(const testing::TestInfo& info) { return text(info.test_suite_name(), ".", info.name()); }

std::string describe(const testing::TestPartResult& part) {
  const char* file = part.file_name() == nullptr ? "unknown file" : part.file_name();
  return text(file, ":", part.line_number(), ": ", part.message(), "\n");
}

// Of tests unless told otherwise, and always of what is around them.
constexpr std::chrono::seconds built_in_deadline(150);

// A rank that waits for the others in vain says whom it misses; they must have their say as well, so it does not end
// the job before them. Its own deadline is far away: it is not the one that hangs.
template <class Call>
auto in_lane(const std::string& what, const Call& call) {
  watch_test(what,
             std::chrono::ceil<std::chrono::seconds>(Duration(harness().wait_limits.limit)) + std::chrono::minutes(1));
  try {
    return call();
  } catch (const std::exception& error) {
    leave(error.what());
  }
}

class Together : public testing::EmptyTestEventListener {
  void OnTestStart(const testing::TestInfo& info) override {
    failures_.clear();
    in_lane(text("the beginning of ", full_name(info)), [] { harness().world = harness().lane->duplicate(); });
    watch_test(full_name(info));
  }

  // Also called for exceptions. Whoever waits for this rank in the test's exchange gets an error now.
  void OnTestPartResult(const testing::TestPartResult& part) override {
    if (!part.failed() || gathering_) return;
    failures_ += describe(part);
    if (part.fatally_failed() && harness().world) harness().world->fail(describe(part));
  }

  // Called before the printer, so that what is added here belongs to the test.
  void OnTestEnd(const testing::TestInfo& info) override {
    const std::string end = text("end of ", full_name(info));
    const auto all =
        in_lane(end, [&] { return harness().lane->all_gather(end, to_bytes(failures_), harness().wait_limits); });
    gathering_ = true;
    for (std::size_t rank = 0; rank < all.size(); ++rank) {
      if (all[rank].empty() || static_cast<int>(rank) == harness().lane->rank()) continue;
      ADD_FAILURE() << "[rank " << rank << "] " << to_string(all[rank]);
    }
    gathering_ = false;
    harness().world.reset();
    unwatch_test();
  }

  std::string failures_;
  bool gathering_ = false;
};

// From here on those of one node end the job together.
void sign_on() {
  Exchange& lane = *harness().lane;
  const Topology& topology = session().topology();
  const int first = topology.ranks_of_node(topology.member(lane.rank()).node).front();
  std::string path = first == lane.rank() ? Roll::make_file() : "";
  path = to_string(lane.all_gather("files for the roll", to_bytes(path)).at(static_cast<std::size_t>(first)));
  Roll roll;
  bool all_on = topology.node_count() == 1;
  const bool on = roll.sign_on(path, lane.rank());
  for (const Bytes& each : lane.all_gather("signed on", Writer().put(on).take())) {
    all_on = Reader(each).get<bool>() && all_on;
  }
  expect_roll(roll, all_on);
  if (first == lane.rank()) ::unlink(path.c_str());
}

int run(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  const auto deadline = take_deadline(argc, argv, built_in_deadline);
  start_watchdog("a rank", deadline);
  expect_others();
  watch_test("session set-up", std::max(deadline, built_in_deadline));
  SessionOptions options;
  options.settings = Settings::from_environment();
  options.settings->set(Setting::timeout, "0");  // the watchdog ends what hangs
  options.settings->set(Setting::stall_warn, std::to_string(std::max<std::int64_t>(1, deadline.count() / 2)));
  Session session = begin_session(argc, argv, options);
  rename_watchdog(text("rank ", session.rank(), " of ", session.size()));
  harness().session = &session;
  harness().lane = session.exchange().duplicate();
  harness().wait_limits = {session.exchange().wait_limits().warn, deadline + std::chrono::seconds(2)};
  sign_on();
  unwatch_test();
  auto& listeners = testing::UnitTest::GetInstance()->listeners();
  if (session.rank() != 0) {
    delete listeners.Release(listeners.default_result_printer());
    delete listeners.Release(listeners.default_xml_generator());
  }
  listeners.Append(new Together);  // GoogleTest owns it
  const int failed = RUN_ALL_TESTS();
  watch_test("session shutdown", std::max(deadline, built_in_deadline));
  harness().lane.reset();
  harness().session = nullptr;
  return failed;
}

}  // namespace

Session& session() { return *harness().session; }
Exchange& world() { return *harness().world; }

}  // namespace lockstep::test

int main(int argc, char** argv) {
  try {
    return lockstep::test::run(argc, argv);
  } catch (const std::exception& error) {
    std::cerr << "harness: " << error.what() << "\n";
    lockstep::end_job(lockstep::Exit::unfit);
    return 1;
  }
}
