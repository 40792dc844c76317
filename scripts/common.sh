# shellcheck shell=bash disable=SC2034
# Shared by the scripts here: paths, number of jobs, output. Sourced, never run.

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

# A compile of an MLIR file takes up to 1.5 GB: one job per processor, fewer if memory is short.
jobCount() {
  local processors memory
  processors=$(nproc 2>/dev/null || echo 1)
  memory=$(awk '/^MemAvailable:/ {print int($2 / 1048576 / 1.5)}' /proc/meminfo 2>/dev/null || echo "$processors")
  [ "${memory:-1}" -ge 1 ] || memory=1
  echo $((processors < memory ? processors : memory))
}

say() { printf '%s\n' "$*" >&2; }

# fail STATUS TEXT: status 2 for a user error, 3 for an environment that lacks something.
fail() {
  say "${0##*/}: $2"
  exit "$1"
}

# quietly LOG COMMAND...: writes the output to LOG; shows the last lines if the command fails.
quietly() {
  local log=$1 status=0
  shift
  mkdir -p "$(dirname "$log")"
  "$@" >"$log" 2>&1 || status=$?
  if [ $status -ne 0 ]; then
    tail -n 40 "$log" >&2
    say "${0##*/}: failed with status $status: $*; the whole output is in $log"
  fi
  return $status
}

# ccache supports precompiled headers only with this setting.
export CCACHE_SLOPPINESS=${CCACHE_SLOPPINESS:-pch_defines,time_macros}
# By default Open MPI does not run as root, nor more ranks than processors.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
