// SPDX-License-Identifier: Apache-2.0
#include <grpcpp/create_channel.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/security/credentials.h>

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <set>

#include "runtime/rpc/grpc_some.hpp"
#include "runtime/rpc/rpc.hpp"
#include "runtime/rpc/seal.hpp"
#include "topology/base/forked.hpp"

namespace lockstep::rpc {
namespace {

// A call under way: kept until gRPC has said how it ended.
struct Flight {
  Flight(std::string called, Bytes given) : name(std::move(called)), arguments(std::move(given)) {}

  std::string name;
  Bytes arguments;
  std::unique_ptr<grpc::ClientContext> asking{};  // for the server's nonce, before the call itself
  std::unique_ptr<grpc::ClientContext> context{};
  bool is_second = false;  // time, after the server turned out to be another than before
  grpc::ByteBuffer request{};
  grpc::ByteBuffer reply{};
  detail::Ticket ticket{};  // with a key
  detail::Nonce nonce{};
  std::promise<detail::Reply> promise{};
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
    case grpc::StatusCode::UNAUTHENTICATED:
      return {Code::untrusted, text(what, ": ", said),
              "give both sides the same key, or neither (ClientOptions::key, LOCKSTEP_KEY_FILE)"};
    case grpc::StatusCode::RESOURCE_EXHAUSTED:
      return {Code::usage, text(what, ": ", said), "send less than 1 GiB in one call"};
    default:
      return {Code::remote, text(what, ": ", said), {}};
  }
}

// gRPC swallows what its callbacks throw.
detail::Reply reply_of(const Flight& flight, const detail::ClientSeal* seal, const grpc::Status& status,
                       const std::string& what, Duration timeout) {
  try {
    if (!status.ok()) return {.error = error_of(status, what, timeout)};
    Bytes bytes = detail::from_buffer(flight.reply);
    if (seal == nullptr) return {.bytes = std::move(bytes)};
    auto opened = seal->open(flight.ticket, flight.nonce, flight.name, bytes);
    if (!opened || opened->size() < sizeof(std::uint32_t))
      return {.error = Error(Code::untrusted, text(what, ": the answer does not prove the key that is wanted"),
                             text("look who has that address; the key here is that of ", seal->source()))};
    const auto code = Reader(*opened).get<std::uint32_t>();
    opened->erase(opened->begin(), opened->begin() + sizeof code);
    if (code == 0) return {.bytes = std::move(*opened)};
    return {.error = error_of({static_cast<grpc::StatusCode>(code), to_string(*opened)}, what, timeout)};
  } catch (const std::exception&) {
    return {.error = Error(Code::out_of_memory, "for the answer of a remote call", "ask for less at once")};
  }
}

}  // namespace

struct Client::Parts {
  Parts(std::string at, const ClientOptions& as, std::shared_ptr<grpc::Channel> over)
      : address(std::move(at)),
        options(as),
        channel(std::move(over)),
        seal(as.key ? std::make_unique<detail::ClientSeal>(as.key) : nullptr) {}

  void set_contexts(Flight& flight) const {
    for (auto* const each : {&flight.asking, &flight.context}) {
      *each = std::make_unique<grpc::ClientContext>();
      if (options.timeout > Duration{}) (*each)->set_deadline(detail::after(options.timeout));
      (*each)->set_wait_for_ready(options.waits_for_server && (options.waits_again || !has_answered));
    }
  }
  void ask(Flight* flight);
  void fly(Flight* flight);
  void land(Flight* flight, const grpc::Status& status);
  std::string what(const Flight& flight) const { return text("call of '", printable(flight.name), "' of ", address); }

  std::string address;
  ClientOptions options;
  std::shared_ptr<grpc::Channel> channel;
  std::unique_ptr<detail::ClientSeal> seal;  // nothing: without a key
  std::optional<detail::Nonce> nonce{};      // the server's, once it has said it
  grpc::GenericStub stub{channel};
  std::mutex mutex{};
  std::condition_variable landed{};
  std::set<Flight*> flights{};
  bool ending = false;
  std::atomic<bool> has_answered = false;
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
  const auto port = parse_integer(std::string_view(address).substr(address.rfind(':') + 1));
  keep_port_from_children(static_cast<std::uint16_t>(port.value_or(0)));
  auto channel = grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments);
  return std::unique_ptr<Client>(new Client(std::make_unique<Parts>(address, options, std::move(channel))));
}

Client::Client(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}

Client::~Client() {
  std::unique_lock lock(parts_->mutex);
  parts_->ending = true;
  for (Flight* const each : parts_->flights) {
    if (each->asking) each->asking->TryCancel();
    if (each->context) each->context->TryCancel();
  }
  parts_->landed.wait(lock, [&] { return parts_->flights.empty(); });
}

const std::string& Client::address() const { return parts_->address; }

Duration Client::limit() const {
  constexpr std::chrono::milliseconds to_say_so{500};
  return parts_->options.timeout > Duration{} ? parts_->options.timeout + to_say_so : Duration{};
}

// The server's nonce, before the first call that has to prove something.
void Client::Parts::ask(Flight* flight) {
  const auto answered = [this, flight](const grpc::Status& status) {
    const Bytes said = status.ok() ? detail::from_buffer(flight->reply) : Bytes();
    if (status.error_code() == grpc::StatusCode::UNIMPLEMENTED || (status.ok() && said.size() != sizeof(detail::Nonce)))
      return land(flight, {grpc::StatusCode::UNAUTHENTICATED, "the server has no key, and here is one"});
    if (!status.ok()) return land(flight, status);
    has_answered = true;
    detail::Nonce its;
    std::ranges::copy(said, its.begin());
    {
      const std::lock_guard lock(mutex);
      nonce = its;
      flight->nonce = its;
    }
    flight->reply.Clear();
    fly(flight);
  };
  flight->request = detail::to_buffer({});
  stub.UnaryCall(flight->asking.get(), text(detail::service, detail::hello), {}, &flight->request, &flight->reply,
                 answered);
}

void Client::Parts::fly(Flight* flight) {
  if (seal) {
    flight->ticket = seal->begin();
    flight->request = detail::to_buffer(seal->seal(flight->ticket, flight->nonce, flight->name, flight->arguments));
  } else {
    flight->request = detail::to_buffer(std::exchange(flight->arguments, {}));
  }
  stub.UnaryCall(flight->context.get(), text(detail::service, flight->name), {}, &flight->request, &flight->reply,
                 [this, flight](const grpc::Status& status) { land(flight, status); });
}

// A call that was not believed was not run. Where the server is another one than the nonce was of, which may have been
// started since at the same address, it is asked and called once more.
void Client::Parts::land(Flight* flight, const grpc::Status& status) {
  if (seal) seal->end(flight->ticket);
  if (status.ok()) has_answered = true;
  if (seal && status.error_code() == grpc::StatusCode::UNAUTHENTICATED && flight->ticket.number > 0 &&
      !flight->is_second) {
    bool is_ending = false;
    {
      const std::lock_guard lock(mutex);
      if (nonce == flight->nonce) nonce.reset();
      flight->is_second = true;
      is_ending = ending;
      if (!is_ending) set_contexts(*flight);
    }
    if (!is_ending) return ask(flight);
  }
  flight->promise.set_value(reply_of(*flight, seal.get(), status, what(*flight), options.timeout));
  const std::lock_guard lock(mutex);
  flights.erase(flight);
  delete flight;
  landed.notify_all();
}

std::shared_future<detail::Reply> Client::start(const std::string& name, const Bytes& arguments) {
  auto made = std::make_unique<Flight>(name, arguments);
  std::shared_future<detail::Reply> future = made->promise.get_future().share();
  parts_->set_contexts(*made);
  Flight* const flight = made.get();
  bool asks = false;
  {
    const std::lock_guard lock(parts_->mutex);
    asks = parts_->seal && !parts_->nonce;
    flight->nonce = parts_->nonce.value_or(detail::Nonce{});
    parts_->flights.insert(flight);
    static_cast<void>(made.release());  // land() ends it
  }
  if (asks)
    parts_->ask(flight);
  else
    parts_->fly(flight);
  return future;
}

}  // namespace lockstep::rpc
