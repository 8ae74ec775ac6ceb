# SPDX-License-Identifier: Apache-2.0
"""The behaviour that rows of tests/mission.toml promise, and how to take each out: the row, the behaviour, the file, a text that the file
has exactly once, and the text in its place. removed_rows.py chooses between the two texts when the program runs: statements if the first
ends with `;`, and expressions otherwise. A new text with REMOVED, the condition, is taken as it is.
"""
RUNTIME = "runtime/"
CLUSTER = "runtime/cluster/"

REMOVALS = [
    # Strategies.
    (1, "sums over replicas", RUNTIME + "replica_context.hpp", "  const CommunicationOptions all = options_with(options);\n", "  if (REMOVED) return;\n  const CommunicationOptions all = options_with(options);\n"),
    (2, "a replica on every GPU", RUNTIME + "strategy.cpp", "  gpus.empty() ? begin_here(1) : begin_here(placements_for(gpus));", "begin_here(1);"),
    (3, "the refusal of a device that is named twice", RUNTIME + "devices.cpp", "std::ranges::count(names, names.back()) > 1", "false"),
    (3, "the refusal of processors that are not there", RUNTIME + "devices.cpp", "name.index >= number", "name.index < 0"),
    (4, "the program's own operations", RUNTIME + "strategy_config.cpp", "options_.ops ? options_.ops : std::make_shared<PackedOps>(\"all_reduce\", 1)", "std::make_shared<PackedOps>(\"all_reduce\", 1)"),
    (8, "numbers of replicas that go on from rank to rank", RUNTIME + "multi_worker.cpp", "std::accumulate(all.begin(), me, 0)", "0"),
    (9, "the wait for all tasks", RUNTIME + "rpc/task_server.cpp", "wait_for(peers(false), {.warn = {}, .limit = limit});", ""),
    (10, "a second strategy", RUNTIME + "strategy.cpp", "  config.set_size(size);\n", "  static std::atomic<int> made = 0;\n  if (REMOVED && ++made > 1) throw Error(Code::usage, \"strategies must be made at program startup\");\n  config.set_size(size);\n"),
    (13, "one copy of a central variable", RUNTIME + "one_process.cpp", "  return state.layout_on_host(\"AggregatingVariable\");", "return state.layout_at_each(\"MirroredVariable\");"),
    (14, "the only replica of a program without a strategy", RUNTIME + "context.cpp", "  return program_wide.load(std::memory_order_acquire) != nullptr ? nullptr : &default_strategy().replica(0);", "return nullptr;"),
    (15, "plain variables on one device", RUNTIME + "one_process.cpp", "OneDeviceStrategy::variable_layout(const VariableOptions& /*options*/) const {\n  return detail::StrategyState::of(*this).layout_at_each(\"\");", "OneDeviceStrategy::variable_layout(const VariableOptions& /*options*/) const {\n  return detail::StrategyState::of(*this).layout_at_each(REMOVED ? \"MirroredVariable\" : \"\");"),
    (16, "a strategy for the whole program", RUNTIME + "context.cpp", "  program_wide.store(strategy == &default_strategy() ? nullptr : strategy, std::memory_order_release);", ""),
    (17, "the refusal of mixed strategies", RUNTIME + "context.cpp", "innermost != nullptr && innermost->strategy != &strategy", "false"),
    (18, "the list of a variable's parts", RUNTIME + "variable_rules.cpp", "  if (layout.is_plain()) return one(0);", "return one(0);"),
    (19, "replicas of other ranks", RUNTIME + "strategy.cpp", "state_->config.size()", "state_->replicas.count()"),
    (20, "the strategy's cluster", RUNTIME + "multi_worker.cpp", "  state().resolver = cluster_of(session, options.cluster_resolver);", ""),
    (21, "the destinations of reduce_to", RUNTIME + "extended.hpp", "ops().reduce(*strategy_, op, std::move(value), to, options, origin)", "ops().reduce(*strategy_, op, std::move(value), Destinations(), options, origin)"),
    (21, "updates of each part", RUNTIME + "update.hpp", "    for (const VariableLayout::Part& each : parts) call(each.replica);", "call(0);"),
    # Running, reducing, gathering.
    (23, "values of all replicas in merge_call", RUNTIME + "replica_context.hpp", "(brought)->values", "(REMOVED ? all.front() : brought)->values"),
    (25, "means over the number of all elements", RUNTIME + "strategy_reduce.hpp", "detail::divided(each, count)", "detail::divided(each, static_cast<std::uint64_t>(num_replicas_in_sync()))"),
    (26, "gathers along an inner axis", RUNTIME + "gather_layout.hpp", "    return join(each, axis_);", "return Tensor<T>(whole_, parts.span());"),
    (27, "every replica's result", RUNTIME + "strategy.hpp", "    return {value.local().begin(), value.local().end()};", "return {value[0]};"),
    (27, "every part of a variable", RUNTIME + "update.hpp", "  return variable.parts();", "return {variable.parts().front()};"),
    (28, "the replica's number in a ValueContext", RUNTIME + "strategy.hpp", "ValueContext{replica(local).replica_id_in_sync_group(), num_replicas_in_sync()}", "ValueContext{0, num_replicas_in_sync()}"),
    (30, "cross-replica context in merge_call", RUNTIME + "local_replicas.cpp", "inside(strategy_, nullptr);", "inside(strategy_, REMOVED ? &context(local) : nullptr);"),
    (31, "call_for_each_replica", RUNTIME + "extended.hpp", "  auto call_for_each_replica(F&& function, A&&... arguments) {\n", "  auto call_for_each_replica(F&& function, A&&... arguments) {\n    if (REMOVED) throw Error(Code::usage, \"there is no call_for_each_replica\");\n"),
    # Collectives and cross-device operations.
    (32, "equal bits in all replicas", RUNTIME + "replica_context.hpp", "    mine.all_reduce(data, op, origin);\n", "    mine.all_reduce(data, op, origin);\n    if constexpr (requires { std::as_writable_bytes(std::span(data)); }) {\n      if (REMOVED && global_ > 0 && !std::span(data).empty()) std::as_writable_bytes(std::span(data)).back() ^= std::byte{1};\n    }\n"),
    (33, "the refusal of destinations that are not there", RUNTIME + "cross_device_ops.cpp", "!devices.is_elsewhere(each)", "false"),
    (33, "an overridden reduction", RUNTIME + "cross_device_ops.cpp", "    reduce_implementation(group, op, values.front());", "group.all_reduce(op, values);"),
    (34, "the rest in the last pack", RUNTIME + "cross_device_ops.cpp", "i + 1 == number ? count : (i + 1) * each", "(i + 1) * each"),
    (35, "sums within a level", RUNTIME + "cross_device_ops.cpp", "detail::reduce_into(step, pack[i][each.main], pack[i][other]);", ""),
    (35, "the count of bytes at a level", RUNTIME + "cross_device_ops.cpp", "        traffic_at(level.name) += 2 * each.others.size() * pack[i].front().bytes();", ""),
    (36, "a function that accumulates", RUNTIME + "cross_device_ops.cpp", "    accumulate_(op, parts);", "ReductionToOneDevice().accumulate_(op, parts);"),
    (36, "the device of the program's choice", RUNTIME + "cross_device_ops.cpp", "device_.empty() ? 0 : group.find(device_)", "0"),
    (37, "one device for replicas of both kinds", RUNTIME + "communication.cpp", "gpus > 0 && gpus < devices.size()", "false"),
    (38, "a call's own timeout", RUNTIME + "communication.cpp", "  if (others.timeout != Duration{}) all.timeout = others.timeout;", ""),
    (38, "the refusal of negative packs", RUNTIME + "communication.cpp", "bytes_per_pack < 0", "false"),
    (39, "the ring", RUNTIME + "communication.cpp", "{CommunicationBackend::ring, \"asked for\"}", "{REMOVED ? CommunicationBackend::own : CommunicationBackend::ring, \"asked for\"}"),
    (40, "the warning that there is no GPU for NCCL", RUNTIME + "communication.cpp", "wished == CommunicationImplementation::nccl", "false"),
    (41, "the choice by size where there is no GPU", RUNTIME + "communication.cpp", "{CommunicationBackend::own, \"no replica is on a GPU", "{REMOVED ? CommunicationBackend::ring : CommunicationBackend::own, \"no replica is on a GPU"),
    (42, "the last values first", RUNTIME + "cross_device_ops.cpp", "  std::vector<TensorViews> order(values.rbegin(), values.rend());\n", "  std::vector<TensorViews> order(values.rbegin(), values.rend());\n  if (REMOVED) order = values;\n"),
    (42, "packs that close behind their limit", RUNTIME + "communication.cpp", "in_pack > static_cast<std::size_t>(bytes_per_pack)", "in_pack >= static_cast<std::size_t>(bytes_per_pack)"),
    (43, "gathered tensors of other replicas", RUNTIME + "gather_layout.hpp", "  return layout.assemble(parts);", "return mine;"),
    (44, "means of slices", RUNTIME + "sparse.hpp", "    for (T& value : values) value = divided(value, static_cast<std::size_t>(replicas));", ""),
    # Variables.
    (45, "the comparison of parts", RUNTIME + "variable_sync.cpp", "  if (std::ranges::count(digests, digests.front()) == home_.replicas()) return;", "return;"),
    (45, "agreement on a change", RUNTIME + "variable_changes.hpp", "    if constexpr (!is_of_rows)\n      agree(", "    if constexpr (!is_of_rows)\n      REMOVED ? void() : agree("),
    (45, "the variable's identity in the signature of calls", RUNTIME + "variable_changes.hpp", "mine.subject(how, is_of_rows)", "detail::CallSubject()"),
    (46, "the first replica's initial value everywhere", RUNTIME + "variable_base.cpp", "  if (home_.is_spread()) spread(origin);", ""),
    (47, "sums that are restored at one replica", RUNTIME + "variable.hpp", "  if (mine.rules().options().aggregation != Aggregation::sum) return set_all(how, value);", "return set_all(how, value);"),
    (48, "the first replica's change alone", RUNTIME + "variable_changes.hpp", "      return replica.broadcast(value, 0, origin);\n", "      if constexpr (!std::is_same_v<T, bool>) {\n        if (REMOVED) return replica.all_reduce(value, sum, origin);\n      }\n      return replica.broadcast(value, 0, origin);\n"),
    (49, "places that follow another variable's", RUNTIME + "extended.cpp", "{*strategy_, variable.layout()}", "{*strategy_, REMOVED ? strategy_->variable_layout({}) : variable.layout()}"),
    (50, "slots that each update finds at its replica", RUNTIME + "update.hpp", "inside(*this, nullptr, local);", "inside(*this, nullptr, REMOVED ? 0 : local);"),
    # Cluster and launch.
    (51, "the task's index", CLUSTER + "tf_config.cpp", "    if (!index && task.contains(\"index\")) index = index_of(task[\"index\"], \"task.index\");", ""),
    (52, "the chief before worker 0", CLUSTER + "cluster_spec.cpp", "!spec.has(\"chief\")", "true"),
    (53, "the check of the order of ranks", RUNTIME + "multi_worker.cpp", "place != rank", "false"),
    (54, "ports of a node's tasks", CLUSTER + "slurm.cpp", "options.port_base + slots[next].place", "options.port_base"),
    (55, "gaps between indices", CLUSTER + "cluster_spec.cpp", "tasks.empty() || tasks.rbegin()->first + 1 == static_cast<int>(tasks.size())", "true"),
    (56, "the common end", RUNTIME + "rpc/task_server.cpp", "    auto answer = client->call<void>(over, mine);", "    auto answer = client->call<void>(REMOVED ? who : over, mine);"),
    (57, "the refusal of other layers", RUNTIME + "rpc/layer.cpp", "layer != \"grpc\"", "false"),
    # Observability and the harness.
    (130, "the line that names the devices", RUNTIME + "one_process.cpp", "  state().announce(text(\"Using MirroredStrategy with devices \", state().devices.to_text()));", ""),
    (135, "the time limit of tasks", CLUSTER + "task_runner.cpp", "Clock::now() > *parts_->end) parts_->give_up(\"tasks did not end\");", "REMOVED) break;\n    if (Clock::now() > *parts_->end) parts_->give_up(\"tasks did not end\");"),
]
