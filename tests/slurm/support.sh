# Sourced by the tests of this folder. They run in an empty folder of their own, on the cluster that
# the fixture has started, with the program in FULLSHARD_PROGRAM.
# shellcheck shell=bash
# shellcheck disable=SC2034  # for the tests
set -euo pipefail
here=$(dirname "$(realpath "${BASH_SOURCE[0]}")")
source_root=$(realpath "$here/../..")
readonly here source_root
readonly cluster=$here/cluster

"$cluster" usable
folder=$PWD/$(basename "$0" .sh)
readonly folder
rm -rf "$folder"
mkdir -p "$folder"
cd "$folder"

fail() { printf 'FAILED: %s\n' "$*"; exit 1; }

on_cluster() { "$cluster" exec "$@"; }
on_cluster scancel --user="$(id -un)"  # what a test before this one may have left

# expect_status WANTED OUTPUT COMMAND ...: OUTPUT receives what the command says.
expect_status() {
    local wanted=$1 output=$2 status=0
    shift 2
    "$@" >"$output" 2>&1 || status=$?
    ((status == wanted)) || {
        tail -n 40 "$output"
        fail "status $status instead of $wanted from: $*"
    }
}

# expect_job_status WANTED PID LOG: of an "sbatch --wait" in the background.
expect_job_status() {
    local status=0
    wait "$2" || status=$?
    ((status == $1)) || {
        tail -n 40 "$3"
        fail "job ended with $status instead of $1"
    }
}

# expect_text FILE TEXT
expect_text() {
    grep -qF -- "$2" "$1" || {
        tail -n 40 "$1"
        fail "$1 does not say: $2"
    }
}

# losses RUN_DIR: step and loss of every step record, as written.
losses() {
    python3 - "$1/metrics.jsonl" <<'PYTHON'
import json, sys
for line in open(sys.argv[1]):
    record = json.loads(line, parse_float=str)
    if record["kind"] == "step":
        print(record["step"], record["loss"])
PYTHON
}

# expect_complete RUN_DIR STEPS: every step once and in order, and a summary at the end.
expect_complete() {
    diff <(losses "$1" | cut -d' ' -f1) <(seq "$2") || fail "$1 lacks steps or repeats some"
    tail -n 1 "$1/metrics.jsonl" | grep -q '"kind": *"summary"' || fail "$1 has no summary"
}
