// SPDX-License-Identifier: Apache-2.0
// Extracts the part of a specification that all members must have in common, hashes it, and prints it.
#include "collectives/plan.hpp"

#include "collectives/call_tags.hpp"
#include "topology/base/text.hpp"

namespace lockstep {
namespace {

// Does one step of a 64-bit mix that is good enough to tell calls apart; it is not for security.
constexpr std::uint64_t mix(std::uint64_t value, std::uint64_t more) {
  value = (value ^ more) * 0x9e3779b97f4a7c15U;
  return value ^ (value >> 29U);
}

bool all_know_counts(Collective collective) {
  return collective == Collective::reduce_scatter_v || collective == Collective::all_gather_v;
}

std::uint64_t hash_counts(const Blocks& blocks) {
  std::uint64_t value = mix(1, static_cast<std::uint64_t>(blocks.parts()));
  for (int block = 0; block < blocks.parts(); ++block) value = mix(value, blocks.count(block));
  return value;
}

std::string amount(const Signature& signature) {
  const bool counted = !is_unequal(signature.collective) || all_know_counts(signature.collective);
  const std::string number = counted ? text(signature.count, ' ') : std::string();
  const std::uint64_t tensors = tensors_in(signature.fingerprints.layout);
  const std::string in = tensors > 1 ? text(" in ", tensors, " tensors") : std::string();
  if (signature.type != DataType::opaque) return text(" of ", number, to_string(signature.type), in);
  return text(" of ", number, "elements of ", signature.element_bytes, " bytes", in);
}

// True if the members need not agree on data, because there is none or each member has its own.
bool has_no_data(Collective collective) {
  return collective == Collective::barrier || collective >= Collective::sendrecv;
}

std::string_view root_word(Collective collective) {
  const bool to_root =
      collective == Collective::reduce || collective == Collective::gather || collective == Collective::gather_v;
  return to_root ? " to rank " : " from rank ";
}

}  // namespace

bool may_be_narrow(const Spec& spec) {
  return spec.collective == Collective::all_reduce && spec.type == DataType::f32 &&
         (spec.op == ReduceOp::sum || spec.op == ReduceOp::avg) && spec.order == Order::fast;
}

Signature signature_of(const Spec& spec) {
  Signature signature{.collective = spec.collective};
  signature.fingerprints.place = spec.fingerprints.place;
  if (has_no_data(spec.collective)) return signature;
  signature.fingerprints.layout = spec.fingerprints.layout;
  signature.fingerprints.variable = spec.fingerprints.variable;
  signature.fingerprints.tag = spec.fingerprints.tag;
  signature.fingerprints.merges = spec.fingerprints.merges;
  signature.type = spec.type;
  signature.element_bytes = static_cast<std::uint32_t>(spec.element_bytes);
  if (reduces(spec.collective)) {
    signature.op = spec.op;
    signature.order = spec.order;
    if (spec.op == ReduceOp::user) {
      signature.fingerprints.function = spec.fingerprints.function;
      signature.is_ordered = spec.commutes ? 0 : 1;
    }
    if (may_be_narrow(spec)) signature.wire = spec.wire;
  }
  if (is_rooted(spec.collective)) signature.root = spec.root;
  if (!is_unequal(spec.collective)) {
    signature.count = spec.count;
  } else if (all_know_counts(spec.collective)) {
    const Blocks& blocks = spec.collective == Collective::all_gather_v ? spec.output_blocks : spec.input_blocks;
    signature.count = blocks.total();
    signature.counts_hash = hash_counts(blocks);
  }
  return signature;
}

std::uint64_t hash(const Signature& signature) {
  std::uint64_t value = mix(0, static_cast<std::uint64_t>(signature.collective));
  value = mix(value, static_cast<std::uint64_t>(signature.type));
  value = mix(value, static_cast<std::uint64_t>(signature.op));
  value = mix(value, static_cast<std::uint64_t>(signature.order) | static_cast<std::uint64_t>(signature.wire) << 8U |
                         static_cast<std::uint64_t>(signature.is_ordered) << 16U);
  value = mix(value, static_cast<std::uint64_t>(signature.root));
  value = mix(value, signature.element_bytes);
  value = mix(value, signature.count);
  value = mix(value, signature.counts_hash);
  const Fingerprints& prints = signature.fingerprints;
  for (const std::uint64_t each :
       {prints.layout, prints.function, prints.variable, prints.tag, prints.merges, prints.place})
    value = mix(value, each);
  return value == 0 ? 1 : value;
}

std::string to_text(const Signature& signature) {
  const Collective collective = signature.collective;
  std::string all(to_string(collective));
  if (has_no_data(collective)) return all;
  all += amount(signature);
  if (all_know_counts(collective)) all += " in all";
  if (is_rooted(collective)) all += text(root_word(collective), signature.root);
  if (reduces(collective)) {
    all += text(", ", to_string(signature.op), signature.is_ordered != 0 ? ", ordered" : "");
    if (signature.order == Order::reproducible) all += ", reproducible";
    if (signature.wire != WireFormat::as_is) all += text(", ", to_string(signature.wire), " between nodes");
  }
  if (signature.fingerprints.variable != 0)
    all += text(", for variable ", variable_in(signature.fingerprints.variable));
  if (signature.fingerprints.tag != 0) all += text(", tagged ", call_tag_text(signature.fingerprints.tag));
  return all;
}

}  // namespace lockstep
