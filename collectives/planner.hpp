// SPDX-License-Identifier: Apache-2.0
// Chooses how a collective is done and writes it down as a plan. Members that ask for the same choose the same without
// a message, because a choice depends only on facts that all of them know. In an all_to_all_v a member may then run
// another algorithm that mixes with the chosen one, for its own blocks. A forced name comes before a measured row of
// the table, and a row comes before the cost model.
//
// CommunicatorMember owns one for each communicator. Programs never call it; `lockstep plan` makes its own.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "collectives/cost_model.hpp"
#include "collectives/plan.hpp"
#include "collectives/plan_table.hpp"

namespace lockstep {

// Holds the settings of a planner. They must be equal on all members.
struct PlannerOptions {
  std::string algorithm = {};                         // the text of LOCKSTEP_ALGORITHM; empty: none is forced
  std::string algorithm_name = "LOCKSTEP_ALGORITHM";  // the setting that forces it, for messages
  std::string table = {};                             // the text of the file that LOCKSTEP_TABLE names, not its path
  std::string table_name = "the plan table";          // the table's name, for messages
  // Holds the size in bytes of the largest element that can be reduced in memory that all members share. 0: they share
  // none.
  std::size_t node_element = 0;
  // Holds the same for the members of each node, if there are several nodes.
  std::size_t split_node_element = 0;
  // Limits the plans that are kept; the oldest goes first. 0: none is kept.
  std::size_t most_plans = 1024;
};

// Is one algorithm that was considered for a specification, for people.
struct AlgorithmCandidate {
  std::string_view name;
  std::size_t piece = 0;       // elements sent at a time; 0: whole
  int segments = 1;            // segments that flow through its stages one behind another
  std::size_t rounds = 0;      // messages that follow each other
  std::size_t sent_bytes = 0;  // by the member that sends most; 0 also if members do not know each other's counts
  // Holds the time that the cost model predicts, and its terms. All zeros: it predicts none.
  PriceTerms price;
  bool chosen = false;
  bool narrow = false;  // its messages between nodes would be in the wire format
  std::string why_not;  // the reason why it cannot be taken; empty: it can
};

struct SpecHash {
  std::size_t operator()(const Spec& spec) const noexcept;
};

// Makes the plans of one member of one group and keeps them. One thread at a time may use it.
class Planner {
 public:
  // Throws Error bad_setting if the options name something that does not exist.
  Planner(const std::shared_ptr<const Topology>& topology, Group group, PlannerOptions options = {});

  // Returns the plan of a specification; an equal one gets the same object while that is kept. Throws Error bad_setting
  // if a forced algorithm does not fit, and usage if no plan can be made for the specification.
  std::shared_ptr<const Plan> plan(const Spec& spec);
  // Returns the plan of another member, by its index, for simulations. It is not kept. Throws as plan() does.
  std::shared_ptr<const Plan> plan_of(int index, const Spec& spec);
  // Returns all algorithms of the collective, the cheapest first, those that cannot be taken last. Returns none for a
  // member alone. Throws as plan() does.
  std::vector<AlgorithmCandidate> candidates(const Spec& spec);

  const GroupFacts& facts() const { return facts_; }
  const Group& group() const { return group_; }
  const PlannerOptions& options() const { return options_; }
  // Returns the number of plans that are kept.
  std::size_t kept() const { return plans_.size(); }

 private:
  struct PricedAlgorithm {
    const Algorithm* algorithm;
    std::size_t piece_bytes;
    PriceTerms price;
    bool narrow = false;     // with messages in the wire format, which saves enough time
    PriceTerms plain_price;  // the price without the wire format
    int segments = 0;        // those with the lowest price; 0: a rule determines them

    double us() const { return price.total_us; }
    double plain_us() const { return plain_price.total_us; }
  };
  // Is the decision for a specification. A null algorithm goes with in_node.
  struct AlgorithmChoice {
    const Algorithm* algorithm = nullptr;
    // Is the one on which members agree, if this member runs another one that mixes with it; else null.
    const Algorithm* agreed = nullptr;
    std::size_t piece_bytes = 0;  // 0: whole
    // Holds the segment size of a row of the table; nothing: the general rule decides.
    std::optional<std::size_t> segment_bytes = std::nullopt;
    std::string why = {};
    bool in_node = false;
    bool narrow = false;
    int segments = 0;  // 0: a rule determines them
  };
  struct RankingKey {
    Collective collective;
    std::uint64_t bytes;
    bool may_be_narrow;
    auto operator<=>(const RankingKey&) const = default;  // NOLINT(modernize-use-nullptr): of the comparison itself
  };
  struct Segmentation {
    std::size_t segment = 0;
    int segments = 1;
    int depth = 1;
  };

  void check(const Spec& spec) const;
  // Return the shape that all members know, as the root sees it, and this member's own shape. The algorithm determines
  // the levels.
  Shape common_shape(const Algorithm& algorithm, const Spec& spec, std::size_t count, std::size_t piece) const;
  Shape my_shape(const Algorithm& algorithm, const Spec& spec, std::size_t count, std::size_t piece) const;
  Shape my_shape(const Spec& spec) const;
  // Returns the reason, for people, why the algorithm cannot do this; empty: it can.
  std::string objection(const Algorithm& algorithm, const Spec& spec) const;
  // Without a size of blocks it takes the one that all members know.
  const std::vector<PricedAlgorithm>& ranking(const Spec& spec, std::optional<std::uint64_t> block_bytes = {});
  PricedAlgorithm priced(const Algorithm& algorithm, Shape problem, bool may_be_narrow);
  // Is a price with the number of segments that it is for.
  struct SegmentedPrice {
    PriceTerms terms;
    int segments = 0;
  };
  SegmentedPrice whole_price(const Algorithm& algorithm, const Shape& problem);
  SegmentedPrice cheapest(const Algorithm& algorithm, const Workload& work, double scale, std::size_t bytes) const;
  // True if the price determines the number of segments.
  bool is_cut_by_price(const Algorithm& algorithm) const;
  std::size_t blocks_cut(const Algorithm& algorithm) const;
  int segments_of(const Algorithm& algorithm, std::size_t bytes) const;
  std::string node_objection(const Spec& spec) const;
  AlgorithmChoice choose(const Spec& spec);
  AlgorithmChoice choose_forced(const Spec& spec, const std::string& name);
  std::optional<AlgorithmChoice> choose_measured(const Spec& spec);
  AlgorithmChoice choose_priced(const Spec& spec);
  const Algorithm* cheapest_for_me(const Spec& spec);
  Segmentation cut_for(const Spec& spec, const AlgorithmChoice& choice, std::size_t piece) const;
  std::size_t cut_segment_bytes(const Spec& spec, const AlgorithmChoice& choice, std::size_t piece) const;
  // Returns the segment size, in bytes, for an algorithm with stages on different links, so that segments overlap. 0:
  // whole.
  std::size_t staged_segment_bytes(const Algorithm& algorithm, std::size_t bytes) const;
  Schedule build(const AlgorithmChoice& choice, const Spec& spec, std::size_t count, std::size_t piece) const;
  std::shared_ptr<const Plan> make(const Spec& spec);
  std::shared_ptr<const Plan> plan_like(const Spec& spec);
  void keep(const std::shared_ptr<const Plan>& plan);

  Group group_;
  PlannerOptions options_;
  GroupFacts facts_;
  std::vector<ForcedAlgorithm> forced_;
  std::vector<TableRow> table_;
  std::map<RankingKey, std::vector<PricedAlgorithm>> rankings_;
  // Keeps the workloads of large groups; true: with messages between nodes rounded off.
  std::map<std::pair<const Algorithm*, bool>, Workload> workloads_;
  std::unordered_map<Spec, std::shared_ptr<const Plan>, SpecHash> plans_;
  std::deque<const Spec*> oldest_;  // keys of plans_, the oldest first
};

}  // namespace lockstep
