#!/usr/bin/env bash
# A signal that reaches one rank stops all, after the same step: USR2 to a rank of the second node, in
# a program without a PATH, which therefore can call no scontrol; the script requeues. And USR1 during
# start-up: a checkpoint of step 0, from which the next sbatch goes on.
# shellcheck source=tests/slurm/support.sh
source "$(dirname "$0")/support.sh"

mkdir bin
# The name is the program's, so that the test finds the ranks.
printf '#!/bin/sh\nPATH= exec "%s" "$@"\n' "$FULLSHARD_PROGRAM" >bin/fullshard
chmod +x bin/fullshard
FULLSHARD_PROGRAM=$PWD/bin/fullshard submit one_rank -- --checkpoint.every "$steps"
until_step one_rank 2
kill -USR2 "$(process_of one_rank 3)"
until_state one_rank PENDING
expect_text one_rank/run.log "USR2 on rank 3"
ls one_rank/checkpoints >checkpoints
(($(wc -l <checkpoints) == 1)) || fail "not one checkpoint: $(<checkpoints)"

# Bit 9 of SigCgt: the process has a handler for signal 10, USR1, and no longer dies of it.
catches_usr1() {
    local process caught
    process=$(process_of start_up 2) && [[ -n $process ]] &&
        caught=$(sed -n 's/^SigCgt:\t//p' "/proc/$process/status") && ((0x${caught} >> 9 & 1))
}
submit start_up --no-requeue -- --checkpoint.every "$steps"
until_true start_up catches_usr1
kill -USR1 "$(process_of start_up 2)"
expect_end start_up 85
expect_text start_up/run.log "USR1 on rank 2"
[[ -d start_up/checkpoints/step-00000000 ]] || fail "no checkpoint of step 0: $(ls start_up/checkpoints)"
submit start_up -- --checkpoint.every "$steps" --fault.delay_us 0
expect_end start_up 0
expect_reference start_up

expect_end one_rank 0
expect_text one_rank.log "stopped early: requeueing the job"
expect_reference one_rank
