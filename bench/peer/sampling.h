/* SPDX-License-Identifier: Apache-2.0
 * The members of a measurement, their own barrier and words over point-to-point messages, and the sampling loop. */
#ifndef LOCKSTEP_BENCH_PEER_SAMPLING_H
#define LOCKSTEP_BENCH_PEER_SAMPLING_H

#include <mpi.h>

#include "protocol.h"

struct PeerMembers {
  MPI_Comm comm;
  int rank;
  int size;
};

/* In seconds; of the samples, each the slowest member's time. */
struct PeerTimes {
  double median;
  double least;
  double most;
  size_t samples;
};

double peer_now(void);
void peer_meet(const struct PeerMembers* members);
/* The sum over all members, at all. */
double peer_total(const struct PeerMembers* members, double value);
/* For about `seconds` of member 0's time, and at least a few times. */
struct PeerTimes peer_sample(const struct PeerMembers* members, void (*run)(void*), void* self, double seconds);

#endif
