#!/usr/bin/env bash
# Tests gpu-probe itself: that it says for every question that there is no driver where there is none, outlives crashes
# and hangs, and writes valid JSON. It does not judge what a GPU answers.
#   tests/gpu/probe_test.sh [BUILD_DIR]      BUILD_DIR holds gpu-probe, or it is built there; build-gpu by default
# Exit status: 0 passed, 1 failed, 77 gpu-probe cannot be built here.
# SPDX-License-Identifier: Apache-2.0
set -uo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
build=${1:-$(cd "$here/../.." && pwd)/build-gpu}
program=$build/gpu-probe
failures=0
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

expect() {  # sentence, then a command that must succeed
  local sentence=$1
  shift
  if "$@" > "$scratch/said" 2>&1; then return; fi
  echo "FAIL: $sentence" >&2
  head -n 20 "$scratch/said" >&2
  failures=$((failures + 1))
}

exits_with() {  # status, then a command
  local wanted=$1 got=0
  shift
  "$@" || got=$?
  if ((got != wanted)); then echo "exit status $got, not $wanted"; return 1; fi
}

lines_with() { grep -cE -- "$1" "$2" || true; }

equal() { if [[ $1 != "$2" ]]; then echo "$1 is not $2"; return 1; fi; }

"$here/probe" --build --build-dir "$build" || exit $?

expect "a planted crash, hang and refusal are told apart" "$program" --self-test
expect "an unknown option is a usage error" exits_with 1 "$program" --what
expect "an unknown question is a usage error" exits_with 1 "$program" --only nonsense
expect "a deadline must be a number" exits_with 1 "$program" --deadline soon
expect "a report that cannot be written is an error" exits_with 1 "$program" --only host_system --json "$scratch/none/a.json"

status=0
"$program" --json "$scratch/probe.json" --markdown "$scratch/probe.md" > "$scratch/table" 2>&1 || status=$?
"$program" --list > "$scratch/list"
questions=$(wc -l < "$scratch/list")
of_gpu=$(lines_with '\| GPU ' "$scratch/list")

expect "every question has a row in JSON" equal "$(lines_with '"id": ' "$scratch/probe.json")" "$questions"
expect "every question has a row in Markdown" equal "$(($(wc -l < "$scratch/probe.md") - 2))" "$questions"
expect "no question crashed the process that was asked" equal "$(lines_with '"state": "crashed"' "$scratch/probe.json")" 0
expect "the host's questions are answered without a GPU" grep -q '"id": "host_system".*"state": "answered"' "$scratch/probe.json"
if command -v python3 > /dev/null; then
  expect "the JSON is valid" python3 -m json.tool "$scratch/probe.json"
else
  echo "probe_test: the JSON was not parsed: there is no python3"
fi

if grep -q '"gpu": true' "$scratch/probe.json"; then
  expect "the exit status is 0 with a GPU" equal "$status" 0
  expect "no question finds a driver missing" equal "$(lines_with '"state": "no_gpu"' "$scratch/probe.json")" 0
else
  expect "the exit status is 77 without a GPU" equal "$status" 77
  said='"needs_gpu": true, "state": "no_gpu", "answer": "no (driver|GPU): '
  expect "every question that needs a GPU says why there is none" equal "$(lines_with "$said" "$scratch/probe.json")" "$of_gpu"
  # Asked directly, without the shortcut that the first answer allows, they must say so too, and not hang.
  while read -r id rest; do
    if [[ $rest != '| GPU '* || $id == share_mps ]]; then continue; fi
    timeout 20 "$program" --ask "$id" 1 > "$scratch/alone" 2>&1 || echo "status $?" >> "$scratch/alone"
    expect "$id, asked without a driver, ends by itself and says why" grep -qE '^(no_gpu|refused)'$'\t' "$scratch/alone"
  done < "$scratch/list"
fi

if ((failures > 0)); then echo "probe_test: $failures checks failed" >&2; exit 1; fi
echo "probe_test: passed, $questions questions, $of_gpu of them for a GPU (exit status of the probe: $status)"
