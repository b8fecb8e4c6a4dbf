"""What the batch scripts in slurm/ ask: `python -m parity.batch end|sweep ARGUMENT...`."""

if __name__ == "__main__":
    from parity.import_path import importing, leave_working_folder

    leave_working_folder()

    import sys

    with importing("parity.batch"):
        from parity.common.planning.submission import end, sweep

    sys.exit({"end": end.main, "sweep": sweep.main}[sys.argv[1]](sys.argv[2:]))
