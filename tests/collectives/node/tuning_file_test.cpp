// SPDX-License-Identifier: Apache-2.0
// The file that keeps measurements of a node: hostile names beside it, a full disk, and remains of killed processes.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "collectives/node/tuning_record.hpp"
#include "tests/support/folder.hpp"
#include "tests/support/lacks.hpp"
#include "tests/support/own_mounts.hpp"
#include "topology/base/text.hpp"

namespace lockstep::test {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view key = "a machine of this test";

// A cache of the test's own.
class TuningFile : public testing::Test {
 protected:
  void SetUp() override {
    if (const char* const before = std::getenv("XDG_CACHE_HOME")) before_ = before;
    ::setenv("XDG_CACHE_HOME", cache_.path().c_str(), 1);
    fs::create_directory(folder());
  }
  void TearDown() override {
    if (before_.empty())
      ::unsetenv("XDG_CACHE_HOME");
    else
      ::setenv("XDG_CACHE_HOME", before_.c_str(), 1);
  }
  fs::path folder() const { return cache_.path() / "lockstep"; }
  static void keep() {
    node::TuningRecord record;
    record.add({.tuning = node::guessed_tuning(4)}, node::Doubt::none);
    node::store_record(record, key);
  }

 private:
  Folder cache_;
  std::string before_;
};

TEST_F(TuningFile, LinksBesideItAreNotFollowed) {
  constexpr int guesses = 1000;
  const fs::path victim = folder() / "victim";
  std::ofstream(victim) << "precious";
  for (int i = 0; i <= guesses; ++i) fs::create_symlink(victim, text(node::tuning_file(key), '.', ::getpid(), '.', i));
  keep();
  std::ostringstream now;
  now << std::ifstream(victim).rdbuf();
  EXPECT_EQ(now.str(), "precious");
  EXPECT_EQ(node::read_record(key).measured().size(), 1U);
}

TEST_F(TuningFile, FullDiskLeavesNothing) {
  constexpr int failed = 100;
  const pid_t child = ::fork();
  if (child == 0) {
    if (!enter_own_mounts() || ::mount("none", folder().c_str(), "tmpfs", 0, "size=16k") != 0) ::_exit(failed);
    const int filler = ::open((folder() / "filler").c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    constexpr std::array<char, 4096> page{};
    while (::write(filler, page.data(), page.size()) > 0) continue;
    keep();
    ::_exit(static_cast<int>(std::distance(fs::directory_iterator(folder()), fs::directory_iterator())));
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  if (WEXITSTATUS(status) == failed) GTEST_SKIP() << lacks(mount_right);
  EXPECT_EQ(WEXITSTATUS(status), 1) << "files in the folder, with the one that fills it";
}

TEST_F(TuningFile, RemainsOfKilledProcessesAreRemoved) {
  const auto remains = [this](const char* name, std::chrono::hours age) {
    std::ofstream(folder() / name) << "half";
    fs::last_write_time(folder() / name, fs::file_time_type::clock::now() - age);
    return folder() / name;
  };
  const auto old = remains("node-0123456789abcdef.txt.4711.1", std::chrono::hours(2));
  const auto fresh = remains("node-0123456789abcdef.txt.Abc123", std::chrono::hours(0));
  const auto whole = remains("node-0123456789abcdef.txt", std::chrono::hours(2));
  keep();
  EXPECT_FALSE(fs::exists(old));
  EXPECT_TRUE(fs::exists(fresh)) << "another process may write it";
  EXPECT_TRUE(fs::exists(whole)) << "measurements for another key";
}

}  // namespace
}  // namespace lockstep::test
