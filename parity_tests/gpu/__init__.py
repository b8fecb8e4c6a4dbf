"""What a machine's GPUs make of the toolkit, in one command: scripts/gpu_check. All of it runs on CPUs, too."""
