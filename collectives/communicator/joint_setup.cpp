// SPDX-License-Identifier: Apache-2.0
// Lets members meet before they make something together.
#include "collectives/communicator/joint_setup.hpp"

#include "collectives/engine/engine.hpp"
#include "collectives/engine/real_world.hpp"
#include "collectives/planner.hpp"

namespace lockstep::detail {
namespace {

const std::byte presence{};

}  // namespace

void JointSetup::come_to(Collective what, const Origin& origin) const {
  if (members_.size() == 1) return;
  auto plan = std::make_shared<Plan>(*members_.planner().plan({.collective = Collective::barrier, .element_bytes = 1}));
  plan->stands_for = Spec{.collective = what};
  if (members_.options().strict) plan->stands_for->fingerprints.place = fingerprint_of(origin);
  members_.engine().run(
      {.plan = std::move(plan), .input = &presence, .origin = origin, .limit = members_.options().timeout});
}

void JointSetup::refuse(const Error& error) const noexcept {
  members_.refuse(error);
  try {
    if (!members_.exchange().failed()) members_.exchange().fail(error.detail());
  } catch (const std::exception& second) {
    members_.exchange().log().error(text("while telling the others of it: ", second.what()));
  }
}

}  // namespace lockstep::detail
