"""What every party of a network run saw, a crash included, gives the same models again in one process."""

from collections.abc import Callable

import pytest
from parties import LABEL, Town, assert_same_bits, shared, wait_until, with_tables

from colonnade.errors import RunError
from colonnade.federation.party_file import read_party_file
from colonnade.launch.replay import replay_run
from colonnade.runtimes.replay import replay
from colonnade.trace import read_trace


@pytest.mark.parametrize("crashes", [LABEL, "party2"])
@pytest.mark.parametrize("algorithm", ["vafl", "afsaga"])
def test_a_network_run_is_replayed(algorithm: str, crashes: str, town: Callable[..., Town]) -> None:
    one = with_tables(town, shared(algorithm, {}, 4, 64), parties=2, checkpoint_seconds=0.3)
    one.label.options = {"milliseconds_an_event": 3.0}
    for party in one.parties.values():
        party.start("--trace")
    wait_until(lambda: one.exchanges() > 80, "the training to be under way")
    one[crashes].kill()
    one[crashes].start("--trace")
    one.end()
    parties = one.built()
    for name, party in parties.items():
        trace = one[name].out / "trace" / f"{name}.trace"
        assert replay(party, trace) == sum(record.is_event for record in read_trace(trace))
    assert_same_bits({name: party.model() for name, party in parties.items()}, one.models())
    with pytest.raises(RunError):  # a party of other data is not the one that was recorded
        replay(one.built()["party1"], one["party2"].out / "trace" / "party2.trace")


def test_each_party_replays_its_own_part(town: Callable[..., Town]) -> None:
    """From its own files alone, with the secrets of its own run, as `colonnade replay --party` does."""
    algorithm = {"name": "dpzv", "server_update": "private-zo"}
    private = {"privacy": {"labels_epsilon": 8.0}, "training": {"learning_rate": 0.001}}
    one = with_tables(town, shared(algorithm, {}, 4, 64, **private), parties=2)
    one.shared["network"]["private_randomness"] = True
    for party in one.parties.values():
        party.write_files()
        party.start("--trace")
    one.end()
    events = 0
    for party in one.parties.values():
        own = read_party_file(party.folder / "party.toml")
        (played,) = replay_run(party.out, own)
        assert played.party == party.name and played.events and played.is_compared
        events += played.events  # who is quicker makes more of the exchanges
    assert events > 180
    (one.label.out / "entropy").write_bytes(bytes(32))
    with pytest.raises(RunError, match="other settings or data"):
        list(replay_run(one.label.out, read_party_file(one.label.folder / "party.toml")))
