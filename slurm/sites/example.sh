# What one cluster needs for every job: an example to copy. The cluster is invented.
#
#   partition cpu    nodes of two sockets with 64 cores each, Open MPI with PMIx 4
#   partition gpu    nodes of 64 cores and four GPUs
#   $SCRATCH         Lustre with 40 targets; home folders are slow and small
#
# The scripts read the file that FULLSHARD_SITE names, on the first node of the job, after their own
# settings, which it may change. sbatch hands the variable on:
#
#   export FULLSHARD_SITE=$PWD/slurm/sites/example.sh SBATCH_ACCOUNT=my-project
#   sbatch -p cpu -N 8 --ntasks-per-node=16 --cpus-per-task=8 slurm/train.sbatch my.ini --run.dir "$SCRATCH/job"
#   sbatch -p gpu -N 4 --ntasks-per-node=4 --cpus-per-task=16 --gpus-per-node=4 slurm/train.sbatch my.ini
#
# shellcheck shell=bash
# shellcheck disable=SC2034  # for the scripts

module purge
module load gcc/12.2 openmpi/4.1.4

mpi=pmix_v4                                     # srun --mpi=list has no plain pmix here
program=${FULLSHARD_PROGRAM:-$HOME/fullshard/bin/fullshard}

case ${SLURM_JOB_PARTITION:-} in
    cpu) binding=cores ;;
    gpu) binding=none ;;                        # cores near a GPU are bound by the site's own plugin
esac

# A thread for each core of a rank. Keys of the command line follow and win; consolidate.sbatch has none.
[[ -z ${keys+x} ]] || keys=(--kernels.threads "${SLURM_CPUS_PER_TASK:-1}" "${keys[@]}")

# Checkpoints are striped over eight targets. Folders inherit that, and it must precede the first file.
stripe() { mkdir -p "$1" && lfs setstripe --stripe-count 8 --stripe-size 4M "$1"; }
[[ -z ${SCRATCH:-} || -d $SCRATCH/fullshard ]] || stripe "$SCRATCH/fullshard"

# Between nodes Open MPI shall use InfiniBand or stop, and not fall back to Ethernet.
export OMPI_MCA_pml=ucx
