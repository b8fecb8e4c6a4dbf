"""A headless chromium that does as it is told, over its DevTools pipe: no port, no package."""

from __future__ import annotations

import base64
import fcntl
import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
_SECONDS = 60


class Browser:
    """One page of a running browser."""

    def __init__(self, commands: int, answers: int) -> None:
        self._commands, self._answers = commands, answers
        self._count, self._session, self._left = 0, None, b""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]

    def call(self, method: str, **parameters: Any) -> Any:
        """Call a method of the DevTools protocol; returns its result."""
        self._count += 1
        message: dict[str, Any] = {"id": self._count, "method": method, "params": parameters}
        message |= {"sessionId": self._session} if self._session else {}
        os.write(self._commands, json.dumps(message).encode() + b"\0")
        while True:
            while b"\0" not in self._left:
                received = os.read(self._answers, 1 << 20)
                assert received, "chromium has ended"
                self._left += received
            text, _, self._left = self._left.partition(b"\0")
            answer = json.loads(text)
            if answer.get("id") == self._count:
                assert "error" not in answer, answer
                return answer["result"]

    def open(self, page: Path, width: int, dark: bool = False, height: int = 900) -> None:
        """Open a page on a screen of some width, and wait until its scripts have drawn it."""
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        screen = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.call("Emulation.setDeviceMetricsOverride", **screen)
        gone = self.call("Page.navigate", url=page.as_uri())
        assert "errorText" not in gone, (page, gone)
        ready = "document.readyState === 'complete' && (!window.Plotly || ['plots', 'error'].some(name => name in document.documentElement.dataset))"
        end = time.monotonic() + _SECONDS
        while not self.value(ready):
            assert time.monotonic() < end, (
                f"{page} was not drawn; {self.value('document.body.innerText')[:400]}"
            )
            time.sleep(0.05)

    def value(self, expression: str) -> Any:
        """Return what JavaScript makes of an expression, after it has settled where it is a promise."""
        found = self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def press(self, key: str) -> None:
        """Press a key once."""
        for kind in ("keyDown", "keyUp"):
            self.call(
                "Input.dispatchKeyEvent",
                type=kind,
                key=key,
                code=key,
                windowsVirtualKeyCode={"Tab": 9}.get(key, 0),
            )

    def screenshot(self, height: int | None = None) -> bytes:
        """Return the page's upper part, or all of it, as PNG."""
        width = self.value("innerWidth")
        height = height or self.value("document.documentElement.scrollHeight")
        area = {"x": 0, "y": 0, "width": width, "height": height, "scale": 1}
        taken = self.call("Page.captureScreenshot", format="png", clip=area, captureBeyondViewport=True)
        return base64.b64decode(taken["data"])


def installed() -> str | None:
    """Where chromium is."""
    return shutil.which("chromium")


@contextmanager
def browsing(folder: Path) -> Iterator[Browser]:
    """Start chromium with its profile in a folder; it ends with the block."""
    program = installed()
    assert program is not None, "chromium is not installed (apt-get install -y chromium)"
    (read, commands), (answers, write) = os.pipe(), os.pipe()
    # Chromium reads from descriptor 3 and writes to 4.
    theirs, ours = (fcntl.fcntl(given, fcntl.F_DUPFD, 10) for given in (read, write))
    shell = f'exec "$0" "$@" 3<&{theirs} 4>&{ours}'
    flags = [*FLAGS, "--remote-debugging-pipe", f"--user-data-dir={folder / 'profile'}"]
    process = subprocess.Popen(
        ["bash", "-c", shell, program, *flags], pass_fds=(theirs, ours), stderr=subprocess.DEVNULL
    )
    for descriptor in (read, write, theirs, ours):
        os.close(descriptor)
    try:
        browser = Browser(commands, answers)
        yield browser
        browser._session = None
        browser.call("Browser.close")
    finally:
        os.close(commands)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        os.close(answers)
