#!/bin/bash
# Measures an unmodified training on the nodes of a Slurm job, and writes a report at its end.
#
#     sbatch examples/slurm.sh train.py --epochs 3
#
# Set the resources as for the training alone. The folder of the logs, and the environment with
# loadeval, must be the same on all nodes: see docs/howto/clusters.md.
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=4
#SBATCH --gpus-per-task=1
#SBATCH --cpus-per-task=8

logs=${SLURM_SUBMIT_DIR:?start this with sbatch}/loadeval-runs/$SLURM_JOB_ID

# One task for each GPU. SLURM_PROCID names the logs, unless the program sets up torch.distributed.
program=(python "$@")

# Or torchrun, once on each node (--ntasks-per-node=1, --gpus-per-node=4):
# head=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
# program=(torchrun --nnodes="$SLURM_NNODES" --nproc-per-node="$SLURM_GPUS_ON_NODE"
#     --rdzv-id="$SLURM_JOB_ID" --rdzv-backend=c10d --rdzv-endpoint="$head:29500" "$@")

# srun gives each task our environment, and with it what makes Python measure its loaders.
loadeval run --mode alternate --output "$logs" -- srun "${program[@]}"
code=$?

loadeval report "$logs"
exit $code
