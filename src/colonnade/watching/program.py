"""The server of the page: beside a run as a process of its own, which must not take the training's time; or alone."""

import asyncio
import json
import secrets
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from ipaddress import ip_address
from pathlib import Path

from colonnade.errors import SettingsError

TOKEN_BYTES = 16
_LOOK_SECONDS = 0.2
_END_SECONDS = 5.0


def check_installed() -> None:
    """Refuse to begin without what the page is served with."""
    try:
        import starlette  # noqa: F401
        import uvicorn  # noqa: F401
    except ModuleNotFoundError:
        raise SettingsError("The page needs Starlette and uvicorn: pip install 'colonnade[serve]'.") from None


def serve_page(
    directories: list[Path], party: str | None, address: str, begun: Callable[[str], None], ended: Callable[[], bool]
) -> None:
    """Serve the page about these runs until `ended` says so; `begun` is given its address."""
    check_installed()
    from colonnade.runtimes.network.settings import parse_address
    from colonnade.serving.http_server import HttpServer, HttpSettings
    from colonnade.watching.application import Door, Watching, application
    from colonnade.watching.runs import WatchedRun

    host, _ = parse_address(address, "--address", any_port=True)
    runs = [WatchedRun(directory, party) for directory in directories]
    for run in runs:
        run.check_party()
    watching = Watching(runs)

    async def serve() -> None:
        door = Door(secrets.token_urlsafe(TOKEN_BYTES), host)
        server = HttpServer(application(watching, door), HttpSettings(address, option="--address"))
        door.port = server.port
        shown = f"[{host}]" if ":" in host else host
        begun(f"http://{shown}:{server.port}/{door.token}/")
        looking = asyncio.create_task(watching.look_on())
        serving = asyncio.create_task(server.run())
        while not ended() and not serving.done():
            await asyncio.sleep(_LOOK_SECONDS)
        looking.cancel()
        watching.end()
        await server.stop(serving)

    asyncio.run(serve())


def is_loopback(address: str) -> bool:
    host = address.rpartition(":")[0].strip("[]")
    with suppress(ValueError):
        return ip_address(host).is_loopback
    return host == "localhost"


@contextmanager
def page_beside(directory: Path, address: str) -> Iterator[str]:
    """The page about a run that is about to begin, from a process of its own; gives the address."""
    check_installed()
    given = json.dumps({"directory": str(directory.absolute()), "address": address})
    command = [sys.executable, "-m", "colonnade.watching.program"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None and process.stdout is not None
        try:
            process.stdin.write(given.encode() + b"\n")
            process.stdin.flush()
            said = json.loads(process.stdout.readline() or b"{}")
            if "address" not in said:
                raise SettingsError(said.get("error") or "The page's server could not be started.")
            yield said["address"]
        finally:
            with suppress(BrokenPipeError):
                process.stdin.close()  # which tells it to end
            with suppress(subprocess.TimeoutExpired):
                process.wait(_END_SECONDS)
            process.kill()


def main() -> None:
    """Serve what the first line of standard input says, until its end."""
    import select
    import signal

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is meant for the run, whose end ends this
    given = json.loads(sys.stdin.readline())

    def ended() -> bool:
        return bool(select.select([sys.stdin], [], [], 0)[0])

    def begun(address: str) -> None:
        print(json.dumps({"address": address}), flush=True)

    try:
        serve_page([Path(given["directory"])], None, given["address"], begun, ended)
    except SettingsError as error:
        print(json.dumps({"error": str(error)}), flush=True)


if __name__ == "__main__":
    main()
