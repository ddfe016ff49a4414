"""Every party on a host of its own, over a cable that is pulled, plugged in and too thin: the model is that of any run.

A pulled cable tells nobody: packets vanish, and what was under way comes again or is sent again.
"""

from collections.abc import Callable, Iterator

import pytest
from hosts import Hosts, why_not
from parties import IRIS, LABEL, Town, assert_same_bits, shared

NETWORK = "colonnade.runtimes.network"
SOON = {
    f"{NETWORK}.limits.LONGEST_RETRY_SECONDS": 0.3,
    f"{NETWORK}.limits.KEEPALIVE_SECONDS": 0.5,
    f"{NETWORK}.limits.KEEPALIVE_PATIENCE_SECONDS": 0.5,
}
"""As the product has it, but sooner than after fifteen seconds."""


@pytest.fixture
def hosts() -> Iterator[Hosts]:
    if reason := why_not():
        pytest.skip(reason)
    with Hosts([LABEL, "party1", "party2"]).standing() as standing:
        yield standing


def test_cables_that_are_pulled_and_thin(town: Callable[..., Town], hosts: Hosts) -> None:
    one = town(shared("split", IRIS, 40, 16, training={"observe_every_epochs": 0.2}))
    one.label.own["party"]["listen"] = f"0.0.0.0:{one.port}"
    one.label.write_files()
    for name, party in one.parties.items():
        party.options = {"patches": SOON, "host": str(hosts.namespace(name))}
        if party is not one.label:
            address = f"{hosts.address(name)}:{one.port}"
            party.write_files(network={"address": address, "private_randomness": False})
    one.label.options["milliseconds_an_event"] = 5
    one.start()
    one.goes_on()
    _pulled_for_so_short_that_nobody_notices(one, hosts)
    _pulled_until_both_ends_notice(one, hosts)
    hosts.slow_down("party2", 400)
    one.goes_on()
    one.end()
    assert [party.started for party in one.parties.values()] == [1, 1, 1]
    assert_same_bits(one.models(), one.simulated().models)


def _pulled_for_so_short_that_nobody_notices(one: Town, hosts: Hosts) -> None:
    hosts.pull("party1")
    hosts.plug_in("party1")
    one.goes_on()


def _pulled_until_both_ends_notice(one: Town, hosts: Hosts) -> None:
    comes = one.label.said().count("party2 is connected")
    hosts.pull("party2")
    one.label.hear("party2 is no longer connected")
    one["party2"].hear("cannot be reached")
    hosts.plug_in("party2")
    one.label.hear("party2 is connected", comes + 1)
    one.goes_on()
