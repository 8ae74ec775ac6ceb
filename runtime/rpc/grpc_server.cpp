// SPDX-License-Identifier: Apache-2.0
// The server over gRPC. Its threads only carry messages; functions run on threads of ours, so that one that waits holds
// up no message.
#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>

#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <thread>

#include "runtime/rpc/grpc_some.hpp"
#include "runtime/rpc/rpc.hpp"
#include "runtime/rpc/seal.hpp"
#include "topology/base/forked.hpp"

namespace lockstep::rpc {
namespace {

// Runs what it is given, on its threads; what is left when it ends is run before.
class Workers {
 public:
  explicit Workers(int number) {
    for (int i = 0; i < number; ++i) threads_.emplace_back([this] { work(); });
  }
  ~Workers() {
    {
      const std::lock_guard lock(mutex_);
      over_ = true;
    }
    wake_.notify_all();
    for (std::thread& each : threads_) each.join();
  }
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;

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
  std::string words;
  std::function<Bytes(std::span<const std::byte>)> handler;
  Server::Deferred deferred;  // instead of a handler
};
using Methods = std::map<std::string, Method, std::less<>>;

// Text beyond 8 KiB, in which a byte may take three, is dropped by gRPC as a whole.
constexpr std::size_t most_words = 2000;

grpc::Status status_of(const std::exception& wrong) {
  if (const auto* const error = dynamic_cast<const Error*>(&wrong)) {
    const bool is_misuse = error->code() == Code::usage || error->code() == Code::bad_message;
    if (is_misuse) return {grpc::StatusCode::INVALID_ARGUMENT, printable(error->detail(), most_words)};
  }
  return {grpc::StatusCode::UNKNOWN, printable(wrong.what(), most_words)};
}

// What all calls of a server go by.
struct House {
  const Methods& methods;
  Workers& workers;          // where this call runs
  detail::ServerSeal* seal;  // or nobody needs to prove anything
};

// One call. gRPC ends it.
class Answer final : public grpc::ServerGenericBidiReactor {
 public:
  Answer(const House& house, const grpc::GenericCallbackServerContext& context)
      : house_(house), context_(context), method_(name_in(context.method())) {
    StartRead(&request_);
  }
  // What has to prove something does so as it comes: calls that wait for a thread may overtake each other.
  void OnReadDone(bool ok) override {
    if (!ok) return Finish({grpc::StatusCode::CANCELLED, "a call without a message"});
    try {
      begin();
    } catch (const std::exception& wrong) {
      Finish(status_of(wrong));
    }
  }
  void OnDone() override { delete this; }
  void OnCancel() override {
    const std::shared_ptr<Caller> caller = caller_;
    std::unique_lock lock(caller->mutex);
    caller->gone = true;
    const auto tell = std::exchange(caller->tell, {});
    lock.unlock();
    if (tell) tell();
  }

 private:
  void begin() {
    arguments_ = detail::from_buffer(request_);
    request_.Clear();
    if (house_.seal != nullptr && method_ == detail::hello) {
      const auto& nonce = house_.seal->nonce();
      return send({nonce.begin(), nonce.end()});
    }
    if (house_.seal != nullptr) {
      auto opened = house_.seal->open(method_, arguments_);
      if (!opened) return Finish({grpc::StatusCode::UNAUTHENTICATED, "the call does not prove the key that is wanted"});
      ticket_ = opened->ticket;
      arguments_ = std::move(opened->arguments);
    }
    house_.workers.run([this] { answer(); });
  }

  // Outlives the call, which may be over before the function that defers it has returned.
  struct Caller {
    std::mutex mutex;
    bool gone = false;
    std::function<void()> tell;
  };

  void defer(const Server::Deferred& function) {
    const std::shared_ptr<Caller> caller = caller_;
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
  // What a call that proves the key is answered proves it as well, be it a value or an error.
  void end(const grpc::Status& status, const Bytes& value = {}) {
    if (!ticket_) return status.ok() ? send(value) : Finish(status);
    Bytes words = Writer().put(static_cast<std::uint32_t>(status.error_code())).take();
    const Bytes& rest = status.ok() ? value : to_bytes(status.error_message());
    words.insert(words.end(), rest.begin(), rest.end());
    send(house_.seal->seal(*ticket_, method_, words));
  }

  void answer() {
    const auto found = house_.methods.find(method_);
    const bool is_deferred = found != house_.methods.end() && found->second.deferred;  // these are told who is gone
    if (context_.IsCancelled() && !is_deferred)
      return end({grpc::StatusCode::CANCELLED, "nobody waits for it any more"});
    if (found == house_.methods.end()) return end({grpc::StatusCode::UNIMPLEMENTED, "there is none of that name"});
    Bytes value;
    try {
      if (found->second.deferred) return defer(found->second.deferred);
      value = found->second.handler(arguments_);
    } catch (const std::exception& wrong) {
      return end(status_of(wrong));
    } catch (...) {
      return end({grpc::StatusCode::UNKNOWN, "it threw something that is no std::exception"});
    }
    end({}, value);
  }

  const House house_;
  const grpc::GenericCallbackServerContext& context_;
  std::string method_;
  grpc::ByteBuffer request_;
  Bytes arguments_;
  std::optional<detail::Ticket> ticket_;
  grpc::ByteBuffer reply_;
  std::shared_ptr<Caller> caller_ = std::make_shared<Caller>();
};

class Service final : public grpc::CallbackGenericService {
 public:
  Service(const Methods& methods, Workers& workers, Workers& own, detail::ServerSeal* seal)
      : methods_(methods), workers_(workers), own_(own), seal_(seal) {}
  grpc::ServerGenericBidiReactor* CreateReactor(grpc::GenericCallbackServerContext* context) override {
    const bool is_own = context->method().find("/lockstep.", 1) != std::string::npos;
    return new Answer({methods_, is_own ? own_ : workers_, seal_}, *context);
  }

 private:
  const Methods& methods_;
  Workers& workers_;
  Workers& own_;
  detail::ServerSeal* seal_;
};

}  // namespace

struct Server::Parts {
  std::string address;
  Methods methods;
  Workers workers;
  Workers own{1};                            // for what Lockstep itself is asked, however busy the others are
  std::unique_ptr<detail::ServerSeal> seal;  // nothing: without a key
  Service service{methods, workers, own, seal.get()};
  std::unique_ptr<grpc::Server> server = nullptr;

  Parts(std::string at, const ServerOptions& options)
      : address(std::move(at)),
        workers(options.threads),
        seal(options.key ? std::make_unique<detail::ServerSeal>(options.key) : nullptr) {}
};

bool is_available() { return true; }

std::unique_ptr<Server> Server::create(std::string_view layer, const std::string& address,
                                       const ServerOptions& options) {
  detail::check_layer(layer, address);
  detail::quieten();
  if (options.threads < 1 || options.threads > 1024)
    throw Error(Code::usage, text("an rpc server with ", options.threads, " threads"), "give 1 to 1024");
  std::unique_ptr<Server> made(new Server(std::make_unique<Parts>(address, options)));
  made->add("lockstep.methods", [parts = made->parts_.get()] {
    std::vector<std::string> all;
    for (const auto& [name, method] : parts->methods) {
      if (!name.starts_with("lockstep.")) all.push_back(method.words);
    }
    return all;
  });
  return made;
}

Server::Server(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}

// gRPC's part first: no new call; those under way end by themselves, or as cancelled.
Server::~Server() {
  if (!parts_->server) return;
  parts_->server->Shutdown(detail::after(std::chrono::milliseconds(100)));
  parts_->server->Wait();
}

void Server::add_deferred(const std::string& name, Deferred function) {
  add_handler(name, name, {});
  parts_->methods.at(name).deferred = std::move(function);
}

void Server::add_handler(const std::string& name, const std::string& words, Handler handler) {
  if (parts_->server)
    throw Error(Code::usage, text("function '", printable(name), "' is added to an rpc server that has been started"),
                "add all functions before start()");
  if (name.empty() || name.find_first_of("/ ") != std::string::npos)
    throw Error(Code::usage, text('\'', printable(name), "' is no name of a function"), "use letters, digits, . and _");
  if (!parts_->methods.try_emplace(name, Method{words, std::move(handler), {}}).second)
    throw Error(Code::usage, text("the rpc server has a function '", printable(name), "' already"),
                "name it otherwise");
}

void Server::start() {
  if (parts_->server) throw Error(Code::usage, "an rpc server is started a second time", "start it once");
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);  // a second server there is an error, not a surprise
  builder.AddListeningPort(parts_->address, grpc::InsecureServerCredentials(), &port);
  builder.RegisterCallbackGenericService(&parts_->service);
  builder.SetMaxReceiveMessageSize(detail::most_bytes);
  auto server = builder.BuildAndStart();
  if (!server || port == 0)
    throw Error(
        Code::system,
        text("no server can listen on ", printable(parts_->address), ": it is in use, or no address of this machine"),
        "take a free port of this machine, or port 0; in a cluster, look whether two tasks have the same index");
  parts_->address = text(parts_->address.substr(0, parts_->address.rfind(':')), ':', port);
  keep_port_from_children(static_cast<std::uint16_t>(port));
  parts_->server = std::move(server);
}

const std::string& Server::address() const { return parts_->address; }

}  // namespace lockstep::rpc
