// SPDX-License-Identifier: Apache-2.0
// Loads UCX at run time, keeps the program's signal handlers, and silences UCX's log.
#include "collectives/ucx/ucx_library.hpp"

#include <dlfcn.h>
#include <ucs/debug/log_def.h>

#include <array>
#include <csignal>
#include <cstdarg>
#include <string>

#include "topology/base/environment.hpp"
#include "topology/base/error.hpp"
#include "topology/base/text.hpp"

namespace lockstep::ucx {
namespace {

// Restores the program's signal handlers: UCX replaces those for crashes when it is loaded.
class SignalHandlerGuard {
 public:
  SignalHandlerGuard() {
    for (std::size_t i = 0; i < crashes.size(); ++i) ::sigaction(crashes.at(i), nullptr, &before_.at(i));
  }
  ~SignalHandlerGuard() {
    for (std::size_t i = 0; i < crashes.size(); ++i) ::sigaction(crashes.at(i), &before_.at(i), nullptr);
  }
  SignalHandlerGuard(const SignalHandlerGuard&) = delete;
  SignalHandlerGuard& operator=(const SignalHandlerGuard&) = delete;

 private:
  static constexpr std::array crashes = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};
  std::array<struct sigaction, crashes.size()> before_{};
};

void* open(const char* name) {
  void* const handle = ::dlopen(name, RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr)
    throw Error(Code::system, text("UCX cannot be loaded: ", ::dlerror()),
                "install libucx0, or start the processes by mpirun");
  return handle;
}

template <class Function>
void find(void* handle, const char* name, Function& function) {
  void* const found = ::dlsym(handle, name);
  if (found == nullptr) throw Error(Code::system, text("the installed UCX has no ", name), "install UCX 1.12 or newer");
  function = reinterpret_cast<Function>(found);
}

ucs_log_func_rc_t swallow(const char* /*file*/, unsigned /*line*/, const char* /*function*/, ucs_log_level_t /*level*/,
                          const ucs_log_component_config_t* /*of*/, const char* /*words*/, std::va_list /*more*/) {
  return UCS_LOG_FUNC_RC_STOP;
}

UcxFunctions load() {
  refuse_code_of_the_user();
  const SignalHandlerGuard kept;
  void* const ucp = open("libucp.so.0");
  UcxFunctions all{};
  find(ucp, "ucp_get_version_string", all.get_version_string);
  find(ucp, "ucp_config_read", all.config_read);
  find(ucp, "ucp_config_modify", all.config_modify);
  find(ucp, "ucp_config_release", all.config_release);
  find(ucp, "ucp_init_version", all.init_version);
  find(ucp, "ucp_cleanup", all.cleanup);
  find(ucp, "ucp_worker_create", all.worker_create);
  find(ucp, "ucp_worker_destroy", all.worker_destroy);
  find(ucp, "ucp_worker_get_address", all.worker_get_address);
  find(ucp, "ucp_worker_release_address", all.worker_release_address);
  find(ucp, "ucp_worker_progress", all.worker_progress);
  find(ucp, "ucp_worker_get_efd", all.worker_get_efd);
  find(ucp, "ucp_worker_arm", all.worker_arm);
  find(ucp, "ucp_worker_set_am_recv_handler", all.worker_set_am_recv_handler);
  find(ucp, "ucp_worker_flush_nbx", all.worker_flush_nbx);
  find(ucp, "ucp_ep_create", all.ep_create);
  find(ucp, "ucp_ep_close_nbx", all.ep_close_nbx);
  find(ucp, "ucp_am_send_nbx", all.am_send_nbx);
  find(ucp, "ucp_am_recv_data_nbx", all.am_recv_data_nbx);
  find(ucp, "ucp_am_data_release", all.am_data_release);
  find(ucp, "ucp_request_check_status", all.request_check_status);
  find(ucp, "ucp_request_free", all.request_free);
  void* const ucs = open("libucs.so.0");
  find(ucs, "ucs_status_string", all.status_string);
  // UCX would print the same troubles as Lockstep's errors to standard output. A user who wants that sets
  // UCX_LOG_LEVEL.
  decltype(&ucs_log_push_handler) push_handler = nullptr;
  find(ucs, "ucs_log_push_handler", push_handler);
  if (process_environment("UCX_LOG_LEVEL") == nullptr) push_handler(&swallow);
  return all;
}

}  // namespace

const UcxFunctions& library() {
  static const UcxFunctions one = load();  // tried again at the next call if it failed
  return one;
}

std::string variables() {
  std::string all;
  for (const char* const name : {"UCX_TLS", "UCX_NET_DEVICES"}) {
    const char* const value = process_environment(name);
    all += text(all.empty() ? "" : ", ", name, value == nullptr ? " is not set" : text('=', printable(value)));
  }
  return all;
}

void check(ucs_status_t status, const char* what) {
  if (status == UCS_OK) return;
  throw Error(Code::system, text("UCX: ", what, ": ", library().status_string(status), " (", variables(), ')'), remedy);
}

}  // namespace lockstep::ucx
