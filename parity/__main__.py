"""python -m parity: the same as the command `parity`."""

from parity.common.commands.cli import main

if __name__ == "__main__":
    main()
