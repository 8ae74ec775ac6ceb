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

// One call. gRPC ends it.
class Answer final : public grpc::ServerGenericBidiReactor {
 public:
  Answer(const Methods& methods, Workers& workers, const grpc::GenericCallbackServerContext& context)
      : methods_(methods), workers_(workers), context_(context), path_(context.method()) {
    StartRead(&request_);
  }
  void OnReadDone(bool ok) override {
    if (!ok) return Finish({grpc::StatusCode::CANCELLED, "a call without a message"});
    workers_.run([this] { answer(); });
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
  // Outlives the call, which may be over before the function that defers it has returned.
  struct Caller {
    std::mutex mutex;
    bool gone = false;
    std::function<void()> tell;
  };

  void defer(const Server::Deferred& function) {
    const std::shared_ptr<Caller> caller = caller_;
    auto tell = function(detail::from_buffer(request_), [this](detail::Reply reply) { finish(std::move(reply)); });
    std::unique_lock lock(caller->mutex);
    if (!caller->gone) {
      caller->tell = std::move(tell);
      return;
    }
    lock.unlock();
    if (tell) tell();
  }
  void finish(detail::Reply reply) {
    if (reply.error) return Finish(status_of(*reply.error));
    reply_ = detail::to_buffer(reply.bytes);
    StartWriteAndFinish(&reply_, {}, grpc::Status::OK);
  }

  void answer() {
    if (context_.IsCancelled()) return Finish({grpc::StatusCode::CANCELLED, "nobody waits for it any more"});
    const std::string_view path = path_;
    const auto found =
        path.starts_with(detail::service) ? methods_.find(path.substr(detail::service.size())) : methods_.end();
    if (found == methods_.end()) return Finish({grpc::StatusCode::UNIMPLEMENTED, "there is none of that name"});
    try {
      if (found->second.deferred) return defer(found->second.deferred);
      reply_ = detail::to_buffer(found->second.handler(detail::from_buffer(request_)));
    } catch (const std::exception& wrong) {
      return Finish(status_of(wrong));
    } catch (...) {
      return Finish({grpc::StatusCode::UNKNOWN, "it threw something that is no std::exception"});
    }
    StartWriteAndFinish(&reply_, {}, grpc::Status::OK);
  }

  const Methods& methods_;
  Workers& workers_;
  const grpc::GenericCallbackServerContext& context_;
  std::string path_;
  grpc::ByteBuffer request_;
  grpc::ByteBuffer reply_;
  std::shared_ptr<Caller> caller_ = std::make_shared<Caller>();
};

class Service final : public grpc::CallbackGenericService {
 public:
  Service(const Methods& methods, Workers& workers, Workers& own) : methods_(methods), workers_(workers), own_(own) {}
  grpc::ServerGenericBidiReactor* CreateReactor(grpc::GenericCallbackServerContext* context) override {
    const bool is_own = context->method().find("/lockstep.", 1) != std::string::npos;
    return new Answer(methods_, is_own ? own_ : workers_, *context);
  }

 private:
  const Methods& methods_;
  Workers& workers_;
  Workers& own_;
};

}  // namespace

struct Server::Parts {
  std::string address;
  Methods methods;
  Workers workers;
  Workers own{1};  // for what Lockstep itself is asked, however busy the others are
  Service service{methods, workers, own};
  std::unique_ptr<grpc::Server> server = nullptr;

  Parts(std::string at, int threads) : address(std::move(at)), workers(threads) {}
};

bool is_available() { return true; }

std::unique_ptr<Server> Server::create(std::string_view layer, const std::string& address,
                                       const ServerOptions& options) {
  detail::check_layer(layer, address);
  detail::quieten();
  if (options.threads < 1 || options.threads > 1024)
    throw Error(Code::usage, text("an rpc server with ", options.threads, " threads"), "give 1 to 1024");
  std::unique_ptr<Server> made(new Server(std::make_unique<Parts>(address, options.threads)));
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
  parts_->server->Shutdown(std::chrono::system_clock::now() + std::chrono::milliseconds(100));
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
        "take a free port of this machine, or port 0");
  parts_->address = text(parts_->address.substr(0, parts_->address.rfind(':')), ':', port);
  parts_->server = std::move(server);
}

const std::string& Server::address() const { return parts_->address; }

}  // namespace lockstep::rpc
