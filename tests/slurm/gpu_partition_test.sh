#!/usr/bin/env bash
# train.sbatch works unchanged where nodes have GPUs: each rank sees all of its node's, not only its own,
# whatever the site binds. The example of a site's file works.
# shellcheck source=tests/slurm/support.sh
source "$(dirname "$0")/support.sh"

# Says what a rank was given.
cat >program <<'PROGRAM'
#!/bin/sh
echo "rank $SLURM_PROCID of $SLURM_NTASKS: $SLURMD_TRES_BIND, sees GPUs ${CUDA_VISIBLE_DEVICES-all}"
echo "words: $*"
PROGRAM
chmod +x program
printf '[run]\ndir = run\n' >deck.ini
# The commands of a real site.
printf 'module() { echo "module $*"; }\nsource "%s"\n' "$source_root/slurm/sites/example.sh" >site.sh

train() {
    FULLSHARD_PROGRAM=$PWD/program submit_script "$@" "$source_root/slurm/train.sbatch" deck.ini --train.steps 7
}
train gpus --nodes=1 --gpus-per-node=2 --gpu-bind=single:1
train site --nodes=1 --cpus-per-task=3 --partition=cpu --export=ALL,FULLSHARD_SITE="$PWD/site.sh"
train cpus --nodes=1

expect_end gpus 0
for rank in 0 1; do expect_text gpus.log "rank $rank of 2: gpu:none, sees GPUs all"; done
expect_end site 0
expect_text site.log "module load"
expect_text site.log "words: train deck.ini --kernels.threads 3 --train.steps 7"
expect_end cpus 0
expect_text cpus.log "words: train deck.ini --train.steps 7"
expect_no_text cpus.log "gpu:"
