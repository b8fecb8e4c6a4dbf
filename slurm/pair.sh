#!/usr/bin/env bash
# Trains one spec in TensorFlow and in PyTorch, and compares once both have succeeded: three jobs.
#
#   slurm/pair.sh OUT [sbatch's options] -- FLAGS
#   slurm/pair.sh runs/pair --nodes=2 --gpus-per-node=4 --cpus-per-gpu=8 -- --recipe digits_cnn
#   parity status runs/pair --wait 3600
#
# PARITY_PAIR names two other scripts. 'parity submit' does the same, checks all of it first, and runs any strategies.
set -euo pipefail

fail() {
  echo "pair.sh: error: $*" >&2
  exit 2
}

out=$(realpath -m "${1:?usage: slurm/pair.sh OUT [SBATCH OPTIONS] -- FLAGS}")
shift
options=()
while [ $# -gt 0 ] && [ "$1" != -- ]; do
  options+=("$1")
  shift
done
[ "${1:-}" = -- ] || fail "no -- between sbatch's options and the flags of the training"
shift
[ ! -e "$out" ] || fail "$out exists; name a new folder"
here=$(dirname "$(realpath "$0")")
export PARITY_SLURM=$here PARITY_LOGS=$out/logs PARITY_FLOOR=$out/floor
mkdir -p "$PARITY_LOGS"

submit() { # NAME SBATCH'S ARGUMENTS...: prints the job's id
  local name=$1 id
  shift
  id=$(sbatch --parsable --job-name="$name" --output="$PARITY_LOGS/%x-%j.log" "$@")
  echo "${id%%;*}"
}

jobs='' ids='' number=0
# shellcheck disable=SC2086
trap '[ -z "$ids" ] || scancel ${ids//:/ }' ERR
for script in ${PARITY_PAIR:-tf_multi_worker torch_ddp}; do
  name=$((number++))_$script
  id=$(submit "$name" "${options[@]}" "$here/$script.sbatch" "$@" --out="$out/runs/$name")
  jobs+="{\"name\": \"$name\", \"id\": $id, \"record\": \"runs/$name\"}, " ids+=:$id
done
id=$(submit report --dependency="afterok$ids" --kill-on-invalid-dep=yes "$here/report.sbatch" "$out")
echo "{\"jobs\": [$jobs{\"name\": \"report\", \"id\": $id}]}" >"$out/submission.json"
echo "jobs${ids//:/ } $id; follow them with: parity status $out"
