// SPDX-License-Identifier: Apache-2.0
// Binds to the machine's NCCL at run time, so programs without a GPU run without NCCL. Calls do not block, so a waiting
// rank can give up.
#include <dlfcn.h>
#include <nccl.h>

#include <cstring>

#include "collectives/gpu/current_context.hpp"
#include "collectives/nccl/library.hpp"
#include "topology/base/environment.hpp"

namespace lockstep::nccl {
namespace {

static_assert(sizeof(ncclUniqueId) == sizeof(NcclId));

struct Functions {
  decltype(&ncclGetVersion) get_version;
  decltype(&ncclGetUniqueId) get_unique_id;
  decltype(&ncclGetErrorString) get_error_string;
  decltype(&ncclGetLastError) get_last_error;
  decltype(&ncclCommInitRankConfig) init;
  decltype(&ncclCommGetAsyncError) get_async_error;
  decltype(&ncclCommFinalize) finalize;
  decltype(&ncclCommDestroy) destroy;
  decltype(&ncclCommAbort) abort;
  decltype(&ncclGroupStart) group_start;
  decltype(&ncclGroupEnd) group_end;
  decltype(&ncclAllReduce) all_reduce;
  decltype(&ncclReduce) reduce;
  decltype(&ncclReduceScatter) reduce_scatter;
  decltype(&ncclAllGather) all_gather;
  decltype(&ncclBroadcast) broadcast;
  decltype(&ncclSend) send;
  decltype(&ncclRecv) receive;
};

// Fills in all functions. Returns null on success, otherwise the name of a missing one.
const char* find_all(void* handle, Functions& all) {
  const char* missing = nullptr;
  const auto find = [&](const char* name, auto& function) {
    void* const found = ::dlsym(handle, name);
    if (found == nullptr) missing = name;
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(found);
  };
  find("ncclGetVersion", all.get_version);
  find("ncclGetUniqueId", all.get_unique_id);
  find("ncclGetErrorString", all.get_error_string);
  find("ncclGetLastError", all.get_last_error);
  find("ncclCommInitRankConfig", all.init);
  find("ncclCommGetAsyncError", all.get_async_error);
  find("ncclCommFinalize", all.finalize);
  find("ncclCommDestroy", all.destroy);
  find("ncclCommAbort", all.abort);
  find("ncclGroupStart", all.group_start);
  find("ncclGroupEnd", all.group_end);
  find("ncclAllReduce", all.all_reduce);
  find("ncclReduce", all.reduce);
  find("ncclReduceScatter", all.reduce_scatter);
  find("ncclAllGather", all.all_gather);
  find("ncclBroadcast", all.broadcast);
  find("ncclSend", all.send);
  find("ncclRecv", all.receive);
  return missing;
}

ncclDataType_t type_of(DataType type) {
  switch (type) {
    case DataType::i8:
      return ncclInt8;
    case DataType::u8:
      return ncclUint8;
    case DataType::i32:
      return ncclInt32;
    case DataType::u32:
      return ncclUint32;
    case DataType::i64:
      return ncclInt64;
    case DataType::u64:
      return ncclUint64;
    case DataType::f16:
      return ncclFloat16;
    case DataType::bf16:
      return ncclBfloat16;
    case DataType::f32:
      return ncclFloat32;
    case DataType::f64:
      return ncclFloat64;
    default:
      throw Error(Code::internal, text("NCCL was asked to reduce ", to_string(type)));
  }
}

// Returns NCCL's operation. The planner of the path never asks for one that NCCL lacks.
ncclRedOp_t op_of(ReduceOp op) {
  switch (op) {
    case ReduceOp::sum:
      return ncclSum;
    case ReduceOp::prod:
      return ncclProd;
    case ReduceOp::min:
      return ncclMin;
    case ReduceOp::max:
      return ncclMax;
    case ReduceOp::avg:
      return ncclAvg;
    default:
      throw Error(Code::internal, text("NCCL was asked for ", to_string(op)));
  }
}

constexpr int oldest = 21800;  // since then finalize() does not block either, and errors have texts

// Returns "2.32.3" for 23203.
std::string version_text(int version) {
  return version == 0 ? "without a version" : text(version / 10000, '.', version / 100 % 100, '.', version % 100);
}

// Returns the reason why a version cannot be used, and its remedy.
std::string too_old(std::string_view what) {
  return text("NCCL ", what, ": ", version_text(oldest),
              " or newer is needed; put the folder of one first in LD_LIBRARY_PATH");
}

// Holds NCCL's communicator, and the state of its end, which NCCL reports asynchronously.
struct LoadedNcclComm final : NcclComm {
  ncclComm_t comm = nullptr;
  int device = 0;
  bool is_finishing = false;
  bool has_finished = false;
};

// Calls the loaded library. Calls that start or end work make the member's GPU current, as NCCL needs.
class NcclLibrary final : public NcclInterface {
 public:
  explicit NcclLibrary(const Functions& functions, int version) : nccl_(functions), version_(version) {}

  std::string version() const override { return version_text(version_); }

  NcclId make_id() override {
    ncclUniqueId made{};
    check(nullptr, nccl_.get_unique_id(&made), "making the id of a group");
    NcclId id{};
    std::memcpy(id.data(), &made, sizeof made);
    return id;
  }

  // Joins without blocking; is_busy() tells when the group is complete.
  NcclComm* join(const NcclId& id, int size, int rank, int device) override {
    const gpu::CurrentContext on(device);
    ncclUniqueId theirs{};
    std::memcpy(&theirs, id.data(), sizeof theirs);
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    auto member = std::make_unique<LoadedNcclComm>();
    member->device = device;
    check(nullptr, nccl_.init(&member->comm, size, theirs, rank, &config),
          text("joining a group of ", size, " with GPU ", device));
    return member.release();
  }

  // Asks NCCL for the state of its last operation, and throws the error that it may have.
  bool is_busy(NcclComm* member) override {
    ncclResult_t state = ncclSuccess;
    check(member, nccl_.get_async_error(comm_of(member), &state), "reading its state");
    check(member, state, "an earlier operation");
    auto& mine = static_cast<LoadedNcclComm&>(*member);
    mine.has_finished = mine.is_finishing && state == ncclSuccess;
    return state == ncclInProgress;
  }

  // Makes the GPU current first, because NCCL restores the thread's GPU by cudaSetDevice at a launch or an end.
  void finish(NcclComm* member) override {
    const gpu::CurrentContext on(device_of(member));
    check(member, nccl_.finalize(comm_of(member)), "ending a group");
    static_cast<LoadedNcclComm*>(member)->is_finishing = true;
  }

  // Destroys a communicator that has finished in good order, and aborts any other.
  void leave(NcclComm* member) noexcept override {
    const std::unique_ptr<LoadedNcclComm> gone(static_cast<LoadedNcclComm*>(member));
    try {
      const gpu::CurrentContext on(gone->device);
      if (gone->has_finished)
        nccl_.destroy(gone->comm);
      else
        nccl_.abort(gone->comm);
    } catch (const Error&) {
      return;  // the driver has ended, and NCCL with it
    }
  }

  void begin_group() override { check(nullptr, nccl_.group_start(), "beginning an operation"); }
  void end_group(NcclComm* member) override {
    const gpu::CurrentContext on(device_of(member));
    check(member, nccl_.group_end(), "starting an operation");
  }

  void all_reduce(NcclComm* member, const void* in, void* out, std::size_t count, DataType type, ReduceOp op,
                  gpu::Stream stream) override {
    check(member, nccl_.all_reduce(in, out, count, type_of(type), op_of(op), comm_of(member), of(stream)),
          "all_reduce");
  }
  void reduce(NcclComm* member, const void* in, void* out, std::size_t count, DataType type, ReduceOp op, int root,
              gpu::Stream stream) override {
    check(member, nccl_.reduce(in, out, count, type_of(type), op_of(op), root, comm_of(member), of(stream)), "reduce");
  }
  void reduce_scatter(NcclComm* member, const void* in, void* out, std::size_t count, DataType type, ReduceOp op,
                      gpu::Stream stream) override {
    check(member, nccl_.reduce_scatter(in, out, count, type_of(type), op_of(op), comm_of(member), of(stream)),
          "reduce_scatter");
  }
  void all_gather(NcclComm* member, const void* in, void* out, std::size_t bytes, gpu::Stream stream) override {
    check(member, nccl_.all_gather(in, out, bytes, ncclUint8, comm_of(member), of(stream)), "all_gather");
  }
  void broadcast(NcclComm* member, const void* in, void* out, std::size_t bytes, int root,
                 gpu::Stream stream) override {
    check(member, nccl_.broadcast(in, out, bytes, ncclUint8, root, comm_of(member), of(stream)), "broadcast");
  }
  void send(NcclComm* member, const void* from, std::size_t bytes, int to, gpu::Stream stream) override {
    check(member, nccl_.send(from, bytes, ncclUint8, to, comm_of(member), of(stream)), "send");
  }
  void receive(NcclComm* member, void* to, std::size_t bytes, int from, gpu::Stream stream) override {
    check(member, nccl_.receive(to, bytes, ncclUint8, from, comm_of(member), of(stream)), "receive");
  }

 private:
  static int device_of(NcclComm* member) { return static_cast<LoadedNcclComm*>(member)->device; }
  static ncclComm_t comm_of(NcclComm* member) { return static_cast<LoadedNcclComm*>(member)->comm; }
  static cudaStream_t of(gpu::Stream stream) { return static_cast<cudaStream_t>(stream); }

  // Throws Error device for a failed call. An operation in progress is no failure.
  void check(NcclComm* member, ncclResult_t result, std::string_view what) const {
    if (result == ncclSuccess || result == ncclInProgress) [[likely]]
      return;
    const char* const more = nccl_.get_last_error(member == nullptr ? nullptr : comm_of(member));
    throw Error(Code::device,
                text("NCCL ", version(), ", ", what, ": ", nccl_.get_error_string(result),
                     more == nullptr || *more == '\0' ? "" : text(" (", more, ')')),
                "NCCL_DEBUG=INFO shows the steps of NCCL; LOCKSTEP_NCCL=0 disables it");
  }

  Functions nccl_;
  int version_;
};

}  // namespace

// Loads the library at run time, so that one build runs with and without NCCL. Returns null with a reason if it cannot
// be used.
std::unique_ptr<NcclInterface> load(std::string& why_none) {
  refuse_code_of_the_user();
  // Tries the system's search path first, then the folder of the header that this build used.
  void* handle = ::dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    const std::string why = ::dlerror();
    handle = ::dlopen(LOCKSTEP_NCCL_FOLDER "/libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) {
      why_none = text("NCCL cannot be loaded (", why, "): its folder belongs in LD_LIBRARY_PATH");
      return nullptr;
    }
  }
  Functions all{};
  int version = 0;
  if (const char* const missing = find_all(handle, all)) {
    if (all.get_version == nullptr || all.get_version(&version) != ncclSuccess) version = 0;
    why_none = too_old(text(version_text(version), " has no ", missing));
  } else if (all.get_version(&version) != ncclSuccess || version < oldest) {
    why_none = too_old(text(version_text(version), " is too old"));
  } else {
    return std::make_unique<NcclLibrary>(all, version);
  }
  return nullptr;
}

}  // namespace lockstep::nccl
