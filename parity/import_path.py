"""What our `python -m` entries do before they import anything else. Nothing here may import a package."""

import os
import sys

_TOOLKIT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def leave_working_folder() -> None:
    """Take the working folder off sys.path if `python -m` put it there.

    A user's own numpy.py or pydantic/ in that folder would be imported instead of the package that we need. The
    folder stays where the toolkit itself is imported from it, and where PYTHONPATH names it.
    """
    if sys.flags.safe_path or not sys.path:
        return
    first = os.path.realpath(sys.path[0])
    if first == os.path.realpath(os.getcwd()) != os.path.realpath(_TOOLKIT):
        del sys.path[0]
