#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# `run numbers` and `run questions` of a bundle, with programs of the test's own in place of the packed ones: what it starts, with which
# words and surroundings, that MPS is started in a folder of its own and ended again, and what tools/gpu-bundle --nccl
# takes. No GPU is asked.
#   tests/gpu/bundle_numbers_test.sh
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
where=$(mktemp -d)
trap 'rm -rf "$where"' EXIT
failures=0

expect() {  # sentence, then a command that must succeed
  local sentence=$1
  shift
  if "$@" >"$where/expected" 2>&1; then return; fi
  echo "FAIL: $sentence" >&2
  head -n 20 "$where/expected" >&2
  failures=$((failures + 1))
}
equal() { if [[ $1 != "$2" ]]; then echo "$1 is not $2"; return 1; fi; }
lines() { grep -cE -- "$1" "$where/log" || true; }

program() { cat >"$1" && chmod +x "$1"; }
mkdir -p "$where"/bundle/bin "$where/mps" "$where/tmp"
cp "$here/bundle_run.sh" "$where/bundle/run"
printf '#!/bin/sh\n' | program "$where/bundle/bin/lockstep"
program "$where/bundle/bin/gpu-probe" <<'END'
#!/bin/sh
echo "probe $*" >>"$LOG"
exit "${PROBE_SAYS:-0}"
END
program "$where/bundle/bin/gpu-numbers" <<'END'
#!/bin/sh
echo "judged: $(cat "$1/no-mps.txt" 2>/dev/null)"
END
program "$where/bundle/bin/mpirun" <<'END'
#!/bin/sh
echo "bench $* mps=${CUDA_MPS_PIPE_DIRECTORY:+$([ -e "$CUDA_MPS_PIPE_DIRECTORY/control" ] && echo runs)} gpus=$CUDA_VISIBLE_DEVICES shared=$NCCL_MULTI_RANK_GPU_ENABLE libraries=$LD_LIBRARY_PATH" >>"$LOG"
while [ $# -gt 0 ]; do
  if [ "$1" = --json ]; then echo "${BENCH_SAYS:-{\}}" >"$2"; fi
  shift
done
if [ -n "${BENCH_TAKES:-}" ]; then sleep "$BENCH_TAKES"; fi
END
# As NVIDIA's: it listens in its folder until it is told to quit.
program "$where/mps/nvidia-cuda-mps-control" <<'END'
#!/bin/sh
pipe=$CUDA_MPS_PIPE_DIRECTORY
if [ "$1" = -f ]; then
  echo "mps begins gpus=${CUDA_VISIBLE_DEVICES:-all}" >>"$LOG"
  [ -z "$MPS_IS_DEAF" ] || exit 1
  : >"$pipe/control"
  for _ in $(seq 300); do [ -e "$pipe/quit" ] || sleep 0.1; done
  echo "mps ends" >>"$LOG"
else
  read -r word
  echo "mps is told to $word" >>"$LOG"
  : >"$pipe/quit"
fi
END
numbers() {  # into a new folder unless $out is set
  : >"$where/log"
  out=${out:-$(mktemp -d -p "$where")}
  LOG=$where/log TMPDIR=$where/tmp "$where/bundle/run" numbers "$out" "$@" >"$where/said" 2>&1
}

out="" CUDA_VISIBLE_DEVICES=3,4 PATH=$where/mps:$PATH
export CUDA_VISIBLE_DEVICES
expect "all parts are run" numbers
expect "the driver is asked first" equal "$(head -n 1 "$where/log")" "probe --only driver"
expect "the kernels are measured" equal "$(lines '^probe .*ours_combine,ours_pack')" 1
expect "one rank is measured beside NCCL" equal "$(lines '^bench -n 1 .*/one.json .*--baseline nccl')" 1
for many in 2 4 8; do
  for mps in "" -mps; do
    runs=$([ -z "$mps" ] || echo runs)
    expect "$many ranks$mps, by the best MPI, to 256 MiB" equal \
      "$(lines "^bench -n $many .*/shared$mps-$many.json --sizes 8,4K,64K,1M,16M,256M .*--baseline mpi:best mps=$runs gpus=3 ")" 1
    expect "$many ranks$mps, by NCCL, to 256 MiB" equal \
      "$(lines "^bench -n $many .*/shared-nccl$mps-$many.json --sizes 8,4K,64K,1M,16M,256M .*--baseline nccl mps=$runs gpus=3 shared=1 ")" 1
  done
done
expect "MPS serves all GPUs, one daemon for both parts, and ends" equal "$(grep '^mps' "$where/log")" \
  $'mps begins gpus=all\nmps is told to quit -t 5\nmps ends'
expect "nothing of MPS is left" equal "$(ls "$where/tmp")" ""
expect "there is no reason to be without MPS" equal "$(tail -n 1 "$where/said")" "judged: "

out=""
expect "parts are run as they are named" numbers mps-mpi one mpi
expect "MPS is ended before what is measured without it" equal "$(grep -oE '^mps [a-z]+|^bench -n [0-9]|mps=runs' "$where/log" | tr '\n' ' ')" \
  "mps begins bench -n 2 mps=runs bench -n 4 mps=runs bench -n 8 mps=runs mps is mps ends bench -n 1 bench -n 2 bench -n 4 bench -n 8 "
echo earlier | tee "$out/one.json" >"$out/shared-nccl-8.json"
expect "one part is run" numbers one
expect "what an earlier run has left of it goes" equal "$(cat "$out/one.json")" "{}"
expect "what it has left of others stays" equal "$(cat "$out/shared-nccl-8.json")" earlier
if numbers everything; then expect "an unknown part is refused" false; fi
expect "and it says which there are" grep -q 'what is "everything"? kernels, one, mpi, nccl, mps-mpi, mps-nccl' "$where/said"

out=""
BENCH_SAYS='{"settings":[{"name":"left out","value":"nccl: not there"}]}' expect "no NCCL" numbers nccl mps-nccl
expect "what two cannot is not tried with more" equal "$(lines '^bench')" 2

out=""
MPS_IS_DEAF=1 expect "an MPS that does not come" numbers mps-mpi mps-nccl
expect "nothing is measured without it" equal "$(lines '^bench')" 0
expect "and it says why" equal "$(tail -n 1 "$where/said")" \
  "judged: nvidia-cuda-mps-control was started and does not listen (mps.txt)"
expect "nothing of it is left" equal "$(ls "$where/tmp")" ""
out=""
PATH=${PATH#*:} expect "no MPS" numbers mps-mpi
expect "and it says so" equal "$(tail -n 1 "$where/said")" "judged: there is no nvidia-cuda-mps-control"

out=""
code=0
PROBE_SAYS=77 numbers || code=$?
expect "without a GPU it ends with 77" equal "$code" 77
expect "and measures nothing" equal "$(grep -c . "$where/log")" 1

: >"$where/log"
out=$(mktemp -d -p "$where")
code=0
PROBE_SAYS=6 LOG=$where/log "$where/bundle/run" questions "$out" >"$where/said" 2>&1 || code=$?
expect "questions end as the probe does" equal "$code" 6
expect "and are all of the probe's" equal "$(cat "$where/log")" "probe --json $out/questions.json --markdown $out/questions.md"

# Ended in the middle, it leaves no daemon.
: >"$where/log"
out=$(mktemp -d -p "$where")
BENCH_TAKES=3 LOG=$where/log TMPDIR=$where/tmp "$where/bundle/run" numbers "$out" mps-mpi >"$where/said" 2>&1 &
process=$!
for _ in $(seq 100); do grep -q '^bench' "$where/log" && break; sleep 0.1; done
kill -TERM "$process"
code=0
wait "$process" || code=$?
expect "ended by a signal, it says so" equal "$code" 143
expect "and ends MPS" equal "$(tail -n 1 "$where/log")" "mps ends"
expect "and leaves nothing of it" equal "$(ls "$where/tmp")" ""

# A packed NCCL goes before others.
mkdir "$where/bundle/nccl"
: >"$where/bundle/nccl/libnccl.so.2"
out=""
LD_LIBRARY_PATH=/elsewhere expect "a packed NCCL" numbers one
expect "it is the first" equal "$(lines "libraries=$where/bundle/nccl:$where/bundle/lib:/elsewhere")" 1

refuses() {  # words, then what tools/gpu-bundle is given
  local words=$1
  shift
  if "$here/../../tools/gpu-bundle" --build "$where/tmp" "$@" "$where/packed" >"$where/expected.too" 2>&1; then return 1; fi
  cat "$where/expected.too"
  grep -qF -- "$words" "$where/expected.too"
}
library() { echo "int ncclGetVersion(int* version) { *version = $1; return 0; }" | "${CC:-cc}" -x c -shared -fPIC -o "$where/libnccl-$1.so" -; }
library 22907
library 23001
echo "no library" >"$where/none.so"
expect "--nccl wants a file" refuses "there is no file" --nccl "$where/nothing"
expect "--nccl wants a library" refuses "is no NCCL that can be loaded" --nccl "$where/none.so"
expect "--nccl wants a new one" refuses "is NCCL 2.29; several processes on one GPU need 2.30 or newer" --nccl "$where/libnccl-22907.so"
# Refused for what comes behind it: a build that is none.
expect "--nccl takes 2.30" refuses "build it first" --nccl "$where/libnccl-23001.so"

if ((failures > 0)); then echo "bundle_numbers_test: $failures checks failed" >&2; exit 1; fi
echo "well"
