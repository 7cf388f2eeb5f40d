#!/usr/bin/env bash
# A program that ends with 85 and has written no newer checkpoint is not started again and again.
# shellcheck source=tests/slurm/support.sh
source "$(dirname "$0")/support.sh"

printf '#!/bin/sh\nexit 85\n' >program
chmod +x program
mkdir -p run/checkpoints/step-00000010 run/checkpoints/step-00000020.tmp
printf '[run]\ndir = run   # relative\n' >deck.ini

FULLSHARD_PROGRAM=$PWD/program expect_status 85 submission \
    on_cluster sbatch --wait --quiet --output=log "$source_root/slurm/train.sbatch" deck.ini
expect_text log "not requeued: no checkpoint is newer than at this start (run/checkpoints/step-00000010)"
