// SPDX-License-Identifier: Apache-2.0
// Implements the client over gRPC: it proves the key in each call, and checks the proof of each answer.
#include <grpcpp/create_channel.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/security/credentials.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <future>
#include <mutex>
#include <set>

#include "runtime/rpc/grpc_some.hpp"
#include "runtime/rpc/rpc.hpp"
#include "runtime/rpc/seal.hpp"
#include "topology/base/duration.hpp"
#include "topology/base/forked.hpp"

namespace lockstep::rpc {
namespace {

class PromisedReply final : public detail::ReplyFuture {
 public:
  bool wait_for(TimeSpan time) const override { return future_.wait_for(Duration(time)) == std::future_status::ready; }
  const detail::Reply& get() const override { return future_.get(); }
  void set(detail::Reply reply) { promise_.set_value(std::move(reply)); }

 private:
  std::promise<detail::Reply> promise_{};
  std::shared_future<detail::Reply> future_ = promise_.get_future().share();
};

// Is a call under way. It lives until gRPC has reported its end.
struct PendingCall {
  PendingCall(std::string called, Bytes given) : name(std::move(called)), arguments(std::move(given)) {}

  std::string name;
  Bytes arguments;
  std::unique_ptr<grpc::ClientContext> asking{};  // Asks for the server's nonce, before the call itself.
  std::unique_ptr<grpc::ClientContext> context{};
  bool is_second = false;  // True for the second attempt, after the server turned out to be a new one.
  grpc::ByteBuffer request{};
  grpc::ByteBuffer reply{};
  detail::CallIdentity identity{};  // Is set if there is a key.
  detail::Nonce nonce{};
  std::shared_ptr<PromisedReply> promised = std::make_shared<PromisedReply>();
};

// Turns gRPC's status into an error. Its text may come from another process, so it is made printable.
Error error_of(const grpc::Status& status, const std::string& what, Duration timeout) {
  constexpr std::size_t most_words = 4000;
  const std::string said = printable(status.error_message(), most_words);
  switch (status.error_code()) {
    case grpc::StatusCode::DEADLINE_EXCEEDED:
      return {Code::stall, text(what, " has no answer after ", format_duration(timeout)),
              "check the server; ClientOptions::timeout sets the limit"};
    case grpc::StatusCode::UNIMPLEMENTED:
      return {Code::usage, text(what, ": there is no function of that name"),
              "Client::methods() lists the functions; both ends must be Lockstep's"};
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

// Returns the answer or an error, because gRPC swallows exceptions of its callbacks.
detail::Reply reply_of(const PendingCall& call, const detail::ClientSeal* seal, const grpc::Status& status,
                       const std::string& what, Duration timeout) {
  try {
    if (!status.ok()) return {.error = error_of(status, what, timeout)};
    Bytes bytes = detail::from_buffer(call.reply);
    if (seal == nullptr) return {.bytes = std::move(bytes)};
    auto opened = seal->open(call.identity, call.nonce, call.name, bytes);
    if (!opened || opened->size() < sizeof(std::uint32_t))
      return {.error = Error(Code::untrusted, text(what, ": the answer does not prove the key that is wanted"),
                             text("check which program uses that address; the key here is that of ", seal->source()))};
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

  // Makes new contexts, which gRPC allows for one attempt only. The first contact may wait for the server to start.
  void set_contexts(PendingCall& call) const {
    for (auto* const each : {&call.asking, &call.context}) {
      *each = std::make_unique<grpc::ClientContext>();
      if (options.timeout > Duration{}) (*each)->set_deadline(detail::after(options.timeout));
      (*each)->set_wait_for_ready(options.waits_for_server && (options.waits_again || !has_answered));
    }
  }
  void ask(PendingCall* call);
  void say_hello(PendingCall* call);
  void hear_nonce(PendingCall* call, const detail::Nonce& its);
  void ask_next();
  void send(PendingCall* call);
  void complete(PendingCall* call, const grpc::Status& status);
  std::string what(const PendingCall& call) const { return text("call of '", printable(call.name), "' of ", address); }

  std::string address;
  ClientOptions options;
  std::shared_ptr<grpc::Channel> channel;
  std::unique_ptr<detail::ClientSeal> seal;  // Is null without a key.
  std::optional<detail::Nonce> nonce{};      // Is the server's, once known.
  bool is_asked = false;                     // True while one call asks for the nonce on behalf of all.
  std::deque<PendingCall*> waiting{};        // Wait for the nonce.
  grpc::GenericStub stub{channel};
  std::mutex mutex{};
  std::condition_variable completed{};
  std::set<PendingCall*> calls{};
  bool ending = false;
  std::atomic<bool> has_answered = false;
};

std::unique_ptr<Client> Client::create(std::string_view layer, const std::string& address,
                                       const ClientOptions& options) {
  detail::check_layer(layer, address);
  detail::silence_grpc();
  if (options.timeout < Duration{})
    throw Error(Code::usage, text("an rpc client to ", printable(address), " with a negative timeout"),
                "give a positive time, or zero for none");
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(detail::most_bytes);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);  // Tasks of a cluster are reached directly.
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
  for (PendingCall* const each : parts_->calls) {
    if (each->asking) each->asking->TryCancel();
    if (each->context) each->context->TryCancel();
  }
  parts_->completed.wait(lock, [&] { return parts_->calls.empty(); });
}

const std::string& Client::address() const { return parts_->address; }

TimeSpan Client::limit() const {
  constexpr std::chrono::milliseconds to_say_so{500};
  return parts_->options.timeout > TimeSpan{} ? parts_->options.timeout + to_say_so : TimeSpan{};
}

// Gets the server's nonce before the first call that has to prove the key. One call asks, and the others wait: a
// server ends a connection on which many calls prove nothing.
void Client::Parts::ask(PendingCall* call) {
  bool has_nonce = false;
  {
    const std::lock_guard lock(mutex);
    has_nonce = nonce.has_value();
    if (!has_nonce && is_asked) return waiting.push_back(call);
    if (has_nonce) call->nonce = *nonce;
    is_asked = is_asked || !has_nonce;
  }
  if (has_nonce) return send(call);
  say_hello(call);
}

void Client::Parts::say_hello(PendingCall* call) {
  const auto answered = [this, call](const grpc::Status& status) {
    const Bytes said = status.ok() ? detail::from_buffer(call->reply) : Bytes();
    const bool is_nonce = said.size() == sizeof(detail::Nonce);
    if (status.ok() && is_nonce) {
      detail::Nonce its;
      std::ranges::copy(said, its.begin());
      return hear_nonce(call, its);
    }
    const bool has_no_key = status.ok() || status.error_code() == grpc::StatusCode::UNIMPLEMENTED;
    ask_next();
    complete(call, has_no_key
                       ? grpc::Status(grpc::StatusCode::UNAUTHENTICATED, "the server has no key, and here is one")
                       : status);
  };
  call->request = detail::to_buffer({});
  stub.UnaryCall(call->asking.get(), text(detail::service, detail::hello), {}, &call->request, &call->reply, answered);
}

void Client::Parts::hear_nonce(PendingCall* call, const detail::Nonce& its) {
  has_answered = true;
  call->reply.Clear();
  std::deque<PendingCall*> all;
  {
    const std::lock_guard lock(mutex);
    nonce = its;
    is_asked = false;
    all = std::exchange(waiting, {});
    all.push_front(call);
    for (PendingCall* const each : all) each->nonce = its;
  }
  for (PendingCall* const each : all) send(each);
}

// Lets the next waiting call ask. Each call has its own deadline.
void Client::Parts::ask_next() {
  PendingCall* next = nullptr;
  {
    const std::lock_guard lock(mutex);
    is_asked = false;
    if (waiting.empty()) return;
    next = waiting.front();
    waiting.pop_front();
  }
  ask(next);
}

void Client::Parts::send(PendingCall* call) {
  if (seal) {
    call->identity = seal->begin();
    const Bytes proof = seal->seal(call->identity, call->nonce, call->name, call->arguments);
    call->context->AddMetadata(detail::proof_name, to_string(proof));
  }
  call->request = detail::to_buffer(call->arguments);
  if (!seal || call->is_second) call->arguments.clear();
  stub.UnaryCall(call->context.get(), text(detail::service, call->name), {}, &call->request, &call->reply,
                 [this, call](const grpc::Status& status) { complete(call, status); });
}

// Ends a call, or repeats it once. A call with a refused proof has not run. The server may have been restarted at the
// same address, with another nonce.
void Client::Parts::complete(PendingCall* call, const grpc::Status& status) {
  if (seal) seal->end(call->identity);
  if (status.ok()) has_answered = true;
  if (seal && status.error_code() == grpc::StatusCode::UNAUTHENTICATED && call->identity.number > 0 &&
      !call->is_second) {
    bool is_ending = false;
    {
      const std::lock_guard lock(mutex);
      if (nonce == call->nonce) nonce.reset();
      call->is_second = true;
      is_ending = ending;
      if (!is_ending) set_contexts(*call);
    }
    if (!is_ending) return ask(call);
  }
  call->promised->set(reply_of(*call, seal.get(), status, what(*call), options.timeout));
  const std::lock_guard lock(mutex);
  calls.erase(call);
  delete call;
  completed.notify_all();
}

std::shared_ptr<const detail::ReplyFuture> Client::start(const std::string& name, const Bytes& arguments) {
  auto made = std::make_unique<PendingCall>(name, arguments);
  std::shared_ptr<const detail::ReplyFuture> future = made->promised;
  parts_->set_contexts(*made);
  PendingCall* const call = made.get();
  {
    const std::lock_guard lock(parts_->mutex);
    parts_->calls.insert(call);
    static_cast<void>(made.release());  // complete() deletes the call.
  }
  if (parts_->seal)
    parts_->ask(call);
  else
    parts_->send(call);
  return future;
}

}  // namespace lockstep::rpc
