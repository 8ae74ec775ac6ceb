// SPDX-License-Identifier: Apache-2.0
// Lets members make something together through their exchange.
//
// It is made for one set-up and holds nothing. A member that fails in the engine is told to those that wait in the
// exchange, and the other way round.
#pragma once

#include <algorithm>
#include <array>
#include <exception>

#include "collectives/communicator/communicator_member.hpp"
#include "collectives/spec.hpp"
#include "topology/base/text.hpp"

namespace lockstep::detail {

// Runs functions in which members make something together. If one member fails, it tells those that wait in the
// exchange, because they do not hear the engine.
class JointSetup {
 public:
  explicit JointSetup(CommunicatorMember& member) : member_(member) {}

  // Returns f(). If f throws, it tells the members that wait in the exchange.
  template <class F>
  auto in_exchange(const F& f) const {
    Exchange& exchange = member_.exchange();
    try {
      return f();
    } catch (const Error& error) {
      if (!exchange.failed()) exchange.fail(error.detail());
      throw;
    } catch (const std::exception& other) {
      if (!exchange.failed()) exchange.fail(other.what());
      throw;
    }
  }

  // Runs f, in which members make something through their exchange. They first meet in a call of the engine, which
  // compares their requests. A member that fails in f tells the others. An error that breaks the exchange or the new
  // object breaks the communicator.
  template <class F>
  auto make(Collective what, const Origin& origin, const F& f) const {
    in_exchange([&] { wait_for_all(what, origin); });
    try {
      return f();
    } catch (const Error& error) {
      constexpr std::array broken = {Code::stall, Code::peer_failed, Code::mismatch};
      if (member_.exchange().failed() || std::ranges::find(broken, error.code()) != broken.end()) refuse(error);
      throw;
    } catch (const std::exception& other) {
      refuse(Error(Code::out_of_memory, text("in ", to_string(what), ": ", other.what())));
      throw;
    }
  }

  // Fails the communicator. Other members may be waiting in the exchange, where they do not hear the engine, so it
  // fails as well.
  void refuse(const Error& error) const noexcept;

 private:
  // Waits until all members have called it for the same thing.
  void wait_for_all(Collective what, const Origin& origin) const;

  CommunicatorMember& member_;
};

}  // namespace lockstep::detail
