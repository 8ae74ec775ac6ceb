/* SPDX-License-Identifier: Apache-2.0 */
#define _POSIX_C_SOURCE 200809L
#include "sampling.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { TAG = 77, LEAST_SAMPLES = 3, MOST_SAMPLES = 1 << 17, MOST_IN_BLOCK = 512 };

/* A block is so long that asking whether to go on costs nothing beside it. */
static const double block_share = 0.1;
static const double warm_up_share = 0.1;
/* Who is so slow that a few samples take many times what was given is measured by fewer. */
static const double patience = 8;
/* Members that share cores leave peer_meet when they get one: a row of calls is so long that this is little beside it.
 */
static const double row_seconds = 2e-4;
enum { MOST_IN_ROW = 64 };
double peer_now(void) {
  struct timespec at;
  clock_gettime(CLOCK_MONOTONIC, &at);
  return (double)at.tv_sec + 1e-9 * (double)at.tv_nsec;
}

/* Dissemination: after step k everybody has heard, directly or not, of the 2^(k+1) - 1 members before. */
void peer_meet(const struct PeerMembers* members) {
  char here = 0;
  char there = 0;
  for (int step = 1; step < members->size; step *= 2) {
    const int next = (members->rank + step) % members->size;
    const int last = (members->rank - step + members->size) % members->size;
    MPI_Sendrecv(&here, 1, MPI_CHAR, next, TAG, &there, 1, MPI_CHAR, last, TAG, members->comm, MPI_STATUS_IGNORE);
  }
}

static double from_first(const struct PeerMembers* members, double value) {
  if (members->rank > 0) {
    MPI_Recv(&value, 1, MPI_DOUBLE, 0, TAG, members->comm, MPI_STATUS_IGNORE);
    return value;
  }
  for (int peer = 1; peer < members->size; ++peer) MPI_Send(&value, 1, MPI_DOUBLE, peer, TAG, members->comm);
  return value;
}

double peer_total(const struct PeerMembers* members, double value) {
  if (members->rank > 0) {
    MPI_Send(&value, 1, MPI_DOUBLE, 0, TAG, members->comm);
  } else {
    for (int peer = 1; peer < members->size; ++peer) {
      double theirs = 0;
      MPI_Recv(&theirs, 1, MPI_DOUBLE, peer, TAG, members->comm, MPI_STATUS_IGNORE);
      value += theirs;
    }
  }
  return from_first(members, value);
}

/* At member 0: sample by sample the slowest member's. */
static void slowest(const struct PeerMembers* members, double* samples, int count) {
  if (members->rank > 0) {
    MPI_Send(samples, count, MPI_DOUBLE, 0, TAG, members->comm);
    return;
  }
  double* const theirs = malloc((size_t)count * sizeof *theirs);
  for (int peer = 1; peer < members->size; ++peer) {
    MPI_Recv(theirs, count, MPI_DOUBLE, peer, TAG, members->comm, MPI_STATUS_IGNORE);
    for (int i = 0; i < count; ++i)
      if (theirs[i] > samples[i]) samples[i] = theirs[i];
  }
  free(theirs);
}

static void block(const struct PeerMembers* members, void (*run)(void*), void* self, double* samples, int count,
                  int in_row) {
  for (int i = 0; i < count; ++i) {
    peer_meet(members);
    const double start = peer_now();
    for (int call = 0; call < in_row; ++call) run(self);
    samples[i] = (peer_now() - start) / in_row;
  }
}

/* Of calls that take so long: how many are measured together. */
static int row_of(const struct PeerMembers* members, double once) {
  if (members->size <= sysconf(_SC_NPROCESSORS_ONLN) || once > row_seconds) return 1;
  const double fit = row_seconds / once;
  return fit > MOST_IN_ROW ? MOST_IN_ROW : 1 + (int)fit;
}

/* Runs it until a share of the time is over; the shortest time seen, the same at all members. */
static double warm_up(const struct PeerMembers* members, void (*run)(void*), void* self, double seconds) {
  const double start = peer_now();
  double shortest = 0;
  for (int i = 0; i < MOST_SAMPLES; ++i) {
    double took = 0;
    block(members, run, self, &took, 1, 1);
    if (i == 0 || took < shortest) shortest = took;
    const double spent = peer_now() - start;
    if (from_first(members, spent > seconds || (i > 0 && spent > seconds * warm_up_share)) > 0) break;
  }
  return from_first(members, shortest);
}

static int ascending(const void* left, const void* right) {
  const double a = *(const double*)left;
  const double b = *(const double*)right;
  return (a > b) - (a < b);
}

struct PeerTimes peer_sample(const struct PeerMembers* members, void (*run)(void*), void* self, double seconds) {
  const double once = warm_up(members, run, self, seconds) + 1e-7;
  const int in_row = row_of(members, once);
  const double fit = seconds * block_share / (once * in_row);
  const int in_block = fit < 1 ? 1 : fit > MOST_IN_BLOCK ? MOST_IN_BLOCK : (int)fit;
  double* const samples = malloc((MOST_SAMPLES + MOST_IN_BLOCK) * sizeof *samples);
  const double start = peer_now();
  int count = 0;
  double spent = 0;
  do {
    block(members, run, self, samples + count, in_block, in_row);
    count += in_block;
    spent = peer_now() - start;
  } while (from_first(members, count < MOST_SAMPLES && spent < seconds * (count < LEAST_SAMPLES ? patience : 1)) > 0);
  slowest(members, samples, count);
  qsort(samples, (size_t)count, sizeof *samples, ascending);
  const struct PeerTimes times = {(samples[(count - 1) / 2] + samples[count / 2]) / 2, samples[0], samples[count - 1],
                                  (size_t)count};
  free(samples);
  return times;
}
