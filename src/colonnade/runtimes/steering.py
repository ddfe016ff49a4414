"""What the owner of a run asks of it while it runs: to pause, to go on, to stop. A small file says so.

The file lies in the run directory, and only who owns that may write it. Whoever carries the run looks at it a few times
a second, and a pause is nobody's time: the clock of a paused party stands still, so that no timer runs out in it. A run
that is started has been asked for nothing yet.
"""

import json
import logging
import time
from collections.abc import Callable
from pathlib import Path

from colonnade.errors import RunError
from colonnade.files import json_of, make_folder, read_private, write_atomically

log = logging.getLogger("colonnade.steering")

LIVE = "live"
"""The folder of a run directory for what is seen and asked while the run goes on."""
PAUSE, GO_ON, STOP = "pause", "go on", "stop"
ASKS = (PAUSE, GO_ON, STOP)
LOOK_SECONDS = 0.2
_ASKED = "asked.json"


def ask(directory: Path, what: str) -> None:
    """Ask something of the run in this directory, which must be ours."""
    make_folder(directory / LIVE)
    write_atomically(directory / LIVE / _ASKED, json.dumps({"asked": what}).encode())


class Steering:
    """What a run was asked for last. Without a directory, nobody can ask."""

    def __init__(self, directory: Path | None, real_clock: Callable[[], float] = time.monotonic) -> None:
        self._path = None if directory is None else directory / LIVE / _ASKED
        self._real_clock = real_clock
        self._next_look = 0.0
        self._seen: tuple[int, int] | None = None
        self._is_paused = False
        self._stop = False
        self._paused_at = 0.0
        self._rested = 0.0  # seconds in pauses that are over

    def begin(self) -> None:
        """Forget what was asked of the run before it was started (again)."""
        if self._path is not None:
            self._path.unlink(missing_ok=True)

    def paused(self) -> bool:
        self._look()
        return self._is_paused

    def stop_requested(self) -> bool:
        self._look()
        return self._stop

    def clock(self) -> float:
        """Seconds that stand still during a pause."""
        return (self._paused_at if self._is_paused else self._real_clock()) - self._rested

    def _look(self) -> None:
        now = self._real_clock()
        if now < self._next_look or self._path is None:
            return
        self._next_look = now + LOOK_SECONDS
        asked = self._asked(self._path)
        if asked is None:
            return
        self._stop = asked == STOP
        pauses = asked == PAUSE
        if pauses and not self._is_paused:
            self._paused_at = now
        elif self._is_paused and not pauses:
            self._rested += now - self._paused_at
        self._is_paused = pauses

    def _asked(self, path: Path) -> str | None:
        """What the file says; None if it is as it was. Who cannot be trusted is not heard."""
        try:
            found = path.stat()
            if self._seen == (found.st_mtime_ns, found.st_ino):
                return None
            self._seen = (found.st_mtime_ns, found.st_ino)
            said = json_of(read_private(path))
        except FileNotFoundError:
            is_news, self._seen = self._seen is not None, None
            return "" if is_news else None
        except (OSError, ValueError, RunError) as error:
            log.warning("what %s asks for is not done: %s", path, error)
            return None
        return str(said.get("asked", "")) if isinstance(said, dict) else ""
