#!/usr/bin/env bash
# What train.sbatch makes of exit codes: jobs that get no further are not started again and again.
# shellcheck source=tests/slurm/support.sh
source "$(dirname "$0")/support.sh"

# A program without MPI that does what a line of its run's script says, one line a start. It is called
# as fullshard is: program train deck --run.dir RUN
cat >program <<'PROGRAM'
#!/bin/bash
run=${*: -1}
start=$((${SLURM_RESTART_COUNT:-0} + 1))
mkdir -p "$run/checkpoints"
[[ $1 != doctor ]] || { echo "doctor was asked"; exit 5; }
read -r step code <<<"$(sed -n "${start}p" "$run.starts")"
[[ $step == - ]] || mkdir -p "$run/checkpoints/$(printf 'step-%08d' "$step")"
exit "$code"
PROGRAM
chmod +x program
printf '[run]\ndir = wrong   # the command line wins\noverwrite=off\n' >deck.ini

# job NAME [option of sbatch ...]: starts a job; lines of "STEP CODE" for its starts are read, "-" being
# no checkpoint.
job() {
    local name=$1
    shift
    cat >"$name.starts"
    FULLSHARD_PROGRAM=$PWD/program submit_script "$name" --nodes=1 --ntasks-per-node=1 "$@" \
        "$source_root/slurm/train.sbatch" deck.ini --run.dir "$name"
}

printf 'starts_limit=2\n' >slow.sh
printf 'requeue_on_failure=off\n' >careful.sh
printf 'doctor=on\n' >anxious.sh
printf 'program=%s\n' "$PWD/clock" >timed.sh
# shellcheck disable=SC2016  # the job expands
printf '#!/bin/sh\necho "$SLURM_JOB_END_TIME $(date +%%s)" >end_time\n' >clock
chmod +x clock
mkdir -p stuck/checkpoints/step-00000010 stuck/checkpoints/step-00000020.tmp
job stuck <<<$'- 85\n- 85\n- 85\n- 0'
job slow --export=ALL,FULLSHARD_SITE="$PWD/slow.sh" <<<$'- 85\n7 85\n- 0'
job crashing <<<$'10 1\n- 137\n- 0'
job careful --export=ALL,FULLSHARD_SITE="$PWD/careful.sh" <<<$'10 1\n- 0'
job diverging <<<$'10 4\n- 0'
job anxious --export=ALL,FULLSHARD_SITE="$PWD/anxious.sh" <<<'10 0'
job timed --time=7 --export=ALL,FULLSHARD_SITE="$PWD/timed.sh" <<<'10 0'
printf '[run]\ndir = overwriting\n overwrite = "on" # no\n' >overwriting.ini
FULLSHARD_PROGRAM=$PWD/program submit_script overwriting --nodes=1 "$source_root/slurm/train.sbatch" \
    overwriting.ini

expect_end careful 1
expect_text careful.log "not requeued: requeue_on_failure is off"
expect_end diverging 4
expect_no_text diverging.log "requeue"
expect_end anxious 5
expect_text anxious.log "fullshard doctor ended with 5; not training"
expect_end overwriting 2
expect_text overwriting.log "leave the key out and remove overwriting"
expect_end timed 0
read -r end now <end_time
((end > now + 400 && end <= now + 421)) || fail "the ranks were told that the job ends in $((end - now)) s, not 420"

expect_end crashing 137
expect_text crashing.log "failed with 1, but wrote checkpoints: requeueing the job"
expect_text crashing.log "not requeued: failed with 137 before it wrote a checkpoint newer than crashing/checkpoints/step-00000010"
expect_end stuck 85
expect_text stuck.log "not requeued: 3 starts in a row have brought no checkpoint newer than stuck/checkpoints/step-00000010"
expect_text stuck.log "start 3"
expect_no_text stuck.log "start 4"
expect_end slow 0
expect_text slow.log "start 3"
