"""What our `python -m` entries do before they import anything else. Nothing here may import a package."""

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType

# What pip calls the modules that we need: nothing else is to be installed for the asking.
PIP_NAMES = {
    **{name: name for name in ("numpy", "pydantic", "safetensors", "scipy", "rich", "jinja2")},
    "yaml": "PyYAML",
    "absl": "absl-py",
    "typing_extensions": "typing-extensions",
}
_TOOLKIT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def leave_working_folder(*, in_children: bool = False) -> None:
    """Take the working folder off sys.path if `python -m` put it there.

    A user's own numpy.py or pydantic/ in that folder would be imported instead of the package that we need. The
    folder stays where the toolkit itself is imported from it, and where PYTHONPATH names it.

    Args:
        in_children: Python processes that this one starts leave it out, too (PYTHONSAFEPATH).
    """
    if getattr(sys.flags, "safe_path", False) or not sys.path:  # Python 3.10 has none
        return
    first = os.path.realpath(sys.path[0])
    if first == os.path.realpath(os.getcwd()) != os.path.realpath(_TOOLKIT):
        del sys.path[0]
        if in_children:
            os.environ["PYTHONSAFEPATH"] = "1"


@contextmanager
def children_leaving_working_folder() -> Iterator[None]:
    """Within it, Python processes that are started import nothing from the working folder, unless the toolkit is there.

    Those of `multiprocessing` would: they are started with -c.
    """
    before = os.environ.get("PYTHONSAFEPATH")
    if os.path.realpath(os.getcwd()) != os.path.realpath(_TOOLKIT):
        os.environ["PYTHONSAFEPATH"] = "1"
    try:
        yield
    finally:
        if before is None:
            os.environ.pop("PYTHONSAFEPATH", None)


@contextmanager
def importing(name: str) -> Iterator[None]:
    """Around the imports of a command: until it has ended, whatever ends this process early is one line and no traceback.

    Ctrl-C within it ends the process by SIGINT at once: as an exception in the middle of an import it would become
    any other. From then on an exception that nobody has caught ends with code 2, since 1 is that of a divergence.

    Args:
        name: what the line begins with.
    """

    def interrupted(*_: object) -> None:
        _say(f"{name}: interrupted")
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)

    def uncaught(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if issubclass(kind, KeyboardInterrupt):
            _say(f"{name}: interrupted")
            return  # Python ends by SIGINT
        if issubclass(kind, ImportError):
            ours = PIP_NAMES.get(getattr(error, "name", None) or "")
            lacks = ours and issubclass(kind, ModuleNotFoundError)
            install = f"; run: {sys.executable} -m pip install {ours}" if lacks else ""
            _say(f"{name}: error: {error}{install}")
        else:
            from parity.common.base.ending import say_unforeseen

            say_unforeseen(name, error)
        os._exit(2)

    sys.excepthook = uncaught
    # Where a shell has started it in the background, it is ignored.
    heard = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if heard:
        signal.signal(signal.SIGINT, interrupted)
    yield
    if heard:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _say(line: str) -> None:
    try:
        print(line, file=sys.stderr, flush=True)
    except (OSError, ValueError):
        pass  # nobody is there to read it


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
