"""A figure of privacy is printed only if its conditions are true for this run; each condition, broken, makes it ∞."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import colonnade
from colonnade import BottomSettings, PerturbationSettings, TopSettings, Vafl
from colonnade.algorithms.training import DecidedTraining
from colonnade.cli.application import app
from colonnade.costs.estimate import price
from colonnade.costs.guarantees import guarantees, privacy_summary
from colonnade.data import FederatedData, from_arrays
from colonnade.errors import RunError, SettingsError
from colonnade.federation.building import facts_of
from colonnade.federation.plan import Plan
from colonnade.launch.participant import Participant
from colonnade.privacy import ledger as ledgers
from colonnade.privacy.accounting import SECRET, SEED, SHARED
from colonnade.privacy.events import PrivacyEvent
from colonnade.privacy.ledger import Ledger
from colonnade.reports.epsilons import figure_rows, in_one_line
from colonnade.runtimes.network.settings import NetworkSettings

TRAINING = DecidedTraining(epochs=2, batch_size=4, evaluate_every_epochs=0)
NOISED = PerturbationSettings(noise=2.0, clip=1.0, bottom_update="frozen")


def town() -> FederatedData:
    X = np.random.default_rng(0).normal(size=(8, 4))
    return from_arrays(X, np.arange(8) % 2, X_test=X[:2], y_test=[0, 1], parties=2, task="binary", standardise=False)


def plan(algorithm: Any, privacy: PerturbationSettings) -> Plan:
    return Plan(algorithm, TRAINING, privacy, BottomSettings("linear", embedding=2), TopSettings("concat-linear"), 0)


RELEASED = [
    {
        "party": "party1",
        "mechanism": "gaussian",
        "sensitivity": 2.0,
        "noise": 2.0,
        "releases": 3,
        "max_releases_per_row": 3,
        "protects": "columns of party1, training rows",
        "viewers": ["label"],
    }
]


def summary_of(randomness: str, released: Any = RELEASED) -> dict[str, Any]:
    own = plan(Vafl(), NOISED)
    return privacy_summary(own, guarantees(own, facts_of(town(), own), released, randomness), released)


def test_secret_noise_has_a_figure() -> None:
    summary = summary_of(SECRET)
    assert 8 < summary["sound"] < 9
    assert any("randomness that the adversary does not know" in words for words in summary["conditions"])


def test_noise_that_every_party_can_compute_has_none_by_any_name() -> None:
    summary = summary_of(SHARED)
    assert summary["claimed"] is summary["sound"] is summary["conditional"] is None
    assert any("private_randomness = false" in words for words in summary["conditions"])
    assert not any("does not know" in words for figure in summary["figures"] for words in figure["conditions"])
    assert "columns of party1, training rows" in summary["unprotected"]
    assert in_one_line(summary).startswith("ε = ∞ for columns of party1")
    assert {row[3] for row in figure_rows(summary["figures"])[0]} == {"∞"}


def test_a_run_whose_noise_follows_from_its_seed_says_so() -> None:
    summary = summary_of(SEED)
    assert summary["sound"] == summary_of(SECRET)["sound"]
    assert any("Whoever knows the seed can take it off" in words for words in summary["conditions"])
    assert not any("does not know" in words for words in summary["conditions"])


def test_that_is_what_a_simulation_says() -> None:
    models: Any = {"bottom": BottomSettings("linear", embedding=2), "top": TopSettings("concat-linear")}
    result = colonnade.train(town(), Vafl(), training=TRAINING, privacy=NOISED, **models)
    assert any("follows from its seed" in words for words in result.summary["privacy"]["conditions"])


def test_noise_without_a_clip_has_no_figure() -> None:
    own = plan(Vafl(), replace(NOISED, clip=0.0))
    unbounded = [{**RELEASED[0], "sensitivity": None}]
    summary = privacy_summary(own, guarantees(own, facts_of(town(), own), unbounded), unbounded)
    assert summary["sound"] is None
    assert summary["claimed"] is None
    assert any("no clip" in words for words in summary["conditions"])


def test_a_direction_without_events_has_no_figure() -> None:
    """The ledger is all that is known: what was to be noised, and was not released by anybody here, is not priced."""
    summary = summary_of(SECRET, [])
    assert summary["sound"] is None
    assert {figure["direction"] for figure in summary["figures"]} == {"labels of label, training rows"}
    assert all(figure["sound"] is None for figure in summary["figures"])


def test_a_plan_is_priced_by_the_randomness_it_will_have() -> None:
    own = plan(Vafl(), NOISED)
    priced = price(own, facts_of(town(), own), randomness=SHARED).as_values()
    assert priced["sound"] is priced["claimed"] is None
    assert price(own, facts_of(town(), own)).as_values()["sound"] > 0


def federation_file(folder: Path, privacy: str, network: str = "private_randomness = false") -> Path:
    path = folder / "federation.toml"
    path.write_text(
        '[data]\nset = "digits"\nparties = 2\nmax_rows = 100\n\n[algorithm]\nname = "vafl"\n\n'
        f"[privacy]\n{privacy}\n\n[network]\n{network}\n"
    )
    return path


def test_account_prints_infinity_and_draws_nothing(tmp_path: Path) -> None:
    path = federation_file(tmp_path, 'noise = 2.0\nclip = 1.0\nbottom_update = "frozen"')
    answer = CliRunner().invoke(app, ["account", str(path), "--json"])
    assert answer.exit_code == 0, answer.output
    told = json.loads(answer.stdout)
    assert told["sound"] is told["claimed"] is None
    drawn = CliRunner().invoke(app, ["account", str(path), "--figure", str(tmp_path / "epsilon.png")])
    assert isinstance(drawn.exception, SettingsError)
    assert "every party can compute the noise" in str(drawn.exception)


@pytest.mark.parametrize("target", ["labels_epsilon", "columns_epsilon"])
def test_a_network_run_refuses_a_target_that_nothing_keeps(target: str) -> None:
    class Asked(Participant):
        def __init__(self) -> None:
            privacy = replace(PerturbationSettings(clip=1.0), **{target: 1.0})
            shared = {"network": NetworkSettings(private_randomness=False), "privacy": privacy}
            self.federation: Any = type("Shared", (), shared)()
            self._check_randomness()

    with pytest.raises(SettingsError, match=rf"privacy.{target} cannot be kept with network.private_randomness"):
        Asked()


def test_where_the_system_does_not_tell_of_a_start_of_the_machine_unremembered_noise_is_not_drawn_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledgers, "_BOOT_ID", tmp_path / "nowhere")
    event = PrivacyEvent("gaussian", 2.0, 4.0, 1, row_ids=np.zeros(1, np.uint32), protects="row", viewers=("label",))
    first = Ledger(tmp_path / "ledger.jsonl")
    first.spend("bank", event)
    assert first._file is not None
    first._file.close()  # killed; or did the machine go down?
    again = Ledger(tmp_path / "ledger.jsonl")
    with pytest.raises(RunError, match="The machine may have gone down while this party ran: 0 noised"):
        again.settle()
    third = Ledger(tmp_path / "ledger.jsonl")
    third.settle(journal_is_synced=True)  # it remembers all
    third.close()
