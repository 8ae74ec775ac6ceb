// SPDX-License-Identifier: Apache-2.0
// Checks the options of variables, and words the refusals.
#include "runtime/variable_rules.hpp"

namespace lockstep::detail {
std::string_view name_of(Aggregation aggregation) {
  switch (aggregation) {
    case Aggregation::sum:
      return "SUM";
    case Aggregation::mean:
      return "MEAN";
    case Aggregation::only_first_replica:
      return "ONLY_FIRST_REPLICA";
    default:
      return "NONE";
  }
}

// Names may differ in a number at the end, which TensorFlow adds to make names unique.
void check_names(const PerReplica<std::string>& names, Origin origin) {
  const auto without_number = [](std::string_view name) {
    const std::size_t last = name.find_last_not_of("0123456789");
    const bool has_one = last != std::string_view::npos && last + 1 < name.size() && name[last] == '_';
    return has_one ? name.substr(0, last) : name;
  };
  for (int i = 1; i < names.size(); ++i) {
    if (without_number(names[i]) == without_number(names[0])) continue;
    throw Error(Code::usage,
                text("one variable, at ", place(origin), ", is named '", printable(names[0]),
                     "' in the first replica of this process and '", printable(names[i]), "' in another"),
                "let all replicas make the same variables in the same order, of the same names");
  }
}

std::string VariableRules::quoted() const { return text("variable '", printable(options_.name), '\''); }

// Checks the options and fills in the defaults: synchronized on write, and trainable unless it is synchronized on read.
VariableRules::VariableRules(VariableOptions options, const VariableLayout& layout, bool has_fractions, bool adds)
    : options_(std::move(options)) {
  const auto refuse = [&](const std::string& what, std::string_view remedy) {
    throw Error(Code::usage, text(quoted(), ": ", what), remedy);
  };
  const auto mode = static_cast<unsigned>(options_.synchronization);
  const auto aggregation = static_cast<unsigned>(options_.aggregation);
  if (mode > static_cast<unsigned>(Synchronization::on_read))
    refuse(text("invalid variable synchronization mode ", mode), "use one of Synchronization's");
  if (aggregation > static_cast<unsigned>(Aggregation::only_first_replica))
    refuse(text("invalid variable aggregation mode ", aggregation), "use one of Aggregation's");
  if (options_.synchronization == Synchronization::none)
    refuse("the synchronization mode NONE is not supported by strategies", "leave it out, or use on_write or on_read");
  if (options_.aggregation == Aggregation::mean && !has_fractions)
    refuse("the aggregation MEAN of a type without fractions is not supported",
           "use sum, only_first_replica, or a type with fractions");
  if (options_.aggregation == Aggregation::sum && !adds)
    refuse("the aggregation SUM of bool is not supported", "use integers, or only_first_replica");
  const bool reads = options_.synchronization == Synchronization::on_read;
  if (reads && options_.trainable.value_or(false))
    refuse("a variable that is synchronised on read cannot be trained: its replicas differ",
           "leave out trainable, or synchronise it on write");
  if (reads && layout.is_shared)
    refuse(
        "a variable that is synchronised on read needs a part in each replica, and it is to be kept beside one that "
        "all replicas share",
        "make it outside of colocate_vars_with()");
  if (!options_.trainable) options_.trainable = !reads;
  if (options_.synchronization == Synchronization::automatic || layout.is_plain())
    options_.synchronization = Synchronization::on_write;
}

void VariableRules::refuse_part(std::string_view call) const {
  throw Error(Code::usage, text(call, "() of ", quoted(), " in a thread that has no component of it"),
              "call it in a replica's function, or in update()");
}

void VariableRules::refuse_place(std::string_view call, bool is_here) const {
  throw Error(Code::usage,
              text(call, "() of ", quoted(), ", which is ",
                   is_here ? "in the host's memory" : "in a GPU's memory, which the host cannot read"),
              is_here ? "use local()" : "use local_on_gpu() for kernels, or read() and assign(), which copy");
}

void VariableRules::refuse_reading_for_all() const {
  throw Error(Code::usage,
              text(quoted(), " is synchronised on read and has no aggregation, so for all replicas it has no value"),
              "make it with an aggregation, or read it in a replica");
}

void VariableRules::refuse_change_for_all(std::string_view call) const {
  throw Error(Code::usage,
              text(quoted(), ", synchronised on read with the aggregation ", name_of(options_.aggregation),
                   ", does not support ", call, " for all replicas: it is not known which replica it is for"),
              "do it in a replica, or assign the whole");
}

// Refuses scatter calls whose result the aggregation would not define.
void VariableRules::check_scatter(std::string_view call, bool only_of_one, bool in_one_of_several) const {
  const auto refuse = [&](const std::string& why, std::string_view remedy) {
    throw Error(Code::usage, text(call, " of ", quoted(), ": ", why), remedy);
  };
  if (is_on_read()) refuse("it is synchronised on read", "use assign, or local() in a replica");
  const bool adds_up = options_.aggregation == Aggregation::sum || options_.aggregation == Aggregation::mean;
  if (in_one_of_several && only_of_one && adds_up)
    refuse(text("in a replica this needs another aggregation than ", name_of(options_.aggregation)),
           "make it with only_first_replica, or call it outside of the replicas");
}

void VariableRules::check_shape(const TensorShape& mine, const TensorShape& given, std::string_view call) const {
  if (mine == given) return;
  throw Error(
      Code::usage,
      text(call, " of ", quoted(), " of shape ", mine.to_string(), ": the value's shape is ", given.to_string()),
      "give a value of the variable's shape");
}

// Prints the variable as TensorFlow does.
std::string VariableRules::to_text(const VariableLayout& layout, const std::vector<std::string>& values,
                                   const TensorShape& shape, DataType type) const {
  const auto one = [&](int replica) {
    const std::string suffix = replica == 0 ? std::string() : text("/replica_", replica);
    return text("<tf.Variable '", printable(options_.name), suffix, ":0' shape=", shape.to_string(),
                " dtype=", numpy_name(type), ", numpy=", values[static_cast<std::size_t>(replica)], '>');
  };
  if (layout.is_plain()) return one(0);
  std::string all;
  for (int i = 0; i < static_cast<int>(values.size()); ++i) all += text(i == 0 ? "\n  " : ",\n  ", i, ": ", one(i));
  return text(is_on_read() ? "SyncOnReadVariable" : layout.kind, ":{", all, "\n}");
}

}  // namespace lockstep::detail
