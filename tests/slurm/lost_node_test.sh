#!/usr/bin/env bash
# A node goes dark: Slurm notices and puts the job back into the queue; what was written is whole, and
# the training goes on, here on the node that is left.
# shellcheck source=tests/slurm/support.sh
source "$(dirname "$0")/support.sh"
trap '"$cluster" reset' EXIT

submit lost -- --train.global_batch 8 --checkpoint.every 10
until_checkpoint lost
"$cluster" kill-node node2
until_state lost PENDING
expect_status 0 verified "$ckpt" verify lost

on_cluster scontrol update job="$(<lost.job)" NumNodes=1-1 NumTasks=2
expect_end lost 0
expect_text lost.log "DUE TO NODE FAILURE"
expect_text lost.log "4 ranks on 2 nodes (2 + 2)"
expect_text lost.log "start 2, on node1"
expect_text lost/run.log "2 accumulated x 2 ranks"
expect_reference lost
