#!/usr/bin/env bash
# hybrid_shard on two nodes of two ranks: the shard groups are the nodes, also when Slurm deals the
# ranks out in turn. Nodes of three ranks and one have no such groups, and train by a flat plan. Before
# one of them fullshard doctor looks at the nodes.
# shellcheck source=tests/slurm/support.sh
source "$(dirname "$0")/support.sh"

keys=(--checkpoint.every "$steps")
printf 'doctor=on\n' >site.sh
FULLSHARD_SITE=$PWD/site.sh submit block -- "${keys[@]}" --shard.strategy hybrid_shard --fault.delay_us 0
submit cyclic --distribution=cyclic -- "${keys[@]}" --shard.strategy hybrid_shard --fault.delay_us 0
expect_end block 0
expect_end cyclic 0
on_cluster srun --mpi=pmix --nodes=2 --ntasks=4 \
    "$FULLSHARD_PROGRAM" train "${training[@]}" "${keys[@]}" --run.dir uneven

expect_text block.log "0 failed"
for name in block cyclic; do
    expect_text $name/run.log "4 ranks on 2 nodes (2 + 2)"
    expect_text $name/run.log "hybrid_shard over 2 ranks, 2 replicas"
    expect_reference $name
done
expect_text uneven/run.log "4 ranks on 2 nodes (3 + 1)"
expect_reference uneven

# With the nodes as groups, parameters are gathered within a node, and all that a rank receives over
# MPI is the other node's sum for its half of the gradients: once a step, 4 bytes an element.
python3 - block cyclic <<'PYTHON'
import json, sys
for name in sys.argv[1:]:
    records = [json.loads(line) for line in open(name + "/metrics.jsonl")]
    run, summary = records[0], records[-1]
    assert run["node_sizes"] == [2, 2], run
    (parameters,) = (item["bytes"] for item in summary["memory_allocated"]
                     if item["purpose"].startswith("unsharded parameters"))
    counted = summary["traffic_counted"]
    assert counted["lane_received"] == summary["steps"] * parameters // 2, (name, counted, parameters)
PYTHON
expect_text uneven/run.log "flat"
