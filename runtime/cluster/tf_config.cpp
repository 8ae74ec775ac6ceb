// SPDX-License-Identifier: Apache-2.0
// Reads a cluster from the variable TF_CONFIG. Error texts name the place in it.
#include <nlohmann/json.hpp>

#include "runtime/cluster/resolver.hpp"
#include "topology/base/error.hpp"
#include "topology/base/text.hpp"

namespace lockstep {
namespace {

using Json = nlohmann::json;

constexpr std::string_view form =
    R"(write it as {"cluster": {"worker": ["host1:12345", "host2:23456"]}, "task": {"type": "worker", "index": 0}})";

[[noreturn]] void refuse(std::string_view where, std::string_view what) {
  throw Error(Code::cluster, text("TF_CONFIG", where.empty() ? "" : ", ", where, where.empty() ? " " : ": ", what),
              form);
}

constexpr int deepest = 8;  // Limits nested objects and lists. A valid cluster has 3 levels.

Json parsed(const char* words) {
  const auto shallow = [](int depth, Json::parse_event_t, const Json&) {
    if (depth > deepest) refuse({}, text("has more than ", deepest, " brackets in one another"));
    return true;
  };
  try {
    return Json::parse(words, shallow);
  } catch (const Json::exception& error) {  // The text is not JSON, or has a number that is too large.
    // "[json.exception.parse_error.101] parse error at line 1, column 3: syntax error while ..."
    const std::string_view said = error.what();
    const std::size_t at = said.find("at line");
    refuse({}, text("is not JSON, ", printable(said.substr(at == said.npos ? 0 : at), 200)));
  }
}

std::string shown(const Json& json) { return printable(json.dump(-1, ' ', true, Json::error_handler_t::replace)); }

// Accepts a number, or a string of digits.
int index_of(const Json& json, std::string_view where) {
  std::optional<std::int64_t> number;
  if (json.is_number_integer()) number = json.get<std::int64_t>();
  if (json.is_string()) number = parse_integer(json.get_ref<const std::string&>());
  if (!number || *number < 0 || *number > 1 << 20)
    refuse(where, text(shown(json), " is not an index; indices begin with 0"));
  return static_cast<int>(*number);
}

std::string word_of(const Json& json, std::string_view where) {
  if (json.is_number_integer()) return json.dump();
  if (!json.is_string()) refuse(where, text(shown(json), " is not a word"));
  return json.get<std::string>();
}

ClusterSpec::Tasks tasks_of(const Json& json, const std::string& where) {
  ClusterSpec::Tasks all;
  const auto take = [&](int index, const Json& address) {
    const std::string at = text(where, '[', index, ']');
    if (!address.is_string()) refuse(at, text(shown(address), " is not an address"));
    if (!all.emplace(index, address.get<std::string>()).second) refuse(at, "is there twice");
  };
  if (json.is_array()) {
    for (std::size_t i = 0; i < json.size(); ++i) take(static_cast<int>(i), json[i]);
  } else if (json.is_object()) {
    for (const auto& [index, address] : json.items()) take(index_of(Json(index), where), address);
  } else {
    refuse(where, text(shown(json), " is not a list of addresses"));
  }
  return all;
}

ClusterSpec cluster_of(const Json& json) {
  if (!json.is_object()) refuse("cluster", text(shown(json), " is not an object of jobs"));
  ClusterSpec::Jobs jobs;
  for (const auto& [name, tasks] : json.items()) jobs.emplace(name, tasks_of(tasks, text("cluster.", printable(name))));
  return ClusterSpec(std::move(jobs));
}

std::string optional_word(const Json& all, const char* key) {
  return all.contains(key) ? word_of(all[key], key) : std::string();
}

// Returns this process's task: the program's values, or else those of the variable.
std::optional<Task> task_of(const Json& all, const TaskOverride& mine) {
  std::optional<std::string> type = mine.type;
  std::optional<int> index = mine.index;
  if (all.contains("task")) {
    const Json& task = all["task"];
    if (!task.is_object()) refuse("task", text(shown(task), " is not an object with type and index"));
    if (!type && task.contains("type")) type = word_of(task["type"], "task.type");
    if (!index && task.contains("index")) index = index_of(task["index"], "task.index");
  }
  if (index && !type) refuse("task", text("index ", *index, " without a type"));
  if (!type) return std::nullopt;
  return Task{*type, index.value_or(0)};
}

// Adds the variable's name to errors about the cluster.
template <class F>
auto with_source(const F& function) {
  try {
    return function();
  } catch (const Error& error) {
    if (std::string_view(error.what()).find("TF_CONFIG") != std::string_view::npos) throw;
    throw Error(Code::cluster, text("TF_CONFIG: ", error.detail()));
  }
}

}  // namespace

TfConfigResolver::TfConfigResolver(const TaskOverride& mine, const Environment& environment) {
  const char* words = environment("TF_CONFIG");
  const Json all = words == nullptr || trim(words).empty() ? Json::object() : parsed(words);
  if (!all.is_object()) refuse({}, text(shown(all), " is not an object"));
  if (all.contains("cluster")) spec_ = with_source([&] { return cluster_of(all["cluster"]); });
  task_ = task_of(all, mine);
  // An evaluator need not be listed. Any other task must have an address.
  if (task_ && !spec_.empty() && (task_->type != "evaluator" || spec_.has("evaluator")))
    with_source([&] { return spec_.task_address(task_->type, task_->index); });
  rpc_layer_ = mine.rpc_layer.value_or(optional_word(all, "rpc_layer"));
  environment_ = optional_word(all, "environment");
  session_master_ = optional_word(all, "session_master");
}

std::string TfConfigResolver::master(std::optional<Task> of, std::string_view layer) const {
  if (!session_master_.empty()) return session_master_;
  if (spec_.num_tasks() <= 1 && !of) return {};
  return Resolver::master(std::move(of), layer);
}

}  // namespace lockstep
