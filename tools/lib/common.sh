# Shared by the scripts in tools/. Source it; it changes to the root of the source tree.
# shellcheck shell=bash
set -euo pipefail
script=$(realpath "$0")
readonly script
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

# Messages go to stderr: the standard output of tools/setup is its result.
say() { printf '%s: %s\n' "${0##*/}" "$*" >&2; }

# die MESSAGE [LINE ...]: the cause, then what to do about it.
die() {
    printf '%s: error: %s\n' "${0##*/}" "$1" >&2
    shift
    if (($#)); then printf '    %s\n' "$@" >&2; fi
    exit 1
}

# phase NAME COMMAND ...: runs the command and says how long it took, or failed after.
phase() {
    phase_name=$1 phase_start=$SECONDS
    shift
    say "$phase_name ..."
    trap 'say "$phase_name: failed after $((SECONDS - phase_start)) s"' EXIT
    "$@"
    trap - EXIT
    say "$phase_name: $((SECONDS - phase_start)) s"
}

# Prints the comment at the top of the script.
show_help() { sed -n '1d; /^#/!q; s/^# \{0,1\}//p' "$script"; }

# Free memory of the machine or, where that is less, the limit of the container.
memory_available_mib() {
    local limit=max
    if [[ -r /sys/fs/cgroup/memory.max ]]; then limit=$(</sys/fs/cgroup/memory.max); fi
    awk -v limit="$limit" '/^MemAvailable:/ {
        mib = $2 / 1024
        if (limit != "max" && limit / 1048576 < mib) mib = limit / 1048576
        print int(mib)
    }' /proc/meminfo
}

# nproc takes OMP_NUM_THREADS, which is one thread a rank here, for the number of cores.
cores() { env -u OMP_NUM_THREADS -u OMP_THREAD_LIMIT nproc; }

# Compiling one file against LibTorch's headers takes about 2 GiB.
build_jobs() {
    local jobs limit
    jobs=$(cores)
    limit=$(($(memory_available_mib) / 2048))
    if ((jobs > limit)); then jobs=$limit; fi
    echo $((jobs > 1 ? jobs : 1))
}

# Installs what is missing and exports FULLSHARD_LIBTORCH for the build.
set_up() {
    FULLSHARD_LIBTORCH=$(tools/setup)
    export FULLSHARD_LIBTORCH
}

# build PRESET [TARGET ...]
build() {
    local preset=$1
    shift
    # Forgets what was found before: a changed FULLSHARD_LIBTORCH then takes effect in an old build tree.
    cmake --preset "$preset" --log-level=NOTICE -U FULLSHARD_LIBTORCH -U 'LibTorch_*' >/dev/null
    cmake --build --preset "$preset" --target "${@:-all}" --parallel "$(build_jobs)"
}

# More ranks than cores, started by root in a container: waits yield, and no reads of another
# process's memory, which containers forbid. What the user has set stays.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_mpi_yield_when_idle=${OMPI_MCA_mpi_yield_when_idle:-1}
export OMPI_MCA_btl_vader_single_copy_mechanism=${OMPI_MCA_btl_vader_single_copy_mechanism:-none}
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-1}
