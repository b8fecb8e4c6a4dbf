"""What our `python -m` entries do before they import anything else. Nothing here may import a package."""

import os
import sys
from types import TracebackType

_TOOLKIT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def leave_working_folder(*, in_children: bool = False) -> None:
    """Take the working folder off sys.path if `python -m` put it there.

    A user's own numpy.py or pydantic/ in that folder would be imported instead of the package that we need. The
    folder stays where the toolkit itself is imported from it, and where PYTHONPATH names it.

    Args:
        in_children: Python processes that this one starts leave it out, too (PYTHONSAFEPATH).
    """
    if sys.flags.safe_path or not sys.path:
        return
    first = os.path.realpath(sys.path[0])
    if first == os.path.realpath(os.getcwd()) != os.path.realpath(_TOOLKIT):
        del sys.path[0]
        if in_children:
            os.environ["PYTHONSAFEPATH"] = "1"


def end_early_in_one_line(name: str) -> None:
    """Have Ctrl-C and a package that cannot be imported end this process with one line, from the first import on.

    Ctrl-C still ends it by SIGINT; else the exit code is 2, since 1 is that of a divergence.

    Args:
        name: what the line begins with.
    """
    usual = sys.excepthook

    def told(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if issubclass(kind, KeyboardInterrupt):
            print(f"{name}: interrupted", file=sys.stderr)
        elif issubclass(kind, ImportError):
            print(f"{name}: error: {error}", file=sys.stderr, flush=True)
            os._exit(2)
        else:
            usual(kind, error, trace)

    sys.excepthook = told


def refuse_hidden(*names: str) -> None:
    """Raise ImportError if a file of the user's, beside their script, hides a package that we need.

    Without this, the first error would be an AttributeError somewhere in our code.
    """
    from glob import escape, glob
    from importlib.machinery import PathFinder

    first, *others = sys.path or [""]
    for name in names:
        spec = PathFinder.find_spec(name, [first or os.getcwd()])
        # What pip has installed there is the package itself.
        if spec is None or spec.origin is None or glob(os.path.join(escape(first), f"{name}-*.dist-info")):
            continue
        if PathFinder.find_spec(name, others) is not None:
            raise ImportError(
                f"{spec.origin} hides the package {name!r}, which parity needs; give that file another name, or"
                " start Python with -P",
                name=name,
            )
