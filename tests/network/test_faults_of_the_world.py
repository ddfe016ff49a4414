"""Links, clocks, disks, limits and versions that fail while a federation trains: it ends with the bits of any other.

Several faults one after another in each training. What happens at each is in docs/operations.md, "Faults".
"""

import resource
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from links_to_break import Link
from parties import IRIS, Organisation, Town, assert_same_bits, shared, wait_until
from strangers import plain_socket

LIMITS = "colonnade.runtimes.network.limits"
SOON = {f"{LIMITS}.LONGEST_RETRY_SECONDS": 0.3, f"{LIMITS}.EXPIRY_CHECK_SECONDS": 0.2}
"""So that a test need not wait for what an organisation can wait for."""


def behind(one: Organisation, link: Link) -> None:
    """A party reaches the label party over a link of its own."""
    one.write_files(network={"address": f"127.0.0.1:{link.port}", "private_randomness": False})


def connected(town: Town, name: str) -> int:
    return town.label.said().count(f"{name} is connected")


def test_links_clocks_limits_and_versions(town: Callable[..., Town], tmp_path: Path) -> None:
    one = town(shared("split", IRIS, 40, 16, training={"observe_every_epochs": 0.2}), sync=True)
    first, second, label = one["party1"], one["party2"], one.label
    clock = tmp_path / "clock"
    label.options = {"milliseconds_an_event": 5, "patches": SOON}
    first.options = {"patches": SOON, "clock": str(clock)}
    second.options = {"patches": SOON, "milliseconds_a_sync": 2}  # a slow disk, all the time
    with ExitStack() as stack:
        links = [stack.enter_context(Link(one.port).standing()) for _ in range(2)]
        for party, link in zip((first, second), links, strict=True):
            behind(party, link)
        one.start()
        one.goes_on()
        _cut_slow_and_half_open(one, links)
        _clock_that_jumps(one, clock, links[0])
        _another_patch_version(one)
        _no_more_files(one, links[1])
        label.signal(signal.SIGCONT)
        one.end()
    assert (label.started, first.started, second.started) == (1, 1, 2)
    assert_same_bits(one.models(), one.simulated().models)


def _cut_slow_and_half_open(one: Town, links: list[Link]) -> None:
    links[0].cut()
    one.label.hear("party1 is no longer connected")
    one["party1"].hear("cannot be reached")
    links[0].heal()
    one.label.hear("party1 is connected", 2)
    links[0].delay_seconds = 0.05
    one.goes_on()
    links[0].heal()
    links[1].forget_callers()
    one.label.hear("party2 is connected", 2)  # though the connection before, as far as it knows, still stands
    one.goes_on()


def _clock_that_jumps(one: Town, clock: Path, link: Link) -> None:
    """Days ahead a party's own certificate is over, and it says so; the clock put right, it goes on. Nothing else."""
    clock.write_text("-3600", encoding="utf-8")
    one.goes_on()
    clock.write_text(str(3 * 86400), encoding="utf-8")
    link.cut()
    link.heal()
    one["party1"].hear("our certificate could not be re-read: ")
    one["party1"].hear("expired on")
    clock.write_text("0", encoding="utf-8")
    one.goes_on()


def _another_patch_version(one: Town) -> None:
    """One party stops, is upgraded, and comes back."""
    second = one["party2"]
    second.signal(signal.SIGTERM)
    second.end(3)
    second.options["patches"] = {**SOON, "colonnade.launch.join.VERSION": "0.1.999"}
    before = connected(one, "party2")
    second.start()
    one.label.hear("party2 is connected", before + 1)
    one.goes_on()


def _no_more_files(one: Town, link: Link) -> None:
    """Strangers hold all the files that the label party may open; who is connected trains on."""
    assert one.label.process is not None
    pid = one.label.process.pid
    before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    used = len(list(Path(f"/proc/{pid}/fd").iterdir()))
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (used + 4, before[1]))
    with ExitStack() as stack:
        for _ in range(20):
            stack.enter_context(plain_socket(one.port)).sendall(b"\x16\x03\x01")
        one.goes_on()
    resource.prlimit(pid, resource.RLIMIT_NOFILE, before)
    comes = connected(one, "party2")
    link.cut()
    link.heal()
    one.label.hear("party2 is connected", comes + 1)


# --- disks --------------------------------------------------------------------------------------------------------


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of its own, of less than a megabyte."""
    place = tmp_path / "disk"
    place.mkdir()
    if not mounted("-t", "tmpfs", "-o", "size=900k", "tmpfs", str(place)):
        pytest.skip("a disk can be mounted by root alone")
    yield place
    subprocess.run(["umount", "--lazy", str(place)], check=True)


def mounted(*arguments: str) -> bool:
    return subprocess.run(["mount", *arguments], capture_output=True, check=False).returncode == 0


def fill(disk: Path) -> Path:
    ballast = disk / "ballast"
    with ballast.open("wb", buffering=0) as file:
        try:
            while file.write(bytes(4096)):
                pass
        except OSError:
            return ballast
    raise AssertionError("the disk is not small")


def test_a_disk_that_is_full_and_one_that_cannot_be_written(town: Callable[..., Town], small_disk: Path) -> None:
    """The label party's: full before it begins, full while it trains, read-only when it is started again."""
    one = town(shared("split", IRIS, 20, 16))
    label = one.label
    label.out = small_disk / "run"
    label.out.mkdir()
    label.options = {"milliseconds_an_event": 4, "patches": SOON}
    for party in one.feature_parties:
        party.options = {"patches": SOON}
    label.start()
    label.hear("listening")
    ballast = fill(small_disk)
    for party in one.feature_parties:
        party.start()
    label.hear("the training cannot begin yet")
    ballast.unlink()
    one.goes_on()
    fill(small_disk)
    wait_until(lambda: not label.alive() or "No space left" in label.said().rpartition("begin yet")[2], "it to notice")
    if label.alive():
        label.signal(signal.SIGTERM)
    label.end(None)
    assert all(party.alive() for party in one.feature_parties)
    ballast.unlink()
    assert mounted("-o", "remount,ro", str(small_disk))
    label.start()
    assert label.end(None) in (1, 2)
    assert "Read-only file system" in label.said()
    assert mounted("-o", "remount,rw", str(small_disk))
    label.start()
    one.end()
    assert "Traceback" not in label.said()
    assert [party.started for party in one.feature_parties] == [1, 1]
    assert_same_bits(one.models(), one.simulated().models)
