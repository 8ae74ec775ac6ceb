// SPDX-License-Identifier: Apache-2.0
#include <cstdlib>
#include <iostream>

#include "tests/support/mpi_test.hpp"
#include "tests/support/watchdog.hpp"

namespace lockstep::test {
namespace {

struct Harness {
  Session* session = nullptr;
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

class Together : public testing::EmptyTestEventListener {
  void OnTestStart(const testing::TestInfo& info) override {
    watch_test(full_name(info));
    failures_.clear();
    harness().world = harness().lane->duplicate();
  }

  // Also called for exceptions. Whoever waits for this rank in the test's exchange gets an error now.
  void OnTestPartResult(const testing::TestPartResult& part) override {
    if (!part.failed() || gathering_) return;
    failures_ += describe(part);
    if (part.fatally_failed() && harness().world) harness().world->fail(describe(part));
  }

  // Called before the printer, so that what is added here belongs to the test.
  void OnTestEnd(const testing::TestInfo& info) override {
    const auto all = harness().lane->all_gather(text("end of ", full_name(info)), to_bytes(failures_));
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

int run(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  const auto deadline = take_deadline(argc, argv, std::chrono::seconds(60));
  start_watchdog("a rank", deadline);
  watch_test("session set-up");
  SessionOptions options;
  options.settings = Settings::from_environment();
  options.settings->set(Setting::timeout, std::to_string(deadline.count() + 5));
  options.settings->set(Setting::stall_warn, std::to_string(std::max<std::int64_t>(1, deadline.count() / 2)));
  Session session(argc, argv, options);
  rename_watchdog(text("rank ", session.rank(), " of ", session.size()));
  harness().session = &session;
  harness().lane = session.exchange().duplicate();
  unwatch_test();
  auto& listeners = testing::UnitTest::GetInstance()->listeners();
  if (session.rank() != 0) {
    delete listeners.Release(listeners.default_result_printer());
    delete listeners.Release(listeners.default_xml_generator());
  }
  listeners.Append(new Together);  // GoogleTest owns it
  const int failed = RUN_ALL_TESTS();
  watch_test("session shutdown");
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
