"""The command `parity`, also as python -m parity."""

from parity.import_path import importing, leave_working_folder


def main() -> None:
    """Import the command and run it."""
    with importing("parity"):
        from parity.common.commands import main as command

    command.main()


if __name__ == "__main__":
    leave_working_folder()
    main()
