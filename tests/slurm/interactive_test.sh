#!/usr/bin/env bash
# interactive.sh trains inside an allocation and says what is wrong outside of one.
# shellcheck source=tests/slurm/support.sh
source "$(dirname "$0")/support.sh"

train=("$source_root/slurm/interactive.sh" "$source_root/inputs/smoke.ini" --run.dir run)
expect_status 0 output on_cluster salloc --nodes=2 --ntasks-per-node=2 "${train[@]}"
expect_text run/run.log "4 ranks on 2 nodes (2 + 2)"
expect_complete run 20

expect_status 2 outside on_cluster "${train[@]}"
expect_text outside "no Slurm allocation; start it with salloc"
