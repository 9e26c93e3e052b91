#!/usr/bin/env bash
# Helpers of the scripts in tools/ and .ci/: to be sourced, after `set -euo pipefail`, with
# $ddpsim_me set to the caller's name. Everything a person reads goes to stdout through `say`; a
# refusal is one sentence on stderr.

# Packages of Debian and Ubuntu.
# shellcheck disable=SC2034  # used by the scripts that source this file
ddpsim_build_packages=(g++ cmake ninja-build libboost-graph-dev nlohmann-json3-dev libfmt-dev libcli11-dev libpugixml-dev zlib1g-dev)
# Of the tests, and of `ddpsim run` on hosts of its own (iproute2). tests/house/check_programs.py
# holds all lists to what is called. shellcheck disable=SC2034
ddpsim_test_packages=(git iproute2 libgtest-dev libgmock-dev libbenchmark-dev librapidcheck-dev libgloo-dev clang clang-format clang-tidy mypy pyflakes3 shellcheck python3 python3-jsonschema python3-protobuf)
# PyTorch takes the BLAS that is installed; without OpenBLAS it is the reference one, which is slow.
# shellcheck disable=SC2034
ddpsim_capture_packages=(python3-torch python3-torchvision libopenblas0-pthread)
# For `ddpsim import nsys`; everything else works without it.
# shellcheck disable=SC2034
ddpsim_sqlite_packages=(libsqlite3-dev)
# For sweeps on many machines, and `ddpsim run --backend mpi`; everything else works without it.
# shellcheck disable=SC2034
ddpsim_mpi_packages=(libopenmpi-dev openmpi-bin python3-mpi4py)
# For `ddpsim topology draw --format svg`; everything else works without it.
# shellcheck disable=SC2034
ddpsim_picture_packages=(graphviz)
# For the page of reports (--html); without them ddpsim is built without it. Debian's npm is some
# 300 packages. shellcheck disable=SC2034
ddpsim_page_packages=(nodejs npm)
# For the site of the documentation (tools/docs).
# shellcheck disable=SC2034
ddpsim_docs_packages=(mkdocs mkdocs-material python3-yaml)
# For the page's test.
# shellcheck disable=SC2034
ddpsim_browser_packages=(chromium)

: "${ddpsim_me:?tools/lib.sh is to be sourced, with ddpsim_me set}"

say() { printf '%s: %s\n' "$ddpsim_me" "$*"; }

# refuse SENTENCE: something that the user must change; exit 2.
refuse() {
  printf '%s: %s\n' "$ddpsim_me" "$*" >&2
  exit 2
}

# missing_packages PACKAGE...: prints those that dpkg does not hold as installed, one a line.
missing_packages() {
  local package
  for package in "$@"; do
    if [[ $(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null || true) != installed ]]; then
      printf '%s\n' "$package"
    fi
  done
}

# as_root: sets the array ddpsim_sudo to what must precede a command to run it as root, or prints
# why there is no way and returns 1.
as_root() {
  ddpsim_sudo=()
  if [[ $(id -u) == 0 ]]; then return 0; fi
  if ! command -v sudo >/dev/null; then
    echo "installing needs root, this is user $(id -un), and there is no sudo"
    return 1
  fi
  if sudo -n true 2>/dev/null; then
    ddpsim_sudo=(sudo -n)
  elif [[ -t 0 ]]; then
    ddpsim_sudo=(sudo) # may ask for a password
  else
    echo "installing needs root, and sudo asks $(id -un) for a password where there is no terminal to ask on"
    return 1
  fi
}

# apt_reason LOG: why apt failed, in one clause.
apt_reason() {
  local line
  if line=$(grep -m1 -oE 'Unable to locate package [^ ]+|Package .* has no installation candidate' "$1"); then
    if grep -qE 'Could not resolve|Temporary failure|Could not connect|Failed to fetch|unreachable' "$1"; then
      echo "the package server cannot be reached (no network, or a proxy that apt does not know)"
    else
      echo "$line in what this machine's apt sources offer"
    fi
  elif grep -qE 'Could not resolve|Temporary failure|Could not connect|Failed to fetch|unreachable' "$1"; then
    echo "the package server cannot be reached (no network, or a proxy that apt does not know)"
  elif grep -q 'Could not get lock' "$1"; then
    echo "another program holds apt's lock"
  elif grep -qiE 'no space left|enough free space' "$1"; then
    echo "the disk is full"
  else
    line=$(grep -m1 -E '^E: ' "$1" || tail -n 1 "$1")
    echo "apt-get said: ${line:-nothing}"
  fi
}

# try_install PACKAGE...: installs those that are missing, and no other; says which. Without
# anything missing it says nothing and needs neither root nor network. On failure sets ddpsim_reason
# and returns 1.
try_install() {
  local missing log
  ddpsim_reason=
  if ! command -v apt-get >/dev/null || ! command -v dpkg-query >/dev/null; then
    ddpsim_reason="this is not Debian or Ubuntu (there is no apt-get)"
    return 1
  fi
  log=$(missing_packages "$@")
  if [[ -z $log ]]; then return 0; fi
  mapfile -t missing <<<"$log" # not <(...): a bare chroot has no /dev/fd
  if ! ddpsim_reason=$(as_root); then return 1; fi
  as_root >/dev/null
  say "installing ${missing[*]}"
  log=$(mktemp)
  # Package lists may be absent (a fresh image) or older than the server's: then fetch them and try
  # again.
  if apt_get install "${missing[@]}" >"$log" 2>&1 ||
    { apt_get update >"$log" 2>&1 || true; apt_get install "${missing[@]}" >>"$log" 2>&1; }; then
    rm -f "$log"
    return 0
  fi
  ddpsim_reason=$(apt_reason "$log")
  rm -f "$log"
  return 1
}

apt_get() {
  local verb=$1
  shift
  set -- "$verb" "$@"
  if [[ $verb == install ]]; then set -- install -y --no-install-recommends "${@:2}"; fi
  ${ddpsim_sudo[@]+"${ddpsim_sudo[@]}"} env DEBIAN_FRONTEND=noninteractive LC_ALL=C \
    apt-get -q -o DPkg::Lock::Timeout=120 "$@" </dev/null
}

# need_packages PACKAGE...: as try_install; exit 2 with a sentence when it cannot.
need_packages() {
  if ! try_install "$@"; then
    local missing
    missing=$(missing_packages "$@" 2>/dev/null | tr '\n' ' ' || true)
    refuse "cannot install ${missing% }: $ddpsim_reason; install them by hand and run again with --no-install"
  fi
}

# have_npm: Node.js and npm from wherever they are.
have_npm() { command -v node >/dev/null && command -v npm >/dev/null; }

# logged LOG WHAT COMMAND...: runs COMMAND with its output in LOG; on failure shows the end of LOG
# and exits 1.
logged() {
  local log=$1 what=$2
  shift 2
  if ! "$@" >>"$log" 2>&1 </dev/null; then
    tail -n 60 "$log" >&2
    printf '%s: %s failed; the whole log is %s\n' "$ddpsim_me" "$what" "$log" >&2
    exit 1
  fi
}

# debian_python: python3 is Debian's from here on, and nothing else of the PATH changes: PyTorch and
# others of its packages belong to that one, and a shim of pyenv takes half a second to start.
debian_python() {
  if [[ ! -x /usr/bin/python3 || $(command -v python3) == /usr/bin/python3 ]]; then return 0; fi
  mkdir -p build/python
  ln -sfn /usr/bin/python3 build/python/python3
  PATH=$PWD/build/python:$PATH
}

# need_cmake: the presets need CMake 3.25.
need_cmake() {
  local version
  command -v cmake >/dev/null || refuse "cmake is not installed; run again without --no-install"
  command -v ninja >/dev/null || refuse "ninja is not installed; run again without --no-install"
  version=$(cmake --version | sed -n '1s/[^0-9]*\([0-9.]*\).*/\1/p')
  if [[ $(printf '%s\n' 3.25 "$version" | sort -V | head -n 1) != 3.25 ]]; then
    refuse "cmake $version is older than 3.25 (Debian 12 and Ubuntu 24.04 have it; elsewhere: pip install cmake)"
  fi
}

# Compilers that a build may run at once: one a core, and 1.75 GiB of memory for each (the largest
# takes 1.6).
build_jobs() {
  local cores fit
  cores=$(nproc)
  fit=$(awk '/^MemAvailable:/ {print int($2 / 1835008)}' /proc/meminfo 2>/dev/null || true)
  if [[ ! $fit =~ ^[0-9]+$ || $fit -gt $cores ]]; then fit=$cores; fi
  echo $((fit > 0 ? fit : 1))
}
