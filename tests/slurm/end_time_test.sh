#!/usr/bin/env bash
# The ranks know when the job ends (SLURM_JOB_END_TIME, which the script passes on) and stop in time
# without any signal.
# shellcheck source=tests/slurm/support.sh
source "$(dirname "$0")/support.sh"

# Stops 10 s after the start of the job: 120 s less the margin. The second start has no such margin.
cat >site.sh <<'SITE'
if ((${SLURM_RESTART_COUNT:-0} > 0)); then
    keys+=(--fault.delay_us 0)
else
    keys+=(--fault.delay_us 100000 --stop.margin_s 110)
fi
SITE
FULLSHARD_SITE=$PWD/site.sh submit timed --time=2 --signal=CONT@1 -- --checkpoint.every "$steps" --stop.margin_s 1
expect_end timed 0
expect_text timed/run.log "the job's end is near"
expect_text timed.log "stopped early: requeueing the job"
expect_reference timed
