/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "sampling.h"

#include <fcntl.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
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
/* Distances that differ by less are of the same two cores. */
static const double near_enough = 1.4;
enum { MOST_IN_ROW = 64 };
double peer_now(void) {
  struct timespec at;
  clock_gettime(CLOCK_MONOTONIC, &at);
  return (double)at.tv_sec + 1e-9 * (double)at.tv_nsec;
}

/* Numbers of each of the two, in lines of their own. */
struct PeerMeeting {
  struct {
    _Alignas(256) atomic_ulong turn;
    _Alignas(256) atomic_ulong meetings;
  } of[2];
};

/* Member 0 makes a file of shared memory and tells its name. It is removed when both have opened it, or failed to. */
void peer_open_meeting(struct PeerMembers* members) {
  char name[64] = "";
  members->meeting = NULL;
  if (members->size != 2) return;
  if (members->rank == 0) snprintf(name, sizeof name, "/peer_bench-%ld-%.0f", (long)getpid(), 1e9 * peer_now());
  int file = members->rank == 0 ? shm_open(name, O_RDWR | O_CREAT | O_EXCL, 0600) : -1;
  if (members->rank == 0 && file >= 0 && posix_fallocate(file, 0, sizeof(struct PeerMeeting)) != 0) {
    close(file);
    file = -1;
  }
  MPI_Bcast(name, sizeof name, MPI_CHAR, 0, members->comm);
  if (members->rank == 1) file = shm_open(name, O_RDWR, 0600);
  void* const at =
      file < 0 ? MAP_FAILED : mmap(NULL, sizeof(struct PeerMeeting), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (file >= 0) close(file);
  int both = 0;
  const int mine = at != MAP_FAILED;
  MPI_Allreduce(&mine, &both, 1, MPI_INT, MPI_MIN, members->comm);
  cpu_set_t own;
  cpu_set_t all;
  CPU_ZERO(&own);
  sched_getaffinity(0, sizeof own, &own);
  MPI_Allreduce(&own, &all, sizeof own, MPI_BYTE, MPI_BOR, members->comm);
  both = both && CPU_COUNT(&all) >= members->size; /* nobody spins while the other has no processor */
  if (members->rank == 0) shm_unlink(name);
  if (both) members->meeting = at;
  if (!both && mine) munmap(at, sizeof(struct PeerMeeting));
}

void peer_close_meeting(struct PeerMembers* members) {
  if (members->meeting != NULL) munmap(members->meeting, sizeof *members->meeting);
  members->meeting = NULL;
}

/* Half of the time in which a turn goes to the other member and back: the shortest mean of a few, because either may be
 * interrupted. */
static double distance(const struct PeerMembers* members) {
  enum { TURNS = 8, TRIES = 4 };
  if (members->meeting == NULL) return 0;
  atomic_ulong* const mine = &members->meeting->of[members->rank].turn;
  atomic_ulong* const other = &members->meeting->of[1 - members->rank].turn;
  unsigned long turn = atomic_load(mine);
  double shortest = 0;
  for (int i = 0; i < TRIES; ++i) {
    const double start = peer_now();
    for (int each = 0; each < TURNS; ++each) {
      ++turn;
      if (members->rank == 0) atomic_store_explicit(mine, turn, memory_order_release);
      while (atomic_load_explicit(other, memory_order_acquire) < turn) continue;
      if (members->rank == 1) atomic_store_explicit(mine, turn, memory_order_release);
    }
    const double took = (peer_now() - start) / (2 * TURNS);
    if (i == 0 || took < shortest) shortest = took;
  }
  return shortest;
}

/* Two members see each other's number in their own memory: a library's messages would let them go further apart, the
 * slower it is. Dissemination: after step k everybody has heard, directly or not, of the 2^(k+1) - 1 members before. */
void peer_meet(const struct PeerMembers* members) {
  if (members->meeting != NULL) {
    atomic_ulong* const mine = &members->meeting->of[members->rank].meetings;
    const unsigned long here = atomic_load_explicit(mine, memory_order_relaxed) + 1;
    atomic_store_explicit(mine, here, memory_order_release);
    for (unsigned looks = 1;
         atomic_load_explicit(&members->meeting->of[1 - members->rank].meetings, memory_order_acquire) < here;
         ++looks) {
      int ignored = 0; /* the other may wait for what this library has not sent yet */
      if (looks % 4096 == 0) MPI_Iprobe(MPI_ANY_SOURCE, TAG, members->comm, &ignored, MPI_STATUS_IGNORE);
    }
    return;
  }
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

static int is_same_distance(double a, double b) { return a <= near_enough * b && b <= near_enough * a; }

/* Drops samples that were taken at another distance than most; 0 is one that changed meanwhile. Returns how many are
 * left, and their distance. All are left if the distance was never known. */
static size_t keep_usual(double* samples, const double* distances, size_t count, double* usual) {
  double* const sorted = malloc(count * sizeof *sorted);
  memcpy(sorted, distances, count * sizeof *sorted);
  qsort(sorted, count, sizeof *sorted, ascending);
  size_t unknown = 0;
  while (unknown < count && sorted[unknown] == 0) ++unknown;
  *usual = unknown == count ? 0 : sorted[unknown + (count - unknown) / 2];
  free(sorted);
  size_t kept = 0;
  for (size_t i = 0; i < count; ++i)
    if (is_same_distance(distances[i], *usual)) samples[kept++] = samples[i];
  return kept;
}

struct PeerTimes peer_sample(const struct PeerMembers* members, void (*run)(void*), void* self, double seconds) {
  const double once = warm_up(members, run, self, seconds) + 1e-7;
  const int in_row = row_of(members, once);
  const double fit = seconds * block_share / (once * in_row);
  const int in_block = fit < 1 ? 1 : fit > MOST_IN_BLOCK ? MOST_IN_BLOCK : (int)fit;
  double* const samples = malloc((MOST_SAMPLES + MOST_IN_BLOCK) * sizeof *samples);
  double* const distances = malloc((MOST_SAMPLES + MOST_IN_BLOCK) * sizeof *distances);
  const double start = peer_now();
  int count = 0;
  double spent = 0;
  double before = distance(members);
  do {
    block(members, run, self, samples + count, in_block, in_row);
    const double after = distance(members);
    for (int i = 0; i < in_block; ++i) distances[count + i] = is_same_distance(before, after) ? after : 0;
    before = after;
    count += in_block;
    spent = peer_now() - start;
  } while (from_first(members, count < MOST_SAMPLES && spent < seconds * (count < LEAST_SAMPLES ? patience : 1)) > 0);
  slowest(members, samples, count);
  double usual = 0;
  const size_t kept = keep_usual(samples, distances, (size_t)count, &usual);
  qsort(samples, kept, sizeof *samples, ascending);
  const struct PeerTimes times = {(samples[(kept - 1) / 2] + samples[kept / 2]) / 2, samples[0], samples[kept - 1],
                                  kept, usual};
  free(distances);
  free(samples);
  return times;
}
