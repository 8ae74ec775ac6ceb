// SPDX-License-Identifier: Apache-2.0
// Functions called by name: values of all kinds, what goes wrong, and that every call ends.
#include "runtime/rpc/rpc.hpp"
#include "tests/support/lacks.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "tests/support/refusal.hpp"

namespace lockstep::rpc {
namespace {

using std::chrono::milliseconds;
using test::refusal;

TEST(Codec, HasANameForEveryType) {
  EXPECT_EQ(Codec<int>::name(), "i32");
  EXPECT_EQ((Codec<std::tuple<int, std::string, std::vector<bool>>>::name()), "(i32, string, vector<bool>)");
  EXPECT_EQ((Codec<std::vector<std::pair<Tensor<bf16>, std::optional<double>>>>::name()),
            "vector<(Tensor<bf16>, optional<f64>)>");
  EXPECT_EQ(Codec<std::tuple<>>::name(), "()");
}

template <class T>
void comes_back(const T& value) {
  EXPECT_EQ(decode<T>(encode(value)), value);
}

TEST(Codec, ReadsBackItsValues) {
  comes_back(-7);
  comes_back(1e300);
  comes_back(true);
  comes_back(std::string("\0 \xff", 3));
  comes_back(std::vector<float>{});
  comes_back(std::vector<bool>{true, false, true});
  comes_back(std::vector<std::string>{"", "a"});
  comes_back(Tensor<std::int8_t>({2, 3}, {1, 2, 3, 4, 5, 6}));
  comes_back(Tensor<float>(TensorShape({0, 5})));
  comes_back(Tensor<double>(3.0));
  comes_back(std::tuple(1, std::pair(2.0F, std::string("x")), std::optional<int>()));
}

TEST(Codec, RefusesMalformedBytes) {
  Bytes bytes = encode(std::tuple(std::vector<std::string>{"one", "two"}, Tensor<float>({2}, {1, 2})));
  using All = std::tuple<std::vector<std::string>, Tensor<float>>;
  for (std::size_t length = 0; length < bytes.size(); ++length)
    EXPECT_THROW(decode<All>(std::span(bytes).first(length)), Error) << length;
  bytes.push_back(std::byte{});
  EXPECT_THROW(decode<All>(bytes), Error);
  // A tensor whose shape is of more elements than there are.
  Writer writer;
  writer.put(std::string_view("Tensor<f32>")).put(std::uint64_t{16}).put(std::uint64_t{1} << 62).put(std::uint64_t{4});
  writer.put(std::uint64_t{0});
  EXPECT_THROW(decode<Tensor<float>>(writer.take()), Error);
  EXPECT_NE(refusal([&] { decode<int>(encode(1.0)); }, Code::usage).find("i32 is wanted, and f64 was given"),
            std::string::npos);
}

TEST(Rpc, OfAnotherLayerAndOtherAddressesIsRefused) {
  EXPECT_NE(refusal([] { RpcServer::create("tcp", "localhost:1"); }, Code::usage)
                .find("Only GRPC backend is supported at the moment"),
            std::string::npos);
  refusal([] { Client::create("", "localhost:1"); }, Code::usage);
  for (const char* address :
       {"", "localhost", ":1", "localhost:", "localhost:x", "localhost:123456", "localhost:65536"})
    EXPECT_NE(refusal([&] { Client::create("grpc", address); }, Code::usage).find("is not an address"),
              std::string::npos);
  if (!is_available()) {
    EXPECT_NE(refusal([] { RpcServer::create("grpc", "localhost:0"); }, Code::usage).find("has no gRPC"),
              std::string::npos);
  }
}

class Calls : public testing::Test {
 protected:
  void SetUp() override {
    if (!is_available()) GTEST_SKIP() << test::lacks("needs gRPC");
    server = RpcServer::create("grpc", "localhost:0");
    server->add("addition", [](int a, int b) { return a + b; });
    server->add("twice", [](const Tensor<float>& tensor) {
      Tensor<float> all = tensor;
      for (float& each : all) each *= 2;
      return all;
    });
    server->add("words", [](const std::vector<std::string>& words, std::optional<int> which) {
      return words.at(static_cast<std::size_t>(which.value_or(0)));
    });
    server->add("note", [this](int number) { noted = number; });
    server->add("sleep", [](int ms) { std::this_thread::sleep_for(milliseconds(ms)); });
    server->add("complain",
                [](int letters) { throw std::runtime_error(std::string(static_cast<std::size_t>(letters), 'x')); });
    server->add("fail", [](bool own) {
      if (own) throw Error(Code::file, "no such file", "look for it");
      throw std::out_of_range("no row 7");
    });
    server->start();
  }
  std::unique_ptr<Client> client(const ClientOptions& options = {}) const {
    return Client::create("grpc", server->address(), options);
  }

  std::atomic<int> noted = 0;
  std::unique_ptr<RpcServer> server;
};

TEST_F(Calls, GiveTheResultOfTheFunction) {
  const auto one = client();
  const auto sum = one->call<int>("addition", 2, 40);
  EXPECT_TRUE(sum.is_ok());
  EXPECT_FALSE(sum.get_error());
  EXPECT_EQ(sum.get_value(), 42);
  EXPECT_EQ(one->call_blocking<Tensor<float>>("twice", Tensor<float>({2}, {1, 2})), Tensor<float>({2}, {2, 4}));
  EXPECT_EQ(one->call_blocking<std::string>("words", std::vector<std::string>{"a", "b"}, std::optional(1)), "b");
  one->call_blocking<void>("note", 7);
  EXPECT_EQ(noted, 7);
  EXPECT_EQ(one->methods(), (std::vector<std::string>{"addition(i32, i32) -> i32", "complain(i32)", "fail(bool)",
                                                      "note(i32)", "sleep(i32)", "twice(Tensor<f32>) -> Tensor<f32>",
                                                      "words(vector<string>, optional<i32>) -> string"}));
  EXPECT_TRUE(server->target().starts_with("grpc://localhost:"));
}

TEST_F(Calls, MayBeManyAtOnceAndLarge) {
  const auto one = client();
  std::vector<StatusOrResult<int>> sums;
  for (int i = 0; i < 200; ++i) sums.push_back(one->call<int>("addition", i, i));
  for (int i = 0; i < 200; ++i) EXPECT_EQ(sums[static_cast<std::size_t>(i)].get_value(), 2 * i);
  Tensor<float> large(TensorShape({4, 1 << 20}), 1.F);
  EXPECT_EQ(one->call_blocking<Tensor<float>>("twice", large)[5], 2.F);
}

TEST_F(Calls, WithWrongNamesOrArgumentsAreRefused) {
  const auto one = client();
  const auto said = [&](auto call, Code code) { return refusal([&] { call(); }, code); };
  const auto has = [](const std::string& words, std::string_view part) {
    EXPECT_NE(words.find(part), std::string::npos) << words;
  };
  has(said([&] { one->call_blocking<int>("subtraction", 1, 2); }, Code::usage), "there is no function of that name");
  has(said([&] { one->call_blocking<int>("addition", 1, 2.0); }, Code::usage),
      "(i32, i32) is wanted, and (i32, f64) was given");
  has(said([&] { one->call_blocking<float>("addition", 1, 2); }, Code::usage), "f32 is wanted, and i32 was given");
  has(said([&] { one->call_blocking<void>("fail", false); }, Code::remote), "no row 7");
  has(said([&] { one->call_blocking<void>("fail", true); }, Code::remote), "no such file");
  const auto wrong = one->call<float>("addition", 1, 2);
  EXPECT_FALSE(wrong.is_ok());
  EXPECT_EQ(wrong.get_error()->code(), Code::usage);
  EXPECT_EQ(one->call_blocking<int>("addition", 1, 2), 3) << "and the client goes on";
}

TEST_F(Calls, EndWhenTheirTimeIsUp) {
  const auto one = client({.timeout = milliseconds(200)});
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_NE(refusal([&] { one->call_blocking<void>("sleep", 1500); }, Code::stall).find("has no answer after 200 ms"),
            std::string::npos);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, milliseconds(1400));
}

TEST_F(Calls, OfAServerThatIsGoneAreRefused) {
  const auto one = client();
  EXPECT_EQ(one->call_blocking<int>("addition", 1, 1), 2);
  server.reset();
  EXPECT_NE(
      refusal([&] { one->call_blocking<int>("addition", 1, 1); }, Code::remote).find("cannot be reached, or is gone"),
      std::string::npos);
}

TEST_F(Calls, CanWaitForAServerThatComesLate) {
  const std::string address = server->address();
  server.reset();
  const auto one = Client::create("grpc", address, {.timeout = std::chrono::seconds(20), .waits_for_server = true});
  const auto sum = one->call<int>("addition", 2, 3);
  std::this_thread::sleep_for(milliseconds(100));
  server = RpcServer::create("grpc", address);
  server->add("addition", [](int a, int b) { return a + b; });
  server->start();
  EXPECT_EQ(sum.get_value(), 5);
}

TEST_F(Calls, UnderWayEndWithTheirClient) {
  std::optional<StatusOrResult<void>> left;
  {
    const auto one = client();
    left = one->call<void>("sleep", 300);
  }
  EXPECT_FALSE(left->is_ok());
}

TEST_F(Calls, ThatNobodyWaitsForAnyMoreAreNotRun) {
  std::vector<StatusOrResult<void>> left;
  {
    const auto one = client();
    for (int i = 0; i < 40; ++i) left.push_back(one->call<void>("sleep", 200));
    std::this_thread::sleep_for(milliseconds(100));
  }
  const auto begin = std::chrono::steady_clock::now();
  server.reset();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, milliseconds(1500)) << "40 on 4 threads take 2000 ms";
}

TEST_F(Calls, CarryLongErrors) {
  const auto one = client();
  const std::string words = refusal([&] { one->call_blocking<void>("complain", 20'000); }, Code::remote);
  EXPECT_NE(words.find("xxxx"), std::string::npos) << words;
}

TEST_F(Calls, FindAServerOnlyWhereItIsAndAsItWasMade) {
  const auto second = RpcServer::create("grpc", server->address());
  EXPECT_NE(refusal([&] { second->start(); }, Code::system).find("no server can listen on"), std::string::npos);
  refusal([&] { server->start(); }, Code::usage);
  refusal([&] { server->add("late", [] {}); }, Code::usage);
  second->add("one", [] {});
  refusal([&] { second->add("one", [] {}); }, Code::usage);
  refusal([&] { second->add("a/b", [] {}); }, Code::usage);
  refusal([&] { RpcServer::create("grpc", "localhost:0", {.threads = 0}); }, Code::usage);
  refusal([&] { Client::create("grpc", "localhost:1", {.timeout = milliseconds(-1)}); }, Code::usage);
}

}  // namespace
}  // namespace lockstep::rpc
