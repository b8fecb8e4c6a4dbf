"""The command `parity`, also as python -m parity."""

from parity.import_path import end_early_in_one_line, leave_working_folder


def main() -> None:
    """Import the command and run it."""
    end_early_in_one_line("parity")

    from parity.common.commands import cli

    cli.main()


if __name__ == "__main__":
    leave_working_folder()
    main()
