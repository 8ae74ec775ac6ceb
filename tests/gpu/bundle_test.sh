#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# tools/gpu-bundle, started where nothing else is: in a root of its own that has a shell, the C library, and the bundle.
#   tests/gpu/bundle_test.sh BUILD
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
build=${1:?the folder of a build}
if ! unshare -m true 2>/dev/null; then
  echo "SKIPPED: lacks the right to make a mount namespace"
  exit 77
fi
if ! "$build/tools/lockstep" --version | grep -q "Open MPI 4"; then
  echo "SKIPPED: lacks a build with Open MPI 4, which is what is packed"
  exit 77
fi
where=$(mktemp -d)
trap 'rm -rf "$where"' EXIT

"$here/../../tools/gpu-bundle" --build "$build" "$where/bundle"
if "$here/../../tools/gpu-bundle" --build "$build" "$here" 2>"$where/err"; then
  echo "it wrote over a folder that is no bundle" >&2
  exit 1
fi
grep -q "is not a bundle" "$where/err"

mkdir -p "$where"/{bin,lib64,proc,dev,sys,tmp/out,etc}
cp -L /bin/sh "$where/bin/sh"
ldd /bin/sh | grep -o '/[^ ]*' | while read -r path; do
  mkdir -p "$where$(dirname "$path")"
  cp -L "$path" "$where$path"
done
cp -L /lib64/ld-linux-x86-64.so.2 "$where/lib64/"
echo "root:x:0:0::/:/bin/sh" >"$where/etc/passwd"
echo "127.0.0.1 localhost $(hostname)" >"$where/etc/hosts"

inside() {
  unshare -m sh -c 'for each in proc dev sys; do mount --rbind "/$each" "$0/$each"; done; exec chroot "$0" "$@"' "$where" \
    /bin/sh -c 'cd / && exec "$@"' sh "$@"
}

inside /bundle/run lockstep --version
inside /bundle/run mpirun -n 2 --oversubscribe --timeout 100 lockstep bench all_reduce --sizes 8,4K --samples 20 --baseline none
code=0
inside /bundle/run mpirun -n 1 --timeout 100 lockstep bench all_reduce --sizes 8 --device gpu 2>"$where/err" || code=$?
[ "$code" != 0 ] || [ -e /dev/nvidia0 ]
[ -e /dev/nvidia0 ] || grep -q "LOCKSTEP-E020" "$where/err"
inside /bundle/run tests /tmp/out | tee "$where/said"
tail -n 1 "$where/said" | grep -Eq '^[1-9][0-9]* passed, 0 failed, [0-9]+ skipped$'
grep -q '"failed": 0' "$where/tmp/out/results.json"
grep -q '^compute-sanitizer\|^memcheck_ours_bits: 0 passed, 0 failed, 1 skipped\|^ours: 0 passed' "$where/said" || [ -e /dev/nvidia0 ]
if inside /bundle/run tests /nowhere 2>"$where/err"; then exit 1; fi
grep -q "name a folder" "$where/err"
code=0
inside /bundle/run numbers /tmp/out >"$where/said" || code=$?
cat "$where/said"
if [ ! -e /dev/nvidia0 ]; then
  [ "$code" = 77 ]
  [ ! -e "$where/bundle/bin/gpu-probe" ] || grep -q "there is no GPU to measure" "$where/said"
  grep -q '"aim_reached": 0, "met": 0, "missed": 0, "not_measurable": 15' "$where/tmp/out/numbers.json"
fi
echo "well"
