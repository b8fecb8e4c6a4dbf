"""python -m parity: the same as the command `parity`."""

if __name__ == "__main__":
    from parity.import_path import leave_working_folder

    leave_working_folder()

    from parity.common.commands.cli import main

    main()
