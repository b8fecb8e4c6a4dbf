# What the batch scripts share. They source it; it reads env.sh.
# shellcheck shell=bash
set -euo pipefail

job=${SLURM_ARRAY_JOB_ID:-${SLURM_JOB_ID:-}}${SLURM_ARRAY_TASK_ID:+_$SLURM_ARRAY_TASK_ID}
say() { echo "${SLURM_JOB_NAME:-job} $job: $*"; }

fail() {
  say "error: $*" >&2
  exit 2
}

[ -n "$job" ] || fail "this script runs in a job; start it with sbatch"
folder=${PARITY_SLURM:-$SLURM_SUBMIT_DIR/slurm}
# shellcheck source=slurm/env.sh
source "${PARITY_ENV:-$folder/env.sh}"

# The Python of each framework. A checkout need not be installed there.
if [ -n "${PARITY_TF_PYTHON:-}" ]; then tf_python=("$PARITY_TF_PYTHON"); fi
if [ -n "${PARITY_TORCH_PYTHON:-}" ]; then torch_python=("$PARITY_TORCH_PYTHON"); fi
if [ -n "${tf_python:-}${torch_python:-}" ] && [ -e "$folder/../parity/__init__.py" ]; then
  PYTHONPATH=${PYTHONPATH:+$PYTHONPATH:}$(realpath "$folder/..")
  export PYTHONPATH
fi

# A process for each GPU of the job; without GPUs for each of its tasks. Nodes are all alike.
alike="add --ntasks-per-node, so that all nodes are alike"
((SLURM_NTASKS % SLURM_JOB_NUM_NODES == 0)) || fail "$SLURM_NTASKS tasks on $SLURM_JOB_NUM_NODES nodes: $alike"
[[ $SLURM_JOB_CPUS_PER_NODE != *,* ]] || fail "SLURM_JOB_CPUS_PER_NODE is $SLURM_JOB_CPUS_PER_NODE: $alike"
per_node=${SLURM_GPUS_ON_NODE:-$((SLURM_NTASKS / SLURM_JOB_NUM_NODES))}
cpus_per_node=${SLURM_JOB_CPUS_PER_NODE%%(*}
cpus=$((cpus_per_node / per_node))
((cpus)) || fail "$cpus_per_node CPUs on a node for $per_node processes; add --cpus-per-gpu or --cpus-per-task"
unset SLURM_CPUS_PER_GPU # instead of which srun is given CPUs for each task
device=cpu
if [ -n "${SLURM_GPUS_ON_NODE:-}" ]; then device=gpu; fi

# How long srun may wait for a step's other processes, once one has failed: it would wait for a dead node.
readonly GRACE_SECONDS=5
# How long a training may take to save, once it was asked to stop. SLURM gives it 60 s before the time limit (the
# scripts' --signal), and KillWait (30 s) where it ends a job for another reason.
readonly SAVE_SECONDS=45
step='' steps=0 stopped='' patience=$GRACE_SECONDS ends='' goes_on='' restart=${SLURM_RESTART_COUNT:+restart$SLURM_RESTART_COUNT.}
trap 'stop "its time limit is near"' USR1
trap 'ends=1; stop "it was cancelled or preempted"' TERM

stop() { # REASON
  stopped=$1
  local signal=TERM
  # srun passes USR1 on to every process: a training that saves does so, and ends. By TERM srun ends the step.
  if [ -n "$goes_on" ]; then signal=USR1 patience=$SAVE_SECONDS; fi
  if [ -n "$step" ]; then kill -$signal "$step" 2>/dev/null || true; fi
}

latest() { # OUT: prints the name of its latest checkpoint
  local names=("$1"/checkpoints/step_*[0-9])
  if [ -e "${names[-1]}" ]; then basename "${names[-1]}"; fi
}

# Runs a step, and ends the job with one line where it fails; or has SLURM start it again, where that helps.
launch() { # NODES TASKS_PER_NODE OUT COMMAND...
  local nodes=$1 tasks=$2 out=$3 prefix=$job.$restart$((steps++)) code=0 again=0 before said
  shift 3
  mkdir -p "$logs"
  rm -f "$logs/$job.end"
  patience=$GRACE_SECONDS
  before=$(latest "$out")
  "${srun[@]}" --nodes="$nodes" --ntasks=$((nodes * tasks)) --ntasks-per-node="$tasks" --distribution=block \
    --cpus-per-task=$((cpus_per_node / tasks)) --kill-on-bad-exit=1 --output="$logs/${prefix}_rank%t_%N.log" \
    "$@" --out="$out" 2>"$logs/${prefix}_srun.log" &
  step=$!
  # A trap runs only between two commands, so not within one long wait.
  while kill -0 "$step" 2>/dev/null; do
    sleep 1 &
    wait -n || true
    if [ -n "$stopped" ] || grep -Eq '^srun: error: (Node failure|[^ ]+: task)' "$logs/${prefix}_srun.log"; then
      if ! ((patience--)); then
        disown "$step" # bash would say that it was killed
        kill -KILL "$step" 2>/dev/null || true
        code=137
        break
      fi
    fi
  done
  ((code)) || wait "$step" || code=$?
  step=''
  # The last run of a job may have come to its end although it was asked to stop.
  if ((code == 0)) && { [ -z "$stopped" ] || [ "$goes_on${PARITY_FLOOR:-}" = 1 ]; }; then return; fi
  said=$("${python[@]}" -m parity.batch end --logs="$logs" --prefix="$prefix" --out="$out" --code="$code" \
    --hosts="$SLURM_JOB_NODELIST" --nodes="$nodes" --tasks-per-node="$tasks" ${stopped:+--stopped="$stopped"} \
    ${ends:+--ends} ${goes_on:+--goes-on} --saved-before="$before") || again=$?
  if ((again == 75)); then
    say "$said"
    # SLURM ends this script with it.
    scontrol requeue "$SLURM_JOB_ID" && sleep 60
    said="$said; but SLURM did not requeue it"
  elif ((again)); then
    said=$(cat "$logs/${prefix}_srun.log")
  fi
  echo "$said" >"$logs/$job.end" # for 'parity status'
  fail "$said"
}

# Trains as `train` does, and goes on where the job was stopped, or is submitted again with the same --out.
train_and_go_on() { # parity.tf_impl|parity.torch_impl LAUNCHER FLAG...
  local flag saves='' resumes=''
  goes_on=1
  # Loops of others save nothing.
  case " $* " in *' --engine'[=\ ]keras* | *' --engine'[=\ ]lightning* | *' --strategy'[=\ ]deepspeed*) goes_on='' ;; esac
  for flag in "$@"; do
    case $flag in
      --save_every_*) saves=1 ;;
      --resume | --resume=*) resumes=1 ;;
    esac
  done
  if [ -n "$goes_on" ] && [ -z "$saves" ]; then set -- "$@" --save_every_minutes=10; fi
  if [ -n "$goes_on" ] && [ -z "$resumes" ]; then set -- "$@" --resume=auto; fi
  train "$@"
}

# Trains on all nodes of the job, and then, where PARITY_FLOOR says so, measures what rounding alone does.
train() { # parity.tf_impl|parity.torch_impl LAUNCHER FLAG...
  local module=$1 launcher=$2 nodes=$SLURM_JOB_NUM_NODES tasks=$per_node previous='' flag seed
  local out=${PARITY_OUT:-runs/$SLURM_JOB_NAME-$SLURM_JOB_ID}
  shift 2
  for flag in "$@"; do
    if [ "$previous" = --out ]; then out=$flag; fi
    if [[ $flag == --out=* ]]; then out=${flag#--out=}; fi
    previous=$flag
  done
  if [ "$launcher" = local ]; then
    # One process holds all replicas.
    [ "$nodes" = 1 ] || fail "one process cannot use $nodes nodes; submit with --nodes=1"
    tasks=1
  fi
  logs=${PARITY_LOGS:-$out.logs}
  local trainer=("${python[@]}")
  if [ "$module" = parity.tf_impl ] && [ -n "${tf_python:-}" ]; then trainer=("${tf_python[@]}"); fi
  if [ "$module" = parity.torch_impl ] && [ -n "${torch_python:-}" ]; then trainer=("${torch_python[@]}"); fi
  set -- "${trainer[@]}" -m "$module" --launcher="$launcher" --nodes="$nodes" --replicas=$((nodes * per_node)) \
    --device="$device" --threads_per_replica="$cpus" --timeout_seconds="$timeout_seconds" "$@"
  say "$nodes node(s), $((nodes * per_node)) replica(s); record: $out; logs: $logs"
  launch "$nodes" "$tasks" "$out" "$@"
  cat "$logs/$job.${restart}0_rank0_"*.log
  if [ -n "${PARITY_FLOOR:-}" ] && ! grep -q '"precision": "float64"' "$out/header.json"; then
    for seed in 0 1 2 3; do
      launch "$nodes" "$tasks" "$PARITY_FLOOR/$SLURM_JOB_NAME-$seed" "$@" --sample_order_seed=$seed
    done
    if grep -q '"precision": "float32"' "$out/header.json"; then
      launch "$nodes" "$tasks" "$PARITY_FLOOR/$SLURM_JOB_NAME-exact" "$@" --set=precision=float64 --stop_at_step=1
    fi
  fi
}
