#!/usr/bin/env bash
# Nothing is left of a cluster that is down: no process, no namespace, no mount, no link. Of the one
# that the tests used, and of one whose owner, or whose first process, is killed while it works.
set -euo pipefail
# Daemons, jobs and all that they start inherit the cluster's folder in their environment, by which they
# are found. This test shall not be.
[[ -z ${FULLSHARD_CLUSTER_DIR:-} ]] || exec env -u FULLSHARD_CLUSTER_DIR "$0" "$FULLSHARD_CLUSTER_DIR"
readonly used=$1
readonly folder=$used-to-leave
here=$(dirname "$(realpath "$0")")
readonly here

fail() { printf 'FAILED: %s\n' "$*"; exit 1; }
cluster() { FULLSHARD_CLUSTER_DIR=$folder "$here/cluster" "$@"; }
cluster usable

# Nor those that wait for this test, which may have it from the user.
waiting=$$
while [[ $(ps -o ppid= -p "${waiting##* }") =~ ([1-9][0-9]*) ]]; do waiting+=" ${BASH_REMATCH[1]}"; done
readonly waiting

processes_of() {
    grep -slzxF "FULLSHARD_CLUSTER_DIR=$1" /proc/[0-9]*/environ | grep -o '[0-9]*' |
        grep -vxF "${waiting// /$'\n'}" || true
}

namespaces_of() {
    local process
    for process in $(processes_of "$1"); do readlink "/proc/$process"/ns/* || true; done 2>/dev/null | sort -u
}

# What the kernel takes apart after a process has ended takes a moment.
gone() {
    local tries
    for ((tries = 0; tries < 100; ++tries)); do
        left=$("$@")
        [[ -n $left ]] || return 0
        sleep 0.1
    done
    return 1
}

expect_nothing() {
    gone processes_of "$1" ||
        fail "processes are left of the cluster in $1: $(xargs ps -o pid,args -p <<<"$left")"
    ! grep -F -e "$1" -e /run/netns /proc/self/mountinfo || fail "mounts are left of the cluster in $1"
    ! ip -brief link | grep -E '^(cluster|node[0-9])' || fail "links are left of the cluster in $1"
}

# A cluster at work: a job on one node, a dead node, a slow link.
work() {
    cluster up 2 --while "$1" --link 200mbit
    cluster kill-node node2
    cluster exec sbatch --quiet --output=/dev/null --wrap='srun --mpi=none sleep 600'
    until cluster exec squeue --noheader --states=RUNNING | grep -q .; do sleep 0.1; done
    namespaces=$(comm -23 <(namespaces_of "$folder") <(readlink /proc/self/ns/* | sort -u))
    (($(wc -l <<<"$namespaces") >= 7)) || fail "a cluster has namespaces of its own, not $namespaces"
}

# A process in one, or a mount of one, would keep it.
remaining_namespaces() {
    { readlink /proc/[0-9]*/ns/* 2>/dev/null || true; } | sort -u | comm -12 - <(sort <<<"$namespaces")
}
expect_no_namespace() { gone remaining_namespaces || fail "namespaces are left: $left"; }

expect_nothing "$used"

trap 'cluster down; rm -rf "$folder"' EXIT
sleep 600 & owner=$!
work "$owner"
kill -KILL "$owner"
expect_nothing "$folder"
expect_no_namespace

work $$
read -r keeper _ <"$folder/keeper"
kill -KILL "$keeper"
expect_nothing "$folder"
expect_no_namespace
