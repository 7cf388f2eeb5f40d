#!/usr/bin/env bash
# A killed rank ends the job soon, and never with 85. With a new checkpoint the job goes on from it;
# without one it is over.
# shellcheck source=tests/slurm/support.sh
source "$(dirname "$0")/support.sh"

submit saved -- --checkpoint.every 10
submit unsaved -- --checkpoint.every "$steps" --fault.delay_us 100000
until_checkpoint saved
kill -KILL "$(process_of saved 1)"
until_step unsaved 2
kill -KILL "$(process_of unsaved 2)"
SECONDS=0
expect_end unsaved 137
((SECONDS <= 30)) || fail "the job went on for $SECONDS s without its rank"
expect_text unsaved.log "not requeued: failed with 137 before it wrote a checkpoint newer than none"

expect_end saved 0
expect_text saved.log "failed with 137, but wrote checkpoints: requeueing the job"
expect_reference saved
