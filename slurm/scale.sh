#!/usr/bin/env bash
# How speed grows with replicas: a job array over their numbers, and a job that collects.
#
#   slurm/scale.sh 1,2,4,8 --recipe digits_cnn --nodes 2 --gpus-per-node 4 --out runs/scale
#   parity status runs/scale --wait 3600
#
# Who has which number of replicas is worked out by 'parity submit'; see its --help for more.
set -euo pipefail
replicas=${1:?usage: slurm/scale.sh REPLICAS FLAGS OF PARITY SUBMIT}
shift
exec parity submit --scale "$replicas" "$@"
