// SPDX-License-Identifier: Apache-2.0
// Keys and what is proven by them: files of keys, calls and answers with their proofs, and servers that answer nobody
// without one.
#include "runtime/rpc/seal.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <thread>

#include "runtime/rpc/rpc.hpp"
#include "runtime/rpc/rpc_exchange.hpp"
#include "tests/support/folder.hpp"
#include "tests/support/holds.hpp"
#include "tests/support/lacks.hpp"
#include "tests/support/refusal.hpp"

namespace lockstep::rpc {
namespace {

using namespace std::chrono_literals;
using detail::CallIdentity;
using detail::ClientSeal;
using detail::ServerSeal;
using test::holds;
using test::refusal;

std::shared_ptr<const Secret> key_of(std::uint8_t value) {
  return std::make_shared<const Secret>(Bytes(32, std::byte{value}), text("key ", value));
}

TEST(Secrets, HaveTheMacOfTheStandard) {
  // RFC 4231, test case 1.
  const Secret key(Bytes(20, std::byte{0x0b}), "a test");
  EXPECT_EQ(to_hexadecimal(key.mac(to_bytes("Hi There"))),
            "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
  EXPECT_TRUE(is_same(to_bytes("abc"), to_bytes("abc")));
  EXPECT_FALSE(is_same(to_bytes("abc"), to_bytes("abd")));
  EXPECT_FALSE(is_same(to_bytes("abc"), to_bytes("ab")));
  Mac one{};
  Mac two{};
  fill_random(one);
  fill_random(two);
  EXPECT_NE(one, two);
  EXPECT_PRED2(holds, refusal([] { Secret(Bytes(15), "short"); }, Code::usage), "a key of 15 bytes from short");
}

TEST(Secrets, AreFilesThatOnlyTheirOwnerMayRead) {
  const test::Folder folder;
  const std::string path = folder.path() / "key";
  const auto write = [&](std::string_view words, mode_t mode) {
    std::ofstream(path) << words;
    ::chmod(path.c_str(), mode);
  };
  EXPECT_PRED2(holds, refusal([&] { read_secret(path); }, Code::file), "cannot be read: No such file");
  write("0123456789abcdef\n", 0600);
  EXPECT_EQ(read_secret(path).mac({}), Secret(to_bytes("0123456789abcdef"), "").mac({}));
  EXPECT_EQ(read_secret(path).source(), path);
  write("0123456789abcdef", 0640);
  EXPECT_PRED2(holds, refusal([&] { read_secret(path); }, Code::file), "may be read or written by others");
  write("0123456789abcde\n", 0600);
  EXPECT_PRED2(holds, refusal([&] { read_secret(path); }, Code::file), "has 15 bytes");
  write(std::string(5000, 'x'), 0600);
  EXPECT_PRED2(holds, refusal([&] { read_secret(path); }, Code::file), "has more than 4096 bytes");
  EXPECT_PRED2(holds, refusal([&] { read_secret(folder.path()); }, Code::file), "is not a file");
}

TEST(Secrets, OfAUserAreMadeOnce) {
  const test::Folder folder;
  const std::string home = folder.path() / "home";
  const auto environment = [&](const char* name) { return std::string(name) == "HOME" ? home.c_str() : nullptr; };
  std::vector<Mac> macs(8);
  std::vector<std::thread> threads;
  for (Mac& each : macs) threads.emplace_back([&] { each = secret_of_user({}, environment).mac({}); });
  for (std::thread& each : threads) each.join();
  for (const Mac& each : macs) EXPECT_EQ(each, macs.front());
  struct stat found {};
  ASSERT_EQ(::stat((home + "/.config/lockstep/key").c_str(), &found), 0);
  EXPECT_EQ(found.st_mode & 0777, 0600U);
  ::chmod((home + "/.config/lockstep").c_str(), 0770);
  EXPECT_PRED2(holds, refusal([&] { secret_of_user({}, environment); }, Code::file), "others may write to");
  ::chmod((home + "/.config/lockstep").c_str(), 0700);
  constexpr uid_t another = 65534;
  if (::chown((home + "/.config/lockstep").c_str(), another, another) == 0) {  // root may
    EXPECT_PRED2(holds, refusal([&] { secret_of_user({}, environment); }, Code::file), "in a folder of another user");
  }
  const auto nowhere = [](const char* name) { return std::string(name) == "HOME" ? "/proc" : nullptr; };
  EXPECT_PRED2(holds, refusal([&] { secret_of_user({}, nowhere); }, Code::file), "/proc/.config cannot be made");
  EXPECT_PRED2(holds, refusal([] { secret_of_user({}, [](const char*) { return nullptr; }); }, Code::file),
               "LOCKSTEP_KEY_FILE");
  EXPECT_PRED2(holds, refusal([&] { secret_of_user(home + "/none", environment); }, Code::file), "cannot be read");
}

TEST(Seals, OpenWithTheSameKey) {
  ServerSeal server(key_of(1));
  ClientSeal client(key_of(1));
  const Bytes arguments = to_bytes("arguments");
  const CallIdentity identity = client.begin();
  const Bytes proof = client.seal(identity, server.nonce(), "square", arguments);
  const auto opened = server.open("square", proof);
  ASSERT_TRUE(opened);
  EXPECT_EQ(opened->arguments, digest_of(arguments));
  EXPECT_FALSE(server.open("square", proof));  // a second time
  const Bytes answer = server.seal(opened->identity, "square", to_bytes("49"));
  EXPECT_EQ(client.open(identity, server.nonce(), "square", answer), to_bytes("49"));
  EXPECT_FALSE(client.open(client.begin(), server.nonce(), "square", answer));  // another call's
  EXPECT_FALSE(client.open(identity, server.nonce(), "cube", answer));
  EXPECT_FALSE(ClientSeal(key_of(2)).open(identity, server.nonce(), "square", answer));
}

TEST(Seals, AreBrokenByEveryChangedByte) {
  ServerSeal server(key_of(1));
  ClientSeal client(key_of(1));
  const CallIdentity identity = client.begin();
  Bytes proof = client.seal(identity, server.nonce(), "square", to_bytes("7"));
  for (std::byte& each : proof) {
    each ^= std::byte{1};
    EXPECT_FALSE(server.open("square", proof));
    each ^= std::byte{1};
  }
  for (std::size_t length = 0; length < proof.size(); ++length)
    EXPECT_FALSE(server.open("square", std::span(proof).first(length)));
  EXPECT_FALSE(server.open("cube", proof));
  EXPECT_FALSE(ServerSeal(key_of(2)).open("square", proof));
  EXPECT_FALSE(ServerSeal(key_of(1)).open("square", proof));  // another server's nonce
  EXPECT_TRUE(server.open("square", proof));
  Bytes answer = server.seal(identity, "square", to_bytes("49"));
  for (std::byte& each : answer) {
    each ^= std::byte{1};
    EXPECT_FALSE(client.open(identity, server.nonce(), "square", answer));
    each ^= std::byte{1};
  }
  EXPECT_FALSE(client.open(identity, server.nonce(), "square", proof));
}

TEST(Seals, LetCallsOvertakeEachOtherButNoneComeTwice) {
  ServerSeal server(key_of(1));
  ClientSeal client(key_of(1));
  std::vector<CallIdentity> identities;
  std::vector<Bytes> calls;
  for (int i = 0; i < 2000; ++i) {
    identities.push_back(client.begin());
    calls.push_back(client.seal(identities.back(), server.nonce(), "f", {}));
  }
  const auto is_taken = [&](std::size_t which) { return server.open("f", calls[which]).has_value(); };
  for (std::size_t which = calls.size(); which-- > 1;) EXPECT_TRUE(is_taken(which)) << which;  // the first is slow
  for (const std::size_t which : {1U, 2U, 1000U, 1999U}) EXPECT_FALSE(is_taken(which)) << which;
  EXPECT_TRUE(is_taken(0));
  EXPECT_FALSE(is_taken(0));
  // What was answered is forgotten, and refused all the same.
  for (const CallIdentity& each : identities) client.end(each);
  EXPECT_TRUE(server.open("f", client.seal(client.begin(), server.nonce(), "f", {})));
  for (const std::size_t which : {0U, 7U, 1999U}) EXPECT_FALSE(is_taken(which)) << which;
}

TEST(Seals, NumbersTakeLittleMemory) {
  detail::ReplayWindow numbers;
  EXPECT_TRUE(numbers.take(1, 1));  // stays open
  for (std::uint64_t number = 1000; number > 1; --number) EXPECT_TRUE(numbers.take(number, 1));
  EXPECT_EQ(numbers.ranges(), 1U);
  EXPECT_TRUE(numbers.take(1002, 1));
  EXPECT_EQ(numbers.ranges(), 2U);
  EXPECT_TRUE(numbers.take(1001, 1));
  EXPECT_EQ(numbers.ranges(), 1U);
  EXPECT_TRUE(numbers.take(1003, 1003));
  EXPECT_EQ(numbers.ranges(), 1U);
  EXPECT_FALSE(numbers.take(1001, 1));
  EXPECT_TRUE(numbers.take(2000, 2000));
  EXPECT_EQ(numbers.ranges(), 1U);
}

class Keyed : public testing::Test {
 protected:
  void SetUp() override {
    if (!is_available()) GTEST_SKIP() << test::lacks("needs gRPC");
  }
  static std::unique_ptr<RpcServer> started(std::shared_ptr<const Secret> key) {
    auto server = RpcServer::create("grpc", "localhost:0", {.key = std::move(key)});
    server->add("square", [](int x) { return x * x; });
    server->add("fail", []() -> int { throw std::runtime_error("it did not work"); });
    server->start();
    return server;
  }
  static std::unique_ptr<Client> client_of(const RpcServer& server, std::shared_ptr<const Secret> key) {
    return Client::create("grpc", server.address(), {.timeout = 20s, .key = std::move(key)});
  }
};

TEST_F(Keyed, ServersAnswerClientsWithTheKey) {
  const auto server = started(key_of(1));
  const auto client = client_of(*server, key_of(1));
  for (int i = 0; i < 100; ++i) EXPECT_EQ(client->call_blocking<int>("square", i), i * i);
  EXPECT_EQ(client->methods().size(), 2U);
  EXPECT_PRED2(holds, refusal([&] { client->call_blocking<int>("fail"); }, Code::remote), "it did not work");
  EXPECT_PRED2(holds, refusal([&] { client->call_blocking<int>("square", 1.0); }, Code::usage), "f64");
  EXPECT_PRED2(holds, refusal([&] { client->call_blocking<int>("cube", 1); }, Code::usage), "no function of that name");
  std::vector<StatusOrResult<int>> answers;
  const auto fresh = client_of(*server, key_of(1));  // all of its first calls ask for the nonce
  for (int i = 0; i < 50; ++i) answers.push_back(fresh->call<int>("square", i));
  for (int i = 0; i < 50; ++i) EXPECT_EQ(answers[static_cast<std::size_t>(i)].get_value(), i * i);
}

TEST_F(Keyed, ServersAndClientsKnowAStranger) {
  const auto server = started(key_of(1));
  const auto open = started(nullptr);
  const auto call = [](const std::unique_ptr<Client>& client) { client->call_blocking<int>("square", 3); };
  EXPECT_PRED2(holds, refusal([&] { call(client_of(*server, key_of(2))); }, Code::untrusted), "does not prove the key");
  EXPECT_PRED2(holds, refusal([&] { call(client_of(*server, nullptr)); }, Code::untrusted), "does not prove the key");
  EXPECT_PRED2(holds, refusal([&] { call(client_of(*open, key_of(1))); }, Code::untrusted), "the server has no key");
  EXPECT_EQ(client_of(*open, nullptr)->call_blocking<int>("square", 3), 9);
}

TEST_F(Keyed, ClientsFindAServerThatWasStartedAgain) {
  auto first = started(key_of(1));
  const std::string address = first->address();
  const auto client = client_of(*first, key_of(1));
  EXPECT_EQ(client->call_blocking<int>("square", 3), 9);
  first.reset();
  const auto second = RpcServer::create("grpc", address, {.key = key_of(1)});
  second->add("square", [](int x) { return -x; });
  second->start();
  const auto end = std::chrono::steady_clock::now() + 20s;
  std::optional<Error> wrong;
  do {  // until the connection is made again
    const auto answer = client->call<int>("square", 3);
    wrong = answer.get_error();
    if (!wrong) {
      EXPECT_EQ(answer.get_value(), -3);
    }
  } while (wrong && wrong->code() == Code::remote && std::chrono::steady_clock::now() < end);
  EXPECT_FALSE(wrong) << wrong->what();
}

TEST_F(Keyed, ServersTakeManyCallsOfAllSizesAtOnce) {
  auto server = RpcServer::create("grpc", "localhost:0", {.key = key_of(1)});
  server->add("size", [](const std::string& words) { return static_cast<int>(words.size()); });
  server->start();
  const auto client = client_of(*server, key_of(1));
  const std::string large(20'000'000, 'x');
  const auto slow = client->call<int>("size", large);
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&] {
      std::vector<StatusOrResult<int>> answers;
      for (int i = 0; i < 200; ++i) answers.push_back(client->call<int>("size", std::string(10, 'y')));
      for (const auto& each : answers) EXPECT_EQ(each.get_value(), 10);
    });
  }
  for (std::thread& each : threads) each.join();
  EXPECT_EQ(slow.get_value(), 20'000'000);
}

// Who knows the nonce, but not the key, and answers whatever is asked.
TEST_F(Keyed, ClientsBelieveNoAnswerWithoutAProof) {
  const auto liar = RpcServer::create("grpc", "localhost:0");
  const auto say = [](Bytes words) {
    return [words = std::move(words)](const Bytes&, const RpcServer::Finish& finish) {
      finish({.bytes = words, .error = {}});
      return std::function<void()>();
    };
  };
  liar->add_deferred("lockstep.hello", say(Bytes(16)));
  liar->add_deferred("square", say(encode(9)));
  liar->start();
  const auto client = client_of(*liar, key_of(1));
  EXPECT_PRED2(holds, refusal([&] { client->call_blocking<int>("square", 3); }, Code::untrusted),
               "the answer does not prove the key that is wanted -> check which program uses that address; the key "
               "here is that of "
               "key 1");
}

TEST_F(Keyed, ExchangesNameAMemberThatIsLost) {
  auto server = RpcServer::create("grpc", "localhost:0", {.key = key_of(1)});
  ExchangeServer exchange_server(*server);
  server->start();
  const auto member = [&](int rank) {
    return rpc_exchange(server->address(), "all", rank, 3, {5s, 30s}, Log(LogLevel::off),
                        {.key = key_of(1), .label = text("worker ", rank)});
  };
  std::vector<std::unique_ptr<Exchange>> all;
  for (int rank = 0; rank < 3; ++rank) all.push_back(member(rank));
  std::vector<std::thread> threads;
  for (const auto& each : all) threads.emplace_back([&each] { each->barrier("all are here"); });
  for (std::thread& each : threads) each.join();
  for (const auto& each : all) EXPECT_FALSE(lost_member(*each));
  const auto wait_for_loss = [&](int rank) {
    const auto end = std::chrono::steady_clock::now() + 20s;
    std::optional<LostMember> who;
    while (!(who = lost_member(*all[static_cast<std::size_t>(rank)])) && std::chrono::steady_clock::now() < end)
      std::this_thread::sleep_for(10ms);
    return who ? who->words : "nobody";
  };
  all[2].reset();  // it says that it goes
  std::this_thread::sleep_for(100ms);
  EXPECT_FALSE(lost_member(*all[0]));
  try {
    const auto gone = std::move(all[1]);
    throw std::runtime_error("something went wrong");
  } catch (const std::exception&) {
  }
  EXPECT_PRED2(holds, wait_for_loss(0), "rank 1 (worker 1) is gone");
}

}  // namespace
}  // namespace lockstep::rpc
