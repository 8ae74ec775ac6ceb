// SPDX-License-Identifier: Apache-2.0
// For tests of the engine: plans written by hand, a plain reduction, and engines over threads. No planner, and none of
// the library's algorithms or kernels, so that what fails here is the engine.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <mutex>
#include <numeric>
#include <string>
#include <vector>

#include "collectives/engine/engine.hpp"
#include "collectives/engine/local_transport.hpp"
#include "collectives/engine/real_platform.hpp"
#include "tests/support/threads.hpp"

namespace lockstep::test {

using RealEngine = Engine<RealPlatform>;

inline void add_floats(void* target, const void* left, const void* right, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i)
    static_cast<float*>(target)[i] = static_cast<const float*>(left)[i] + static_cast<const float*>(right)[i];
}
inline constexpr Kernel add{add_floats, nullptr};

// Reduce-scatter around the ring, then all-gather; input and output may be one.
inline Schedule ring_schedule(int size, int index, std::size_t count) {
  const Blocks blocks = Blocks::split(count, size);
  const int next = wrap(index + 1, size);
  const int last = wrap(index - 1, size);
  ScheduleBuilder ring;
  ring.round().copy(output(0, count), input(0, count));
  if (size > 1) {
    ring.round(size - 1)
        .send(next, MovingSlice(Space::output, blocks, index, -1))
        .receive(last, MovingSlice::in_slots(blocks, index - 1, -1, 0, 1))
        .reduce(MovingSlice(Space::output, blocks, index - 1, -1), MovingSlice(Space::output, blocks, index - 1, -1),
                MovingSlice::in_slots(blocks, index - 1, -1, 0, 1));
    ring.round(size - 1)
        .send(next, MovingSlice(Space::output, blocks, index + 1, -1))
        .receive(last, MovingSlice(Space::output, blocks, index, -1));
  }
  return ring.done();
}

struct Cut {
  std::size_t segment = 0;  // elements; 0: one segment
  int depth = 1;
};

inline std::shared_ptr<Plan> all_reduce_plan(int size, int index, std::size_t count, ReduceOp op = ReduceOp::sum,
                                             Cut cut = {}) {
  auto plan = std::make_shared<Plan>();
  plan->spec = {.collective = Collective::all_reduce, .type = DataType::f32, .op = op, .count = count};
  plan->size = size;
  plan->index = index;
  plan->algorithm = "ring";
  plan->segment = cut.segment == 0 ? count : cut.segment;
  plan->segments = count == 0 ? 1 : static_cast<int>((count + plan->segment - 1) / plan->segment);
  plan->depth = cut.depth;
  plan->schedule = ring_schedule(size, index, plan->segment);
  plan->last = ring_schedule(size, index, count - static_cast<std::size_t>(plan->segments - 1) * plan->segment);
  plan->result = output(0, count);
  plan->input_count = plan->output_count = count;
  plan->choice.method_hash = 17;
  return plan;
}

// From the root to everybody, directly.
inline std::shared_ptr<Plan> broadcast_plan(int size, int index, std::size_t count, int root,
                                            DataType type = DataType::f32) {
  auto plan = std::make_shared<Plan>();
  plan->spec = {
      .collective = Collective::broadcast, .type = type, .element_bytes = size_of(type), .count = count, .root = root};
  plan->size = size;
  plan->index = index;
  plan->algorithm = "flat";
  ScheduleBuilder flat;
  flat.round();
  if (index == root) {
    for (int peer = 0; peer < size; ++peer) {
      if (peer != root) flat.send(peer, input(0, count));
    }
    flat.copy(output(0, count), input(0, count));
  } else {
    flat.receive(root, output(0, count));
  }
  plan->last = flat.done();
  plan->input_count = index == root ? count : 0;
  plan->output_count = count;
  plan->choice.method_hash = 18;
  return plan;
}

// One message; `tag` keeps it apart from others.
inline std::shared_ptr<Plan> message_plan(int size, int index, bool sends, int peer, std::size_t count, int tag = 0) {
  auto plan = std::make_shared<Plan>();
  plan->spec = {.collective = Collective::sendrecv, .type = DataType::f32, .count = count, .root = tag};
  plan->size = size;
  plan->index = index;
  plan->algorithm = sends ? "send" : "recv";
  ScheduleBuilder one;
  one.round();
  if (sends)
    one.send(peer, input(0, count));
  else
    one.receive(peer, output(0, count));
  plan->last = one.done();
  (sends ? plan->input_count : plan->output_count) = count;
  return plan;
}

inline Call call_of(std::shared_ptr<const Plan> plan, const std::vector<float>& in, std::vector<float>& out,
                    Origin origin = Origin::here()) {
  return {.plan = std::move(plan), .input = in.data(), .output = out.data(), .kernel = &add, .origin = origin};
}

// What member `index` gives, and the sum over all members: exact in floats.
inline std::vector<float> given(int index, std::size_t count, int salt = 0) {
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i)
    values[i] = static_cast<float>((i + static_cast<std::size_t>(salt)) % 97 + 1) * static_cast<float>(index + 1);
  return values;
}
inline std::vector<float> summed(int size, std::size_t count, int salt = 0) {
  std::vector<float> values = given(0, count, salt);
  for (float& each : values) each *= static_cast<float>(size * (size + 1) / 2);
  return values;
}

// Lines of all members, for looking at what was warned of.
class Lines {
 public:
  Log log() {
    return Log(LogLevel::warn, [this](LogLevel, std::string_view line) {
      const std::lock_guard lock(mutex_);
      all_ += line;
      all_ += '\n';
    });
  }
  std::string all() const {
    const std::lock_guard lock(mutex_);
    return all_;
  }

 private:
  mutable std::mutex mutex_;
  std::string all_;
};

struct Setting {
  WaitLimits wait_limits = {std::chrono::seconds(20), std::chrono::seconds(60)};
  Log log = Log(LogLevel::error);
  bool progress_thread = false;
  std::size_t progress_bytes = 0;
};

using EngineBody = std::function<void(RealEngine&, Exchange&)>;

// Runs the body on threads, each with its engine over the local transport. Engines end when all bodies have ended.
inline void on_engines(int size, const EngineBody& body, const Setting& setting = {}) {
  on_threads(size, [&](Exchange& exchange) {
    const double cores = std::max(1U, std::thread::hardware_concurrency());
    RealEngine engine(RealPlatform(local_transport(exchange), Waiter(size / cores)),
                      {.wait_limits = setting.wait_limits,
                       .log = setting.log,
                       .name = "test",
                       .progress_thread = setting.progress_thread,
                       .progress_bytes = setting.progress_bytes});
    body(engine, exchange);
    exchange.barrier("all bodies have ended");
  });
}

// What the action throws, as text; "nothing" if it does not. `code` is that of the error.
inline std::string thrown(const std::function<void()>& action, Code* code = nullptr) {
  try {
    action();
  } catch (const Error& error) {
    if (code != nullptr) *code = error.code();
    return error.what();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "nothing";
}

inline void run(RealEngine& engine, const Call& call) { engine.wait(*engine.start(call)); }

}  // namespace lockstep::test
