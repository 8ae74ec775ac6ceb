/* SPDX-License-Identifier: Apache-2.0
 * From words to jobs, from a job to memory with known contents, and from what is there afterwards to a verdict. */
#define _GNU_SOURCE
#include "protocol.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "sampling.h"

enum { PERIOD = 5, MOST_TENSORS = 100000 };

static const char* const collective_names[peer_collectives] = {
    "all_reduce",       "reduce",       "reduce_scatter", "all_gather", "broadcast",    "gather",   "scatter",
    "all_to_all",       "scan",         "exscan",         "barrier",    "all_gather_v", "gather_v", "scatter_v",
    "reduce_scatter_v", "all_to_all_v", "sendrecv",       "halo",       "floor",        "list"};
static const char* const type_names[peer_types] = {"f32", "f64", "i32", "i64"};
static const char* const op_names[peer_ops] = {"sum", "prod", "min", "max"};
static const size_t type_sizes[peer_types] = {4, 8, 4, 8};

static void fail(const char* what, const char* word) {
  fprintf(stderr, "peer_bench: %s: '%s'\n", what, word);
  MPI_Abort(MPI_COMM_WORLD, 1);
  exit(1);
}

static int find(const char* const* names, int count, const char* word, const char* what) {
  for (int i = 0; i < count; ++i)
    if (strcmp(names[i], word) == 0) return i;
  fail(what, word);
  return 0;
}

static void* memory(size_t bytes) {
  void* const at = malloc(bytes == 0 ? 1 : bytes);
  if (at == NULL) fail("not enough memory", "malloc");
  return at;
}

static void put(const struct PeerCall* call, void* at, size_t i, double value) {
  switch (call->type) {
    case peer_f32:
      ((float*)at)[i] = (float)value;
      return;
    case peer_f64:
      ((double*)at)[i] = value;
      return;
    case peer_i32:
      ((int*)at)[i] = (int)value;
      return;
    default:
      ((long long*)at)[i] = (long long)value;
  }
}

static double get(const struct PeerCall* call, const void* at, size_t i) {
  switch (call->type) {
    case peer_f32:
      return ((const float*)at)[i];
    case peer_f64:
      return ((const double*)at)[i];
    case peer_i32:
      return ((const int*)at)[i];
    default:
      return (double)((const long long*)at)[i];
  }
}

/* What member `rank` has at index i: small whole numbers, so that any order of reduction gives the same bits. */
static double given(const struct PeerCall* call, int rank, size_t i) {
  const size_t at = (7 * (size_t)rank + i) % PERIOD;
  return call->op == peer_prod ? (at == 0 ? 2 : 1) : 1 + (double)at;
}

/* The members first to last combined, at index i. */
static double combined(const struct PeerCall* call, int first, int last, size_t i) {
  double all = given(call, first, i);
  for (int rank = first + 1; rank <= last; ++rank) {
    const double next = given(call, rank, i);
    switch (call->op) {
      case peer_sum:
        all += next;
        break;
      case peer_prod:
        all *= next;
        break;
      case peer_min:
        all = next < all ? next : all;
        break;
      default:
        all = next > all ? next : all;
    }
  }
  return all;
}

static void fill(const struct PeerCall* call, void* at, size_t count, int rank) {
  for (size_t i = 0; i < count; ++i) put(call, at, i, given(call, rank, i));
}

/* How many of `count` elements are not what members first to last combined have from index `from` on. */
static size_t differ(const struct PeerCall* call, const void* at, size_t count, int first, int last, size_t from) {
  double want[PERIOD];
  for (size_t i = 0; i < PERIOD; ++i) want[i] = combined(call, first, last, from + i);
  size_t wrong = 0;
  for (size_t i = 0; i < count; ++i) wrong += get(call, at, i) != want[i % PERIOD];
  return wrong;
}

static int has_blocks(enum PeerCollective collective) {
  return collective == peer_reduce_scatter || collective == peer_all_gather || collective == peer_gather ||
         collective == peer_scatter || collective == peer_all_to_all;
}

static int is_unequal(enum PeerCollective collective) {
  return collective >= peer_all_gather_v && collective <= peer_all_to_all_v;
}

/* Returns the elements that go from one member to another, as bench/subject.cpp has them in unequal forms. */
static size_t count_between(const struct PeerCall* call, int from, int to) {
  const int gathers = call->collective == peer_all_gather_v || call->collective == peer_gather_v;
  const int position = call->collective == peer_all_to_all_v ? (from + to) % call->size : gathers ? from : to;
  const size_t half = call->count / 2;
  if (position == call->size - 1 && call->size % 2 == 1) return call->count;
  return position % 2 == 0 ? call->count - half : call->count + half;
}

static size_t offset_between(const struct PeerCall* call, int from, int to) {
  size_t offset = 0;
  for (int i = 0; i < to; ++i) offset += count_between(call, from, i);
  return offset;
}

static void cut_unequally(struct PeerCall* call) {
  const size_t all = (size_t)call->size * sizeof(int);
  call->gives = (struct PeerBlocks){memory(all), memory(all)};
  call->takes = (struct PeerBlocks){memory(all), memory(all)};
  size_t gives = 0;
  size_t takes = 0;
  for (int i = 0; i < call->size; ++i) {
    call->gives.counts[i] = (int)count_between(call, call->rank, i);
    call->takes.counts[i] = (int)count_between(call, i, call->rank);
    call->gives.offsets[i] = (int)gives;
    call->takes.offsets[i] = (int)takes;
    gives += count_between(call, call->rank, i);
    takes += count_between(call, i, call->rank);
  }
}

int peer_neighbour(const struct PeerCall* call, int rank, int block) {
  const int dimension = block / 2;
  int at[2] = {rank / call->extents[1], rank % call->extents[1]};
  const int extent = call->extents[dimension];
  at[dimension] = (at[dimension] + (block % 2 == 0 ? extent - 1 : 1)) % extent;
  return at[0] * call->extents[1] + at[1];
}

int peer_opposite(int block) { return block ^ 1; }

/* Block j of the output comes from member j. */
static size_t differ_in_unequal_blocks(const struct PeerCall* call) {
  size_t wrong = 0;
  for (int j = 0; j < call->size; ++j) {
    const size_t from = call->collective == peer_all_to_all_v ? offset_between(call, j, call->rank) : 0;
    const char* const at = (const char*)call->out + (size_t)call->takes.offsets[j] * call->element;
    wrong += differ(call, at, (size_t)call->takes.counts[j], j, j, from);
  }
  return wrong;
}

static size_t differ_in_halo(const struct PeerCall* call) {
  size_t wrong = 0;
  for (int block = 0; block < peer_neighbours; ++block) {
    const int peer = peer_neighbour(call, call->rank, peer_opposite(block));
    const char* const at = (const char*)call->out + (size_t)block * call->count * call->element;
    wrong += differ(call, at, call->count, peer, peer, (size_t)block * call->count);
  }
  return wrong;
}

/* Block j of the output comes from member j. */
static size_t differ_in_blocks(const struct PeerCall* call, int size, size_t from) {
  size_t wrong = 0;
  for (int j = 0; j < size; ++j) {
    const char* const at = (const char*)call->out + (size_t)j * call->count * call->element;
    wrong += differ(call, at, call->count, j, j, from);
  }
  return wrong;
}

static size_t wrong_elements(const struct PeerCall* call, const struct PeerMembers* members) {
  const int last = members->size - 1;
  const size_t mine = (size_t)members->rank * call->count;
  size_t wrong = 0;
  switch (call->collective) {
    case peer_all_reduce:
      return differ(call, call->out, call->count, 0, last, 0);
    case peer_reduce:
      return members->rank == 0 ? differ(call, call->out, call->count, 0, last, 0) : 0;
    case peer_reduce_scatter:
      return differ(call, call->out, call->count, 0, last, mine);
    case peer_all_gather:
      return differ_in_blocks(call, members->size, 0);
    case peer_broadcast:
      return differ(call, call->out, call->count, 0, 0, 0);
    case peer_gather:
      return members->rank == 0 ? differ_in_blocks(call, members->size, 0) : 0;
    case peer_scatter:
      return differ(call, call->out, call->count, 0, 0, mine);
    case peer_all_to_all:
      return differ_in_blocks(call, members->size, mine);
    case peer_scan:
      return differ(call, call->out, call->count, 0, members->rank, 0);
    case peer_exscan:
      return members->rank > 0 ? differ(call, call->out, call->count, 0, members->rank - 1, 0) : 0;
    case peer_all_gather_v:
    case peer_all_to_all_v:
      return differ_in_unequal_blocks(call);
    case peer_gather_v:
      return members->rank == 0 ? differ_in_unequal_blocks(call) : 0;
    case peer_scatter_v:
      return differ(call, call->out, count_between(call, 0, call->rank), 0, 0, offset_between(call, 0, call->rank));
    case peer_reduce_scatter_v:
      return differ(call, call->out, count_between(call, 0, call->rank), 0, last, offset_between(call, 0, call->rank));
    case peer_sendrecv: {
      const int before = (call->rank + last) % members->size;
      return differ(call, call->out, call->count, before, before, 0);
    }
    case peer_halo:
      return differ_in_halo(call);
    case peer_floor:
      return differ(call, call->out, call->count, members->rank, members->rank, 0);
    case peer_list:
      for (size_t i = 0; i < call->tensors; ++i)
        wrong += differ(call, call->tensor[i], call->tensor_count[i], 0, last, i);
      return wrong;
    default:
      return 0;
  }
}

static void make_list(struct PeerCall* call, const char* words, int rank) {
  size_t* const counts = memory(MOST_TENSORS * sizeof *counts);
  for (const char* at = words; *at != 0;) {
    char* end = NULL;
    const size_t count = strtoull(at, &end, 10);
    const size_t times = *end == 'x' ? strtoull(end + 1, &end, 10) : 1;
    if (end == at || (*end != ',' && *end != 0) || call->tensors + times > MOST_TENSORS) fail("no list", words);
    for (size_t i = 0; i < times; ++i) counts[call->tensors++] = count;
    at = *end == ',' ? end + 1 : end;
  }
  call->tensor_count = counts;
  call->tensor = memory(call->tensors * sizeof *call->tensor);
  for (size_t i = 0; i < call->tensors; ++i) {
    call->tensor[i] = memory(counts[i] * call->element);
    for (size_t at = 0; at < counts[i]; ++at) put(call, call->tensor[i], at, given(call, rank, i + at));
  }
}

/* A buffer, and what of it is to be freed. */
static void* buffer(const struct PeerLibrary* library, const char* variant, size_t bytes, void** own) {
  void* at = library->memory == NULL ? NULL : library->memory(library->self, bytes, variant);
  *own = at == NULL ? memory(bytes) : NULL;
  return at == NULL ? *own : at;
}

struct Owned {
  void* in;
  void* out;
};

static struct Owned make_buffers(struct PeerCall* call, const char* size, const struct PeerMembers* members,
                                 const struct PeerLibrary* library, const char* variant) {
  struct Owned own;
  const size_t bytes = strtoull(size, NULL, 10);
  const size_t whole = bytes / call->element;
  const int has_parts = has_blocks(call->collective) || is_unequal(call->collective);
  call->count = has_parts ? whole / (size_t)members->size : whole;
  size_t elements = call->count * (has_parts ? (size_t)members->size : 1);
  if (is_unequal(call->collective)) elements += elements / 2;
  if (call->collective == peer_halo) elements *= peer_neighbours;
  if (is_unequal(call->collective)) cut_unequally(call);
  if (call->collective == peer_halo) MPI_Dims_create(members->size, 2, call->extents);
  call->in = buffer(library, variant, elements * call->element, &own.in);
  call->out = buffer(library, variant, elements * call->element, &own.out);
  fill(call, call->in, elements, members->rank);
  memset(call->out, 0x7f, elements * call->element);
  if (call->collective == peer_broadcast && members->rank == 0) fill(call, call->out, call->count, 0);
  return own;
}

/* Sums in place grow with each repetition; of zeros they do not. */
static void settle(struct PeerCall* call) {
  for (size_t i = 0; i < call->tensors; ++i) memset(call->tensor[i], 0, call->tensor_count[i] * call->element);
}

static void release(struct PeerCall* call, struct Owned own) {
  for (size_t i = 0; i < call->tensors; ++i) free(call->tensor[i]);
  free(call->tensor);
  free((void*)call->tensor_count);
  free(call->gives.counts);
  free(call->gives.offsets);
  free(call->takes.counts);
  free(call->takes.offsets);
  free(own.in);
  free(own.out);
}

/* Line by line: some processors' string instructions, which memcpy uses, take 15 times as long where the target begins
 * a few bytes further on in its page than the source, as neighbours from malloc do. */
static void copy_all(void* self) {
  enum { LINE = 64 };
  const struct PeerCall* const call = self;
  const size_t bytes = call->count * call->element;
  const char* const from = call->in;
  char* const to = call->out;
  size_t at = 0;
  for (; at + LINE <= bytes; at += LINE) memcpy(to + at, from + at, LINE);
  for (; at < bytes; ++at) to[at] = from[at];
}

struct Words {
  char* collective;
  char* size;
  double seconds;
  char* variant;
};

static struct Words split(char* job) {
  char* const size = strchr(job, ':');
  char* const seconds = size == NULL ? NULL : strchr(size + 1, ':');
  char* const variant = seconds == NULL ? NULL : strchr(seconds + 1, ':');
  if (variant == NULL) fail("a job is COLLECTIVE:SIZE:SECONDS:VARIANT", job);
  *size = *seconds = *variant = 0;
  return (struct Words){job, size + 1, strtod(seconds + 1, NULL), variant + 1};
}

/* Checks once, then measures; the line of this job. */
static void measure(const struct PeerMembers* members, struct PeerCall* call, const struct PeerLibrary* library,
                    double seconds, int index) {
  library->run(library->self);
  const double wrong = peer_total(members, (double)wrong_elements(call, members));
  settle(call);
  const struct PeerTimes times = peer_sample(members, library->run, library->self, seconds);
  if (members->rank > 0) return;
  printf("peer_bench result %d %.4f %.4f %.4f %zu %.0f %.1f\n", index, times.median * 1e6, times.least * 1e6,
         times.most * 1e6, times.samples, wrong, times.distance * 1e9);
  fflush(stdout);
}

static void do_job(const struct PeerMembers* members, struct PeerCall call, const struct PeerLibrary* library,
                   char* job, int index) {
  const struct Words words = split(job);
  call.collective =
      (enum PeerCollective)find(collective_names, peer_collectives, words.collective, "no such collective");
  const struct PeerLibrary floor = {&call, NULL, NULL, copy_all, NULL};
  struct Owned own = {NULL, NULL};
  if (call.collective == peer_list)
    make_list(&call, words.size, members->rank);
  else
    own = make_buffers(&call, words.size, members, call.collective == peer_floor ? &floor : library, words.variant);
  if (call.collective == peer_floor) {
    measure(members, &call, &floor, words.seconds, index);
  } else {
    const char* const refusal = library->begin(library->self, &call, words.variant);
    if (refusal == NULL) {
      measure(members, &call, library, words.seconds, index);
      library->end(library->self);
    } else if (members->rank == 0) {
      printf("peer_bench refused %d %s\n", index, refusal);
      fflush(stdout);
    }
  }
  release(&call, own);
}

int peer_main(int argc, char** argv, const struct PeerLibrary* library) {
  if (argc < 4) {
    fprintf(stderr, "peer_bench: use: peer_bench LIMIT_SECONDS TYPE OP JOB...; tools/peers calls it\n");
    return 1;
  }
  const long limit = strtol(argv[1], NULL, 10);
  if (limit < 1) fail("no number of seconds", argv[1]);
  alarm((unsigned)limit); /* whoever started this may be gone by then */
  struct PeerMembers members;
  MPI_Comm_dup(MPI_COMM_WORLD, &members.comm);
  MPI_Comm_rank(members.comm, &members.rank);
  MPI_Comm_size(members.comm, &members.size);
  peer_open_meeting(&members);
  struct PeerCall call;
  memset(&call, 0, sizeof call);
  call.type = (enum PeerType)find(type_names, peer_types, argv[2], "no such type");
  call.op = (enum PeerOp)find(op_names, peer_ops, argv[3], "no such operation");
  call.element = type_sizes[call.type];
  call.rank = members.rank;
  call.size = members.size;
  for (int i = 4; i < argc; ++i) do_job(&members, call, library, argv[i], i - 4);
  peer_close_meeting(&members);
  MPI_Comm_free(&members.comm);
  return 0;
}
