// SPDX-License-Identifier: Apache-2.0
// Lets members meet before they make something together.
#include "collectives/communicator/joint_setup.hpp"

#include "collectives/engine/engine.hpp"
#include "collectives/engine/real_platform.hpp"
#include "collectives/planner.hpp"

namespace lockstep::detail {
namespace {

const std::byte presence{};

}  // namespace

void JointSetup::wait_for_all(Collective what, const Origin& origin) const {
  if (member_.size() == 1) return;
  auto plan = std::make_shared<Plan>(*member_.planner().plan({.collective = Collective::barrier, .element_bytes = 1}));
  plan->stands_for = Spec{.collective = what};
  if (member_.options().strict) plan->stands_for->fingerprints.place = fingerprint_of(origin);
  member_.engine().run(
      {.plan = std::move(plan), .input = &presence, .origin = origin, .limit = member_.options().timeout});
}

void JointSetup::refuse(const Error& error) const noexcept {
  member_.refuse(error);
  try {
    if (!member_.exchange().failed()) member_.exchange().fail(error.detail());
  } catch (const std::exception& second) {
    member_.exchange().log().error(text("while telling the others of it: ", second.what()));
  }
}

}  // namespace lockstep::detail
