"""Figures from releases: composition row by row, who counts as an adversary, what makes a figure infinite."""

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from colonnade.errors import SettingsError
from colonnade.privacy.accounting import (
    EVERYBODY,
    OUTSIDER,
    TOGETHER,
    ClaimedPrivacy,
    Direction,
    Release,
    account,
    columns_hidden_state,
    labels_hidden_state,
    recorded_releases,
    row_mus,
    worst_row_mu,
)
from colonnade.privacy.events import PrivacyEvent
from colonnade.privacy.gaussian import epsilon_of
from colonnade.privacy.ledger import Ledger

LABELS = "labels of bank, training rows"
DELTA = 1e-5


def slopes(times: int | list[int], viewers: tuple[str, ...], sensitivity: float = 1.0, noise: float = 2.0) -> Release:
    counted = np.array(times) if isinstance(times, list) else times
    return Release("gaussian", sensitivity, noise, counted, LABELS, viewers)


# --- composition ------------------------------------------------------------------------------------------------


def test_every_release_that_touched_a_row_counts() -> None:
    # μ = 1/2 and 1 a release: row 0: 4 · 1/4 + 3 · 1 = 4, row 1: 0 + 9 = 9, row 2: 16/4 = 4
    releases = [slopes([4, 0, 16], ("shop",)), slopes([3, 9], ("shop",), noise=1.0)]
    assert row_mus(releases).tolist() == [2.0, 3.0, 2.0]
    assert worst_row_mu(releases) == 3.0


def test_the_most_used_row_of_each_kind_gives_an_upper_bound() -> None:
    # Known row by row it is 3; by the worst row of each kind √(16/4 + 9) = √13.
    assert worst_row_mu([slopes(16, ("shop",)), slopes(9, ("shop",), noise=1.0)]) == pytest.approx(math.sqrt(13))


@given(st.lists(st.lists(st.integers(0, 20), min_size=1, max_size=5), min_size=1, max_size=4))
def test_worst_rows_of_kinds_never_say_less_than_the_worst_row(counts: list[list[int]]) -> None:
    exact = worst_row_mu([slopes(times, ("shop",)) for times in counts])
    assert worst_row_mu([slopes(max(times), ("shop",)) for times in counts]) >= exact - 1e-12


def test_an_unbounded_release_costs_only_the_rows_it_touched() -> None:
    assert row_mus([slopes([1, 0], ("shop",), sensitivity=math.inf)]).tolist() == [math.inf, 0.0]


def test_releases_are_read_from_a_ledger() -> None:
    ledger = Ledger()
    for rows in ([0, 1], [1, 2], [1]):
        event = PrivacyEvent(
            "gaussian", 2 / len(rows), 4.0, len(rows), row_ids=np.array(rows), protects=LABELS, viewers=("shop",)
        )
        ledger.spend("bank", event)
    # Row 1: two means of two rows with μ = 1/4 and one of a single row with μ = 1/2.
    expected = math.sqrt(2 / 16 + 1 / 4)
    assert worst_row_mu(recorded_releases(ledger.by_row())) == pytest.approx(expected)
    assert worst_row_mu(recorded_releases(ledger.summary())) == pytest.approx(expected)
    assert Release.of(event, 3).mu == pytest.approx(0.5 * math.sqrt(3))


def test_releases_of_unknown_rows_count_for_every_row() -> None:
    ledger = Ledger()
    for _ in range(4):
        ledger.spend("bank", PrivacyEvent("gaussian", 1.0, 2.0, 7, protects=LABELS, viewers=("shop",)))
    for kinds in (ledger.summary(), ledger.by_row()):
        assert worst_row_mu(recorded_releases(kinds)) == 1.0


def test_releases_must_be_of_a_known_mechanism_with_noise() -> None:
    with pytest.raises(SettingsError, match="laplace"):
        Release("laplace", 1.0, 1.0, 1, LABELS, ("shop",))
    with pytest.raises(SettingsError, match="noise 0"):
        slopes(1, ("shop",), noise=0.0)
    with pytest.raises(SettingsError, match="negative"):
        slopes(-1, ("shop",))


# --- adversaries ------------------------------------------------------------------------------------------------


def test_labels_against_each_and_all_feature_parties() -> None:
    releases = [slopes(4, ("shop",)), slopes(12, ("store",)), slopes(16, ("shop", "store"), noise=4.0)]
    figures = {f.adversary: f for f in account(Direction(LABELS, "bank"), releases, DELTA, "bank", ("shop", "store"))}
    assert set(figures) == {"feature party shop", "feature party store", TOGETHER, OUTSIDER}
    # In all 4/4 + 12/4 + 16/16 = 5; shop itself sees 4/4 + 16/16 = 2, store 4.
    assert figures[TOGETHER].sound == epsilon_of(math.sqrt(5), DELTA)
    assert figures[TOGETHER].conditional is None
    # One party's answers depend on what others were told, so soundly it costs as much; its own releases cost less.
    assert figures["feature party shop"].sound == figures[TOGETHER].sound
    assert figures["feature party shop"].conditional == epsilon_of(math.sqrt(2), DELTA)
    assert figures["feature party store"].conditional == epsilon_of(2.0, DELTA)
    assert figures[OUTSIDER].sound == figures[TOGETHER].sound


def test_the_only_feature_party_sees_everything_that_counts() -> None:
    figures = account(Direction(LABELS, "bank"), [slopes(4, ("shop",))], DELTA, "bank", ("shop",))
    assert [f.adversary for f in figures] == ["feature party shop", OUTSIDER]
    assert figures[0].sound == epsilon_of(1.0, DELTA)
    assert figures[0].conditional is None


def test_columns_against_the_label_party_and_through_it_against_others() -> None:
    columns = "columns of shop, training rows"
    releases = [Release("gaussian", 2.0, 4.0, 4, columns, ("bank",)), slopes(100, ("shop",))]
    figures = {f.adversary: f for f in account(Direction(columns, "shop"), releases, DELTA, "bank", ("shop", "store"))}
    assert set(figures) == {"label party bank", "feature party store", EVERYBODY, OUTSIDER}
    assert {f.sound for f in figures.values()} == {epsilon_of(1.0, DELTA)}
    assert any("tells no more" in words for words in figures["feature party store"].conditions)


def test_hidden_state_leaves_only_a_conditional_figure() -> None:
    direction = Direction(LABELS, "bank", hidden_state=labels_hidden_state("bank", "first-order"))
    for figure in account(direction, [slopes(4, ("shop",))], DELTA, "bank", ("shop",)):
        assert figure.sound == math.inf
        assert figure.conditional == epsilon_of(1.0, DELTA)
        assert any("conditional on the top model of bank" in words for words in figure.conditions)


def test_anything_without_noise_is_infinite() -> None:
    for direction, releases in (
        (Direction(LABELS, "bank", unnoised="gradients"), [slopes(4, ("shop",))]),
        (Direction(LABELS, "bank"), []),
        (Direction(LABELS, "bank"), [slopes(4, ("shop",), sensitivity=math.inf)]),
    ):
        for figure in account(direction, releases, DELTA, "bank", ("shop",)):
            assert (figure.sound, figure.conditional) == (math.inf, None)
            assert any(words.startswith("No guarantee") for words in figure.conditions)


def test_a_release_that_never_happened_costs_nothing() -> None:
    assert account(Direction(LABELS, "bank"), [slopes(0, ("shop",))], DELTA, "bank", ("shop",))[0].sound == 0.0


def test_figures_are_plain_json() -> None:
    direction = Direction(LABELS, "bank", hidden_state="the top model of bank")
    figures = account(
        direction,
        [slopes(4, ("shop",))],
        DELTA,
        "bank",
        ("shop",),
        claimed=ClaimedPrivacy(0.5),
        conditions=["If it rains."],
    )
    values = json.loads(json.dumps(figures[0].as_values(), allow_nan=False))
    assert values["direction"] == LABELS
    assert (values["claimed"], values["sound"]) == (epsilon_of(0.5, DELTA), None)
    assert values["conditional"] == epsilon_of(1.0, DELTA)
    assert "If it rains." in values["conditions"]
    assert values["claimed_otherwise"] is None
    named = {"direction", "adversary", "claimed", "claimed_otherwise", "sound", "conditional", "delta", "conditions"}
    assert values.keys() == named


def test_what_is_updated_without_noise_is_named() -> None:
    assert labels_hidden_state("bank", "zeroth-order") == "the top model of bank"
    assert [labels_hidden_state("bank", how) for how in ("private-zo", "dp-sgd", "frozen")] == [None] * 3
    assert columns_hidden_state("shop", "first-order") == "the bottom model of shop"
    assert [columns_hidden_state("shop", how) for how in ("zeroth-order", "dp-sgd", "frozen")] == [None] * 3
    with pytest.raises(SettingsError, match="Did you mean 'private-zo'"):
        labels_hidden_state("bank", "private-z0")
    with pytest.raises(SettingsError, match="Did you mean 'frozen'"):
        columns_hidden_state("shop", "froze")


def test_every_server_update_of_dpzv_is_known_here() -> None:
    from colonnade.algorithms.split_models.dpzv import SERVER_UPDATES

    private = [how for how in SERVER_UPDATES if labels_hidden_state("bank", how) is None]
    assert private == ["private-zo", "dp-sgd", "frozen"]


def test_an_owner_must_be_a_party() -> None:
    with pytest.raises(SettingsError, match="bank"):
        account(Direction(LABELS, "bnak"), [], DELTA, "bank", ("shop",))
