#!/usr/bin/env bash
# Two jobs on one run folder: the second refuses and names the first, which is unharmed. A finished run
# stays finished, and mistakes end a job for good.
# shellcheck source=tests/slurm/support.sh
source "$(dirname "$0")/support.sh"

cp -r "$reference" finished
sha256sum finished/checkpoints/*/* >before

submit shared --nodelist=node1 --nodes=1 -- --train.global_batch 8 --checkpoint.every 10 --fault.delay_us 40000
until_checkpoint shared
mv shared.log first.log
mv shared.job first.job
submit shared -- --checkpoint.every 10
submit finished -- --checkpoint.every "$steps"
expect_status 2 submission on_cluster sbatch --wait --output=mistaken.log "$source_root/slurm/train.sbatch" \
    "${training[@]}" --run.dir mistaken --train.stepz 3
expect_text mistaken.log "did you mean train.steps?"
expect_no_text mistaken.log "requeue"

expect_end shared 2
expect_text shared.log "shared/LOCK is held by"
expect_text shared.log "node1"
expect_no_text shared.log "requeue"
expect_end first 0
expect_reference shared

expect_end finished 0
expect_text finished.log "nothing to do"
expect_status 0 checked sha256sum --check before
