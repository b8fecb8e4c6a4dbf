"""Python imports this at its start where PYTHONPATH names the folder: notes what a process writes.

PARITY_WITNESS holds the folder to watch and the folder to note it in, with a colon between them.
"""

import os
import sys


def _begin(watched: str, notes: str) -> None:
    writing = os.O_WRONLY | os.O_RDWR | os.O_CREAT

    def note(event: str, arguments: tuple) -> None:
        if event == "open" and isinstance(arguments[0], str | bytes | os.PathLike):
            path, mode, flags = arguments
            writes = set(mode or "") & set("wax+") if mode is not None else (flags or 0) & writing
        elif event == "os.rename":
            path, writes = arguments[1], True
        else:
            return
        name = os.fsdecode(path)
        if writes and name.startswith(watched):
            rank = os.environ.get("RANK") or os.environ.get("SLURM_PROCID") or "none"
            file = os.open(os.path.join(notes, rank), os.O_WRONLY | os.O_APPEND | os.O_CREAT)
            os.write(file, f"{os.path.relpath(name, watched)}\n".encode())
            os.close(file)

    sys.addaudithook(note)


if "PARITY_WITNESS" in os.environ:
    _begin(*os.environ["PARITY_WITNESS"].split(":"))
