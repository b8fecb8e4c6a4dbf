# What a site edits: how a job finds its programs. Every batch script reads this file.
# To keep it elsewhere: export PARITY_ENV=/path/to/env.sh before sbatch.
# shellcheck shell=bash disable=SC1091,SC2034,SC2154

# Modules, and the virtual environment that scripts/setup makes:
# module load cuda/12.4
if [ -r "$folder/../.venv/bin/activate" ]; then source "$folder/../.venv/bin/activate"; fi

# A container takes the place of both. Apptainer:
# python=(apptainer exec --nv --bind "$PWD" "$HOME/parity.sif" python)
# Pyxis:
# srun=(srun --container-image="$HOME/parity.sqsh" --container-mounts="$PWD:$PWD" --container-workdir="$PWD")
srun=(srun)
python=(python)

# TensorFlow and PyTorch in environments of their own; each needs what 'parity doctor' asks for.
# export PARITY_TF_PYTHON="$HOME/tf-env/bin/python" PARITY_TORCH_PYTHON="$HOME/torch-env/bin/python"
# In containers of their own:
# tf_python=(apptainer exec --nv --bind "$PWD" "$HOME/tf.sif" python)
# torch_python=(apptainer exec --nv --bind "$PWD" "$HOME/torch.sif" python)

# A process that hears nothing of the others for so many seconds gives up. It must be longer than the difference
# between the first and the last process to have imported its framework.
timeout_seconds=45

# The network between nodes, where the one that the hosts' names belong to is not the fast one:
# export NCCL_SOCKET_IFNAME=ib0 GLOO_SOCKET_IFNAME=ib0
