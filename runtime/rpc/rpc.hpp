// SPDX-License-Identifier: Apache-2.0
// Calls functions of another process by name, with typed values, over gRPC. Processes use it for messages beside
// collectives, or without being ranks of one job. A call ends with a value, with the error of the function, or at its
// timeout.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "runtime/rpc/codec.hpp"
#include "topology/base/log.hpp"
#include "topology/base/text.hpp"
#include "topology/base/time_span.hpp"
#include "topology/secret/secret.hpp"

namespace lockstep::rpc {

// True if this build has gRPC (Meson's feature `grpc`).
bool is_available();

namespace detail {

// Holds either the bytes of the answer, or an error.
struct Reply {
  Bytes bytes;
  std::optional<Error> error;
};

// Is the answer of a call, which may still be under way. Several threads may wait for it.
class ReplyFuture {
 public:
  virtual ~ReplyFuture() = default;
  // True if the answer is there. Waits for it, at most `time`.
  virtual bool wait_for(TimeSpan time) const = 0;
  // Waits for the answer, which lives as long as this object.
  virtual const Reply& get() const = 0;
};

// Throws Error stall: the call that `what` names has no answer after `limit`.
[[noreturn]] void refuse_late(const std::string& what, TimeSpan limit);

}  // namespace detail

// Holds the options of a server.
struct ServerOptions {
  // Limits the functions that run at once. From 1 to 1024.
  int threads = 4;
  // Requires each call to prove this key, and proves it in every answer. Null means no key.
  std::shared_ptr<const Secret> key = nullptr;
};

// Runs functions for other processes.
class RpcServer {
 public:
  // Makes a server at "host:port"; port 0 takes a free one. `layer` must be "grpc". Without a key every process that
  // reaches the address can call, so use "localhost:port" in a shared network. Throws Error usage for another layer.
  static std::unique_ptr<RpcServer> create(std::string_view layer, const std::string& address,
                                           const ServerOptions& options = {});
  // Stops taking calls, and waits for running functions. Later calls fail as unreachable.
  ~RpcServer();
  RpcServer(const RpcServer&) = delete;
  RpcServer& operator=(const RpcServer&) = delete;

  // Adds a function with sendable arguments and result. Several calls may run it at once. Throws Error usage after
  // start(), and for a name that is taken.
  template <class F>
  void add(const std::string& name, F function) {
    add_typed(name, std::function(std::move(function)));
  }
  // Adds a function that answers later: it calls `finish` once, from any thread. Its arguments are bytes, as encode()
  // makes them. The returned function is called if the caller leaves before its answer; `finish` must be called even
  // then.
  using Finish = std::function<void(detail::Reply)>;
  using Deferred = std::function<std::function<void()>(Bytes arguments, Finish finish)>;
  void add_deferred(const std::string& name, Deferred function);
  // Starts answering calls. Throws Error system if it cannot listen at the address.
  void start();
  // Returns "host:port", with the actual port after start().
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

// Is the result of a call, which may still be under way.
template <class R>
class StatusOrResult {
 public:
  // Takes the answer. get_value() waits at most `limit`; zero means no limit. The third argument names
  // the call in messages.
  explicit StatusOrResult(std::shared_ptr<const detail::ReplyFuture> reply, TimeSpan limit = {}, std::string what = {})
      : reply_(std::move(reply)), limit_(limit), what_(std::move(what)) {}

  // True if the call is over. Waits for that, at most `time`.
  bool wait_for(TimeSpan time) const { return reply_->wait_for(time); }
  // True if the call succeeded. Waits for its end.
  bool is_ok() const { return !get_error(); }
  // Returns the error of the call, or nothing if it succeeded. Waits for its end.
  std::optional<Error> get_error() const {
    try {
      static_cast<void>(get_value());
      return std::nullopt;
    } catch (const Error& wrong) {
      return wrong;
    }
  }
  // Returns the value. Waits for it, and throws the error of the call.
  R get_value() const {
    if (limit_ > TimeSpan{} && !wait_for(limit_)) detail::refuse_late(what_, limit_);
    const detail::Reply& reply = reply_->get();
    if (reply.error) throw *reply.error;
    if constexpr (std::is_void_v<R>)
      decode<std::tuple<>>(reply.bytes);
    else
      return decode<R>(reply.bytes);
  }

 private:
  std::shared_ptr<const detail::ReplyFuture> reply_;
  TimeSpan limit_;
  std::string what_;
};

// Holds the options of a client.
struct ClientOptions {
  // Limits the time of a call. Zero waits as long as the server lives.
  TimeSpan timeout = TimeSpan::seconds(300);
  // Lets a call wait for a server that is not there yet, up to the timeout.
  bool waits_for_server = false;
  // Lets a call also wait for a server that has answered before and is gone. Otherwise that is an error at once.
  bool waits_again = true;
  // Holds the server's key. Null requires a server without a key.
  std::shared_ptr<const Secret> key = nullptr;
};

// Calls functions of one server. It connects again by itself. Any thread may call it.
class Client {
 public:
  // Makes a client; the server need not exist yet. Throws Error usage for a layer other than "grpc", or a malformed
  // address.
  static std::unique_ptr<Client> create(std::string_view layer, const std::string& address,
                                        const ClientOptions& options = {});
  // Cancels the calls under way, and waits for their ends.
  ~Client();
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  // Starts a call: client.call<int>("addition", 1, 2).get_value().
  template <class R, class... A>
  StatusOrResult<R> call(const std::string& name, const A&... arguments) {
    return StatusOrResult<R>(start(name, encode(std::tuple<decayed<A>...>(arguments...))), limit(), what(name));
  }
  // Makes a call, waits for it, and returns its value.
  template <class R, class... A>
  R call_blocking(const std::string& name, const A&... arguments) {
    return call<R>(name, arguments...).get_value();
  }
  // Returns the signature of every function of the server: "addition(i32, i32) -> i32". Waits for the answer.
  std::vector<std::string> methods() { return call_blocking<std::vector<std::string>>("lockstep.methods"); }
  const std::string& address() const;

 private:
  struct Parts;
  // Sends a text literal as a string.
  template <class A>
  using decayed = std::conditional_t<std::is_convertible_v<A, std::string_view>, std::string, std::decay_t<A>>;
  explicit Client(std::unique_ptr<Parts> parts);
  std::shared_ptr<const detail::ReplyFuture> start(const std::string& name, const Bytes& arguments);
  // Returns the limit for waiting callers. gRPC itself ends a call in time, unless the time of day is set back
  // meanwhile.
  TimeSpan limit() const;
  std::string what(const std::string& name) const { return text("call of '", printable(name), "' of ", address()); }

  std::unique_ptr<Parts> parts_;
};

namespace detail {

// Throws Error usage for another layer than "grpc", or a malformed address.
void check_layer(std::string_view layer, const std::string& address);

}  // namespace detail
}  // namespace lockstep::rpc
