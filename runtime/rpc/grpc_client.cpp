// SPDX-License-Identifier: Apache-2.0
#include <grpcpp/create_channel.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/security/credentials.h>

#include <condition_variable>
#include <mutex>
#include <set>

#include "runtime/rpc/grpc_some.hpp"
#include "runtime/rpc/rpc.hpp"

namespace lockstep::rpc {
namespace {

// A call under way: kept until gRPC has said how it ended.
struct Flight {
  grpc::ClientContext context;
  grpc::ByteBuffer request;
  grpc::ByteBuffer reply;
  std::promise<detail::Reply> promise;
};

Error error_of(const grpc::Status& status, const std::string& what, Duration timeout) {
  constexpr std::size_t most_words = 4000;
  const std::string said = printable(status.error_message(), most_words);
  switch (status.error_code()) {
    case grpc::StatusCode::DEADLINE_EXCEEDED:
      return {Code::stall, text(what, " has no answer after ", format_duration(timeout)),
              "look what the server does; ClientOptions::timeout sets the limit"};
    case grpc::StatusCode::UNIMPLEMENTED:
      return {Code::usage, text(what, ": there is no function of that name"),
              "Client::methods() lists what there is; both ends must be Lockstep's"};
    case grpc::StatusCode::INVALID_ARGUMENT:
      return {Code::usage, text(what, ": ", said), {}};
    case grpc::StatusCode::UNAVAILABLE:
      return {Code::remote, text(what, ": the server cannot be reached, or is gone (", said, ')'),
              "start it first, or let the client wait for it (ClientOptions::waits_for_server)"};
    case grpc::StatusCode::CANCELLED:
      return {Code::remote, text(what, " was cancelled: one side has ended (", said, ')'),
              "let both sides live as long as their calls"};
    case grpc::StatusCode::RESOURCE_EXHAUSTED:
      return {Code::usage, text(what, ": ", said), "send less than 1 GiB in one call"};
    default:
      return {Code::remote, text(what, ": ", said), {}};
  }
}

// gRPC swallows what its callbacks throw.
detail::Reply reply_of(const Flight& flight, const grpc::Status& status, const std::string& what, Duration timeout) {
  try {
    if (status.ok()) return {.bytes = detail::from_buffer(flight.reply)};
    return {.error = error_of(status, what, timeout)};
  } catch (const std::exception&) {
    return {.error = Error(Code::out_of_memory, "for the answer of a remote call", "ask for less at once")};
  }
}

}  // namespace

struct Client::Parts {
  Parts(std::string at, const ClientOptions& as, std::shared_ptr<grpc::Channel> over)
      : address(std::move(at)), options(as), channel(std::move(over)) {}

  std::string address;
  ClientOptions options;
  std::shared_ptr<grpc::Channel> channel;
  grpc::GenericStub stub{channel};
  std::mutex mutex{};
  std::condition_variable landed{};
  std::set<Flight*> flights{};
};

std::unique_ptr<Client> Client::create(std::string_view layer, const std::string& address,
                                       const ClientOptions& options) {
  detail::check_layer(layer, address);
  detail::quieten();
  if (options.timeout < Duration{})
    throw Error(Code::usage, text("an rpc client to ", printable(address), " with a negative timeout"),
                "give a positive time, or zero for none");
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(detail::most_bytes);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);  // tasks of a cluster are reached directly
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 50);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 500);
  auto channel = grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments);
  return std::unique_ptr<Client>(new Client(std::make_unique<Parts>(address, options, std::move(channel))));
}

Client::Client(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}

Client::~Client() {
  std::unique_lock lock(parts_->mutex);
  for (Flight* const each : parts_->flights) each->context.TryCancel();
  parts_->landed.wait(lock, [&] { return parts_->flights.empty(); });
}

const std::string& Client::address() const { return parts_->address; }

std::shared_future<detail::Reply> Client::start(const std::string& name, const Bytes& arguments) {
  auto made = std::make_unique<Flight>();
  std::shared_future<detail::Reply> future = made->promise.get_future().share();
  const Duration timeout = parts_->options.timeout;
  if (timeout > Duration{}) made->context.set_deadline(std::chrono::system_clock::now() + timeout);
  made->context.set_wait_for_ready(parts_->options.waits_for_server);
  made->request = detail::to_buffer(arguments);
  const std::string what = text("call of '", printable(name), "' of ", parts_->address);
  const std::function<void(grpc::Status)> land = [parts = parts_.get(), flight = made.get(), what,
                                                  timeout](const grpc::Status& status) {
    flight->promise.set_value(reply_of(*flight, status, what, timeout));
    const std::lock_guard lock(parts->mutex);
    parts->flights.erase(flight);
    delete flight;
    parts->landed.notify_all();
  };
  const std::string path = std::string(detail::service) + name;
  Flight* const flight = made.get();
  {
    const std::lock_guard lock(parts_->mutex);
    parts_->flights.insert(flight);
    static_cast<void>(made.release());  // land() ends it
  }
  parts_->stub.UnaryCall(&flight->context, path, {}, &flight->request, &flight->reply, land);
  return future;
}

}  // namespace lockstep::rpc
