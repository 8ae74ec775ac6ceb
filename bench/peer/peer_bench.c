/* SPDX-License-Identifier: Apache-2.0
 * MPI's own collectives under the protocol of tools/peers. Compiled against each library that is compared. A variant
 * is a name that may be followed by control variables, NAME;VARIABLE=VALUE;..., which are written through MPI's tool
 * interface before a fresh communicator is made: libraries choose their algorithms by the communicator. A list goes
 * as one buffer: packed, reduced, unpacked. A halo has two ways: `isend` starts all messages and waits for them,
 * `neighbour` is MPI_Neighbor_alltoall. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "protocol.h"

enum { MOST_VARIABLES = 8, LONGEST = 1024 };

struct Setting {
  MPI_T_cvar_handle handle;
  int before;
};

struct Subject {
  struct PeerCall call;
  MPI_Comm comm;
  MPI_Datatype type;
  MPI_Op op;
  MPI_Comm grid; /* of a halo by MPI_Neighbor_alltoall; else MPI_COMM_NULL */
  char* flat;    /* of a list */
  size_t flat_count;
  struct Setting settings[MOST_VARIABLES];
  int changed;
};

static MPI_Datatype type_of(enum PeerType type) {
  switch (type) {
    case peer_f32:
      return MPI_FLOAT;
    case peer_f64:
      return MPI_DOUBLE;
    case peer_i32:
      return MPI_INT;
    default:
      return MPI_LONG_LONG;
  }
}

static MPI_Op op_of(enum PeerOp op) {
  switch (op) {
    case peer_sum:
      return MPI_SUM;
    case peer_prod:
      return MPI_PROD;
    case peer_min:
      return MPI_MIN;
    default:
      return MPI_MAX;
  }
}

/* Writes one variable and keeps what it was. */
static const char* set(struct Subject* subject, const char* name, int value) {
  static char refusal[LONGEST + 64];
  int index = 0;
  int count = 0;
  struct Setting* const setting = &subject->settings[subject->changed];
  if (subject->changed == MOST_VARIABLES) return "too many control variables";
  if (MPI_T_cvar_get_index(name, &index) != MPI_SUCCESS) {
    snprintf(refusal, sizeof refusal, "this library has no control variable %s", name);
    return refusal;
  }
  if (MPI_T_cvar_handle_alloc(index, NULL, &setting->handle, &count) != MPI_SUCCESS || count != 1 ||
      MPI_T_cvar_read(setting->handle, &setting->before) != MPI_SUCCESS ||
      MPI_T_cvar_write(setting->handle, &value) != MPI_SUCCESS) {
    snprintf(refusal, sizeof refusal, "the control variable %s cannot be written", name);
    return refusal;
  }
  ++subject->changed;
  return NULL;
}

static void unset_all(struct Subject* subject) {
  while (subject->changed > 0) {
    struct Setting* const setting = &subject->settings[--subject->changed];
    MPI_T_cvar_write(setting->handle, &setting->before);
    MPI_T_cvar_handle_free(&setting->handle);
  }
}

static const char* set_all(struct Subject* subject, const char* variant) {
  char words[LONGEST];
  if (strlen(variant) >= sizeof words) return "the variant's words are too long";
  strcpy(words, variant);
  strtok(words, ";"); /* the name */
  for (char* word = strtok(NULL, ";"); word != NULL; word = strtok(NULL, ";")) {
    char* const value = strchr(word, '=');
    if (value == NULL) return "a control variable is written VARIABLE=VALUE";
    *value = 0;
    const char* const refusal = set(subject, word, atoi(value + 1));
    if (refusal != NULL) return refusal;
  }
  return NULL;
}

/* The sources are in the order in which their messages to the same member are matched. */
static MPI_Comm grid_of(const struct PeerCall* call, MPI_Comm comm) {
  int from[peer_neighbours];
  int to[peer_neighbours];
  int weights[peer_neighbours]; /* all alike, so unused; g++ 12 warns of Open MPI's MPI_UNWEIGHTED */
  MPI_Comm grid = MPI_COMM_NULL;
  for (int block = 0; block < peer_neighbours; ++block) {
    weights[block] = 1;
    to[block] = peer_neighbour(call, call->rank, block);
    from[block] = peer_neighbour(call, call->rank, peer_opposite(block));
  }
  MPI_Dist_graph_create_adjacent(comm, peer_neighbours, from, weights, peer_neighbours, to, weights, MPI_INFO_NULL, 0,
                                 &grid);
  return grid;
}

static const char* begin(void* self, const struct PeerCall* call, const char* variant) {
  struct Subject* const subject = self;
  const char* const refusal = set_all(subject, variant);
  if (refusal != NULL) {
    unset_all(subject);
    return refusal;
  }
  subject->call = *call;
  subject->type = type_of(call->type);
  subject->op = op_of(call->op);
  subject->flat_count = 0;
  for (size_t i = 0; i < call->tensors; ++i) subject->flat_count += call->tensor_count[i];
  subject->flat = malloc(subject->flat_count * call->element + 1);
  MPI_Comm_dup(MPI_COMM_WORLD, &subject->comm);
  const int by_grid = call->collective == peer_halo && strncmp(variant, "neighbour", strlen("neighbour")) == 0;
  subject->grid = by_grid ? grid_of(call, subject->comm) : MPI_COMM_NULL;
  return NULL;
}

static void end(void* self) {
  struct Subject* const subject = self;
  if (subject->grid != MPI_COMM_NULL) MPI_Comm_free(&subject->grid);
  MPI_Comm_free(&subject->comm);
  free(subject->flat);
  unset_all(subject);
}

static void run_list(const struct Subject* s) {
  char* at = s->flat;
  for (size_t i = 0; i < s->call.tensors; ++i) {
    const size_t bytes = s->call.tensor_count[i] * s->call.element;
    memcpy(at, s->call.tensor[i], bytes);
    at += bytes;
  }
  MPI_Allreduce(MPI_IN_PLACE, s->flat, (int)s->flat_count, s->type, s->op, s->comm);
  at = s->flat;
  for (size_t i = 0; i < s->call.tensors; ++i) {
    const size_t bytes = s->call.tensor_count[i] * s->call.element;
    memcpy(s->call.tensor[i], at, bytes);
    at += bytes;
  }
}

static void run_halo(const struct Subject* s) {
  MPI_Request requests[2 * peer_neighbours];
  const int count = (int)s->call.count;
  const size_t bytes = s->call.count * s->call.element;
  for (int block = 0; block < peer_neighbours; ++block)
    MPI_Irecv((char*)s->call.out + (size_t)block * bytes, count, s->type,
              peer_neighbour(&s->call, s->call.rank, peer_opposite(block)), block, s->comm, &requests[block]);
  for (int block = 0; block < peer_neighbours; ++block)
    MPI_Isend((char*)s->call.in + (size_t)block * bytes, count, s->type, peer_neighbour(&s->call, s->call.rank, block),
              block, s->comm, &requests[peer_neighbours + block]);
  MPI_Waitall(2 * peer_neighbours, requests, MPI_STATUSES_IGNORE);
}

static void run_unequal(const struct Subject* s) {
  const struct PeerBlocks gives = s->call.gives;
  const struct PeerBlocks takes = s->call.takes;
  void* const in = s->call.in;
  void* const out = s->call.out;
  const int rank = s->call.rank;
  switch (s->call.collective) {
    case peer_all_gather_v:
      MPI_Allgatherv(in, gives.counts[0], s->type, out, takes.counts, takes.offsets, s->type, s->comm);
      return;
    case peer_gather_v:
      MPI_Gatherv(in, gives.counts[0], s->type, out, takes.counts, takes.offsets, s->type, 0, s->comm);
      return;
    case peer_scatter_v:
      MPI_Scatterv(in, gives.counts, gives.offsets, s->type, out, takes.counts[rank], s->type, 0, s->comm);
      return;
    case peer_reduce_scatter_v:
      MPI_Reduce_scatter(in, out, gives.counts, s->type, s->op, s->comm);
      return;
    default:
      MPI_Alltoallv(in, gives.counts, gives.offsets, s->type, out, takes.counts, takes.offsets, s->type, s->comm);
  }
}

static void run(void* self) {
  const struct Subject* const s = self;
  const int count = (int)s->call.count;
  void* const in = s->call.in;
  void* const out = s->call.out;
  switch (s->call.collective) {
    case peer_all_reduce:
      MPI_Allreduce(in, out, count, s->type, s->op, s->comm);
      return;
    case peer_reduce:
      MPI_Reduce(in, out, count, s->type, s->op, 0, s->comm);
      return;
    case peer_reduce_scatter:
      MPI_Reduce_scatter_block(in, out, count, s->type, s->op, s->comm);
      return;
    case peer_all_gather:
      MPI_Allgather(in, count, s->type, out, count, s->type, s->comm);
      return;
    case peer_broadcast:
      MPI_Bcast(out, count, s->type, 0, s->comm);
      return;
    case peer_gather:
      MPI_Gather(in, count, s->type, out, count, s->type, 0, s->comm);
      return;
    case peer_scatter:
      MPI_Scatter(in, count, s->type, out, count, s->type, 0, s->comm);
      return;
    case peer_all_to_all:
      MPI_Alltoall(in, count, s->type, out, count, s->type, s->comm);
      return;
    case peer_scan:
      MPI_Scan(in, out, count, s->type, s->op, s->comm);
      return;
    case peer_exscan:
      MPI_Exscan(in, out, count, s->type, s->op, s->comm);
      return;
    case peer_list:
      run_list(s);
      return;
    case peer_all_gather_v:
    case peer_gather_v:
    case peer_scatter_v:
    case peer_reduce_scatter_v:
    case peer_all_to_all_v:
      run_unequal(s);
      return;
    case peer_sendrecv:
      MPI_Sendrecv(in, count, s->type, (s->call.rank + 1) % s->call.size, 0, out, count, s->type,
                   (s->call.rank + s->call.size - 1) % s->call.size, 0, s->comm, MPI_STATUS_IGNORE);
      return;
    case peer_halo:
      if (s->grid != MPI_COMM_NULL)
        MPI_Neighbor_alltoall(in, count, s->type, out, count, s->type, s->grid);
      else
        run_halo(s);
      return;
    default:
      MPI_Barrier(s->comm);
  }
}

/* "Open MPI v4.1.4, package: ..." at the first comma or line's end. */
static void say_version(void) {
  char version[MPI_MAX_LIBRARY_VERSION_STRING];
  int length = 0;
  int rank = 0;
  MPI_Get_library_version(version, &length);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  version[strcspn(version, ",\n")] = 0;
  if (rank == 0) printf("peer_bench version %s\n", version);
}

int main(int argc, char** argv) {
  int provided = 0;
  MPI_Init(&argc, &argv);
  MPI_T_init_thread(MPI_THREAD_SINGLE, &provided); /* within MPI's time: Open MPI 4 crashes at the end otherwise */
  say_version();
  struct Subject subject;
  memset(&subject, 0, sizeof subject);
  const struct PeerLibrary library = {&subject, NULL, begin, run, end};
  const int code = peer_main(argc, argv, &library);
  MPI_T_finalize();
  MPI_Finalize();
  return code;
}
