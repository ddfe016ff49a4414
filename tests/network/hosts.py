"""Hosts with networks of their own on this machine: network namespaces, each joined to the first by a cable.

A link that goes down here loses packets without a word, as a cable that is pulled does: neither end is told. The
addresses are private ones that exist between these hosts alone.
"""

import os
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path


class Hosts:
    """`names[0]` can be reached by each of the others, at an address of its own on their cable."""

    def __init__(self, names: list[str]) -> None:
        self._names = names
        self._namespaces = {name: f"colonnade-{os.getpid()}-{place}" for place, name in enumerate(names)}

    def namespace(self, name: str) -> Path:
        return Path("/run/netns", self._namespaces[name])

    def address(self, caller: str) -> str:
        """Where the first host is, for one of the others."""
        return f"10.213.{self._names.index(caller)}.1"

    @contextmanager
    def standing(self) -> Iterator["Hosts"]:
        with ExitStack() as stack:
            for namespace in self._namespaces.values():
                ip("netns", "add", namespace)
                stack.callback(ip, "netns", "delete", namespace)
            for name in self._names[1:]:
                self._join(name)
            yield self

    def _join(self, name: str) -> None:
        first, other = self._namespaces[self._names[0]], self._namespaces[name]
        near, far, place = self._cable(name), "cable", self._names.index(name)
        ip("-n", first, "link", "add", near, "type", "veth", "peer", "name", far, "netns", other)
        for namespace, device, number in ((first, near, 1), (other, far, 2)):
            ip("-n", namespace, "address", "add", f"10.213.{place}.{number}/24", "dev", device)
            ip("-n", namespace, "link", "set", device, "up")

    def _cable(self, name: str) -> str:
        return f"cable{self._names.index(name)}"

    # --- what a test does to a cable ---

    def pull(self, name: str) -> None:
        ip("-n", self._namespaces[self._names[0]], "link", "set", self._cable(name), "down")

    def plug_in(self, name: str) -> None:
        ip("-n", self._namespaces[self._names[0]], "link", "set", self._cable(name), "up")

    def slow_down(self, name: str, kilobits_per_second: int) -> None:
        """What goes to that host; no kernel need have more than a token bucket for it."""
        bucket = ("tbf", "rate", f"{kilobits_per_second}kbit", "burst", "8kb", "latency", "2s")
        cable = ("dev", self._cable(name), "root", *bucket)
        run("tc", "-n", self._namespaces[self._names[0]], "qdisc", "add", *cable)


def why_not() -> str:
    """Why hosts cannot be made here, in one line; nothing if they can."""
    if os.geteuid():
        return "hosts of their own (network namespaces) can be made by root alone"
    try:
        with Hosts(["one", "other"]).standing():
            return ""
    except (OSError, subprocess.CalledProcessError) as error:
        return f"no network namespaces here: {error}"


def ip(*arguments: str) -> None:
    run("ip", *arguments)


def run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True)
