"""The pytest plugin: assert in a test that a Keras model and its torch port are the same.

    def test_port(parity):
        parity.assert_same_forward(keras="my_pkg.models:build", torch="my_pkg.port:Net", inputs=x)

Every run of pytest on the machine loads this file. So it imports nothing but pytest, and the toolkit's packages only
once an assertion is called: a repository may have a package `common` of its own.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest

_DEFAULT_FOLDER = ".parity"
# Characters of a folder's name.
_LONGEST = 150
_MARKER = (
    "parity(**arguments): a test of a Keras model and its torch port; arguments (keras, torch, mapping, ...) are those"
    " that the assertions of the fixture `parity` take where the test gives none. Every test that takes the fixture has"
    " the marker, so that -m 'not parity' leaves them out."
)


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("parity", "a Keras model and its torch port")
    group.addoption(
        "--parity-artefacts",
        metavar="FOLDER",
        help=f"where reports of failed assertions are left, a folder a test [{_DEFAULT_FOLDER} in the root folder]",
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", _MARKER)
    _sessions.append(_Session(config))


def pytest_unconfigure(config: pytest.Config) -> None:
    for session in [each for each in _sessions if each.config is config]:
        _sessions.remove(session)
        session.close()


def pytest_itemcollected(item: pytest.Item) -> None:
    if "parity" in getattr(item, "fixturenames", ()):
        item.add_marker("parity")


@pytest.fixture
def parity(request: pytest.FixtureRequest) -> Parity:
    """Asserts that a Keras model and its torch port are the same."""
    marked: dict[str, Any] = {}
    for mark in reversed(list(request.node.iter_markers("parity"))):
        marked |= mark.kwargs
    return Parity(_sessions[-1], request.node.nodeid, marked)


class Parity:
    """What the fixture `parity` gives."""

    def __init__(self, session: _Session, node: str, marked: dict[str, Any]) -> None:
        self._session, self._node, self._marked = session, node, marked

    def assert_same_forward(self, **arguments: Any) -> None:
        """Assert that two models compute the same; see `parity.common.assertions.assertions.Assertions.same_forward`."""
        __tracebackhide__ = True
        self._assert("same_forward", arguments)

    def assert_same_training(self, **arguments: Any) -> None:
        """Assert that two models train the same; see `parity.common.assertions.assertions.Assertions.same_training`."""
        __tracebackhide__ = True
        self._assert("same_training", arguments)

    def _assert(self, name: str, arguments: dict[str, Any]) -> None:
        __tracebackhide__ = True
        method, known = self._session.method(name)
        given = {key: value for key, value in self._marked.items() if key in known} | arguments
        foreign = [key for key in arguments if key not in known]
        missing = [key for key, needed in known.items() if needed and key not in given]
        if foreign or missing:
            what = f"does not take {foreign[0]!r}" if foreign else f"needs {missing[0]!r}"
            pytest.fail(f"assert_{name} {what}; it takes {', '.join(known)}")
        try:
            _said(method, {**given, "folder": self._session.folder / _file_name(self._node)})
        finally:
            self._session.hide()


def assert_same_forward(**arguments: Any) -> None:
    """As the fixture's, for a test that does not take the fixture."""
    __tracebackhide__ = True
    _of_this_test().assert_same_forward(**arguments)


def assert_same_training(**arguments: Any) -> None:
    """As the fixture's, for a test that does not take the fixture."""
    __tracebackhide__ = True
    _of_this_test().assert_same_training(**arguments)


def _of_this_test() -> Parity:
    __tracebackhide__ = True
    if not _sessions:
        raise RuntimeError("parity asserts in tests, which pytest runs; elsewhere use `parity pair`")
    node = os.environ.get("PYTEST_CURRENT_TEST", "no test").rpartition(" (")[0]
    return Parity(_sessions[-1], node, {})


class _Session:
    """The toolkit in a run of pytest, imported when it is first asked for.

    Its framework processes stay for all tests: starting one takes seconds. folder: of the artefacts.
    """

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self._assertions: Any = None

    @property
    def folder(self) -> Path:
        given = self.config.getoption("--parity-artefacts")
        return Path(given).absolute() if given else self.config.rootpath / _DEFAULT_FOLDER

    def hide(self) -> None:
        """Have git pass over the artefacts, as it does over pytest's own; a folder that a user names is theirs."""
        ignored = self.folder / ".gitignore"
        named = self.config.getoption("--parity-artefacts")
        if not named and self.folder.is_dir() and not ignored.exists():
            ignored.write_text("*\n")

    def method(self, name: str) -> tuple[Any, dict[str, bool]]:
        """A method of `Assertions`, and what a user may give it: name -> whether it must be given."""
        __tracebackhide__ = True
        import inspect

        if self._assertions is None:
            self._assertions = _toolkit()()
        method = getattr(self._assertions, name)
        parameters = inspect.signature(method).parameters
        known = {key: one.default is one.empty for key, one in parameters.items() if key != "folder"}
        return method, known

    def close(self) -> None:
        if self._assertions is not None:
            self._assertions.close()


# Of the runs of pytest in this process; more than one where a plugin is tested.
_sessions: list[_Session] = []


def _toolkit() -> Any:
    """The class `Assertions`."""
    __tracebackhide__ = True
    from parity.common.assertions.assertions import Assertions

    return Assertions


def _said(method: Any, arguments: dict[str, Any]) -> None:
    """Call it; what it says, and none of our lines, is what a failure shows."""
    __tracebackhide__ = True
    from parity.common.base.errors import ParityError

    try:
        method(**arguments)
    except AssertionError as failed:
        text = str(failed)
    except ParityError as error:
        text = f"could not be compared: {error}"
    else:
        return
    pytest.fail(text)


def _file_name(node: str) -> str:
    """A test's name as that of a folder; a long one ends in a hash of the whole, so that no two share a folder."""
    import hashlib

    name = re.sub(r"[^\w.\-]+", "_", node).strip("_.")
    if len(name) <= _LONGEST:
        return name
    digest = hashlib.sha256(node.encode()).hexdigest()[:10]
    return f"{name[: _LONGEST - len(digest) - 1]}-{digest}"
