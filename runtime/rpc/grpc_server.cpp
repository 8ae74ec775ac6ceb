// SPDX-License-Identifier: Apache-2.0
// Implements the server over gRPC. gRPC's threads only carry messages. Functions run on own threads, so that a
// function that waits delays no message.
#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>

#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <thread>

#include "runtime/rpc/grpc_some.hpp"
#include "runtime/rpc/listener.hpp"
#include "runtime/rpc/rpc.hpp"
#include "runtime/rpc/seal.hpp"
#include "topology/base/descriptor_limit.hpp"
#include "topology/base/forked.hpp"

namespace lockstep::rpc {
namespace {

// Runs jobs on its threads. The destructor runs the remaining jobs first.
class WorkerPool {
 public:
  explicit WorkerPool(int number) {
    for (int i = 0; i < number; ++i) threads_.emplace_back([this] { work(); });
  }
  ~WorkerPool() {
    {
      const std::lock_guard lock(mutex_);
      over_ = true;
    }
    wake_.notify_all();
    for (std::thread& each : threads_) each.join();
  }
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  void run(std::function<void()> job) {
    {
      const std::lock_guard lock(mutex_);
      jobs_.push_back(std::move(job));
    }
    wake_.notify_one();
  }

 private:
  void work() {
    for (;;) {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [&] { return over_ || !jobs_.empty(); });
      if (jobs_.empty()) return;
      const auto job = std::move(jobs_.front());
      jobs_.pop_front();
      lock.unlock();
      job();
    }
  }

  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::function<void()>> jobs_;
  bool over_ = false;
  std::vector<std::thread> threads_;
};

struct Method {
  std::string signature;
  std::function<Bytes(std::span<const std::byte>)> handler;
  RpcServer::Deferred deferred;  // Replaces the handler.
};
using Methods = std::map<std::string, Method, std::less<>>;

// gRPC drops a text beyond 8 KiB as a whole. A character may take three bytes there.
constexpr std::size_t most_words = 2000;

grpc::Status status_of(const std::exception& wrong) {
  if (const auto* const error = dynamic_cast<const Error*>(&wrong)) {
    const bool is_misuse = error->code() == Code::usage || error->code() == Code::bad_message;
    if (is_misuse) return {grpc::StatusCode::INVALID_ARGUMENT, printable(error->detail(), most_words)};
  }
  return {grpc::StatusCode::UNKNOWN, printable(wrong.what(), most_words)};
}

// Holds the objects that all calls of a server share.
struct ServerContext {
  const Methods& methods;
  WorkerPool& workers;       // Run this call.
  detail::ServerSeal* seal;  // Is null if calls need no proof.
  detail::Listener& listener;
};

// Handles one call; gRPC ends it. It reads no message before the call has proven the key. gRPC holds one window of
// bytes of a call that is not read. Of a call that is read, it holds the whole message before it checks any limit.
class CallReactor final : public grpc::ServerGenericBidiReactor {
 public:
  // Checks the proof here, in the order of arrival. Calls that wait for a thread may overtake each other.
  CallReactor(const ServerContext& server_context, const grpc::GenericCallbackServerContext& context)
      : server_context_(server_context), context_(context), method_(name_in(context.method())) {
    try {
      begin();
    } catch (const std::exception& wrong) {
      Finish(status_of(wrong));
    }
  }
  void OnReadDone(bool ok) override {
    if (!ok) return Finish({grpc::StatusCode::CANCELLED, "a call without a message"});
    try {
      take_arguments();
    } catch (const std::exception& wrong) {
      Finish(status_of(wrong));
    }
  }
  void OnDone() override { delete this; }
  // Tells a deferred function that its caller is gone. gRPC may call this in any thread, also before the function has
  // returned.
  void OnCancel() override {
    const std::shared_ptr<CallerState> caller = caller_state_;
    std::unique_lock lock(caller->mutex);
    caller->gone = true;
    const auto tell = std::exchange(caller->tell, {});
    lock.unlock();
    if (tell) tell();
  }

 private:
  // Answers a call without a proof with the server's nonce only, so that the caller can prove the key.
  void begin() {
    if (server_context_.seal != nullptr && !prove()) {
      server_context_.listener.count_unproven(context_.peer());
      if (method_ != detail::hello)
        return Finish({grpc::StatusCode::UNAUTHENTICATED, "the call does not prove the key that is wanted"});
      const auto& nonce = server_context_.seal->nonce();
      return send({nonce.begin(), nonce.end()});
    }
    server_context_.listener.trust(context_.peer());
    StartRead(&request_);
  }
  // Checks the proof in the call's metadata, before any of its arguments is read.
  bool prove() {
    const auto& metadata = context_.client_metadata();
    const auto proof = metadata.find(detail::proof_name);
    if (proof == metadata.end()) return false;
    verified_ =
        server_context_.seal->open(method_, std::as_bytes(std::span(proof->second.data(), proof->second.size())));
    return verified_.has_value();
  }
  // Compares the arguments with the proof, and lets a thread run the function.
  void take_arguments() {
    arguments_ = detail::from_buffer(request_);
    request_.Clear();
    if (verified_ && !is_same(digest_of(arguments_), verified_->arguments))
      return Finish({grpc::StatusCode::UNAUTHENTICATED, "the arguments are not those that the call proves"});
    server_context_.workers.run([this] { answer(); });
  }

  // Outlives the call, which may end before the function that defers it has returned.
  struct CallerState {
    std::mutex mutex;
    bool gone = false;
    std::function<void()> tell;
  };

  // Runs a function that answers later. If the caller is gone already, the function learns it at once.
  void defer(const RpcServer::Deferred& function) {
    const std::shared_ptr<CallerState> caller = caller_state_;
    auto tell = function(std::move(arguments_), [this](const detail::Reply& reply) { finish(reply); });
    std::unique_lock lock(caller->mutex);
    if (!caller->gone) {
      caller->tell = std::move(tell);
      return;
    }
    lock.unlock();
    if (tell) tell();
  }
  static std::string name_in(std::string_view path) {
    return std::string(path.starts_with(detail::service) ? path.substr(detail::service.size()) : "");
  }

  void finish(const detail::Reply& reply) { end(reply.error ? status_of(*reply.error) : grpc::Status(), reply.bytes); }
  void send(const Bytes& bytes) {
    reply_ = detail::to_buffer(bytes);
    StartWriteAndFinish(&reply_, {}, grpc::Status::OK);
  }
  // Proves the key in the answer of a call that has proven it, for values and for errors.
  void end(const grpc::Status& status, const Bytes& value = {}) {
    if (!verified_) return status.ok() ? send(value) : Finish(status);
    Bytes words = Writer().put(static_cast<std::uint32_t>(status.error_code())).take();
    const Bytes& rest = status.ok() ? value : to_bytes(status.error_message());
    words.insert(words.end(), rest.begin(), rest.end());
    send(server_context_.seal->seal(verified_->identity, method_, words));
  }

  // Runs the function in a thread of the pool. Its exceptions become the caller's error.
  void answer() {
    const auto found = server_context_.methods.find(method_);
    const bool is_deferred =
        // Deferred functions learn that their caller is gone.
        found != server_context_.methods.end() && found->second.deferred;
    if (context_.IsCancelled() && !is_deferred) return end({grpc::StatusCode::CANCELLED, "the caller no longer waits"});
    if (found == server_context_.methods.end())
      return end({grpc::StatusCode::UNIMPLEMENTED, "there is none of that name"});
    Bytes value;
    try {
      if (found->second.deferred) return defer(found->second.deferred);
      value = found->second.handler(arguments_);
    } catch (const std::exception& wrong) {
      return end(status_of(wrong));
    } catch (...) {
      return end({grpc::StatusCode::UNKNOWN, "it threw an object that is not a std::exception"});
    }
    end({}, value);
  }

  const ServerContext server_context_;
  const grpc::GenericCallbackServerContext& context_;
  std::string method_;
  grpc::ByteBuffer request_;
  Bytes arguments_;
  std::optional<detail::ServerSeal::VerifiedCall> verified_;
  grpc::ByteBuffer reply_;
  std::shared_ptr<CallerState> caller_state_ = std::make_shared<CallerState>();
};

// Makes a reactor for each call. Lockstep's own functions have a thread of their own, so that user functions cannot
// delay them.
class Service final : public grpc::CallbackGenericService {
 public:
  Service(const Methods& methods, WorkerPool& workers, WorkerPool& own, detail::ServerSeal* seal)
      : methods_(methods), workers_(workers), own_(own), seal_(seal) {}
  // Must be called before the server starts.
  void set_listener(detail::Listener& listener) { listener_ = &listener; }
  grpc::ServerGenericBidiReactor* CreateReactor(grpc::GenericCallbackServerContext* context) override {
    const bool is_own = context->method().find("/lockstep.", 1) != std::string::npos;
    return new CallReactor({methods_, is_own ? own_ : workers_, seal_, *listener_}, *context);
  }

 private:
  const Methods& methods_;
  WorkerPool& workers_;
  WorkerPool& own_;
  detail::ServerSeal* seal_;
  detail::Listener* listener_ = nullptr;
};

}  // namespace

struct RpcServer::Parts {
  std::string address;
  Methods methods;
  WorkerPool workers;
  WorkerPool own{1};                         // Runs Lockstep's own functions, even if all other threads are busy.
  std::unique_ptr<detail::ServerSeal> seal;  // Is null without a key.
  Service service{methods, workers, own, seal.get()};
  std::unique_ptr<detail::Listener> listener = nullptr;
  std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> acceptor = nullptr;
  std::unique_ptr<grpc::Server> server = nullptr;

  Parts(std::string at, const ServerOptions& options)
      : address(std::move(at)),
        workers(options.threads),
        seal(options.key ? std::make_unique<detail::ServerSeal>(options.key) : nullptr) {}
};

bool is_available() { return true; }

std::unique_ptr<RpcServer> RpcServer::create(std::string_view layer, const std::string& address,
                                             const ServerOptions& options) {
  detail::check_layer(layer, address);
  detail::silence_grpc();
  if (options.threads < 1 || options.threads > 1024)
    throw Error(Code::usage, text("an rpc server with ", options.threads, " threads"), "give 1 to 1024");
  std::unique_ptr<RpcServer> made(new RpcServer(std::make_unique<Parts>(address, options)));
  made->add("lockstep.methods", [parts = made->parts_.get()] {
    std::vector<std::string> all;
    for (const auto& [name, method] : parts->methods) {
      if (!name.starts_with("lockstep.")) all.push_back(method.signature);
    }
    return all;
  });
  return made;
}

RpcServer::RpcServer(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}

// Ends gRPC first: it takes no new calls, and calls under way end by themselves or are cancelled.
RpcServer::~RpcServer() {
  if (!parts_->server) return;
  parts_->listener->stop();
  parts_->server->Shutdown(detail::after(std::chrono::milliseconds(100)));
  parts_->server->Wait();
}

void RpcServer::add_deferred(const std::string& name, Deferred function) {
  add_handler(name, name, {});
  parts_->methods.at(name).deferred = std::move(function);
}

void RpcServer::add_handler(const std::string& name, const std::string& signature, Handler handler) {
  if (parts_->server)
    throw Error(Code::usage, text("function '", printable(name), "' is added to an rpc server that has been started"),
                "add all functions before start()");
  if (name.empty() || name.find_first_of("/ ") != std::string::npos)
    throw Error(Code::usage, text('\'', printable(name), "' is not the name of a function"),
                "use letters, digits, . and _");
  if (!parts_->methods.try_emplace(name, Method{signature, std::move(handler), {}}).second)
    throw Error(Code::usage, text("the rpc server has a function '", printable(name), "' already"),
                "give it another name");
}

void RpcServer::start() {
  if (parts_->server) throw Error(Code::usage, "an rpc server is started a second time", "start it once");
  raise_limit();
  auto listener = std::make_unique<detail::Listener>(parts_->address);
  keep_port_from_children(listener->port());
  parts_->service.set_listener(*listener);
  using Builder = grpc::ServerBuilder;
  Builder builder;
  // The probe would widen the window of calls that are not read.
  builder.AddChannelArgument(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, detail::calls_at_once);
  builder.RegisterCallbackGenericService(&parts_->service);
  builder.SetMaxReceiveMessageSize(detail::most_bytes);
  parts_->acceptor = builder.experimental().AddExternalConnectionAcceptor(
      Builder::experimental_type::ExternalConnectionType::FROM_FD, grpc::InsecureServerCredentials());
  parts_->listener = std::move(listener);
  parts_->server = builder.BuildAndStart();
  if (!parts_->server)
    throw Error(Code::system, text("gRPC starts no server at ", printable(parts_->address)),
                "GRPC_VERBOSITY=debug shows the reason");
  parts_->address = text(parts_->address.substr(0, parts_->address.rfind(':')), ':', parts_->listener->port());
  parts_->listener->start([acceptor = parts_->acceptor.get()](int descriptor) {
    grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters connection;
    connection.fd = descriptor;
    acceptor->HandleNewConnection(&connection);
  });
}

const std::string& RpcServer::address() const { return parts_->address; }

}  // namespace lockstep::rpc
