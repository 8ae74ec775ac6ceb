#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What is packed here, with what it needs. Only the shell itself is used; where `timeout` and `date` are, each step has
# an end, and all of them by nine minutes.
#   run tests OUT      the tests that use GPUs, the kernels also under compute-sanitizer; OUT/results.json
#   run numbers OUT [PART ...]   what is asked for of GPUs, measured and judged; OUT/numbers.json. All parts unless some
#       are named: kernels, one, mpi, nccl, mps-mpi, mps-nccl. What an earlier run has left of others is judged with them.
#   run questions OUT  all questions of the probe, each in a process of its own; OUT/questions.json and .md
#   run lockstep ..., run mpirun ..., run gpu-probe ...
# Exit status of tests: 1 something failed. Of numbers: 3 something was missed; of it and of
# questions: 77 no GPU, 6 a driver that does not work.
here=$(CDPATH="" cd -- "${0%/*}" && pwd) || exit 1
[ $# -gt 0 ] || { echo "run: what? tests OUT, numbers OUT, questions OUT, lockstep ..., mpirun ..., gpu-probe ..." >&2; exit 1; }
export PATH="$here/bin:$PATH" OPAL_PREFIX="$here" OMPI_MCA_mca_base_component_path="$here/plugins"
export PMIX_INSTALL_PREFIX="$here/pmix" PMIX_MCA_pcompress_base_silence_warning=1
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
# One machine needs no way to others, but Open MPI wants one to be there.
command -v ssh >/dev/null 2>&1 || export OMPI_MCA_plm_rsh_agent=/bin/sh
# Python's packages bring an NCCL of their own, which the loader does not know.
nccl=""
if command -v python3 >/dev/null 2>&1; then
  nccl=$(python3 -c 'import glob, os, sys
found = [each for folder in sys.path for each in glob.glob(folder + "/nvidia/nccl/lib/libnccl.so.2")]
print(os.path.dirname(found[0]) if found else "")' 2>/dev/null)
fi
found="${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}${nccl:+:$nccl}"
libraries="$here/lib$found"
# One that was packed was asked for.
if [ -e "$here/nccl/libnccl.so.2" ]; then libraries="$here/nccl:$libraries"; fi
# An older C library than the build's cannot start it: then this one goes first for all.
if ! LD_LIBRARY_PATH="$libraries" "$here/bin/lockstep" --version >/dev/null 2>&1; then
  libraries="$here/glibc:$libraries"
fi
what=$1
if [ "$what" != tests ] && [ "$what" != numbers ] && [ "$what" != questions ]; then LD_LIBRARY_PATH="$libraries" exec "$@"; fi

out=${2:-}
[ -n "$out" ] && [ -d "$out" ] || { echo "run $what: name a folder for the results that is there" >&2; exit 1; }
now() { if command -v date >/dev/null 2>&1; then date +%s; else echo 0; fi; }
deadline=$(($(now) + 530))
has_limits=""
if command -v timeout >/dev/null 2>&1 && [ "$(now)" != 0 ]; then has_limits=yes; fi
export LD_LIBRARY_PATH="$libraries"
# At most so many seconds, and no more than are left; its output goes to a file. 124: it was ended.
limited() {
  seconds=$1 output=$2
  shift 2
  if [ -z "$has_limits" ]; then "$@" >"$output" 2>&1; return; fi
  left=$((deadline - $(now)))
  if [ "$left" -lt 5 ]; then echo "there was no time left for it" >"$output"; return 124; fi
  if [ "$seconds" -gt "$left" ]; then seconds=$left; fi
  timeout -k 5 "$seconds" "$@" >"$output" 2>&1
}

if [ "$what" = questions ]; then
  code=0
  limited 520 "$out/questions.txt" gpu-probe --json "$out/questions.json" --markdown "$out/questions.md" || code=$?
  while IFS= read -r line; do printf '%s\n' "$line"; done <"$out/questions.txt"
  exit "$code"
fi

# A control daemon of MPS of our own, in a folder of its own: it changes nothing of the GPU, and ends with us.
mps_process="" mps_folder=""
why_no_mps() { echo "$1" >"$out/no-mps.txt"; echo "numbers: without MPS: $1"; }
start_mps() {
  [ -z "$mps_process" ] || return 0
  for tool in nvidia-cuda-mps-control mktemp sleep rm timeout; do
    command -v "$tool" >/dev/null 2>&1 || { why_no_mps "there is no $tool"; return 1; }
  done
  mps_folder=$(mktemp -d) || { why_no_mps "no folder can be made for it"; return 1; }
  export CUDA_MPS_PIPE_DIRECTORY="$mps_folder" CUDA_MPS_LOG_DIRECTORY="$mps_folder"
  (unset CUDA_VISIBLE_DEVICES && exec nvidia-cuda-mps-control -f) >"$out/mps.txt" 2>&1 &
  mps_process=$!
  for second in 1 2 3 4 5; do
    [ -e "$mps_folder/control" ] || sleep 1
  done
  if [ -e "$mps_folder/control" ] && kill -0 "$mps_process" 2>/dev/null; then return 0; fi
  stop_mps
  why_no_mps "nvidia-cuda-mps-control was started and does not listen (mps.txt)"
  return 1
}
stop_mps() {
  [ -n "$mps_process" ] || return 0
  echo quit -t 5 | timeout 15 nvidia-cuda-mps-control >>"$out/mps.txt" 2>&1 || true
  for second in 1 2 3 4 5; do
    ! kill -0 "$mps_process" 2>/dev/null || sleep 1
  done
  kill -9 "$mps_process" 2>/dev/null || true
  wait "$mps_process" 2>/dev/null || true
  rm -rf "$mps_folder"
  unset CUDA_MPS_PIPE_DIRECTORY CUDA_MPS_LOG_DIRECTORY
  mps_process=""
}

if [ "$what" = numbers ]; then
  shift 2
  parts="${*:-kernels one mpi nccl mps-mpi mps-nccl}"
  # What an earlier run has left of these is not to be judged.
  for part in $parts; do
    case $part in
      kernels) set -- gpu-probe.json ;;
      one) set -- one.json ;;
      mpi) set -- shared-2.json shared-4.json shared-8.json ;;
      nccl) set -- shared-nccl-2.json shared-nccl-4.json shared-nccl-8.json ;;
      mps-mpi) set -- no-mps.txt shared-mps-2.json shared-mps-4.json shared-mps-8.json ;;
      mps-nccl) set -- no-mps.txt shared-nccl-mps-2.json shared-nccl-mps-4.json shared-nccl-mps-8.json ;;
      *) echo "run numbers: what is \"$part\"? kernels, one, mpi, nccl, mps-mpi, mps-nccl" >&2; exit 1 ;;
    esac
    for name in "$@"; do [ ! -e "$out/$name" ] || : >"$out/$name"; done
  done
  code=0
  limited 40 "$out/gpu-driver.txt" gpu-probe --only driver || code=$?
  case $code in
    77 | 6) gpu-numbers "$out" || true; echo "numbers: $([ "$code" = 77 ] && echo "there is no GPU to measure" || echo "the GPU's driver does not work"); see $out/gpu-driver.txt"; exit "$code" ;;
  esac
  # One GPU for all; NCCL is asked for there where it bears that.
  visible=${CUDA_VISIBLE_DEVICES:-0}
  export CUDA_VISIBLE_DEVICES="${visible%%,*}" NCCL_MULTI_RANK_GPU_ENABLE=1
  # bench SECONDS NAME RANKS, then options
  bench() {
    seconds=$1 name=$2 ranks=$3
    shift 3
    limited "$seconds" "$out/$name.txt" mpirun -n "$ranks" --oversubscribe lockstep bench all_reduce --device gpu -w 2 \
      --json "$out/$name.json" "$@" || true
    echo "numbers: $name: done"
    gpu-numbers "$out" >"$out/numbers.txt" || true
  }
  sizes=8,4K,64K,1M,16M,256M
  beside_mpi() {
    for many in 2 4 8; do bench 170 "$1-$many" "$many" --sizes "$sizes" --seconds 0.1 --baseline mpi:best; done
  }
  # Apart, because kernels of several processes that wait for each other may hang; and not where two cannot.
  beside_nccl() {
    for many in 2 4 8; do
      bench 60 "$1-$many" "$many" --sizes "$sizes" --seconds 0.3 --baseline nccl
      [ -s "$out/$1-2.json" ] || return 0
      while IFS= read -r line; do
        case $line in *'"left out","value":"nccl'*) return 0 ;; esac
      done <"$out/$1-2.json"
    done
  }
  trap stop_mps EXIT
  trap 'exit 143' TERM
  trap 'exit 130' INT
  for part in $parts; do
    case $part in mps-*) ;; *) stop_mps ;; esac
    case $part in
      kernels) limited 100 "$out/gpu-probe.txt" gpu-probe --only driver,rate_device,ours_combine,ours_pack --deadline 40 --json "$out/gpu-probe.json" || true ;;
      one) bench 60 one 1 --sizes 8,1K,64K,1M,64M,256M --seconds 1 --baseline nccl ;;
      mpi) beside_mpi shared ;;
      nccl) beside_nccl shared-nccl ;;
      mps-mpi) start_mps && beside_mpi shared-mps ;;
      mps-nccl) start_mps && beside_nccl shared-nccl-mps ;;
    esac
  done
  stop_mps
  code=0
  gpu-numbers "$out" || code=$?
  exit "$code"
fi

passed=0 failed=0 skipped=0 parts=""
# A step's name, and what came of it; results are there after each.
note() {
  echo "$1: $2 passed, $3 failed, $4 skipped${6:+ ($6)}"
  parts="$parts${parts:+, }\"$1\": {\"passed\": $2, \"failed\": $3, \"skipped\": $4, \"exit_status\": $5}"
  passed=$((passed + $2)) failed=$((failed + $3)) skipped=$((skipped + $4))
  echo "{\"passed\": $passed, \"failed\": $failed, \"skipped\": $skipped, \"tests\": {$parts}}" >"$out/results.json"
}
suite() {
  name=$1 p=0 f=0 s=0 code=0
  shift
  limited "$@" || code=$?
  while IFS= read -r line; do
    case $line in
      *"[       OK ]"*) p=$((p + 1)) ;;
      *"[  SKIPPED ]"*ms\)) s=$((s + 1)) ;;
      *"[  FAILED  ]"*ms\)) f=$((f + 1)) ;;
    esac
  done <"$out/$name.txt"
  [ "$code" = 0 ] || [ "$f" -gt 0 ] || f=1  # it ended otherwise
  note "$name" "$p" "$f" "$s" "$code" "$([ "$code" = 124 ] && echo "its time was over")"
}
for test in gpu_kernels_test gpu_test gpu_real_test gpu_levels_test gpu_order_test node_gpus_test nccl_test random_calls_test bench_test strategy_gpus_test; do
  seconds=60
  case $test in strategy_gpus_test | random_calls_test) seconds=100 ;; esac
  suite "$test" "$seconds" "$out/$test.txt" "$here/bin/$test" --gtest_color=no "--gtest_output=json:$out/$test.json"
done
for ranks in 2 4 8; do
  suite "gpu_mpi_test_$ranks" 60 "$out/gpu_mpi_test_$ranks.txt" mpirun -n "$ranks" --oversubscribe --timeout 50 "$here/bin/gpu_mpi_test" --gtest_color=no
done
# What batches of tensors take by the host, beside what the ranks above say of the GPU.
for ranks in 2 4 8; do
  LOCKSTEP_NODE_MEMORY=0
  export LOCKSTEP_NODE_MEMORY
  suite "gpu_batches_by_host_$ranks" 30 "$out/gpu_batches_by_host_$ranks.txt" mpirun -n "$ranks" --oversubscribe --timeout 25 "$here/bin/gpu_mpi_test" --gtest_color=no '--gtest_filter=RealProcesses.Reduce*'
  unset LOCKSTEP_NODE_MEMORY
done

# Three tasks on one GPU, of which one is killed: what the others were told, and what they still have. Their words are
# in OUT/gpu_deaths_MOMENT_HOW_TASK.txt.
death() {
  name="gpu_deaths_$1_$4" victim=$2 survivors=""
  for task in 0 1 2; do
    TF_CONFIG='{"cluster": {"worker": ["127.0.0.1:21711", "127.0.0.1:21712", "127.0.0.1:21713"]}, "task": {"type": "worker", "index": '"$task"'}}' \
      LOCKSTEP_TIMEOUT=20s limited 30 "$out/${name}_$task.txt" gpu_deaths "$1" "$2" "$3" "$4" real &
    if [ "$task" != "$victim" ]; then survivors="$survivors $task"; fi
  done
  wait
  told=0 none="" longest=""
  for task in $survivors; do
    ended="" again="" left=""
    while IFS= read -r line; do
      case $line in
        "ended "*LOCKSTEP-E015*) ended=yes ;;
        "again "*LOCKSTEP-E017*) again=yes ;;
        "left "*) left=yes longest="$longest $line" ;;
        "no GPU"*) none=yes ;;
      esac
    done <"$out/${name}_$task.txt"
    if [ -n "$ended" ] && [ -n "$again" ] && [ -n "$left" ]; then told=$((told + 1)); fi
  done
  if [ -n "$none" ]; then note "$name" 0 0 1 77 "there is no GPU"; return; fi
  if [ "$told" = 2 ]; then note "$name" 1 0 0 0 "${longest# }"; else note "$name" 0 1 0 1 "$told of 2 were told the right thing and let go"; fi
}
export LOCKSTEP_NCCL=0
death meeting 0 all_reduce host
death mapping 1 all_reduce stream
death remapping 1 all_gather host
death opening 2 all_gather stream
death ordering 1 all_reduce stream
death reduction 0 all_reduce request
death copying 1 all_gather host
death waiting 1 all_reduce stream
unset LOCKSTEP_NCCL

# One question of the probe; it says first what became of it.
question() {
  name=$1 p=0 f=0 s=0 code=0 why=""
  shift
  limited "$@" || code=$?
  while IFS= read -r line; do
    case $line in
      answered*) p=1 ;;
      no_gpu?*) s=1 why=${line#no_gpu?} ;;
      *"Device not supported"*) s=1 why="compute-sanitizer does not work on this GPU" ;;
      *"ERROR SUMMARY: 0 errors"* | *"RACECHECK SUMMARY: 0 hazards"*) ;;
      *"ERROR SUMMARY: "* | *"RACECHECK SUMMARY: "*) f=1 ;;
    esac
  done <"$out/$name.txt"
  if [ "$code" = 124 ]; then why="its time was over"; fi
  if [ "$s" = 1 ]; then p=0 f=0; elif [ "$code" != 0 ] || [ "$p" = 0 ] || [ "$f" = 1 ]; then p=0 f=1; fi
  note "$name" "$p" "$f" "$s" "$code" "$why"
}
if [ ! -x "$here/bin/gpu-probe" ]; then
  note ours 0 0 1 0 "gpu-probe is not packed"
else
  for each in ours_bits ours_combine ours_pack; do
    question "$each" 60 "$out/$each.txt" gpu-probe --ask "$each" 1
  done
  checker=$(command -v compute-sanitizer || { [ -x /usr/local/cuda/bin/compute-sanitizer ] && echo /usr/local/cuda/bin/compute-sanitizer; }) || checker=""
  for tool in memcheck racecheck; do
    for each in ours_bits ours_pack; do
      if [ -z "$checker" ]; then note "${tool}_$each" 0 0 1 0 "there is no compute-sanitizer"; continue; fi
      question "${tool}_$each" 90 "$out/${tool}_$each.txt" "$checker" --tool "$tool" --error-exitcode 9 gpu-probe --ask "$each" 1
    done
  done
fi
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ]
