#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Each layer includes only what lies below it, through however many headers of ours. One planted violation per layer
shows that the judge sees it.
"""
import concurrent.futures
import functools
import os
import re
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "support"))
import cases  # noqa: E402

sys.path.insert(0, os.path.dirname(__file__))
import class_sizes  # noqa: E402

parser = cases.parser(__doc__, "build", "source", "compiler")
parser.add_argument("--headers", choices=["changed", "all"], default="changed", help="that are compiled alone: of the last day's commits, or all")
given = parser.parse_args()

# Folder of a source file -> the folders and vendors it may include. The longest folder that fits counts. The folder
# collectives itself is the pure half.
BASE = {"topology/base", "topology"}
COLLECTIVES = {"collectives", "collectives/gpu", "collectives/nccl", "collectives/kernels", "collectives/node", "collectives/engine", "collectives/communicator"}
LAYERS = {
    "topology/base": {"topology/base"},
    "topology": BASE,
    "topology/secret": {"topology/base", "topology/secret", "openssl"},
    "topology/machine": BASE | {"topology/machine", "hwloc", "cuda", "nccl"},
    "topology/machine/mpi": BASE | {"topology/machine", "topology/machine/mpi", "mpi"},
    "collectives": BASE | {"collectives"},
    "collectives/gpu": BASE | {"collectives", "collectives/gpu", "cuda"},
    "collectives/nccl": BASE | {"collectives", "collectives/gpu", "collectives/nccl", "cuda", "nccl"},
    "collectives/kernels": {"topology/base", "collectives", "collectives/kernels", "highway"},
    "collectives/node": BASE | {"collectives", "collectives/gpu", "collectives/kernels", "collectives/node"},
    "collectives/engine": BASE | {"collectives", "collectives/gpu", "collectives/kernels", "collectives/node", "collectives/engine"},
    "collectives/communicator": BASE | COLLECTIVES,
    "collectives/tcp": BASE | COLLECTIVES | {"topology/secret", "collectives/tcp"},
    "collectives/ucx": BASE | COLLECTIVES | {"topology/secret", "collectives/ucx", "ucx"},
    "collectives/mpi": BASE | COLLECTIVES | {"topology/secret", "collectives/tcp", "topology/machine", "topology/machine/mpi", "collectives/mpi", "mpi"},
    "runtime/cluster": BASE | {"collectives", "collectives/gpu", "runtime/cluster", "json"},
    "runtime/values": BASE | {"collectives", "runtime/values"},
    "runtime/data": BASE | {"collectives", "runtime/values", "runtime/data"},
    "runtime/data/files": BASE | {"collectives", "runtime/values", "runtime/data", "runtime/data/files", "zlib"},
    "runtime/rpc": BASE | {"topology/secret", "collectives", "runtime/cluster", "runtime/values", "runtime/rpc", "grpc"},
    "runtime/train/compute": {"topology/base", "runtime/train/compute", "highway"},
    "runtime": BASE | COLLECTIVES | {"topology/machine", "topology/secret", "collectives/tcp", "collectives/ucx", "runtime", "runtime/cluster", "runtime/values", "runtime/data", "runtime/data/files", "runtime/rpc"},
    "runtime/train": BASE | COLLECTIVES | {"topology/machine", "topology/secret", "runtime", "runtime/cluster", "runtime/values", "runtime/data", "runtime/data/files", "runtime/rpc", "runtime/train", "runtime/train/compute"},
    "bindings": BASE | COLLECTIVES | {"topology/machine", "topology/secret", "runtime", "runtime/cluster", "runtime/values", "runtime/data", "runtime/data/files", "runtime/rpc", "runtime/train", "runtime/train/compute", "bindings"},
    "tools": BASE | COLLECTIVES | {"collectives/simulated", "topology/machine", "runtime", "runtime/cluster", "runtime/values", "runtime/data", "runtime/data/files", "runtime/train", "runtime/train/compute", "bench", "bench/mpi", "tools", "boost", "json"},
    "collectives/simulated": BASE | {"collectives", "collectives/gpu", "collectives/kernels", "collectives/node", "collectives/engine", "collectives/simulated"},
    "bench": BASE | COLLECTIVES | {"collectives/simulated", "topology/machine", "runtime", "runtime/cluster", "runtime/values", "runtime/data", "runtime/train", "runtime/train/compute", "bench", "json"},
    "bench/mpi": BASE | COLLECTIVES | {"topology/machine", "topology/machine/mpi", "bench", "bench/mpi", "mpi"},
    "bench/peer": BASE | COLLECTIVES | {"topology/machine", "topology/secret", "runtime", "runtime/cluster", "runtime/values", "runtime/data", "runtime/data/files", "runtime/rpc", "runtime/train", "runtime/train/compute", "bindings", "bench/peer", "mpi"},
    "examples": BASE | COLLECTIVES | {"topology/machine", "topology/secret", "runtime", "runtime/cluster", "runtime/values", "runtime/data", "runtime/data/files", "runtime/rpc", "runtime/train", "runtime/train/compute", "bindings", "mpi"},
}

VENDORS = {
    "mpi": re.compile(r"/(mpi|mpi-ext|mpif-.*|mpi_portable_platform)\.h$|/(openmpi|mpich)/"),
    "hwloc": re.compile(r"/hwloc(\.h$|/)"),
    "cuda": re.compile(r"/(cuda|cuda_runtime|cuda_runtime_api|driver_types|device_types)\.h$"),
    "nccl": re.compile(r"/nccl[^/]*\.h$"),
    "highway": re.compile(r"/hwy/"),
    "boost": re.compile(r"/boost/"),
    "json": re.compile(r"/nlohmann/"),
    "grpc": re.compile(r"/(grpc|grpcpp|google/protobuf)/"),
    "openssl": re.compile(r"/openssl/"),
    "zlib": re.compile(r"/zlib\.h$"),
    "ucx": re.compile(r"/(ucp|ucs|uct|ucm)/"),
    "gtest": re.compile(r"/g(test|mock)/"),
}
TOP = ("topology", "collectives", "runtime", "runtime/cluster", "runtime/values", "runtime/data", "runtime/data/files", "runtime/rpc", "runtime/train", "runtime/train/compute", "bindings", "bench", "tools", "examples", "tests")


def layer_of(path):
    """The longest layer whose folder holds the path; nothing for what is not ours to judge."""
    fitting = [layer for layer in LAYERS if path.startswith(layer + "/")]
    return max(fitting, key=len) if fitting else None


def kind_of(header):
    """What an included file is: a layer of ours, a vendor, or nothing of interest."""
    real = os.path.realpath(header)
    inside = os.path.relpath(real, os.path.realpath(given.source))
    if inside.split("/")[0] in TOP:
        return "tests" if inside.startswith("tests/") else layer_of(inside)
    for vendor, pattern in VENDORS.items():
        if pattern.search(header) or pattern.search(real):
            return vendor
    return None


def violations(source, headers):
    layer = layer_of(source)
    if layer is None:
        return []
    wrong = []
    for header in headers:
        kind = kind_of(header)
        if kind is not None and kind not in LAYERS[layer]:
            wrong.append(f"{source} includes {header}: the layer {layer} may not see {kind}")
    return wrong


def text_of(path):
    with open(os.path.join(given.source, path), encoding="utf-8") as file:
        return file.read()


INCLUDE = re.compile(r'^\s*#\s*include\s*(?:"([^"]+)"|<([^>]+)>)', re.M)


@functools.cache
def includes_of(path):
    """What a file of ours includes by its text, each as a path: of ours from the source's root, of vendors with a slash
    before its name."""
    all_of_it = []
    for ours, theirs in INCLUDE.findall(text_of(path)):
        if theirs:
            all_of_it.append("/" + theirs)
        else:
            inside = [each for each in (ours, os.path.join(os.path.dirname(path), ours), os.path.join("bindings", ours))
                      if os.path.isfile(os.path.join(given.source, each))]
            all_of_it += inside[:1]
    return all_of_it


def reached(source):
    """All that a file includes, through however many headers of ours."""
    found, rest = set(), [source]
    while rest:
        for each in includes_of(rest.pop()):
            if each not in found:
                found.add(each)
                if not each.startswith("/"):
                    rest.append(each)
    return [each if each.startswith("/") else os.path.join(given.source, each) for each in sorted(found)]


def listed(*patterns):
    return subprocess.run(["git", "-C", given.source, "ls-files", *patterns], capture_output=True, text=True, check=False).stdout.split()


def judged():
    """(source, headers) of every file that is compiled. Not from compilers' records: they compile several files as one."""
    return [(source, reached(source)) for source in listed("*.cpp", "*.cu")]


def first_include(source):
    path = os.path.join(given.source, source)
    if not os.path.isfile(path):
        return None
    with open(path, encoding="utf-8") as file:
        found = re.search(r'^#include ["<](.*)[">]$', file.read(), re.M)
    return found.group(1) if found else None


def changed_lately():
    """Files that the last day's commits change; nothing if no commit is older, and git knows no difference."""
    def git(*words):
        return subprocess.run(["git", "-C", given.source, *words], capture_output=True, text=True, check=False).stdout.split()
    before = git("rev-list", "-1", "--before=24 hours ago", "HEAD")
    return set(git("diff", "--name-only", *before, "HEAD")) if before else None


def flags_of_users():
    """Of a program that includes our headers and MPI's."""
    flags = ["-std=c++20", "-I", given.source, "-I", os.path.join(given.source, "bindings")]
    for package in ("ompi-c", "mpich", "hwloc"):
        found = subprocess.run(["pkg-config", "--cflags", package], capture_output=True, text=True, check=False)
        if found.returncode == 0:
            flags += found.stdout.split()
            if package == "ompi-c":
                break
    return flags


def lines_of(*headers):
    """How many lines a program has that includes these, after the preprocessor."""
    text = "".join(f"#include <{header}>\n" for header in headers)
    done = subprocess.run([given.compiler, *flags_of_users(), "-DOMPI_SKIP_MPICXX", "-DMPICH_SKIP_MPICXX", "-E", "-P", "-x", "c++", "-"], input=text, capture_output=True, text=True, check=True)
    return done.stdout.count("\n")


def compile_and_judge(layer, text, really=False):
    """Preprocesses, or really compiles, a planted source as if it lay in the layer, and judges it."""
    with tempfile.TemporaryDirectory() as folder:
        source = os.path.join(folder, "planted.cpp")
        depfile = os.path.join(folder, "planted.d")
        with open(source, "w", encoding="utf-8") as file:
            file.write(text)
        flags = flags_of_users()
        how = ["-fsyntax-only", "-MD"] if really else ["-M"]
        subprocess.run([given.compiler, *flags, *how, "-MF", depfile, source], check=True)
        with open(depfile, encoding="utf-8") as file:
            words = file.read().replace("\\\n", " ").split()[2:]
        return violations(f"{layer}/planted.cpp", words)


SECONDS_FOR_CHANGED = 45


def compiles_alone(header, ends):
    """False if the time was over before."""
    if time.monotonic() > ends:
        return False
    compile_and_judge("bindings", f"#include \"{header}\"\n", really=True)
    return True


# What waits for all work on a GPU, also for other people's. Freeing does, too, so it is for ends.
WAITS_FOR_ALL = re.compile(r"\b(cudaDeviceSynchronize|cudaThreadSynchronize|cudaDeviceReset|cuCtxSynchronize|cuDevicePrimaryCtxReset)(_v\d+)?\s*\(")


def waits_for_all(texts):
    return [f"{file}:{number}: {line.strip()}" for file, content in texts.items() for number, line in enumerate(content.splitlines(), 1) if WAITS_FOR_ALL.search(line)]


TYPE = re.compile(r"^(?:struct|class|enum class|enum)\s+(?:alignas\([^)]*\)\s+)?(\w+)(?!\w*<)[^;]*$")


def defined_types(texts):
    """Name with namespaces -> the files that define such a type for all to see. Linkers take any one of two types of a
    name for both, and say nothing."""
    where = {}
    for file, content in texts.items():
        scopes = []
        for line in content.splitlines():
            opened = re.match(r"^namespace\s*([\w:]*)\s*{", line)
            if opened:
                scopes.append(opened.group(1) or None)
            elif re.match(r"^}\s*// namespace", line) and scopes:
                scopes.pop()
            elif None not in scopes and (named := TYPE.match(line)) and "::" not in line.split("{")[0].split(" final")[0].split(" :")[0]:
                where.setdefault("::".join([*scopes, named.group(1)]), set()).add(file)
    return where


def defined_twice(texts):
    return {name: sorted(files) for name, files in defined_types(texts).items() if len(files) > 1}


class Names(unittest.TestCase):
    def test_no_two_types_have_one_name(self):
        files = listed("*.hpp", "*.cpp")
        if not files:
            self.skipTest("git, which lists the files")
        texts = {file: text_of(file) for file in files}
        self.assertGreater(len(defined_types(texts)), 100)
        self.assertEqual(defined_twice(texts), {})

    def test_a_second_one_is_seen(self):
        one = "namespace a {\nstruct Part {\n  int x;\n};\n}  // namespace a\n"
        hidden = "namespace a {\nnamespace {\nstruct Part {};\n}  // namespace\n}  // namespace a\n"
        self.assertEqual(defined_twice({"1.hpp": one, "2.hpp": one.replace("Part {", "Part final : Base {")}), {"a::Part": ["1.hpp", "2.hpp"]})
        special = "namespace a {\ntemplate <>\nstruct Part<int> {\n  int x;\n};\n}  // namespace a\n"
        self.assertEqual(defined_twice({"1.hpp": one, "2.hpp": special}), {}, "a specialisation is no type of that name")
        self.assertEqual(defined_twice({"1.hpp": one, "2.cpp": hidden, "3.hpp": one.replace(" a ", " b "), "4.hpp": "namespace a {\nstruct Part;\n}  // namespace a\n"}), {})


# Interfaces, whose functions are mostly one line: collectives, a variable's and a topology's verbs, drivers.
LARGE_INTERFACES = set("""
    AnyTensor Blocks Callback Collectives Communicator CudaBackend Dataset DeviceBackend DevicePath Engine Extended ForwardingTransport Functions
    ReplicaContext ReplicaGroup Session Settings SimulatedNetwork Strategy TcpTransport Topology Transport UcxFunctions Variable
    """.split())


class Classes(unittest.TestCase):
    def test_no_other_class_is_over_the_limit(self):
        files = [file for file in listed("*.hpp", "*.cpp") if file.split("/")[0] in TOP and not file.startswith(("tests/", "examples/"))]
        if not files:
            self.skipTest("git, which lists the files")
        large = {size.name: f"{size} in {file}"
                 for file in files for size in class_sizes.classes(class_sizes.blank(text_of(file))) if size.is_too_large()}
        self.assertEqual([each for name, each in large.items() if name not in LARGE_INTERFACES], [])
        self.assertEqual(LARGE_INTERFACES - large.keys(), set(), "no longer over the limit: take them out of the list")

    def test_members_of_a_class_are_counted(self):
        text = """namespace a {
class Part final : public Base<int> {
 public:
  Part() : here_{1} {}
  explicit Part(int x);
  Part& operator=(const Part&) = delete;
  int first() const { return f({1}); }
  template <class F>
  auto second(const F& f) -> std::map<int, F>;
 private:
  struct State {
    int x = 0;
    std::array<int, 2> y = {};
  };
  void third(std::function<void(int)> f = {});
  std::function<void(int)> called_;
  State state_;
  int here_{1};
  static constexpr int most = 3;
};
}  // namespace a
"""
        part = next(size for size in class_sizes.classes(text) if size.name == "Part")
        self.assertEqual((part.public, part.private, part.members), (2, 1, 5))


class Waiting(unittest.TestCase):
    def test_nobody_waits_for_a_whole_gpu(self):
        patterns = [f"*.{ending}" for ending in ("hpp", "cpp", "cu", "cuh", "h", "c")]
        files = [file for file in listed(*patterns) if file.split("/")[0] in TOP and not file.startswith("tests/")]
        if not files:
            self.skipTest("git, which lists the files")
        texts = {file: text_of(file) for file in files}
        self.assertIn("collectives/gpu/cuda_backend.cpp", texts)
        self.assertIn("collectives/gpu/kernels.cu", texts)
        self.assertEqual(waits_for_all(texts), [])

    def test_a_wait_for_a_whole_gpu_is_reported(self):
        planted = {"1.cpp": "void f() {\n  if (cudaDeviceSynchronize() != cudaSuccess) g();\n}\n", "2.cu": "cuCtxSynchronize_v2 ();\n", "3.cpp": "cudaStreamSynchronize(stream);\n"}
        self.assertEqual(waits_for_all(planted), ["1.cpp:2: if (cudaDeviceSynchronize() != cudaSuccess) g();", "2.cu:1: cuCtxSynchronize_v2 ();"])


class Layers(unittest.TestCase):
    def test_no_file_includes_a_layer_above_its_own(self):
        entries = [entry for entry in judged() if layer_of(entry[0])]
        if not entries:
            self.skipTest("git, which lists the files")
        built = {layer_of(source) for source, _ in entries}
        self.assertLessEqual({"topology/base", "topology", "topology/machine", "topology/machine/mpi", "collectives", "tools", "collectives/kernels",
                              "collectives/node", "collectives/engine", "collectives/communicator", "collectives/mpi", "runtime/cluster", "runtime/values", "runtime/rpc"}, built)
        wrong = [each for source, headers in entries for each in violations(source, headers)]
        self.assertEqual(wrong, [])

    def test_a_planted_violation_is_seen_in_every_layer(self):
        planted = {
            "topology/base": "#include \"topology/topology.hpp\"",
            "topology": "#include <hwloc.h>",
            "topology/secret": "#include \"topology/topology.hpp\"",
            "topology/machine": "#include \"collectives/spec.hpp\"",
            "topology/machine/mpi": "#include <boost/program_options.hpp>",
            "collectives": "#include \"collectives/engine/transport.hpp\"",
            "collectives/gpu": "#include \"collectives/engine/transport.hpp\"",
            "collectives/nccl": "#include \"collectives/engine/transport.hpp\"",
            "collectives/kernels": "#include \"topology/machine/session.hpp\"",
            "collectives/node": "#include \"collectives/engine/transport.hpp\"",
            "collectives/engine": "#include <mpi.h>",
            "collectives/simulated": "#include \"collectives/communicator/call_request.hpp\"",
            "collectives/tcp": "#include <ucp/api/ucp.h>",
            "collectives/ucx": "#include <mpi.h>",
            "collectives/mpi": "#include <boost/program_options.hpp>",
            "collectives/communicator": "#include \"topology/machine/session.hpp\"",
            "runtime/cluster": "#include \"collectives/engine/transport.hpp\"",
            "runtime/values": "#include \"collectives/engine/transport.hpp\"",
            "runtime/data": "#include \"runtime/strategy.hpp\"",
            "runtime/data/files": "#include \"runtime/strategy.hpp\"",
            "runtime/rpc": "#include \"runtime/strategy.hpp\"",
            "runtime/train/compute": "#include \"runtime/values/tensor.hpp\"",
            "runtime/train": "#include <hwy/highway.h>",
            "runtime": "#include <grpcpp/grpcpp.h>",
            "bindings": "#include <nlohmann/json.hpp>",
            "tools": "#include <mpi.h>",
            "bench/mpi": "#include <nlohmann/json.hpp>",
            "bench/peer": "#include <nlohmann/json.hpp>",
            "bench": "#include \"tools/lockstep/command.hpp\"",
            "examples": "#include <nlohmann/json.hpp>",
        }
        self.assertEqual(planted.keys(), LAYERS.keys(), "one for every layer")
        for layer, text in planted.items():
            with self.subTest(layer=layer):
                found = compile_and_judge(layer, text + "\n")
                self.assertTrue(found, f"{text} in {layer} went unseen")
                self.assertIn(f"{layer}/planted.cpp includes", found[0])
                self.assertIn(f"the layer {layer} may not see", found[0])

    def test_allowed_includes_are_not_reported(self):
        self.assertEqual(compile_and_judge("collectives", "#include \"collectives/spec.hpp\"\n#include \"topology/group.hpp\"\n#include <vector>\n"), [])
        self.assertEqual(compile_and_judge("topology/machine/mpi", "#include <mpi.h>\n"), [])
        self.assertEqual(compile_and_judge("collectives/mpi", "#include \"collectives/mpi/transport.hpp\"\n"), [])

    def test_no_header_of_tests_takes_the_place_of_the_products(self):
        # Meson lets a program of tests include "collectives/x.hpp" from tests/ before the product's.
        self.assertEqual([header for header in listed("tests/*.hpp") if os.path.exists(os.path.join(given.source, header.removeprefix("tests/")))], [])

    def test_public_headers_stay_light(self):
        # Lines stand for seconds, which a busy machine does not measure: 1.05 and 1.26 times in 2026-11, and about 1.3 and 2.2 times the seconds.
        least = lines_of("mpi.h", "vector", "string", "memory", "functional", "span")
        for header, most in (("lockstep/collectives.hpp", 1.1), ("lockstep.hpp", 1.32)):
            self.assertLess(lines_of(header) / least, most, f"{header}: `g++ -H` shows which header it reaches now")

    def test_every_header_of_ours_compiles_alone(self):
        headers = [header for header in listed("*.hpp") if header.split("/")[0] in TOP and not header.startswith("tests/")]
        if not headers:
            self.skipTest("git, which lists the headers")
        # With -Dunity=off, as clang-tidy compiles what has changed, each of these is compiled so.
        shown = {first_include(source) for source in listed("*.cpp")}
        self.assertGreater(len(shown), 100)
        lately = changed_lately() if given.headers == "changed" else None
        headers = [header for header in headers if header not in shown and (lately is None or header in lately)]
        # After a day that changed every header there is no time for all; the night has it.
        ends = time.monotonic() + (SECONDS_FOR_CHANGED if given.headers == "changed" else 10_000)
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as workers:
            compiled = {header: workers.submit(compiles_alone, header, ends) for header in headers}
            for header, result in compiled.items():
                with self.subTest(header=header):
                    result.result()
        late = sum(not result.result() for result in compiled.values() if not result.exception())
        if late:
            print(f"{late} of {len(headers)} changed headers were not compiled alone: their {SECONDS_FOR_CHANGED} s were over", file=sys.stderr)


cases.main(given.json)
