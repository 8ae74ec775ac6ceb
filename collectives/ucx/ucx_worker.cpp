// SPDX-License-Identifier: Apache-2.0
// Implements workers by UCX's active messages, and makes an endpoint for a peer when something is first sent to it.
#include "collectives/ucx/ucx_worker.hpp"

#include <poll.h>

#include "topology/base/environment.hpp"
#include "topology/base/error.hpp"
#include "topology/base/keep.hpp"

namespace lockstep::ucx {
namespace {

constexpr unsigned message_id = 1;

void land(UcxOperation& operation, ucs_status_t status) {
  operation.state = status == UCS_OK ? UcxOperationState::done : UcxOperationState::failed;
}

// UCX calls these when an operation is over; they differ only in one argument.
void sent(void* request, ucs_status_t status, void* operation) {
  land(*static_cast<UcxOperation*>(operation), status);
  library().request_free(request);
}
void taken(void* request, ucs_status_t status, std::size_t /*bytes*/, void* operation) {
  land(*static_cast<UcxOperation*>(operation), status);
  library().request_free(request);
}

void follow(ucs_status_ptr_t request, UcxOperation& operation) {
  if (UCS_PTR_IS_ERR(request))
    operation.state = UcxOperationState::failed;
  else if (request == nullptr)
    operation.state = UcxOperationState::done;
}

}  // namespace

UcxContext::UcxContext(const std::string& device) {
  const UcxFunctions& lib = library();
  ucp_config_t* config = nullptr;
  check(lib.config_read(nullptr, nullptr, &config), "its settings");
  ucs_status_t status = UCS_OK;
  if (!device.empty() && process_environment("UCX_NET_DEVICES") == nullptr)
    status = lib.config_modify(config, "NET_DEVICES", device.c_str());
  ucp_params_t params{};
  params.field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_NAME | UCP_PARAM_FIELD_MT_WORKERS_SHARED;
  params.features = UCP_FEATURE_AM | UCP_FEATURE_WAKEUP;
  params.mt_workers_shared = 1;
  params.name = "lockstep";
  if (status == UCS_OK) status = lib.init_version(UCP_API_MAJOR, UCP_API_MINOR, &params, config, &context_);
  lib.config_release(config);
  check(status, "it cannot begin");
}

UcxContext::~UcxContext() { library().cleanup(context_); }

Worker::Worker(std::shared_ptr<const UcxContext> context, ReceiveHandler receive)
    : context_(std::move(context)), receive_(std::move(receive)) {
  ucp_worker_params_t params{};
  params.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
  params.thread_mode = UCS_THREAD_MODE_SERIALIZED;
  check(lib_.worker_create(context_->get(), &params, &worker_), "a worker");
  ucp_am_handler_param_t handler{};
  handler.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_ARG;
  handler.id = message_id;
  handler.cb = &Worker::receive;
  handler.arg = this;
  ucs_status_t status = lib_.worker_set_am_recv_handler(worker_, &handler);
  if (status == UCS_OK) status = lib_.worker_get_efd(worker_, &descriptor_);
  if (status == UCS_OK) return;
  lib_.worker_destroy(worker_);
  check(status, "a worker");
}

void Worker::give_up(std::unique_ptr<Worker> worker) {
  if (!worker) return;
  worker->receive_ = [](const Arrival& /*arrival*/) { return false; };
  keep_forever(std::shared_ptr<Worker>(std::move(worker)));
}

// Closes a worker whose connections stand, or were never begun; see give_up().
Worker::~Worker() {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(1);
  ucp_request_param_t params{};
  params.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
  params.flags = UCP_EP_CLOSE_FLAG_FORCE;
  std::vector<void*> closing;
  for (UcxPeer& each : peers_) {
    if (each.endpoint != nullptr) closing.push_back(lib_.ep_close_nbx(each.endpoint, &params));
  }
  for (void* const each : closing) wait(each, end);
  lib_.worker_destroy(worker_);
}

Bytes Worker::address() const {
  ucp_address_t* address = nullptr;
  std::size_t size = 0;
  check(lib_.worker_get_address(worker_, &address, &size), "an address");
  const auto* const begin = reinterpret_cast<const std::byte*>(address);
  Bytes bytes(begin, begin + size);
  lib_.worker_release_address(worker_, address);
  return bytes;
}

void Worker::set_peers(std::vector<Bytes> addresses) {
  for (Bytes& each : addresses) peers_.push_back({.address = std::move(each)});
}

// Returns the endpoint of a peer, made at the first use; null if the peer is gone.
ucp_ep_h Worker::endpoint_of(int number) {
  UcxPeer& peer = peers_.at(static_cast<std::size_t>(number));
  if (peer.is_dead || peer.endpoint != nullptr) return peer.is_dead ? nullptr : peer.endpoint;
  ucp_ep_params_t params{};
  params.field_mask =
      UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE | UCP_EP_PARAM_FIELD_ERR_HANDLER;
  params.address = reinterpret_cast<const ucp_address_t*>(peer.address.data());
  params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
  params.err_handler.arg = &peer;
  params.err_handler.cb = [](void* it, ucp_ep_h /*endpoint*/, ucs_status_t why) {
    static_cast<UcxPeer*>(it)->is_dead = true;
    static_cast<UcxPeer*>(it)->why = why;
  };
  const ucs_status_t status = lib_.ep_create(worker_, &params, &peer.endpoint);
  if (status == UCS_OK) return peer.endpoint;
  peer.endpoint = nullptr;
  peer.is_dead = true;
  peer.why = status;
  return nullptr;
}

std::string Worker::why_dead(int peer) const {
  const UcxPeer& it = peers_.at(static_cast<std::size_t>(peer));
  return it.is_dead ? lib_.status_string(it.why) : "";
}

void Worker::send(int peer, std::span<const std::byte> head, const void* data, std::size_t bytes,
                  UcxOperation& operation, unsigned flags) {
  ucp_ep_h const endpoint = endpoint_of(peer);
  operation.state = endpoint == nullptr ? UcxOperationState::failed : UcxOperationState::in_flight;
  if (endpoint == nullptr) return;
  ucp_request_param_t params{};
  params.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_FLAGS;
  params.flags = flags;
  params.cb.send = &sent;
  params.user_data = &operation;
  follow(lib_.am_send_nbx(endpoint, message_id, head.data(), head.size(), data, bytes, &params), operation);
}

void Worker::take(void* far_data, void* into, std::size_t bytes, UcxOperation& operation) {
  operation.state = UcxOperationState::in_flight;
  ucp_request_param_t params{};
  params.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
  params.cb.recv_am = &taken;
  params.user_data = &operation;
  follow(lib_.am_recv_data_nbx(worker_, far_data, into, bytes, &params), operation);
}

void Worker::flush() {
  ucp_request_param_t params{};
  params.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
  params.cb.send = [](void* request, ucs_status_t /*status*/, void* worker) {
    --static_cast<Worker*>(worker)->flushes_;
    library().request_free(request);
  };
  params.user_data = this;
  if (UCS_PTR_IS_PTR(lib_.worker_flush_nbx(worker_, &params))) ++flushes_;
}

void Worker::drop(void* far_data) { lib_.am_data_release(worker_, far_data); }

ucs_status_t Worker::receive(void* worker, const void* head, std::size_t head_bytes, void* data, std::size_t bytes,
                             const ucp_am_recv_param_t* how) {
  const bool is_rendezvous = (how->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0;
  const Arrival arrival{{static_cast<const std::byte*>(head), head_bytes}, data, bytes, is_rendezvous};
  const bool is_kept = static_cast<Worker*>(worker)->receive_(arrival);
  return is_kept && is_rendezvous ? UCS_INPROGRESS : UCS_OK;
}

void Worker::sleep(std::chrono::milliseconds limit) const {
  pollfd door{descriptor_, POLLIN, 0};
  ::poll(&door, 1, static_cast<int>(limit.count()));
}

void Worker::wait(void* request, std::chrono::steady_clock::time_point end) {
  if (!UCS_PTR_IS_PTR(request)) return;
  while (lib_.request_check_status(request) == UCS_INPROGRESS && std::chrono::steady_clock::now() < end) progress();
  lib_.request_free(request);
}

}  // namespace lockstep::ucx
