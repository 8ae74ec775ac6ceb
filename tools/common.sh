# SPDX-License-Identifier: Apache-2.0
# Shared by tools/build, tools/run and tools/test: where things are, installing what is missing, and
# running a step quietly. Sourced, never run.

root=$(CDPATH="" cd -- "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
export PATH="/usr/bin:$PATH"  # meson and its Python are the system's, whatever else comes first

packages_build=(g++ meson ninja-build pkg-config python3 libopenmpi-dev openmpi-bin libhwloc-dev libboost-program-options-dev
                nlohmann-json3-dev libhwy-dev libgtest-dev librapidcheck-dev libgrpc++-dev libssl-dev libucx-dev zlib1g-dev)
packages_test=(python3-jsonschema iproute2 util-linux procps git)
packages_ci=(clang libclang-rt-14-dev libfuzzer-14-dev clang-format clang-tidy mpich libmpich-dev valgrind)
packages_night=(g++-aarch64-linux-gnu qemu-user)

if [ "$(id -u)" = 0 ]; then  # Open MPI asks root twice whether it is meant
  export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
fi

fail() {
  printf '%s: %s\n' "$(basename "$0")" "$1" >&2
  exit "${2:-1}"
}

# install_missing PACKAGE... : installs those that are not there; without the right to do so it prints the
# one line to type. On systems without apt the build itself says what it lacks.
install_missing() {
  command -v dpkg-query >/dev/null || return 0
  local missing=() package
  for package in "$@"; do
    [ "$(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null)" = installed ] || missing+=("$package")
  done
  [ ${#missing[@]} -eq 0 ] && return 0
  local as_root=()
  if [ "$(id -u)" != 0 ]; then
    if command -v sudo >/dev/null && sudo -n true 2>/dev/null; then
      as_root=(sudo -n env DEBIAN_FRONTEND=noninteractive)
    else
      fail "packages are missing and this user may not install them; type
  sudo sh -c 'apt-get update && apt-get install --no-install-recommends ${missing[*]}'" 6
    fi
  fi
  echo "installing ${missing[*]}" >&2
  local get=("${as_root[@]}" apt-get -qq -o Dpkg::Use-Pty=0 -o DPkg::Lock::Timeout=300)
  export DEBIAN_FRONTEND=noninteractive
  local log
  log=$(mktemp)
  if ! "${get[@]}" install -y --no-install-recommends "${missing[@]}" >"$log" 2>&1 &&
     ! { "${get[@]}" update && "${get[@]}" install -y --no-install-recommends "${missing[@]}"; } >"$log" 2>&1; then
    tail -n 20 "$log" >&2
    rm -f "$log"
    fail "apt-get could not install ${missing[*]}" 6
  fi
  rm -f "$log"
}

# quietly WHAT LOG COMMAND... : silent when it works; the end of its log when it does not.
quietly() {
  local what=$1 log=$2
  shift 2
  mkdir -p "$(dirname "$log")"
  if "$@" >"$log" 2>&1; then return 0; fi
  tail -n 60 "$log" >&2
  echo "$what failed; the whole log: $log" >&2
  return 1
}

# build_in FOLDER MESON-OPTION... : configures once and builds; again after that only what changed. Builds all, or
# what the array `targets` names and what the tests of the array `suites` run; or all but what only the tests of the
# array `without` run.
targets=()
suites=()
without=()
build_in() {
  local lock
  mkdir -p "$(dirname "$1")"
  exec {lock}>"$1.lock"  # tools/test builds ahead
  if command -v flock >/dev/null && ! flock --nonblock "$lock"; then
    local each  # now it is waited for
    for each in $([ -z "${ahead:-}" ] || pgrep -g "$ahead"); do chrt --other -p 0 "$each" 2>/dev/null || true; done
    flock "$lock"
  fi
  build_alone "$@"
  local state=$?
  exec {lock}>&-
  return $state
}

# build_release OPTION... : the folder build, with these options, or with those that it was configured with if none are
# given.
build_release() {
  local options=("$@")
  install_missing "${packages_build[@]}"
  [ $# -gt 0 ] || [ ! -e "$root/build/options" ] || read -r -a options <"$root/build/options" || true
  build_in "$root/build" ${options[@]+"${options[@]}"}
}

build_alone() {
  local folder=$1
  shift
  local wanted="$*"
  if [ ! -e "$folder/build.ninja" ] || [ "$(cat "$folder/options" 2>/dev/null)" != "$wanted" ]; then
    local again=()
    if [ -e "$folder/build.ninja" ] && holds_all "$wanted" "$(cat "$folder/options" 2>/dev/null)"; then
      again=(--reconfigure)  # what is built and does not depend on the new options stays
    elif [ -d "$folder" ]; then
      find "$folder" -mindepth 1 -maxdepth 1 ! -name peers -exec rm -rf {} +  # tools/peers has its own there
    fi
    quietly "configuring" "$folder.configure.log" meson setup ${again[@]+"${again[@]}"} "$folder" "$root" "$@" || return 1
    mv "$folder.configure.log" "$folder/configure.log"
    printf '%s' "$wanted" >"$folder/options"
  fi
  local wanted_targets=(${targets[@]+"${targets[@]}"}) found
  if [ ${#suites[@]} -gt 0 ] || [ ${#without[@]} -gt 0 ]; then
    quietly "configuring" "$folder/configure.log" ninja -C "$folder" build.ninja || return 1
    if [ ${#suites[@]} -gt 0 ]; then
      found=$(python3 "$root/tests/support/targets.py" "$folder" "${suites[@]}") || return 1
    else
      found=$(python3 "$root/tests/support/targets.py" "$folder" --but "${without[@]}") || return 1
    fi
    mapfile -t -O ${#wanted_targets[@]} wanted_targets <<<"$found"
  fi
  local steps
  steps=$(ninja -n -C "$folder" ${wanted_targets[@]+"${wanted_targets[@]}"} 2>/dev/null | sed -n 's|^\[1/\([0-9]*\)\].*|\1|p')
  [ "${steps:-0}" -lt 20 ] || echo "building $(basename "$folder"): $steps steps on $(nproc) processors" >&2
  exec 9>&2
  quietly "building" "$folder/build.log" ninja_with_progress "$folder" ${wanted_targets[@]+"${wanted_targets[@]}"}
}

# holds_all NEW OLD : whether each option of OLD (-Dx=..., --y=...) has a value in NEW.
holds_all() {
  local each
  for each in $2; do
    case " $1" in *" ${each%%=*}="*) ;; *) return 1 ;; esac
  done
}

# ninja_with_progress FOLDER TARGET... : ninja, which tells a terminal (descriptor 9) how far it is, and about how long
# the rest takes if its steps take as long as those before.
ninja_with_progress() {
  local began=$SECONDS line left
  if [ ! -t 9 ]; then ninja -C "$@"; return; fi
  ninja -C "$@" | while IFS= read -r line; do
    printf '%s\n' "$line"
    [[ $line =~ ^\[([0-9]+)/([0-9]+)\] ]] || continue
    left=$(((SECONDS - began) * (BASH_REMATCH[2] - BASH_REMATCH[1]) / BASH_REMATCH[1]))
    printf '\r%d of %d steps built, about %d:%02d minutes left ' "${BASH_REMATCH[@]:1:2}" $((left / 60)) $((left % 60)) >&9
  done
  local state=${PIPESTATUS[0]}
  printf '\r%60s\r' '' >&9
  return "$state"
}
