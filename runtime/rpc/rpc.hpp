// SPDX-License-Identifier: Apache-2.0
// Functions of another process, called by name with typed values, over gRPC: for what processes say to each other
// beside collectives, and when they are no ranks of one job. A call ends: with a value, with what the function threw,
// or when its time is up.
#pragma once

#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "runtime/rpc/codec.hpp"
#include "topology/base/log.hpp"
#include "topology/secret/secret.hpp"

namespace lockstep::rpc {

// Whether this build can: Meson's feature `grpc`.
bool is_available();

namespace detail {

// Either bytes, or what went wrong.
struct Reply {
  Bytes bytes;
  std::optional<Error> error;
};

}  // namespace detail

struct ServerOptions {
  // So many functions run at once.
  int threads = 4;
  // With a key: only calls that prove to have it are answered, and every answer proves it too.
  std::shared_ptr<const Secret> key = nullptr;
};

class RpcServer {
 public:
  // `layer` is "grpc", the address "host:port"; port 0 takes a free one. Who can reach the address can call: give
  // "localhost:port" unless the network is yours alone. Throws Error usage for another layer.
  static std::unique_ptr<RpcServer> create(std::string_view layer, const std::string& address,
                                           const ServerOptions& options = {});
  // Waits for functions that run; who calls later is told that it is gone.
  ~RpcServer();
  RpcServer(const RpcServer&) = delete;
  RpcServer& operator=(const RpcServer&) = delete;

  // Before start(); of any callable with sendable arguments. Several calls may run it at once.
  template <class F>
  void add(const std::string& name, F function) {
    add_typed(name, std::function(std::move(function)));
  }
  // A function that answers when it likes, once, from any thread; of bytes, as encode() makes them. What it returns is
  // called when the caller has gone without having had its answer, which must be given all the same.
  using Finish = std::function<void(detail::Reply)>;
  using Deferred = std::function<std::function<void()>(Bytes arguments, Finish finish)>;
  void add_deferred(const std::string& name, Deferred function);
  // From now on it answers. Throws Error system where the address is not to be had.
  void start();
  // "host:port", once it was started.
  const std::string& address() const;
  std::string target() const { return "grpc://" + address(); }

 private:
  struct Parts;
  using Handler = std::function<Bytes(std::span<const std::byte>)>;
  explicit RpcServer(std::unique_ptr<Parts> parts);
  void add_handler(const std::string& name, const std::string& signature, Handler handler);

  template <class R, class... A>
  void add_typed(const std::string& name, std::function<R(A...)> function) {
    static_assert((Sendable<std::decay_t<A>> && ...) && (std::is_void_v<R> || Sendable<std::decay_t<R>>),
                  "lockstep: remote functions take and return numbers, bool, std::string, Tensor, and vectors, "
                  "optionals, pairs and tuples of these");
    using Arguments = std::tuple<std::decay_t<A>...>;
    std::string signature = name + Codec<Arguments>::name();
    if constexpr (!std::is_void_v<R>) signature += " -> " + Codec<std::decay_t<R>>::name();
    add_handler(name, signature, [function = std::move(function)](std::span<const std::byte> bytes) {
      if constexpr (std::is_void_v<R>) {
        std::apply(function, decode<Arguments>(bytes));
        return encode(std::tuple<>());
      } else {
        return encode(std::decay_t<R>(std::apply(function, decode<Arguments>(bytes))));
      }
    });
  }

  std::unique_ptr<Parts> parts_;
};

// What a call gives, when it is over.
template <class R>
class StatusOrResult {
 public:
  // Waits so long at most, if that is not zero; `what` names the call.
  explicit StatusOrResult(std::shared_future<detail::Reply> reply, Duration limit = {}, std::string what = {})
      : reply_(std::move(reply)), limit_(limit), what_(std::move(what)) {}

  // Whether it is over, at the latest after so long.
  bool wait_for(Duration time) const { return reply_.wait_for(time) == std::future_status::ready; }
  // Waits.
  bool is_ok() const { return !get_error(); }
  // What went wrong; nothing where it is ok.
  std::optional<Error> get_error() const {
    try {
      static_cast<void>(get_value());
      return std::nullopt;
    } catch (const Error& wrong) {
      return wrong;
    }
  }
  // The value; throws what went wrong.
  R get_value() const {
    if (limit_ > Duration{} && !wait_for(limit_))
      throw Error(Code::stall, text(what_, " has no answer after ", format_duration(limit_)),
                  "look what the server does; ClientOptions::timeout sets the limit");
    const detail::Reply& reply = reply_.get();
    if (reply.error) throw *reply.error;
    if constexpr (std::is_void_v<R>)
      decode<std::tuple<>>(reply.bytes);
    else
      return decode<R>(reply.bytes);
  }

 private:
  std::shared_future<detail::Reply> reply_;
  Duration limit_;
  std::string what_;
};

struct ClientOptions {
  // How long a call may take; zero: as long as the server lives.
  Duration timeout = std::chrono::seconds(300);
  // Whether a call waits for a server that is not there yet, as long as it may take.
  bool waits_for_server = false;
  // Also for one that has answered before, and may come back; otherwise it is an error at once that it has gone.
  bool waits_again = true;
  // What the server must have as well; without: it must have none.
  std::shared_ptr<const Secret> key = nullptr;
};

class Client {
 public:
  static std::unique_ptr<Client> create(std::string_view layer, const std::string& address,
                                        const ClientOptions& options = {});
  // Calls under way end, as cancelled.
  ~Client();
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  // Begins a call: client.call<int>("addition", 1, 2).get_value().
  template <class R, class... A>
  StatusOrResult<R> call(const std::string& name, const A&... arguments) {
    return StatusOrResult<R>(start(name, encode(std::tuple<decayed<A>...>(arguments...))), limit(), what(name));
  }
  template <class R, class... A>
  R call_blocking(const std::string& name, const A&... arguments) {
    return call<R>(name, arguments...).get_value();
  }
  // "addition(i32, i32) -> i32", of all that the server has.
  std::vector<std::string> methods() { return call_blocking<std::vector<std::string>>("lockstep.methods"); }
  const std::string& address() const;

 private:
  struct Parts;
  // A text in quotes goes as a string.
  template <class A>
  using decayed = std::conditional_t<std::is_convertible_v<A, std::string_view>, std::string, std::decay_t<A>>;
  explicit Client(std::unique_ptr<Parts> parts);
  std::shared_future<detail::Reply> start(const std::string& name, const Bytes& arguments);
  // For who waits: gRPC ends a call in time unless the time of day is set back meanwhile, by which it sleeps.
  Duration limit() const;
  std::string what(const std::string& name) const { return text("call of '", printable(name), "' of ", address()); }

  std::unique_ptr<Parts> parts_;
};

namespace detail {

// Throws Error usage for what is no layer of ours, or no address.
void check_layer(std::string_view layer, const std::string& address);

}  // namespace detail
}  // namespace lockstep::rpc
