# A site's file (FULLSHARD_SITE) that makes the first start of train.sbatch slow, and no other. Keys
# that the test names win.
# shellcheck shell=bash
((${SLURM_RESTART_COUNT:-0} > 0)) || keys=(--fault.delay_us 10000 "${keys[@]}")
