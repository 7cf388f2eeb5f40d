#!/usr/bin/env bash
# Without PMIx every task would train alone: refused, with the cure.
# shellcheck source=tests/slurm/support.sh
source "$(dirname "$0")/support.sh"

expect_status 2 output on_cluster srun --mpi=none --nodes=2 --ntasks-per-node=2 \
    "$FULLSHARD_PROGRAM" train "$source_root/inputs/smoke.ini" --run.dir alone
expect_text output "srun --mpi=pmix"
[[ ! -e alone ]] || fail "the refused run left a folder"
