#!/usr/bin/env bash
# USR1 leads to a checkpoint and exit code 85; the job requeues itself, goes on from there, and its
# numbers are those of a run that nobody stopped.
# shellcheck source=tests/slurm/support.sh
source "$(dirname "$0")/support.sh"

readonly train=("$source_root/inputs/smoke.ini" --train.steps 200 --run.dir)

on_cluster sbatch --wait --parsable --output=stopped.log "$source_root/slurm/train.sbatch" \
    "${train[@]}" stopped >job & stopped=$!
until grep -qs '"kind": *"step"' stopped/metrics.jsonl; do
    kill -0 "$stopped" || { cat stopped.log; fail "the job ended before its first step"; }
    sleep 0.1
done
on_cluster scancel --signal=USR1 "$(<job)"
# Trains while the job waits in the queue.
expect_status 0 whole.log on_cluster srun --mpi=pmix --nodes=2 --ntasks-per-node=2 \
    "$FULLSHARD_PROGRAM" train "${train[@]}" whole
expect_job_status 0 "$stopped" stopped.log

expect_text stopped.log "requeueing the job, to go on from stopped/checkpoints/step-"
expect_text stopped.log "start 2"
expect_complete stopped 200
diff <(losses stopped) <(losses whole) || fail "losses differ between the stopped (<) and the whole run (>)"
