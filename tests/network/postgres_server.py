"""A real PostgreSQL server of a test's own, in a temporary folder, reached through a socket in it."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


def program(name: str) -> Path | None:
    found = shutil.which(name)
    places = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"), reverse=True)
    return places[0] if places else Path(found) if found else None


@contextmanager
def postgres_server(password: str) -> Iterator[Path]:
    """The folder of its socket; the account `bank` has the database `postgres`. It refuses to run as root."""
    initdb, control = program("initdb"), program("pg_ctl")
    if initdb is None or control is None:
        if os.environ.get("CI"):
            pytest.fail("PostgreSQL is not installed: apt-get install postgresql")
        pytest.skip("PostgreSQL is not installed: apt-get install postgresql")
    user = "nobody" if os.geteuid() == 0 else None
    with tempfile.TemporaryDirectory(prefix="colonnade-pg-", dir="/tmp", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        (folder / "password").write_text(password)
        if user:
            for path in (folder, folder / "password"):
                shutil.chown(path, user)

        def run(*words: object) -> None:
            log = folder / "log"
            done = subprocess.run([str(word) for word in words], user=user, cwd=folder, capture_output=True, text=True)
            assert done.returncode == 0, done.stderr + (log.read_text() if log.exists() else "")

        data = folder / "data"
        run(
            initdb, "-D", data, "-U", "bank", "-A", "scram-sha-256", "--pwfile", folder / "password", "-N", "-E", "UTF8"
        )
        options = f"-c listen_addresses='' -c unix_socket_directories={folder} -c fsync=off"
        run(control, "-D", data, "-w", "-l", folder / "log", "-o", options, "start")
        try:
            yield folder
        finally:
            run(control, "-D", data, "-w", "-m", "immediate", "stop")
