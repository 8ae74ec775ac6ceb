// SPDX-License-Identifier: Apache-2.0
// One member's work in a collective among members that share a room: a sequence of steps, each of which gives, waits
// and takes. It never blocks; who runs it looks again. How the data goes:
//
//   single    every member gives in its slot; who needs it takes it from there. Small things take one step. Where it
//             was measured to be faster, as among members that share cores, the last to give combines for all.
//   halves    all_reduce and reduce of much: a member combines its share of a segment from everybody's slots, and all
//             take the shares together. While one segment is combined, the next is given and the last one taken.
//   direct    buffers that all can reach, or can read in each other's processes: they say where, then read and write
//             straight there. So it is with buffers in a GPU's memory, which other processes map. Where all have theirs
//             there, the GPUs themselves wait for each other, by events, and a call in a stream is over for the host
//             when all is put into the streams.
//
// Where buffers in a GPU's memory go by slots, each part is copied from there into the member's slot, and what it takes
// from slots is copied to there, by streams: while a part is worked on, the next one comes and the last one goes. Who
// has its data where is nobody else's concern.
#pragma once

#include <cstring>

#include "collectives/node/combine.hpp"
#include "collectives/node/room.hpp"
#include "topology/base/error.hpp"
#include "topology/base/index_set.hpp"
#include "topology/base/text.hpp"

namespace lockstep::node {

// A few bytes, without a call.
inline void copy_small(std::byte* to, const std::byte* from, std::size_t bytes) {
  std::size_t at = 0;
  for (; at + 16 <= bytes; at += 16) std::memcpy(to + at, from + at, 16);
  if (at + 8 <= bytes) {
    std::memcpy(to + at, from + at, 8);
    at += 8;
  }
  for (; at < bytes; ++at) to[at] = from[at];
}

// How to look for what is missing: so many times one after the other, then so often after letting others run.
struct PollLimits {
  unsigned at_once = 0;
  unsigned yielding = 0;
};

class NodeCollective {
 public:
  // The call and its memory stay as they are until the work is done. Of a call in which the input was changed on its
  // way (scaled), `input` is what counts.
  // `address_queries` is the room's when the call was made. Calls have one order, so it is the same on all members.
  void begin(Room& room, const Tuning& tuning, const Call& call, const std::byte* input, std::uint32_t call_tag,
             AddressQueries address_queries);
  // Takes the memory that the call will need.
  void reserve(const Call& call);
  // The same call once more, with other buffers, as far as it goes with these looks.
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
  // As far as it goes without waiting longer than these looks. Whether anything moved.
  bool advance(PollLimits looks);
  bool is_done() const { return phase_ == NodeCollectivePhase::done; }
  // Whether members could find each other's data without slots: not where each has counts of its own.
  static bool has_known_places(Collective collective) {
    return !has_own_counts(collective) && collective != Collective::scan && collective != Collective::exscan &&
           collective != Collective::barrier;
  }
  // Those whose step is not there.
  IndexSet missing() const;
  // Those of them that are in this step of another call.
  IndexSet in_another() const;
  bool waits_for_gpu() const {
    return phase_ == NodeCollectivePhase::downloading || phase_ == NodeCollectivePhase::uploading;
  }
  // After a failure. False: copies have not ended soon; all that they may touch but the caller's buffers is kept.
  bool abandon() noexcept;
  std::size_t steps_done() const { return step_; }
  std::size_t steps() const { return steps_; }

 private:
  // The head of this file explains single, halves and direct. Undecided calls take these steps before they have a form:
  //   undecided    members say where their buffers lie; then all decide alike: direct, or single or halves by slots
  //   proving      members say whether they could map each other's memory on GPUs, and open each other's events
  //   measuring    member 0 says what copies and kernels cost on the GPUs; all take its numbers
  //   catching_up  each host waits for its own streams, where GPUs do not wait for each other
  enum class NodeCollectiveForm : std::uint8_t { single, halves, undecided, proving, measuring, catching_up, direct };
  // A step goes through giving, downloading and collecting.
  //   before       the host waits for what is in a stream before the call
  //   giving       the member waits for a free line or slot, and writes there what it gives
  //   downloading  what it gives comes from a GPU; then it publishes the step
  //   collecting   it waits for the steps of the members that it needs
  //   reaching     direct: it reads and writes the others' buffers, or starts the GPUs that do so
  //   uploading    what it took goes to a GPU
  //   ending       GPUs end what was begun there
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
  // The members whose steps a member must see before it takes.
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
  // Where a step's data lies, in a single step or in a segment.
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

  // A member's line in an undecided step: where its buffers lie, and its events.
  struct BufferAnnouncement {
    BufferAddress input;
    BufferAddress output;
    GenerationCounts known{};
    std::uintptr_t before = 0;  // this member's events; 0: it has none that all could wait for
    std::uintptr_t done = 0;
    std::uint32_t waits = 0;  // for what is in a stream
    double factor = 1;        // of premul_sum
  };
  static_assert(sizeof(BufferAnnouncement) <= Line::room);
  BufferAnnouncement places_of(int member) const;
  // In a slot beside them: how others find what is in a GPU's memory.
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
  // What another member has: where that cannot be found because its process has ended, this is what is thrown.
  template <class Find>
  auto of_living(int member, const Find& find) const {
    try {
      return find();
    } catch (const Error& error) {
      constexpr int within_ms = 100;  // what it had on a GPU may go before it
      int dead = room_->memory_reader().is_gone(member, within_ms) ? member : -1;
      // Or it lives, has heard of a death before this member has, and has let go of all.
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
  // What a member found when it tried to map what others have, and to open their events.
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

  // By slots, with data in a GPU's memory.
  // One is combined while the last one goes to the GPU, and the one before may be on its way still.
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
  ByteRange gives(int member) const;  // of my input, for a member
  ByteRange takes(int member) const;  // of my output, from a member
  ByteRange of_part(const ByteRange& whole, std::size_t part) const;
  std::size_t parts_of(std::size_t bytes) const { return bytes <= piece_ ? 1 : (bytes + piece_ - 1) / piece_; }
  void write(std::byte* to, const std::byte* from, std::size_t bytes) const;
  // Into my output, from a place on this GPU, or the host's.
  void move(std::byte* to, const std::byte* from, int from_device, std::size_t bytes) const;
  // To where another member reads it.
  void hand(std::byte* to, const std::byte* from, std::size_t bytes) const;
  // Of what is combined, which may lie in pieces: my part of a range; a copy of it for others; results in their place.
  const std::byte* mine(std::size_t offset, std::size_t bytes);
  // As it was given in a step, where the work cannot read it in the caller's buffer.
  const std::byte* mine_of(std::size_t part, std::size_t offset, std::size_t bytes) {
    return downloads() ? given_by(me(), part) : mine(offset, bytes);
  }
  void hand_mine(std::byte* to, std::size_t offset, std::size_t bytes) const;
  void put(std::size_t offset, const std::byte* from, std::size_t bytes);
  const std::byte* given_by(int member, std::size_t part) const;  // to me
  bool needs(int member) const;

  Room* room_ = nullptr;
  Tuning tuning_ = {};
  const Call* call_ = nullptr;
  const std::byte* input_ = nullptr;
  std::byte* output_ = nullptr;
  std::uint32_t call_tag_ = 0;
  int input_device_ = -1;  // the GPU whose memory it is
  int output_device_ = -1;
  int common_device_ = -1;  // that of all buffers of a reduction
  bool is_mapped_ = false;  // some of them other processes'
  bool could_map_ = false;
  bool could_open_ = false;
  bool by_events_ = false;              // no host waits for what is in a stream
  int device_ = -1;                     // of the stream that this call goes by
  gpu::Stream stream_ = nullptr;        // the program's, or one of this member's own
  gpu::DeviceEvent* before_ = nullptr;  // what is in it before the call; none: nothing to wait for
  gpu::DeviceEvent* done_ = nullptr;    // what this member has put there for the call
  struct StreamEvents {
    gpu::DeviceEvent* before = nullptr;
    gpu::DeviceEvent* done = nullptr;
  };
  std::vector<StreamEvents> turns_;                             // by member: its events that this one waits for
  std::vector<gpu::DeviceEvent*> after_;                        // events that the host still has to wait for
  std::size_t downloads_begun_ = 0;                             // steps of which that has begun
  std::shared_ptr<gpu::StreamMark> download_mark_;              // the last of them; nothing: it is there
  std::vector<std::shared_ptr<gpu::StreamMark>> upload_marks_;  // of each part that was taken, until it is there
  std::shared_ptr<std::byte> sums_;                             // what was combined, and goes to a GPU: a ring of parts
  Combiner combiner_;
  std::vector<const void*> sources_;
  std::vector<const std::byte*> inputs_;  // of all members, where they are reached
  std::vector<std::byte*> outputs_;
  std::vector<int> devices_;                   // the GPU of each input; -1: the host
  std::vector<std::uintptr_t> remote_inputs_;  // of all members, the inputs that are read in another process; 0: not so
  const ScatteredBuffer* pieces_ = nullptr;    // instead of input and output
  std::vector<std::byte> gathered_;            // of them, what is combined as one
  std::vector<std::byte> block_;               // a part of a result that goes to several places
  std::vector<std::byte> copy_of_input_;       // where it would be overwritten before it was given
  std::shared_ptr<std::byte> pinned_copy_of_input_;

  NodeCollectiveForm form_ = NodeCollectiveForm::single;
  NodeCollectivePhase phase_ = NodeCollectivePhase::done;
  InputNeed needs_ = InputNeed::nobody;
  StepNumber first_ = 0;  // the room's number of the first step
  std::size_t step_ = 0;  // of this work, from 0
  std::size_t steps_ = 1;
  std::size_t parts_ = 1;
  std::size_t piece_ = 1;                   // bytes of a part
  std::size_t region_ = 0;                  // of a slot: where the part of the next member begins, or the result
  int seen_ = 0;                            // members that have been seen in this step
  StepStorage holder_ = StepStorage::slot;  // of what is given, in a single step
  std::size_t span_ = 0;                    // see Room::slot
  bool for_each_ = false;                   // a slot has a part of its own for every member
  bool hidden_ = false;                     // members do not know how much the others have
  bool gathers_ = false;                    // the last to give combines for all
  bool gives_ = false;
  bool takes_ = false;
  bool copies_on_device_ = false;   // goes by slots, from or to a GPU's memory
  bool has_upload_ = false;         // to one, something that no mark follows
  bool streams_ = false;            // the output is written past the caches
  bool queries_addresses_ = false;  // where everybody's buffers are
  bool could_read_processes_ = false;
  bool moves_ = false;         // and reduces nothing
  bool is_small_sum_ = false;  // an all_reduce of what lies beside the step's number
  std::size_t small_bytes_ = 0;
};

}  // namespace lockstep::node
