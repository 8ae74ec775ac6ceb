// SPDX-License-Identifier: Apache-2.0
// Runs one member's part of a collective among members that share a room, as a sequence of steps. Each step gives data,
// waits for the others and takes their data. No function blocks; the caller calls advance() again. The forms are:
//
//   `single`  Every member gives in its slot, and each member takes from there. Small data take one step. If that was
//             measured to be faster, as among members that share cores, the last member to give combines for all.
//   `halves`  A member combines its share of a segment from all slots, and all take the shares. While one segment is
//             combined, the next one is given and the last one is taken. This form is for large all_reduces and
//             reduces.
//   `direct`  Members announce the addresses of their buffers, then read and write there. All members must be able to
//             reach the buffers, or to read them in each other's processes. Other processes map buffers on GPUs. If
//             all have theirs on GPUs, the GPUs wait for each other by events. A call in a stream is then over for the
//             host as soon as everything is queued in the streams.
//
// Buffers on a GPU may also go by slots: streams copy each part into the member's slot, and from slots to the output.
// While one part is worked on, the next one comes and the last one leaves. The location of a member's buffers concerns
// no other member then.
#pragma once

#include <algorithm>
#include <cstring>

#include "collectives/node/combine.hpp"
#include "collectives/node/room.hpp"
#include "topology/base/error.hpp"
#include "topology/base/index_set.hpp"
#include "topology/base/text.hpp"

namespace lockstep::node {

// Copies a few bytes inline, without a function call.
inline void copy_small(std::byte* to, const std::byte* from, std::size_t bytes) {
  std::size_t at = 0;
  for (; at + 16 <= bytes; at += 16) std::memcpy(to + at, from + at, 16);
  if (at + 8 <= bytes) {
    std::memcpy(to + at, from + at, 8);
    at += 8;
  }
  for (; at < bytes; ++at) to[at] = from[at];
}

// Limits how long advance() looks for a missing step: first `at_once` looks in a row, then `yielding` looks, each after
// a yield to other threads.
struct PollLimits {
  unsigned at_once = 0;
  unsigned yielding = 0;
};

// Holds the state of one member's call; one object serves many calls, one after another. One thread at a time may use
// it. It owns no buffer of the caller.
class NodeCollective {
 public:
  // Starts a call. The room, the call and its buffers stay alive and unchanged until is_done() or abandon(). `input`
  // replaces the call's input if that was changed on the way (scaled). `call_tag` is the same on all members.
  // `address_queries` is the room's value when the call was made; calls have one order, so all members have the same.
  // Throws Error usage if a buffer in a GPU's memory was freed meanwhile.
  void begin(Room& room, const Tuning& tuning, const Call& call, const std::byte* input, std::uint32_t call_tag,
             AddressQueries address_queries);
  // Allocates the memory that begin() would need for this call. Throws as Combiner::reserve() does.
  void reserve(const Call& call);
  // Starts the last call once more with other buffers, and advances it at once by at most these looks. The caller may
  // have changed the buffers in the Call that begin() got, and nothing else.
  void again(const std::byte* input, std::uint32_t call_tag, AddressQueries address_queries, PollLimits looks) {
    queries_addresses_ = could_read_processes_ || could_be_direct(address_queries);
    if (form_ != NodeCollectiveForm::single || queries_addresses_ || hidden_) {
      begin(*room_, tuning_, *call_, input, call_tag, address_queries);
      advance(looks);
      return;
    }
    input_ = input;
    output_ = static_cast<std::byte*>(call_->output);
    call_tag_ = call_tag;
    first_ = room_->last() + 1;
    step_ = 0;
    seen_ = 0;
    if (is_small_sum_ && room_->is_free(StepStorage::line)) {
      copy_small(room_->my_next_line().payload, input, small_bytes_);
      room_->publish(call_tag);
      phase_ = NodeCollectivePhase::collecting;
      if (gathers_ && room_->arrives_last()) lead();
      if (!collected(looks)) return;
      if (gathers_)
        copy_small(output_, room_->result(first_).payload, small_bytes_);
      else
        combine_small();
      phase_ = NodeCollectivePhase::done;
      return;
    }
    phase_ = NodeCollectivePhase::giving;
    if (moves_) copy_own_block();
    advance(looks);
  }
  // Advances the call until it is done or waits longer than these looks. Returns true if anything moved. Throws Error
  // mismatch if two members' counts differ, peer_failed if a process that it reads from is gone, and device if a GPU
  // fails.
  bool advance(PollLimits looks);
  bool is_done() const { return phase_ == NodeCollectivePhase::done; }
  // True if members can find their block in another's buffer, so that no slot is needed. False where each member has
  // counts of its own.
  static bool has_known_places(Collective collective) {
    return !has_own_counts(collective) && collective != Collective::scan && collective != Collective::exscan &&
           collective != Collective::barrier;
  }
  // Returns the members that this one waits for; empty if it waits for none.
  IndexSet missing() const;
  // Returns those of them that have published this step in another call.
  IndexSet in_another() const;
  // True if the call waits for copies between a GPU and the slots.
  bool waits_for_gpu() const {
    return phase_ == NodeCollectivePhase::downloading || phase_ == NodeCollectivePhase::uploading;
  }
  // Gives the call up after a failure. Returns false if copies did not end within a second. Their memory in the room
  // and this object is then kept for ever; the caller must keep its own buffers.
  bool abandon() noexcept;
  // Return the number of steps that are done, and the number that is known to be needed so far.
  std::size_t steps_done() const { return step_; }
  std::size_t steps() const { return steps_; }

 private:
  // Names the forms; the head of this file explains single, halves and direct. An undecided call takes these steps
  // before it has one of them:
  //   `undecided`    Members announce their buffers. All then decide alike: direct, or single or halves by slots.
  //   `proving`      Members report if they could map each other's memory on GPUs and open each other's events.
  //   `measuring`    Member 0 reports the costs of copies and kernels on the GPUs; all use its numbers.
  //   `catching_up`  Each host waits for its own streams, if the GPUs do not wait for each other.
  enum class NodeCollectiveForm : std::uint8_t { single, halves, undecided, proving, measuring, catching_up, direct };
  // Names the phases. A step goes through giving, downloading and collecting.
  //   `before`       The host waits for earlier work in a stream.
  //   `giving`       The member waits for a free line or slot, and writes its data there.
  //   `downloading`  The data come from a GPU; then the member publishes the step.
  //   `collecting`   It waits for the steps of the members that it needs.
  //   `reaching`     In form direct, it reads and writes the others' buffers, or starts the GPUs that do so.
  //   `uploading`    The data that it took go to a GPU.
  //   `ending`       GPUs end the work that was begun there.
  enum class NodeCollectivePhase : std::uint8_t {
    before,
    giving,
    downloading,
    collecting,
    reaching,
    uploading,
    ending,
    done
  };
  // Selects the members that must have published their step before this one takes.
  enum class InputNeed : std::uint8_t { nobody, all, root, lower };
  struct ByteRange {
    std::size_t offset;
    std::size_t bytes;
    std::size_t end() const { return offset + bytes; }
  };

  bool asks_for_gpus() const;
  void look_for_gpus();
  void refuse_if_freed() const;
  void find_stream();
  void come_after(int device, gpu::Stream stream);
  bool is_on_gpu() const { return input_device_ >= 0 || output_device_ >= 0; }
  void begin_by_host();
  void begin_by_slots();
  void begin_single();
  void begin_halves();
  void begin_direct();
  std::size_t most_bytes() const;
  std::size_t kind() const;
  bool has_known_places() const;
  bool could_be_direct(AddressQueries address_queries) const;
  bool could_read_processes() const;

  StepStorage holder() const {
    if (form_ == NodeCollectiveForm::single) return holder_;
    if (form_ == NodeCollectiveForm::undecided && room_->gpus() != nullptr) return StepStorage::slot;
    return form_ == NodeCollectiveForm::halves ? StepStorage::slot : StepStorage::line;
  }
  // Return the address of a step's data: of this member's next step, and of a step of any member.
  std::byte* my_next() const;
  const std::byte* data(int member, StepNumber step) const;
  void set_span(std::size_t bytes);
  void give();
  void meanwhile();
  bool collected(PollLimits& looks);
  void finish_step();

  void lead();
  const std::byte* led() const;
  void give_single();
  void say_counts();
  void combine_small() {
    for (int member = 0; member < members(); ++member)
      sources_[static_cast<std::size_t>(member)] = room_->line(member, first_).payload;
    sources_[static_cast<std::size_t>(me())] = input_;
    combiner_.combine(output_, sources_.data(), members(), spec().count);
  }
  void take_single(std::size_t part);
  void copy_own_block();
  void keep_input();
  void learn_steps();

  void give_halves();
  void combine_share(std::size_t part);
  void take_shares(std::size_t part);
  ByteRange share(std::size_t part, int member) const;

  // Is a member's line in an undecided step: the addresses of its buffers and events.
  struct BufferAnnouncement {
    BufferAddress input;
    BufferAddress output;
    GenerationCounts known{};
    std::uintptr_t before = 0;  // address of an event; 0: it has none that all could wait for
    std::uintptr_t done = 0;
    std::uint32_t waits = 0;  // 1: it waits for earlier work in a stream
    double factor = 1;        // the member's factor in premul_sum
  };
  static_assert(sizeof(BufferAnnouncement) <= Line::room);
  BufferAnnouncement places_of(int member) const;
  // Lies in a slot beside the line: the handles by which other processes open GPU memory and events.
  struct DeviceHandles {
    gpu::IpcMemoryHandle input;
    gpu::IpcMemoryHandle output;
    gpu::IpcEventHandle before;
    gpu::IpcEventHandle done;
  };
  void say_places();
  bool show_events(BufferAnnouncement& places, DeviceHandles& handles);
  bool is_caught_up();
  int device_of(const BufferAddress& place) const;
  std::byte* find(int member, const BufferAddress& place, const GenerationCounts& known);
  DeviceHandles device_handles_of(int member) const;
  bool all_have_events() const;
  bool can_go_by_events() const;
  void find_events(int member, bool before, bool done);
  void map(bool everything);
  // Returns the result of `find`, which looks up something of another member. If that fails because a process has
  // ended, throws Error peer_failed with the rank of the dead one.
  template <class Find>
  auto of_living(int member, const Find& find) const {
    try {
      return find();
    } catch (const Error& error) {
      constexpr int within_ms = 100;  // milliseconds; its memory on a GPU may go before the process does
      int dead = room_->memory_reader().is_gone(member, within_ms) ? member : -1;
      // The other member may be alive, but may have heard of a death earlier and released everything.
      for (int other = 0; dead < 0 && room_->somebody_gave_up() && other < members(); ++other) {
        if (room_->memory_reader().is_gone(other)) dead = other;
      }
      if (dead < 0) throw;
      throw Error(Code::peer_failed,
                  text("rank ", dead, " is gone: its process ", room_->memory_reader().how_it_ended(dead), ": ",
                       error.detail()),
                  "look at what that process says itself");
    }
  }
  bool pays_on_gpus() const;
  // Is a member's report after it tried to map the others' memory and to open their events.
  struct MappingResult {
    bool could_map = false;
    bool could_open = false;
  };
  static_assert(sizeof(MappingResult) <= Line::room && sizeof(gpu::DeviceCosts) <= Line::room);
  void begin_proof();
  void finish_proof();
  gpu::DeviceCosts measure() const;
  void finish_measuring();
  void take_another_step(NodeCollectiveForm form);
  void begin_reaching();
  void go_by_slots();
  void decide();
  bool can_reduce_on_gpu() const;
  bool go_direct();
  bool works(int member) const;
  bool is_used_by(int member) const;
  void work_in_stream();
  void come_behind();
  bool has_ended();
  void reduce_on_gpu();
  bool reduce_direct();

  // These members serve calls by slots with data in a GPU's memory. One part is combined while the last one goes to the
  // GPU, and the one before that may still be under way.
  static constexpr std::size_t sums_at_once = 3;
  std::size_t sum_bytes() const { return round_up(std::min(piece_, most_bytes()), cache_line); }
  void begin_device_copies();
  bool downloads() const { return copies_on_device_ && input_device_ >= 0; }
  bool uploads() const { return copies_on_device_ && output_device_ >= 0; }
  template <class Use>
  void each_given(std::size_t step, const Use& use) const;
  void download(std::size_t step);
  void download_ahead();
  void upload(std::size_t offset, const std::byte* from, std::size_t bytes);
  void end_taking();
  bool is_filled();
  bool has_uploaded(std::size_t but);
  bool has_ended_copies() const;

  bool copy_direct();
  bool copy_from(int member);

  const Plan& plan() const { return *call_->plan; }
  const Spec& spec() const { return call_->plan->spec; }
  Collective collective() const { return call_->plan->spec.collective; }
  int me() const { return room_->index(); }
  int members() const { return room_->size(); }
  bool is_root() const { return me() == spec().root; }
  std::size_t element() const { return spec().element_bytes; }
  StepNumber at_step(std::size_t step) const { return first_ + static_cast<StepNumber>(step); }
  ByteRange common() const { return {0, spec().count * element()}; }
  // Return the range of my input that is for a member, and the range of my output that is from a member.
  ByteRange gives(int member) const;
  ByteRange takes(int member) const;
  ByteRange of_part(const ByteRange& whole, std::size_t part) const;
  std::size_t parts_of(std::size_t bytes) const { return bytes <= piece_ ? 1 : (bytes + piece_ - 1) / piece_; }
  void write(std::byte* to, const std::byte* from, std::size_t bytes) const;
  // Copies into my output, from the memory of this GPU or of the host (-1).
  void move(std::byte* to, const std::byte* from, int from_device, std::size_t bytes) const;
  // Copies to a place that another member will read.
  void hand(std::byte* to, const std::byte* from, std::size_t bytes) const;
  // Returns my contribution to a range of the result. hand_mine() copies it to a place that others read, and put()
  // writes a result to the output. All three accept buffers in several pieces.
  const std::byte* mine(std::size_t offset, std::size_t bytes);
  // Returns my contribution as it was given in a step, if it came from a GPU; else as mine() does.
  const std::byte* mine_of(std::size_t part, std::size_t offset, std::size_t bytes) {
    return downloads() ? given_by(me(), part) : mine(offset, bytes);
  }
  void hand_mine(std::byte* to, std::size_t offset, std::size_t bytes) const;
  void put(std::size_t offset, const std::byte* from, std::size_t bytes);
  // Returns the address of the data that a member gave to this one.
  const std::byte* given_by(int member, std::size_t part) const;
  bool needs(int member) const;

  Room* room_ = nullptr;
  Tuning tuning_ = {};
  const Call* call_ = nullptr;
  const std::byte* input_ = nullptr;
  std::byte* output_ = nullptr;
  std::uint32_t call_tag_ = 0;
  int input_device_ = -1;  // the GPU whose memory the input is in; -1: the host's
  int output_device_ = -1;
  int common_device_ = -1;  // the GPU that holds all buffers of a reduction; -1: none
  bool is_mapped_ = false;  // some buffers belong to other processes
  bool could_map_ = false;
  bool could_open_ = false;
  bool by_events_ = false;              // the GPUs wait for each other, so that no host waits for a stream
  int device_ = -1;                     // the GPU whose stream this call uses
  gpu::Stream stream_ = nullptr;        // the program's stream, or this member's own
  gpu::DeviceEvent* before_ = nullptr;  // marks the earlier work in the stream; null: there is nothing to wait for
  gpu::DeviceEvent* done_ = nullptr;    // marks the end of this member's work for the call
  struct StreamEvents {
    gpu::DeviceEvent* before = nullptr;
    gpu::DeviceEvent* done = nullptr;
  };
  std::vector<StreamEvents> turns_;                 // by member: the events that this one waits for
  std::vector<gpu::DeviceEvent*> after_;            // the events that the host still waits for
  std::size_t downloads_begun_ = 0;                 // steps whose download has begun
  std::shared_ptr<gpu::StreamMark> download_mark_;  // of the last download; null: it has arrived
  // Holds a mark for each part that was taken, until that part has arrived on the GPU.
  std::vector<std::shared_ptr<gpu::StreamMark>> upload_marks_;
  std::shared_ptr<std::byte> sums_;  // a ring of combined parts that go to a GPU
  Combiner combiner_;
  std::vector<const void*> sources_;
  std::vector<const std::byte*> inputs_;  // of all members, if they can be reached
  std::vector<std::byte*> outputs_;
  std::vector<int> devices_;                   // the GPU of each input; -1: the host
  std::vector<std::uintptr_t> remote_inputs_;  // of all members, addresses in other processes; 0: none
  const ScatteredBuffer* pieces_ = nullptr;    // replaces input and output
  std::vector<std::byte> gathered_;            // one range of the pieces, side by side
  std::vector<std::byte> block_;               // a part of a result that goes to several places
  std::vector<std::byte> copy_of_input_;       // the input, if the output would overwrite it too early
  std::shared_ptr<std::byte> pinned_copy_of_input_;

  NodeCollectiveForm form_ = NodeCollectiveForm::single;
  NodeCollectivePhase phase_ = NodeCollectivePhase::done;
  InputNeed needs_ = InputNeed::nobody;
  StepNumber first_ = 0;  // the room's number for step 0 of this call
  std::size_t step_ = 0;  // from 0
  std::size_t steps_ = 1;
  std::size_t parts_ = 1;
  std::size_t piece_ = 1;                   // bytes of a part
  std::size_t region_ = 0;                  // bytes in a slot before the next member's part, or before the result
  int seen_ = 0;                            // members that were seen in this step
  StepStorage holder_ = StepStorage::slot;  // in form single
  std::size_t span_ = 0;                    // bytes; see Room::slot
  bool for_each_ = false;                   // a slot has a part for every member
  bool hidden_ = false;                     // members do not know each other's counts
  bool gathers_ = false;                    // the last member to give combines for all
  bool gives_ = false;
  bool takes_ = false;
  bool copies_on_device_ = false;   // goes by slots, from or to a GPU
  bool has_upload_ = false;         // a copy to a GPU has begun and has no mark yet
  bool streams_ = false;            // the output is written past the caches
  bool queries_addresses_ = false;  // members tell each other where their buffers are
  bool could_read_processes_ = false;
  bool moves_ = false;         // moves data without reducing
  bool is_small_sum_ = false;  // an all_reduce whose data fits beside the step's number
  std::size_t small_bytes_ = 0;
};

}  // namespace lockstep::node
