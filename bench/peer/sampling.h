/* SPDX-License-Identifier: Apache-2.0
 * The members of a measurement, their own barrier and words over point-to-point messages, and the sampling loop. */
#ifndef LOCKSTEP_BENCH_PEER_SAMPLING_H
#define LOCKSTEP_BENCH_PEER_SAMPLING_H

#include <mpi.h>

#include "protocol.h"

struct PeerMeeting; /* memory in which two members meet, and measure how far their cores are apart */

struct PeerMembers {
  MPI_Comm comm;
  int rank;
  int size;
  struct PeerMeeting* meeting; /* NULL: they cannot */
};

/* In seconds; of the samples, each the slowest member's time. Virtual processors move between cores within seconds, and
 * caches of neighbours and of distant cores differ by factors. So only samples count that were taken at one distance,
 * the usual one of this measurement. */
struct PeerTimes {
  double median;
  double least;
  double most;
  size_t samples;
  double distance; /* for a cache line from one core to the other; 0: not measured */
};

double peer_now(void);
/* Makes the memory for two members that have a core each. Others have none. */
void peer_open_meeting(struct PeerMembers* members);
void peer_close_meeting(struct PeerMembers* members);
void peer_meet(const struct PeerMembers* members);
/* The sum over all members, at all. */
double peer_total(const struct PeerMembers* members, double value);
/* For about `seconds` of member 0's time, and at least a few times. */
struct PeerTimes peer_sample(const struct PeerMembers* members, void (*run)(void*), void* self, double seconds);

#endif
