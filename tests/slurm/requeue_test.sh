#!/usr/bin/env bash
# USR1, as Slurm sends it before the time limit: a checkpoint, exit code 85, the job requeues itself
# and goes on; bits are those of a run that nobody stopped. Jobs that depend on it wait for its end:
# its weights are consolidated and evaluated.
# shellcheck source=tests/slurm/support.sh
source "$(dirname "$0")/support.sh"

submit stopped -- --checkpoint.every "$steps"
submit_script consolidation --dependency="afterok:$(<stopped.job)" \
    "$source_root/slurm/consolidate.sbatch" stopped model.h5
submit_script evaluation --dependency="afterok:$(<consolidation.job)" \
    "$source_root/slurm/eval.sbatch" "${training[0]}" --model.init_from model.h5

until_step stopped 2
on_cluster scancel --signal=USR1 "$(<stopped.job)"
until_state stopped PENDING
[[ ! -e model.h5 ]] || fail "consolidated before the training was done"
expect_end stopped 0

expect_text stopped.log "stopped early: requeueing the job, to go on from stopped/checkpoints/step-"
expect_text stopped.log "start 1, on node"  # the log goes on in the same file
expect_text stopped.log "start 2, on node"
expect_text stopped/run.log "resumed from"
expect_reference stopped

expect_end evaluation 0
expect_status 0 consolidated.diff "$ckpt" diff model.h5 "$reference"
# The training's last evaluation, and the job's: of more digits, and with another number of ranks.
python3 - "$reference/metrics.jsonl" evaluation.log <<'PYTHON'
import json, re, sys
trained = [json.loads(line)["loss"] for line in open(sys.argv[1]) if '"kind":"eval"' in line][-1]
(evaluated,) = re.findall(r"validation loss ([0-9.]+) over", open(sys.argv[2]).read())
assert abs(trained - float(evaluated)) < 1e-6, (trained, evaluated)
PYTHON
