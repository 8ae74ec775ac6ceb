# SPDX-License-Identifier: Apache-2.0
"""What can be set in each library, as variants to try: every algorithm of a collective that can be forced, and how
ranks wait. The names of algorithms are the libraries' own; what a version does not know it refuses or gets wrong, and
the tuning leaves it out.
"""
from dataclasses import dataclass

from .peers import Launch, Peer


@dataclass(frozen=True)
class Variant:
    name: str
    launch: Launch = Launch()
    variables: tuple[tuple[str, int], ...] = ()  # control variables, written while the program runs
    least: int = 0  # sizes below are not worth a try
    label: str = ""  # for people, where the name does not tell it

    @property
    def words(self) -> str:
        return ";".join([self.name] + [f"{name}={value}" for name, value in self.variables])

    @property
    def title(self) -> str:
        if self.label:
            return self.label
        return f"{self.name} (as it comes)" if self.launch.as_it_comes and self.name != "as it comes" else self.name

    def settings(self) -> dict:
        return {"variant": self.title, "control_variables": dict(self.variables), "mca": dict(self.launch.mca),
                "environment": dict(self.launch.environment), "as_it_comes": self.launch.as_it_comes}


AS_IT_COMES = Variant("as it comes", Launch(as_it_comes=True))
SEGMENTS = (32 << 10, 128 << 10, 512 << 10)

# Open MPI's component `tuned`: its name for the collective, how many algorithms, which of them work in segments.
TUNED = {"all_reduce": ("allreduce", 6, (5,)), "reduce": ("reduce", 7, (2, 3, 4, 5)), "broadcast": ("bcast", 9, (2, 3, 4, 5, 6)),
         "reduce_scatter": ("reduce_scatter_block", 4, ()), "all_gather": ("allgather", 8, ()), "gather": ("gather", 3, ()),
         "scatter": ("scatter", 3, ()), "all_to_all": ("alltoall", 5, ()), "scan": ("scan", 2, ()), "exscan": ("exscan", 2, ()),
         "barrier": ("barrier", 6, ()), "all_gather_v": ("allgatherv", 5, ()), "reduce_scatter_v": ("reduce_scatter", 4, ()),
         "all_to_all_v": ("alltoallv", 2, ()), "gather_v": ("gatherv", 0, ()), "scatter_v": ("scatterv", 0, ())}

# MPICH's names of the variable, and of the algorithms that need no more than being named.
MPICH = {"all_reduce": ("ALLREDUCE", "recursive_doubling recursive_multiplying reduce_scatter_allgather tree recexch ring "
                        "k_reduce_scatter_allgather"),
         "reduce": ("REDUCE", "binomial reduce_scatter_gather"),
         "broadcast": ("BCAST", "binomial scatter_recursive_doubling_allgather scatter_ring_allgather pipelined_tree tree"),
         "reduce_scatter": ("REDUCE_SCATTER_BLOCK", "recursive_doubling pairwise recursive_halving"),
         "all_gather": ("ALLGATHER", "brucks k_brucks recursive_doubling ring recexch_doubling recexch_halving"),
         "gather": ("GATHER", "binomial"), "scatter": ("SCATTER", "binomial"),
         "all_to_all": ("ALLTOALL", "brucks k_brucks pairwise scattered"), "scan": ("SCAN", "recursive_doubling"),
         "exscan": ("EXSCAN", "recursive_doubling"), "barrier": ("BARRIER", "k_dissemination recexch"),
         "all_gather_v": ("ALLGATHERV", "brucks recursive_doubling ring recexch_doubling recexch_halving"),
         "reduce_scatter_v": ("REDUCE_SCATTER", "recursive_doubling pairwise recursive_halving"),
         "all_to_all_v": ("ALLTOALLV", "scattered"), "gather_v": ("GATHERV", ""), "scatter_v": ("SCATTERV", "")}
MPICH_SHARED = ("BCAST", "REDUCE", "ALLREDUCE", "BARRIER")  # have release_gather, over shared memory

# Intel MPI's names, and the highest number of an algorithm.
INTEL = {"all_reduce": ("ALLREDUCE", 25), "reduce": ("REDUCE", 14), "broadcast": ("BCAST", 15),
         "reduce_scatter": ("REDUCE_SCATTER_BLOCK", 5), "all_gather": ("ALLGATHER", 6), "gather": ("GATHER", 4),
         "scatter": ("SCATTER", 4), "all_to_all": ("ALLTOALL", 5), "scan": ("SCAN", 2), "exscan": ("EXSCAN", 2),
         "barrier": ("BARRIER", 11), "all_gather_v": ("ALLGATHERV", 7), "reduce_scatter_v": ("REDUCE_SCATTER", 5),
         "all_to_all_v": ("ALLTOALLV", 4), "gather_v": ("GATHERV", 3), "scatter_v": ("SCATTERV", 2)}

# What is no collective in MPI, and the ways in which peer_bench.c does it.
MESSAGES = {"sendrecv": ("sendrecv",), "halo": ("isend", "neighbour")}
KNOWN = (*TUNED, *MESSAGES)


def variants_of(peer: Peer, collective: str, crowded: bool, cluster: bool) -> list[Variant]:
    """All that is to be tried. `crowded`: more ranks than cores. A list is one all-reduce on a flat buffer."""
    if peer.ours:
        return ours(collective, crowded, cluster)
    if peer.kind == "python":
        return [Variant("buckets as DDP makes them" if peer.name == "torch_ddp" else "RING in a tf.function")]
    what = "all_reduce" if collective == "list" else collective
    if what in MESSAGES:
        return [Variant(f"{way}, {name}", launch) for way in MESSAGES[what] for name, launch in waiting(peer, crowded, cluster).items()]
    return {"openmpi": open_mpi, "mpich": mpich, "intel": intel}[peer.kind](what, crowded, cluster)


LISTS = ("batch", "each", "flat", "strategy")  # ways that ours has with a list


def ours(collective: str, crowded: bool, cluster: bool) -> list[Variant]:
    names = LISTS if collective == "list" else ("plain",)
    bound = [] if crowded or cluster else [Launch(as_it_comes=True)]
    return [Variant(name, launch) for name in names for launch in [Launch(), *bound]]


def waiting(peer: Peer, crowded: bool, cluster: bool) -> dict[str, Launch]:
    """How ranks wait, and how messages within a node go."""
    if peer.kind == "openmpi":
        found = {} if crowded or cluster else {"as it comes": AS_IT_COMES.launch}
        return found | {"yielding": Launch(), "without single copy": Launch(mca=tuple((f"btl_{name}_single_copy_mechanism", "none") for name in ("vader", "sm")))}
    if peer.kind == "mpich":
        yields = (("MPIR_CVAR_ENABLE_HEAVY_YIELD", "1"), ("MPIR_CVAR_POLLS_BEFORE_YIELD", "1"))
        return {"as it comes": AS_IT_COMES.launch} | ({"yielding": Launch(environment=yields)} if crowded else {})
    found = {"sched_yield": Launch(environment=(("I_MPI_THREAD_YIELD", "3"),))}
    return found | ({"short sleep": Launch(environment=(("I_MPI_THREAD_YIELD", "2"),))} if crowded else {"as it comes": AS_IT_COMES.launch, "unbound": Launch()})


def open_mpi(collective: str, crowded: bool, cluster: bool) -> list[Variant]:
    name, algorithms, segmented = TUNED[collective]
    dynamic = Launch(mca=(("coll_tuned_use_dynamic_rules", "1"),))
    found = [] if crowded or cluster else [AS_IT_COMES]
    found.append(Variant("default", dynamic))
    for number in range(1, algorithms + 1):
        algorithm = (f"coll_tuned_{name}_algorithm", number)
        found.append(Variant(f"tuned:{number}", dynamic, (algorithm,)))
        if number in segmented:
            found += [Variant(f"tuned:{number}:{size >> 10}K", dynamic,
                              (algorithm, (f"coll_tuned_{name}_algorithm_segmentsize", size)), 2 * size) for size in SEGMENTS]
    components = ("han", "adapt") if cluster else ("han", "sm", "adapt")
    return found + [Variant(each, Launch(mca=((f"coll_{each}_priority", "100"),))) for each in components]


def mpich(collective: str, crowded: bool, _cluster: bool) -> list[Variant]:
    name, algorithms = MPICH[collective]
    yields = (("MPIR_CVAR_ENABLE_HEAVY_YIELD", "1"), ("MPIR_CVAR_POLLS_BEFORE_YIELD", "1")) if crowded else ()
    found = [AS_IT_COMES]
    found += [Variant("yielding", Launch(environment=yields))] if crowded else []
    found += [Variant(each, Launch(environment=(*yields, (f"MPIR_CVAR_{name}_INTRA_ALGORITHM", each),
                                                (f"MPIR_CVAR_{name}_DEVICE_COLLECTIVE", "0")))) for each in algorithms.split()]
    if name in MPICH_SHARED:
        found.append(Variant("release_gather", Launch(environment=(
            *yields, (f"MPIR_CVAR_{name}_POSIX_INTRA_ALGORITHM", "release_gather")))))
    return found


def intel(collective: str, crowded: bool, _cluster: bool) -> list[Variant]:
    name, algorithms = INTEL[collective]
    yields = (("I_MPI_THREAD_YIELD", "3"),) if crowded else ()
    found = [Variant("default, sched_yield", Launch(environment=(("I_MPI_THREAD_YIELD", "3"),)))]
    found += [Variant("default, short sleep", Launch(environment=(("I_MPI_THREAD_YIELD", "2"),)))] if crowded else [AS_IT_COMES]
    found += [] if crowded else [Variant("default, unbound")]
    return found + [Variant(f"adjust:{number}", Launch(environment=(*yields, (f"I_MPI_ADJUST_{name}", str(number)))))
                    for number in range(1, algorithms + 1)]
