# Sourced by the tests of this folder. They run in an empty folder of their own, on the cluster that
# the fixture has started, with the program in FULLSHARD_PROGRAM.
# shellcheck shell=bash
# shellcheck disable=SC2034  # for the tests
set -euo pipefail
here=$(dirname "$(realpath "${BASH_SOURCE[0]}")")
source_root=$(realpath "$here/../..")
readonly here source_root
readonly cluster=$here/cluster
readonly ckpt=$FULLSHARD_PROGRAM-ckpt

"$cluster" usable
folder=$PWD/$(basename "$0" .sh)
readonly folder
readonly reference=$PWD/srun_test/whole  # a training that nobody disturbed, by the fixture srun_test.sh
rm -rf "$folder"
mkdir -p "$folder"
cd "$folder"

fail() { printf 'FAILED: %s\n' "$*"; exit 1; }

on_cluster() { "$cluster" exec "$@"; }
"$cluster" reset  # what a test before this one may have left

# What most tests train: as long as the reference, whose bits it must have, whatever happened to it.
readonly steps=40
readonly training=("$source_root/inputs/smoke.ini" --train.steps "$steps")

# submit NAME [option of sbatch ...] -- [KEY VALUE ...]: a job of train.sbatch with NAME as its run
# folder, NAME.log as its log, and its number in NAME.job. Its first start is slow, so that there is
# time to disturb it.
submit() {
    local name=$1 options=()
    shift
    while [[ $1 != -- ]]; do options+=("$1"); shift; done
    FULLSHARD_SITE=${FULLSHARD_SITE:-$here/slow_first_start.sh} submit_script "$name" "${options[@]}" \
        "$source_root/slurm/train.sbatch" "${training[@]}" --run.dir "$name" "${@:2}"
}

# submit_script NAME [option of sbatch ...] SCRIPT [ARGUMENT ...]: with NAME.log and NAME.job. "sbatch
# --wait" would look at the job at ever longer intervals, up to half a minute.
submit_script() { on_cluster sbatch --parsable --output="$1.log" "${@:2}" >"$1.job"; }

job_field() { [[ $(on_cluster scontrol show job "$(<"$1.job")") =~ $2=([^[:space:]]+) ]] && echo "${BASH_REMATCH[1]}"; }
is_over() { [[ ! $(job_field "$1" JobState) =~ ^(PENDING|RUNNING|COMPLETING|REQUEUED|CONFIGURING)$ ]]; }

# until_true NAME COMMAND ...: waits for it, at most as long as the job NAME lasts. The time limit is
# the test's.
until_true() {
    local name=$1 rounds=0
    shift
    until "$@" 2>/dev/null; do
        if ((++rounds % 20 == 0)) && is_over "$name"; then
            tail -n 40 "$name.log"
            fail "the job $name ended before this was true: $*"
        fi
        sleep 0.1
    done
}

# until_step NAME STEP: until the log of the run has that step or a later one.
until_step() { until_true "$1" step_is_done "$1" "$2"; }
step_is_done() { [[ -s $1/metrics.jsonl ]] && (($(losses "$1" | tail -n 1 | cut -d' ' -f1) >= $2)); }

# until_checkpoint NAME: until the run has one, which a later one may replace.
until_checkpoint() { until_true "$1" has_checkpoint "$1"; }
has_checkpoint() { compgen -G "$1/checkpoints/step-*[0-9]" >/dev/null; }

# until_state NAME STATE: of Slurm, such as PENDING.
until_state() { until_true "$1" has_state "$1" "$2"; }
has_state() { [[ $(job_field "$1" JobState) == "$2" ]]; }

# expect_end NAME STATUS: waits for the end of a submitted job. Of a job that a signal ended, STATUS is
# what its state is, such as CANCELLED.
expect_end() {
    local code
    until is_over "$1"; do sleep 0.2; done
    code=$(job_field "$1" ExitCode)
    if [[ $code == *:0 ]]; then code=${code%:0}; else code=$(job_field "$1" JobState); fi
    [[ $code == "$2" ]] || {
        tail -n 40 "$1.log"
        fail "the job $1 ended with $code instead of $2"
    }
}

# processes_of NAME: process ids of the ranks of a run, in no order.
processes_of() {
    local process words
    for process in $(pgrep -x "$(basename "$FULLSHARD_PROGRAM")"); do
        mapfile -d '' -t words <"/proc/$process/cmdline" || continue
        [[ " ${words[*]} " != *" --run.dir $1 "* || $(readlink "/proc/$process/cwd") != "$folder" ]] ||
            echo "$process"
    done 2>/dev/null
}

# process_of NAME RANK
process_of() {
    local process
    for process in $(processes_of "$1"); do
        # grep -q would leave at the match, and tr fail of a closed pipe.
        ! tr '\0' '\n' <"/proc/$process/environ" | grep -x "SLURM_PROCID=$2" >/dev/null || echo "$process"
    done
}

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

# expect_text FILE TEXT
expect_text() {
    grep -qF -- "$2" "$1" || {
        tail -n 40 "$1"
        fail "$1 does not say: $2"
    }
}

# expect_no_text FILE TEXT
expect_no_text() {
    ! grep -F -- "$2" "$1" || fail "$1 says: $2"
}

# losses RUN_DIR: step and loss of every step record, as written.
losses() {
    python3 - "$1/metrics.jsonl" <<'PYTHON'
import json, sys
for line in open(sys.argv[1]):
    if not line.endswith("\n"):
        break  # just being written
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

# expect_reference RUN_DIR: complete, with the losses and the last parameters of the reference, bit by bit.
expect_reference() {
    expect_complete "$1" "$steps"
    diff <(losses "$1") <(losses "$reference") || fail "losses of $1 (<) are not the reference's (>)"
    expect_status 0 "$1.diff" "$ckpt" diff "$1" "$reference"
}
