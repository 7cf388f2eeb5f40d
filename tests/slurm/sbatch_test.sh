#!/usr/bin/env bash
# The batch script trains on two nodes and ends with the program's status.
# shellcheck source=tests/slurm/support.sh
source "$(dirname "$0")/support.sh"

submit() {
    on_cluster sbatch --wait --quiet --output="$1.log" "$source_root/slurm/train.sbatch" \
        "$source_root/inputs/smoke.ini" --run.dir "$1" "${@:2}"
}

submit trained & trained=$!
submit refused --train.stepz 3 & refused=$!
expect_job_status 0 "$trained" trained.log
expect_job_status 2 "$refused" refused.log

expect_text trained/run.log "4 ranks on 2 nodes (2 + 2)"
expect_complete trained 20
expect_text refused.log "did you mean train.steps?"
