// SPDX-License-Identifier: Apache-2.0
// cache(path): a file that the first complete loop writes, and that later loops and processes read; damaged files,
// several processes, and disks that take nothing more.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <fstream>
#include <sstream>

#include "tests/runtime/data/pipelines.hpp"
#include "tests/support/folder.hpp"
#include "tests/support/holds.hpp"
#include "tests/support/refusal.hpp"

namespace lockstep::test {
namespace {

std::string content_of(const std::string& path) {
  std::ostringstream all;
  all << std::ifstream(path).rdbuf();
  return all.str();
}

// Makes a pipeline with rows of several shapes and types, and counts the calls of its function.
auto pairs(const std::string& path, int& calls, Number rows = 40) {
  return data::range(rows)
      .map([&calls](Number x) {
        ++calls;
        return std::tuple(x, Array(TensorShape{x % 4}, x));
      })
      .cache(path);
}

template <class E>
std::vector<std::string> all_of(const Dataset<E>& data) {
  auto iterator = data.open();
  return rest_of(iterator);
}

// Runs a function in a child of its own, and returns the exit status.
template <class F>
pid_t begin_child(F&& function) {
  const pid_t child = ::fork();
  if (child != 0) return child;
  int status = 99;
  try {
    status = function();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
  }
  ::_exit(status);
}
int status_of(pid_t child) {
  int status = -1;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(FileCaches, AreWrittenOnceAndReadByAll) {
  const Folder folder;
  const std::string path = (folder.path() / "cache").string();
  int calls = 0;
  int no_calls = 0;
  const auto cached = pairs(path, calls);
  auto unfinished = cached.open();
  rest_of(unfinished, 39);
  EXPECT_FALSE(std::filesystem::exists(path));
  unfinished = cached.open();
  rest_of(unfinished, 3);
  unfinished = cached.open();
  calls = 0;
  const std::vector<std::string> expected = rest_of(unfinished);
  EXPECT_EQ(expected.size(), 40U);
  EXPECT_EQ(calls, 40);
  EXPECT_TRUE(std::filesystem::exists(path));
  EXPECT_FALSE(std::filesystem::exists(path + ".draft"));
  EXPECT_EQ(all_of(cached.repeat(3)).size(), 120U);
  EXPECT_EQ(calls, 40);
  EXPECT_EQ(all_of(pairs(path, no_calls)), expected) << "as in another process";
  EXPECT_EQ(no_calls, 0);
}

// The first lap fills the cache, and the others read it: the rule of TensorFlow.
TEST(FileCaches, AreFilledByTheFirstLap) {
  const Folder folder;
  int calls = 0;
  const auto cached = pairs((folder.path() / "cache").string(), calls).repeat(4);
  EXPECT_EQ(all_of(cached).size(), 160U);
  EXPECT_EQ(calls, 40);
  int parts = 0;
  const std::string path = (folder.path() / "part").string();
  all_of(pairs(path, parts).take(5).repeat(2));
  EXPECT_EQ(parts, 10) << "a part is not kept";
  EXPECT_FALSE(std::filesystem::exists(path + ".draft"));
}

// Blocks have several rows when rows are many.
TEST(FileCaches, HoldManyBlocks) {
  const Folder folder;
  const auto many = data::range(300'000).map([](Number x) { return x * x; }).cache((folder.path() / "cache").string());
  const std::vector<std::string> expected = all_of(data::range(300'000).map([](Number x) { return x * x; }));
  EXPECT_EQ(all_of(many), expected);
  EXPECT_LT(std::filesystem::file_size(folder.path() / "cache"), 300'000U * 8 * 11 / 10);
  EXPECT_EQ(all_of(many), expected);
  auto iterator = many.open();
  rest_of(iterator, 200'001);
  auto other = many.open();
  other.seek(iterator.position());
  EXPECT_EQ(rest_of(other, 3), (std::vector(expected.begin() + 200'001, expected.begin() + 200'004)));
}

TEST(FileCaches, GoOnAtAnyPosition) {
  const Folder folder;
  int number = 0;
  const auto make = [&](bool is_new) {
    number += is_new ? 1 : 0;
    return data::range(15).shuffle(6).cache((folder.path() / std::to_string(number)).string()).shuffle(4).repeat(2);
  };
  auto first = make(true).open();
  const Bytes beginning = first.position();
  const std::vector<std::string> expected = rest_of(first);
  ASSERT_EQ(expected.size(), 30U);
  for (std::size_t read = 0; read <= expected.size(); ++read) {
    auto iterator = make(true).open();
    iterator.seek(beginning);
    rest_of(iterator, read);
    for (const bool is_new : {false, true}) {
      auto other = make(is_new).open();
      other.seek(iterator.position());
      EXPECT_EQ(rest_of(other), std::vector(expected.begin() + static_cast<std::ptrdiff_t>(read), expected.end()))
          << "after " << read << (is_new ? ", without the file" : "");
    }
    if (HasFailure()) return;
  }
}

TEST(FileCaches, RefuseThoseOfOtherPipelines) {
  const Folder folder;
  const std::string path = (folder.path() / "cache").string();
  int calls = 0;
  all_of(pairs(path, calls));
  const auto message = [](const auto& data) { return refusal([&] { data.open(); }, Code::file); };
  const std::string shorter = message(pairs(path, calls, 39));
  for (const char* part : {"the cache \"", path.c_str(), "\" has at byte 12 the pipeline range(0, 40, 1) | map",
                           " and not range(0, 39, 1) | map -> delete it, or give another path"})
    EXPECT_PRED2(holds, shorter, part);
  const auto other = data::range(40).map([](Number x) { return std::tuple(x, x); }).cache(path);
  EXPECT_PRED2(holds, message(other), "range(0, 40, 1) | map with elements of other types");
  EXPECT_PRED2(holds, refusal([&] { (void)data::range(3).cache(""); }, Code::usage), "give the path of a file");
}

// Cuts at each byte, and changes each byte. The elements are right, or there is an error that names file and offset.
TEST(FileCaches, NeverGiveWrongData) {
  const Folder folder;
  const std::string path = (folder.path() / "cache").string();
  int calls = 0;
  const std::vector<std::string> expected = all_of(pairs(path, calls, 12));
  const std::string whole = content_of(path);
  const auto check = [&](const std::string& content) {
    folder.write("cache", content);
    auto read = std::vector<std::string>();
    try {
      auto iterator = pairs(path, calls, 12).open();
      std::tuple<Number, Array> element;
      while (iterator.next(element)) read.push_back(printed(element));
      ADD_FAILURE() << "nothing was refused";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::file);
      EXPECT_PRED2(holds, error.what(), path);
      EXPECT_PRED2(holds, error.what(), " at byte ");
      EXPECT_PRED2(holds, error.what(), "-> delete it");
      EXPECT_LE(read.size(), expected.size());
      EXPECT_TRUE(std::equal(read.begin(), read.end(), expected.begin()));
    }
  };
  for (std::size_t size = 0; size < whole.size() && !HasFailure(); ++size) check(whole.substr(0, size));
  for (std::size_t i = 0; i < whole.size() && !HasFailure(); ++i) {
    std::string changed = whole;
    changed[i] = static_cast<char>(changed[i] ^ 0x10);
    check(changed);
  }
  check(whole + '\0');
  calls = 0;
  folder.write("cache", whole);
  EXPECT_EQ(all_of(pairs(path, calls, 12)), expected);
  EXPECT_EQ(calls, 0);
}

// One process writes, and the others read the stage above. All have all elements, whenever they come.
TEST(FileCaches, ServeSeveralProcessesAtOnce) {
  const Folder folder;
  const std::string path = (folder.path() / "cache").string();
  const std::vector<std::string> expected = all_of(data::range(500).batch(3).repeat(3));
  for (int round = 0; round < 10; ++round) {
    std::filesystem::remove(path);
    std::vector<pid_t> children;
    for (int i = 0; i < 3; ++i)
      children.push_back(begin_child([&] {
        const auto cached = data::range(500).batch(3).cache(path);
        return all_of(cached.repeat(3)) == expected ? 0 : 1;
      }));
    for (const pid_t child : children) EXPECT_EQ(status_of(child), 0);
    EXPECT_TRUE(std::filesystem::exists(path));
    EXPECT_FALSE(std::filesystem::exists(path + ".draft"));
  }
}

// All laps of a loop have the order that the first one had, also in a process whose rows another one is writing.
TEST(FileCaches, KeepTheOrderOfTheFirstLapInAllProcesses) {
  const Folder folder;
  const std::string path = (folder.path() / "cache").string();
  const auto make = [&] { return data::range(30).shuffle(30, {.seed = 8}).cache(path).repeat(2); };
  auto writer = make().open();
  std::vector<std::string> written = rest_of(writer, 1);
  auto other = make().open();
  const std::vector<std::string> laps = rest_of(other);
  EXPECT_EQ(std::vector(laps.begin(), laps.begin() + 30), std::vector(laps.begin() + 30, laps.end()));
  EXPECT_FALSE(std::filesystem::exists(path)) << "the writer has not finished";
  for (const std::string& each : rest_of(writer)) written.push_back(each);
  EXPECT_EQ(written, laps);
  EXPECT_TRUE(std::filesystem::exists(path));
}

// Another job may publish another order between the laps.
TEST(FileCaches, KeepTheOrderOfTheFirstLapBesideAnotherJob) {
  const Folder folder;
  const std::string path = (folder.path() / "cache").string();
  const auto make = [&] { return data::range(30).shuffle(30).cache(path).repeat(2); };
  auto writer = make().open();
  rest_of(writer, 1);
  auto iterator = make().open();
  const std::vector<std::string> lap = rest_of(iterator, 30);
  rest_of(writer);
  ASSERT_TRUE(std::filesystem::exists(path));
  EXPECT_EQ(rest_of(iterator), lap);
}

TEST(FileCaches, KeepNothingOfPeeks) {
  const Folder folder;
  const std::string path = (folder.path() / "cache").string();
  const auto cached = data::range(2).shuffle(2, {.seed = 4}).cache(path);
  const auto batches = cached.batch(2).prefetch(2);
  const auto in_memory = data::range(2).shuffle(2).cache().batch(2);
  const auto inner = data::range(1).flat_map([&](Number) { return cached; }).batch(2);
  EXPECT_TRUE(batches.peek().has_value());
  EXPECT_TRUE(inner.peek().has_value());
  EXPECT_FALSE(std::filesystem::exists(path));
  EXPECT_FALSE(std::filesystem::exists(path + ".draft"));
  const std::vector<std::string> expected = all_of(batches);
  EXPECT_TRUE(std::filesystem::exists(path));
  EXPECT_EQ(printed(*batches.peek()), expected[0]);
  EXPECT_EQ(all_of(batches), expected);
  EXPECT_TRUE(in_memory.peek().has_value());
  auto first = in_memory.open();
  auto second = in_memory.open();
  second.seek(first.position());
  EXPECT_EQ(rest_of(first), rest_of(second));
}

// The remedy of the message helps the same program.
TEST(FileCaches, AreWrittenAgainOnceADamagedOneIsDeleted) {
  const Folder folder;
  const std::string path = (folder.path() / "cache").string();
  int calls = 0;
  const auto cached = pairs(path, calls);
  const std::vector<std::string> expected = all_of(cached);
  const std::string whole = content_of(path);
  std::string damaged = whole;
  damaged[whole.size() / 2] = static_cast<char>(damaged[whole.size() / 2] ^ 1);
  std::filesystem::remove(path);
  folder.write("cache", damaged);
  EXPECT_PRED2(holds, refusal([&] { all_of(cached); }, Code::file), "-> delete it");
  std::filesystem::remove(path);
  calls = 0;
  EXPECT_EQ(all_of(cached), expected);
  EXPECT_EQ(calls, 40);
  EXPECT_EQ(content_of(path), whole);
  EXPECT_EQ(all_of(cached), expected);
  EXPECT_EQ(calls, 40);
}

// Parts of the input may have equal descriptions, such as files of equal names.
TEST(FileCaches, AreOneForEachPartOfTheInput) {
  const Folder folder;
  const std::string path = (folder.path() / "cache").string();
  const auto cached = data::range(6).shard(data::shard_hint).cache(path);
  for (std::int64_t i = 0; i < 2; ++i) {
    const Dataset<Number> part(cached.stage()->with_input({.shards = 2, .index = i}));
    const std::vector<std::string> expected = all_of(data::range(6).shard(2, i));
    for (int lap = 0; lap < 2; ++lap) EXPECT_EQ(all_of(part), expected);
    EXPECT_TRUE(std::filesystem::exists(path + ".shard-" + std::to_string(i) + "-of-2"));
  }
  EXPECT_FALSE(std::filesystem::exists(path));
}

// Somebody deletes a draft, and another loop begins a new one under its name.
TEST(FileCaches, LeaveTheDraftOfAnotherLoop) {
  const Folder folder;
  const std::string path = (folder.path() / "cache").string();
  int calls = 0;
  const auto cached = pairs(path, calls);
  auto first = cached.open();
  rest_of(first, 1);
  std::filesystem::remove(path + ".draft");
  auto second = pairs(path, calls).open();
  const std::vector<std::string> beginning = rest_of(second, 1);
  EXPECT_EQ(rest_of(first).size(), 39U);
  first = cached.open();  // The end of the first loop's draft removes nothing, either.
  EXPECT_FALSE(std::filesystem::exists(path));
  EXPECT_TRUE(std::filesystem::exists(path + ".draft"));
  rest_of(second);
  EXPECT_TRUE(std::filesystem::exists(path));
  EXPECT_EQ(all_of(cached).size(), 40U);
}

TEST(FileCaches, TakeOverFromAProcessThatDied) {
  const Folder folder;
  const std::string path = (folder.path() / "cache").string();
  int calls = 0;
  const pid_t child = begin_child([&] {
    auto iterator = pairs(path, calls).open();
    rest_of(iterator, 20);
    return ::raise(SIGKILL);
  });
  EXPECT_EQ(status_of(child), -1);
  EXPECT_TRUE(std::filesystem::exists(path + ".draft"));
  std::filesystem::resize_file(path + ".draft", 100'000);  // It had come further than the next one will.
  const std::vector<std::string> expected = all_of(pairs(path, calls));
  EXPECT_EQ(expected.size(), 40U);
  EXPECT_FALSE(std::filesystem::exists(path + ".draft"));
  calls = 0;
  EXPECT_EQ(all_of(pairs(path, calls)), expected);
  EXPECT_EQ(calls, 0);
}

TEST(FileCaches, NameThePathThatCannotBeWritten) {
  const Folder folder;
  const std::string missing = (folder.path() / "none" / "cache").string();
  int calls = 0;
  const std::string message = refusal([&] { all_of(pairs(missing, calls)); }, Code::file);
  EXPECT_PRED2(holds, message, missing);
  EXPECT_PRED2(holds, message, "cannot be written: No such file or directory -> give a path on a disk with free space");
  const std::string path = (folder.path() / "cache").string();
  const pid_t child = begin_child([&] {
    const rlimit small{2000, 2000};  // It stands for a full disk.
    ::setrlimit(RLIMIT_FSIZE, &small);
    std::size_t read = 0;
    try {
      for ([[maybe_unused]] const auto& each : pairs(path, calls, 4000)) ++read;
      return 1;
    } catch (const Error& error) {
      return read > 0 && holds(error.what(), path + "\" cannot be written: File too large") ? 0 : 2;
    }
  });
  EXPECT_EQ(status_of(child), 0);
  EXPECT_FALSE(std::filesystem::exists(path + ".draft"));
  EXPECT_FALSE(std::filesystem::exists(path));
}

// A function that throws leaves no file with a part of the rows.
TEST(FileCaches, KeepNothingOfALoopThatFails) {
  const Folder folder;
  const std::string path = (folder.path() / "cache").string();
  bool fails = true;
  const auto cached = data::range(10)
                          .map([&](Number x) {
                            if (fails && x == 7) throw std::runtime_error("no row 7");
                            return x;
                          })
                          .cache(path);
  auto iterator = cached.open();
  EXPECT_EQ(rest_of(iterator, 7).size(), 7U);
  EXPECT_THROW(iterator.next(), std::runtime_error);
  EXPECT_FALSE(std::filesystem::exists(path));
  fails = false;
  EXPECT_EQ(all_of(cached), all_of(data::range(10)));
  EXPECT_TRUE(std::filesystem::exists(path));
}

}  // namespace
}  // namespace lockstep::test
