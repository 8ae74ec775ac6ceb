// SPDX-License-Identifier: Apache-2.0
// Implements the step in which members tell each other where their buffers lie. All then decide alike if they read and
// write there, or go by slots.
#pragma once

#include "collectives/node/in_node_form.hpp"
#include "collectives/node/stream_order.hpp"

namespace lockstep::node {

// Names the way on which all members have decided.
enum class AddressOutcome : std::uint8_t {
  slots,
  mapping_test,  // all buffers can be reached if members can map each other's memory on GPUs, which they have to try
  direct
};

// True if a call in the room may have buffers on GPUs that other members could reach; the same on all members.
bool reaches_gpus(Room& room);
// True if a call asks that is large enough to do so, or may concern GPUs.
bool large_call_asks_for_addresses(const CallContext& call, AddressQueries address_queries);
// True if the call asks all members for their buffers. The answer is the same on all members. A call that may ask in
// vain does so only if the question costs little beside the rest. Most repeated calls are small and ask nothing, which
// is decided here.
inline bool asks_for_addresses(const CallContext& call, AddressQueries address_queries) {
  const bool may_ask = call.largest_block_bytes >= call.tuning.direct_from || gpu::backend() != nullptr ||
                       call.room->gpus().shared() != nullptr;
  return may_ask && large_call_asks_for_addresses(call, address_queries);
}
// True if members may read the input in each other's processes: data are only moved, in blocks that are large enough.
bool may_read_processes(const CallContext& call);
// True unless slots are faster for such blocks however large they are. Members with cores of their own fill and empty
// slots at once, which helps most if data come from one member or go to one; and data that fill the caches go past
// them on the way out of a slot, but not in the system's copy. Measured with 2 members on distant cores: broadcast of
// 32 MiB 2.8 ms instead of 8.2, all_gather 4.1 instead of 7.7, gather of 2 MiB 95 us instead of 128 (2026-11-30).
bool suits_process_reading(const CallContext& call, std::size_t bytes);

// Runs this step, and fills in the peers' buffers.
class AddressForm final : public InNodeForm {
 public:
  // `order` is null if the call concerns no GPU of this member. `reads_processes`: see may_read_processes().
  void begin(CallContext& call, PeerBuffers& peers, StreamOrder* order, bool reads_processes);
  AddressOutcome outcome() const { return outcome_; }

 private:
  bool fill() override;
  void end_step() override;
  BufferAddress address_of(const void* data, std::size_t bytes, int device, gpu::IpcMemoryHandle& handle) const;
  AddressOutcome decide();
  bool find_buffers(bool some_output_is_on_gpu);
  std::byte* find(int member, const BufferAddress& address, const GenerationCounts& known_to_all);
  int device_of(const BufferAddress& address) const;
  bool can_reduce_on_gpu() const;

  PeerBuffers* peers_ = nullptr;
  StreamOrder* order_ = nullptr;
  bool reads_processes_ = false;
  AddressOutcome outcome_ = AddressOutcome::slots;
};

}  // namespace lockstep::node
