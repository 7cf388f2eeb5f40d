#!/usr/bin/env bash
# A requeued job that finds another number of nodes goes on with the global batch that it had, though
# the deck names only the micro-batch.
# shellcheck source=tests/slurm/support.sh
source "$(dirname "$0")/support.sh"

submit elastic -- --checkpoint.every "$steps"
until_step elastic 2
on_cluster scancel --signal=USR1 "$(<elastic.job)"
until_state elastic PENDING
on_cluster scontrol update job="$(<elastic.job)" NumNodes=1-1 NumTasks=2
expect_end elastic 0
expect_text elastic.log "1 nodes of 2 ranks"
expect_text elastic.log "4 ranks on 2 nodes (2 + 2)"
expect_text elastic.log "2 ranks on 1 node (2)"
expect_text elastic/run.log "2 accumulated x 2 ranks"
expect_reference elastic
