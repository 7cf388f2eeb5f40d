#!/usr/bin/env bash
# Trains with FullShard inside an allocation, with the output on the terminal.
#
#   salloc --nodes=2 --ntasks-per-node=2 slurm/interactive.sh inputs/text.ini [--section.key value ...]
#
# or, in the shell that salloc opened, slurm/interactive.sh DECK ... as often as you like.
# Ctrl-C twice within a second ends the ranks.

program=${FULLSHARD_PROGRAM:-build/release/bin/fullshard}
deck=${1:-}
keys=("${@:2}")
mpi=pmix            # srun --mpi=list shows what the cluster offers
binding=cores       # srun's --cpu-bind
gpu_binding=none    # srun's --gpu-bind, in jobs with GPUs; see train.sbatch
# shellcheck source=/dev/null
[[ -z ${FULLSHARD_SITE:-} ]] || source "$FULLSHARD_SITE" || exit 2

set -euo pipefail
die() { printf 'interactive.sh: error: %s\n' "$*" >&2; exit 2; }

[[ -n $deck ]] || die "no deck; use: salloc --nodes=2 --ntasks-per-node=2 $0 DECK [--section.key value ...]"
[[ -n ${SLURM_JOB_ID:-} ]] || die "this is no Slurm allocation; start it with" \
    "salloc --nodes=2 --ntasks-per-node=2 $0 $*"
[[ -x $program ]] || die "no program at $program; set FULLSHARD_PROGRAM"
[[ -f $deck ]] || die "no deck at $deck"

# From 22.05 srun ignores the job's --cpus-per-task and would give each rank a single core.
export SRUN_CPUS_PER_TASK=${SLURM_CPUS_PER_TASK:-1}

# --kill-on-bad-exit: see train.sbatch.
# --overlap: a shell that is itself a step (srun --pty) holds cores, which srun would wait for.
launch=(srun --mpi="$mpi" --cpu-bind="$binding" --kill-on-bad-exit=0 --wait=60 --overlap)
[[ -z ${SLURM_GPUS_ON_NODE:-} ]] || launch+=(--gpu-bind="$gpu_binding")
exec "${launch[@]}" "$program" train "$deck" "${keys[@]}"
