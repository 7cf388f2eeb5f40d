#!/usr/bin/env bash
# srun on two nodes gives the numbers that mpirun on one machine gives. The training is the reference
# of the tests that disturb theirs.
# shellcheck source=tests/slurm/support.sh
source "$(dirname "$0")/support.sh"

run=("$FULLSHARD_PROGRAM" train "${training[@]}" --checkpoint.every "$steps" --run.dir)
on_cluster srun --mpi=pmix --nodes=2 --ntasks-per-node=2 "${run[@]}" whole
read -ra mpirun <<<"$FULLSHARD_MPIRUN"
"${mpirun[@]}" -n 4 "${run[@]}" mpirun

expect_text whole/run.log "4 ranks on 2 nodes (2 + 2)"
expect_text mpirun/run.log "4 ranks on 1 node (4)"
expect_reference mpirun
