"""A trace played again gives the same effects, or says where the party differs from the one that was recorded."""

from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch
from small_world import still, world

import colonnade
from colonnade.algorithms.split_models.vafl import Vafl
from colonnade.errors import RunError
from colonnade.federation.building import build_parties
from colonnade.launch.experiment import train
from colonnade.party import Checkpoint, Effect, Finish, Observe, Received, Send, SetTimer, Started
from colonnade.runtimes.replay import event_of, replay
from colonnade.testing import Scripted, letter, says
from colonnade.trace import MAGIC, Record, TraceWriter, bodies, read_trace

BANK: dict[str, list[Effect]] = {
    "Started": [SetTimer("wake", 1.0), Observe(0, 0, 0.0, loss=0.5, metric={"accuracy": 1.0}, note="so far")],
    "timer wake": [Send("shop", letter(1)), Checkpoint()],
    "letter 2": [Finish()],
}
SHOP: dict[str, list[Effect]] = {"letter 1": [Send("bank", letter(2)), Finish()]}


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    """The trace of a bank that started, woke up, wrote to a shop and got an answer."""
    simulation = world({"bank": says(BANK), "shop": says(SHOP)}, still(), directory=tmp_path, trace=True)
    simulation.run()
    simulation.close()
    return tmp_path / "trace" / "bank.trace"


def test_the_same_party_does_the_same(recorded: Path) -> None:
    bank = says(BANK)
    assert replay(bank, recorded) == 3
    assert bank.names() == ["Started", "timer wake", "letter 2"]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {"timer wake": [Send("shop", letter(7)), Checkpoint()]},
            r"event 2: the party did not return the recorded Send",
        ),
        ({"timer wake": [Checkpoint(), Send("shop", letter(1))]}, r"event 2: .* recorded Send"),
        ({"Started": [SetTimer("wake", 2.0), *BANK["Started"][1:]]}, r"event 1: .* recorded SetTimer"),
        ({"Started": BANK["Started"][:1]}, r"event 1: .* recorded Observe"),
        (
            {"Started": [*BANK["Started"], Checkpoint()]},
            r"event 1: the party returned a Checkpoint that was not recorded",
        ),
        ({"letter 2": []}, r"event 3: .* recorded Finish"),
    ],
)
def test_any_other_effect_is_noticed_where_it_happens(recorded: Path, changes: dict[str, Any], said: str) -> None:
    with pytest.raises(RunError, match=said):
        replay(says({**BANK, **changes}), recorded)


@pytest.mark.parametrize(
    ("metric", "agrees"), [({"accuracy": 1.0, "auc": 0.5}, True), ({"accuracy": 0.9}, False), ({"auc": 0.5}, False)]
)
def test_a_metric_that_was_not_recorded_is_no_difference(
    recorded: Path, metric: dict[str, float], agrees: bool
) -> None:
    """What was recorded by a version that knew fewer of them is played again; another value is noticed."""
    started = [BANK["Started"][0], Observe(0, 0, 0.0, loss=0.5, metric=metric, note="so far")]
    bank = says({**BANK, "Started": started})
    if agrees:
        assert replay(bank, recorded) == 3
    else:
        with pytest.raises(RunError, match=r"event 1: .* recorded Observe"):
            replay(bank, recorded)


def test_a_party_that_is_not_deterministic_is_noticed(tmp_path: Path) -> None:
    draws = iter(range(100))  # stands for a clock or a global random generator

    def careless() -> Scripted:
        return Scripted(lambda _, what: [SetTimer("wake", float(next(draws)))] if what == "Started" else [Finish()])

    simulation = world({"bank": careless()}, still(), directory=tmp_path, trace=True)
    simulation.run()
    simulation.close()
    with pytest.raises(RunError, match=r"event 1: .* or its algorithm is not deterministic"):
        replay(careless(), tmp_path / "trace" / "bank.trace")


# --- a real algorithm -------------------------------------------------------------------------------------------

TRAINING = colonnade.Training(epochs=1, batch_size=16)


def parties_of(seed: int = 0, data_seed: int = 0, **changes: Any) -> dict[str, Any]:
    data = colonnade.dataset("iris", parties=2, seed=data_seed)
    settings: dict[str, Any] = {"training": TRAINING, "privacy": colonnade.PerturbationSettings(), **changes}
    return build_parties(
        data, Vafl(), bottom=colonnade.BottomSettings(), top=colonnade.TopSettings(), seed=seed, **settings
    )


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Any:
    directory = tmp_path_factory.mktemp("runs") / "run"
    return train(colonnade.dataset("iris", parties=2), Vafl(), training=TRAINING, out=directory, trace=True)


def test_a_run_is_replayed_to_the_same_models(trained: Any) -> None:
    for name, party in parties_of().items():
        assert replay(party, trained.directory / "trace" / f"{name}.trace") >= 10
        for module, expected in zip(party.model().values(), trained.models[name].values(), strict=True):
            for ours, theirs in zip(module.parameters(), expected.parameters(), strict=True):
                assert torch.equal(ours, theirs)


@pytest.mark.parametrize(
    "other",
    [
        {"seed": 1},
        {"data_seed": 1},
        {"training": colonnade.Training(epochs=1, batch_size=16, learning_rate=0.2)},
    ],
    ids=["seed", "data", "settings"],
)
def test_a_party_built_from_something_else_is_noticed(trained: Any, other: dict[str, Any]) -> None:
    for name, party in parties_of(**other).items():
        with pytest.raises(RunError, match=r"built from other settings or data"):
            replay(party, trained.directory / "trace" / f"{name}.trace")


# --- the file ---------------------------------------------------------------------------------------------------


def test_a_torn_last_record_ends_the_trace(recorded: Path) -> None:
    whole = recorded.read_bytes()
    count = len(list(read_trace(recorded)))
    recorded.write_bytes(whole[:-1])
    assert len(list(read_trace(recorded))) == count - 1
    for length in range(len(MAGIC), len(whole)):
        recorded.write_bytes(whole[:length])
        assert replay(says(BANK), recorded) <= 3  # what is left of it is still the same party


def test_what_is_no_trace_is_refused(tmp_path: Path) -> None:
    for content in (b"", b"colonnade", b"PK\x03\x04 and more than the magic"):
        (tmp_path / "x.trace").write_bytes(content)
        with pytest.raises(RunError, match=r"x\.trace is not a Colonnade trace"):
            list(read_trace(tmp_path / "x.trace"))


def test_a_trace_of_another_version_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.trace").write_bytes(b"colonnade-trace-1\n" + bytes(40))
    with pytest.raises(RunError, match=r"x\.trace was written by another version of Colonnade\. Record the run again"):
        list(read_trace(tmp_path / "x.trace"))


def test_a_damaged_record_is_an_error_with_its_place(recorded: Path) -> None:
    """Whichever byte has changed: the records before it are given, and none that was not written."""
    whole = recorded.read_bytes()
    records = list(read_trace(recorded))
    *_, last = [end for end, _ in bodies(recorded, "")][:-1]
    for place in range(len(MAGIC), len(whole)):
        recorded.write_bytes(whole[:place] + bytes([whole[place] ^ 64]) + whole[place + 1 :])
        kept: list[Record] = []
        if place < last:
            with pytest.raises(RunError, match=r"bank\.trace is damaged near byte \d+: .* Record the run again\."):
                kept.extend(read_trace(recorded))
        else:
            with suppress(RunError):  # a header that is damaged is told also at the end
                kept.extend(read_trace(recorded))
            assert len(kept) < len(records)
        assert kept == records[: len(kept)]


def test_a_resumed_trace_goes_on_where_the_checkpoint_was(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "bank.trace"
    writer = TraceWriter(path)
    writer.write(Started(0.0))
    at = writer.position()
    writer.write(Checkpoint())
    writer.close()
    again = TraceWriter(path, resume_at=at)
    again.write(Finish())
    again.close()
    assert list(read_trace(path)) == [Record("Started", (0.0,)), Record("Finish", ())]


def test_an_effect_is_not_an_event() -> None:
    with pytest.raises(RunError, match="Send is not an event"):
        event_of(Record("Send", ("bank", b"")))


def test_every_event_is_read_back(recorded: Path) -> None:
    events = [event_of(record) for record in read_trace(recorded) if record.is_event]
    assert [type(event).__name__ for event in events] == ["Started", "TimerFired", "Received"]
    last = events[-1]
    assert isinstance(last, Received)
    assert (last.now, last.sender, last.message.step) == (1.0, "shop", 2)  # type: ignore[attr-defined]
