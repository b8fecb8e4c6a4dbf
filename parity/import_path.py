"""What our `python -m` entries do before they import anything else. Nothing here may import a package."""

import os
import sys

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
