// SPDX-License-Identifier: Apache-2.0
// Loads the functions of UCX when they are first needed. Loading installs signal handlers and takes a millisecond,
// which programs under mpirun should not pay for.
#pragma once

#include <ucp/api/ucp.h>

#include <string>

namespace lockstep::ucx {

// Holds the functions of UCX that Lockstep calls.
struct UcxFunctions {
  decltype(&ucp_get_version_string) get_version_string;
  decltype(&ucp_config_read) config_read;
  decltype(&ucp_config_modify) config_modify;
  decltype(&ucp_config_release) config_release;
  decltype(&ucp_init_version) init_version;
  decltype(&ucp_cleanup) cleanup;
  decltype(&ucp_worker_create) worker_create;
  decltype(&ucp_worker_destroy) worker_destroy;
  decltype(&ucp_worker_get_address) worker_get_address;
  decltype(&ucp_worker_release_address) worker_release_address;
  decltype(&ucp_worker_progress) worker_progress;
  decltype(&ucp_worker_get_efd) worker_get_efd;
  decltype(&ucp_worker_arm) worker_arm;
  decltype(&ucp_worker_set_am_recv_handler) worker_set_am_recv_handler;
  decltype(&ucp_worker_flush_nbx) worker_flush_nbx;
  decltype(&ucp_ep_create) ep_create;
  decltype(&ucp_ep_close_nbx) ep_close_nbx;
  decltype(&ucp_am_send_nbx) am_send_nbx;
  decltype(&ucp_am_recv_data_nbx) am_recv_data_nbx;
  decltype(&ucp_am_data_release) am_data_release;
  decltype(&ucp_request_check_status) request_check_status;
  decltype(&ucp_request_free) request_free;
  decltype(&ucs_status_string) status_string;
};

// Loads UCX at the first call. Throws Error system if there is no suitable libucp.so.0; the next call tries again.
const UcxFunctions& library();

// Returns UCX's variables for messages, such as "UCX_TLS=tcp, UCX_NET_DEVICES is not set".
std::string variables();
inline constexpr const char* remedy =
    "check UCX_TLS (transports) and UCX_NET_DEVICES (interfaces); UCX_LOG_LEVEL=info logs its steps";

// Throws Error system, with UCX's own text, unless the status is UCS_OK. `what` names the attempted action.
void check(ucs_status_t status, const char* what);

}  // namespace lockstep::ucx
