#!/usr/bin/env bash
# A job that is ended leaves a durable checkpoint and is not requeued; the next sbatch goes on. By
# scancel, and by a time limit that comes without warning, since it was cut while the job ran.
# shellcheck source=tests/slurm/support.sh
source "$(dirname "$0")/support.sh"

keys=(--train.global_batch 8 --checkpoint.every "$steps")
# Far more steps than there is time for: Slurm looks at time limits every 30 s.
submit limit -- "${keys[@]}" --train.steps 100000 --fault.delay_us 100000
submit cancelled -- "${keys[@]}"

until_step cancelled 2
on_cluster scancel "$(<cancelled.job)"
until_step limit 2
on_cluster scontrol update job="$(<limit.job)" EndTime=now
expect_end cancelled CANCELLED

# One node goes on where two were: twice as many micro-batches on each rank.
submit cancelled --nodes=1 -- "${keys[@]}" --fault.delay_us 0
expect_end cancelled 0
expect_text cancelled/run.log "resumed from"
expect_text cancelled/run.log "2 accumulated x 2 ranks"
expect_reference cancelled

expect_end limit TIMEOUT
[[ $(job_field limit Restarts) == 0 ]] || fail "the job was requeued at its time limit"
expect_status 0 verified "$ckpt" verify limit
tail -n 1 limit/metrics.jsonl | grep -q '"stopped_early": *true' || fail "the run was not stopped in order"
