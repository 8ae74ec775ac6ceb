// SPDX-License-Identifier: Apache-2.0
// Tells the replicas of a process from the seats at which they run.
//
// A replica is one copy of the program's model: it has a context, and a part of each variable. A seat is a device with
// a thread, and one member of the communicator of all replicas. Each replica has one seat; a replica that is spread
// over several devices would have more.
#pragma once

#include <vector>

namespace lockstep::detail {

// Numbers replicas and seats within this process, and members among all processes. Never changes.
class ReplicaSeats {
 public:
  ReplicaSeats() = default;
  // Gives one seat to each of this many replicas. `first` is the number of the first seat's member.
  ReplicaSeats(int replicas, int first) : replicas_(replicas), first_(first) {}

  int replicas() const { return replicas_; }
  int count() const { return replicas_; }  // Returns the number of seats.
  // Returns the seats of a replica, in order. Its function runs at the first one.
  std::vector<int> seats_of(int replica) const { return {replica}; }
  int main_seat_of(int replica) const { return replica; }
  int replica_of(int seat) const { return seat; }
  int member_of(int seat) const { return first_ + seat; }

 private:
  int replicas_ = 0;
  int first_ = 0;
};

}  // namespace lockstep::detail
