"""Inference from products: by hand, where it must fail, and in small federations with and without masks."""

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from small_views import party_view, pooled_view, wire_view
from typer.testing import CliRunner

import colonnade
from colonnade import algorithms
from colonnade.algorithms.training import Training
from colonnade.attacks.product_inference import (
    InferredColumn,
    column_up_to_a_factor,
    scaled_by_introduction,
    scaled_by_known_rows,
    scaled_by_range,
)
from colonnade.attacks.view import PartyView
from colonnade.cli.application import app
from colonnade.data import FederatedData
from colonnade.errors import ColonnadeError, SettingsError
from colonnade.messages import Introduction, MaskedSum, Message, ProductRequest, ProductSum, SharedStep
from colonnade.trials.attack import (
    ExposedParty,
    Measurement,
    Trials,
    best_constant,
    product_inference,
    share_near,
    with_columns,
)
from colonnade.trials.attacked import Federated

Transcript = list[tuple[str, str, Message]]
COLUMN = np.array([1.0, -2.0, 4.0, 3.0, -1.0, 0.5])


def numbers(*rows: int) -> NDArray[np.uint32]:
    return np.array(rows, np.uint32)


def column_of(*values: float) -> NDArray[np.float64]:
    return np.array(values)[:, None]


def asked_and_answered(number: int, rows: Sequence[int], weight: float) -> Transcript:
    """The label party asks party2, who has one column, and gets w·x of these rows."""
    return [
        ("label", "party2", ProductRequest("label", number, numbers(*rows))),
        ("party2", "label", ProductSum("label", number, column_of(*(weight * COLUMN[list(rows)])))),
    ]


def seen_by_label(*transcripts: Transcript) -> PartyView:
    return party_view("label", [crossing for transcript in transcripts for crossing in transcript])


def up_to_a_factor(*transcripts: Transcript) -> InferredColumn:
    return column_up_to_a_factor(seen_by_label(*transcripts), "party2", "label")


# --- the column up to a factor ----------------------------------------------------------------------------------


def test_one_request_gives_the_column_up_to_a_factor() -> None:
    found = up_to_a_factor(asked_and_answered(1, [2, 0, 1], weight=-3.0))
    assert found.rows.tolist() == [0, 1, 2]
    assert found.values.tolist() == pytest.approx([-0.25, 0.5, -1.0])
    assert np.isnan(found.misfit) and not found.looks_like_one_column  # nothing to compare it with


def test_requests_at_other_weights_are_put_together_by_the_rows_that_they_share() -> None:
    found = up_to_a_factor(
        asked_and_answered(1, [0, 1, 2], 2.0),
        asked_and_answered(2, [4, 5], -0.1),  # shares a row with the next one only
        asked_and_answered(3, [1, 2, 3, 4], -5.0),
        asked_and_answered(4, [0, 5], 0.0),  # before the first step: nothing in it
    )
    assert found.rows.tolist() == [0, 1, 2, 3, 4, 5]
    assert found.values.tolist() == pytest.approx((COLUMN / 4 * np.sign(found.values[0])).tolist())
    assert found.misfit < 1e-12 and found.looks_like_one_column


def test_a_request_that_shares_no_row_stays_out() -> None:
    found = up_to_a_factor(asked_and_answered(1, [0, 1, 2], 2.0), asked_and_answered(2, [3, 4], 1.0))
    assert found.rows.tolist() == [0, 1, 2]


@given(
    column=st.lists(st.floats(0.1, 100.0), min_size=2, max_size=8),
    weights=st.lists(st.floats(0.001, 10.0), min_size=1, max_size=5),
    negative=st.booleans(),
)
def test_any_column_follows_from_one_known_row(column: list[float], weights: list[float], negative: bool) -> None:
    rows = np.arange(len(column), dtype=np.uint32)
    transcript: Transcript = []
    for number, weight in enumerate(weights):
        own = rows[: 2 + number]
        product = -weight if negative else weight
        transcript.append(("label", "party2", ProductRequest("label", number, own)))
        transcript.append(
            ("party2", "label", ProductSum("label", number, column_of(*product * np.array(column)[: 2 + number])))
        )
    found = column_up_to_a_factor(party_view("label", transcript), "party2", "label")
    inferred = scaled_by_known_rows(found, rows[1:2], np.array(column[1:2]))
    assert inferred.values.tolist() == pytest.approx(column[: 1 + len(weights)], rel=1e-6)


def test_each_output_is_the_column_times_a_weight_and_the_largest_is_read() -> None:
    total = np.outer([1.0, -2.0, 4.0], [0.0, 3.0, -0.5])
    found = up_to_a_factor(
        [
            ("label", "party2", ProductRequest("label", 1, numbers(0, 1, 2))),
            ("party2", "label", ProductSum("label", 1, total)),
        ]
    )
    assert found.values.tolist() == [0.25, -0.5, 1.0]


def test_in_a_synchronous_schedule_the_step_names_the_rows() -> None:
    found = up_to_a_factor(
        [
            ("label", "party2", SharedStep(1, 7, np.zeros((0, 1)), numbers(5, 3))),
            ("party2", "label", ProductSum("label", 7, column_of(1.0, 2.0))),
        ]
    )
    assert dict(zip(found.rows.tolist(), found.values.tolist(), strict=True)) == {5: 0.5, 3: 1.0}


def test_other_partys_sums_and_other_roots_are_not_used() -> None:
    request = ProductRequest("label", 1, numbers(0, 1))
    elsewhere = ProductRequest("party1", 1, numbers(0, 1))
    answer = ProductSum("label", 1, column_of(1.0, 2.0))
    assert not up_to_a_factor([("label", "party1", request), ("party1", "label", answer)]).rows.size
    theirs: Transcript = [
        ("party1", "label", elsewhere),
        ("party2", "label", ProductSum("party1", 1, column_of(1.0, 2.0))),
    ]
    assert not up_to_a_factor(theirs).rows.size
    assert not up_to_a_factor([("party2", "label", answer)]).rows.size  # nobody knows whose rows these are


def test_two_columns_are_not_taken_for_one() -> None:
    drawn = np.random.default_rng(0)
    columns = drawn.normal(size=(50, 2))
    transcript: Transcript = []
    for number, weights in enumerate(drawn.normal(size=(4, 2))):
        transcript.append(("label", "party2", ProductRequest("label", number, np.arange(50, dtype=np.uint32))))
        transcript.append(("party2", "label", ProductSum("label", number, (columns @ weights)[:, None])))
    found = up_to_a_factor(transcript)
    assert found.misfit > 0.1 and not found.looks_like_one_column


# --- masks ------------------------------------------------------------------------------------------------------


def two_trees() -> Transcript:
    """party2's products of COLUMN at the weight 2 go to party1 under a mask, the mask goes to party3."""
    drawn = np.random.default_rng(0)
    transcript: Transcript = []
    rows = np.arange(COLUMN.size, dtype=np.uint32)
    for number in (1, 2):
        mask = drawn.integers(0, 2**64, (COLUMN.size, 1), np.uint64, endpoint=False)
        products = np.rint(2.0 * number * COLUMN * 2**32).astype(np.int64).view(np.uint64)[:, None]
        request = ProductRequest("label", number, rows)
        transcript += [
            ("label", "party1", request),
            ("party1", "party2", request),
            ("party1", "party3", request),
            ("party2", "party1", MaskedSum("label", number, 1, products + mask)),
            ("party2", "party3", MaskedSum("label", number, 2, mask)),
        ]
    return transcript


@pytest.mark.parametrize("party", ["party1", "party3", "label"])
def test_of_two_trees_no_party_alone_learns_anything(party: str) -> None:
    found = column_up_to_a_factor(party_view(party, two_trees()), "party2", "label")
    assert not found.looks_like_one_column
    if found.rows.size:
        assert abs(np.corrcoef(found.values, COLUMN)[0, 1]) < 0.9


def test_two_that_collude_and_somebody_on_every_link_take_the_masks_off() -> None:
    for view in (pooled_view(["party1", "party3"], two_trees()), wire_view(two_trees())):
        found = column_up_to_a_factor(view, "party2", "label")
        assert found.values.tolist() == pytest.approx((COLUMN / 4).tolist())
        assert found.looks_like_one_column


def test_a_pooled_view_shows_who_and_no_value() -> None:
    assert repr(pooled_view(["party1", "party3"], two_trees())) == "PooledView('party1', 'party3')"
    assert repr(InferredColumn(numbers(1), np.array([0.25]), 0.0)) == "InferredColumn(1 rows)"


# --- the factor -------------------------------------------------------------------------------------------------

HALF = InferredColumn(np.arange(6, dtype=np.uint32), COLUMN / -4, 0.0)


def test_known_rows_tell_the_factor() -> None:
    found = scaled_by_known_rows(HALF, numbers(5, 0, 99), np.array([0.5, 1.0, 7.0]))  # 99 was never answered for
    assert found.values.tolist() == pytest.approx(COLUMN.tolist())
    with pytest.raises(SettingsError, match="None of the 1 known rows is among the 6"):
        scaled_by_known_rows(HALF, numbers(99), np.array([7.0]))


def test_known_rows_that_do_not_fit_leave_a_guess() -> None:
    """Answers 1, 1, −1 for the values 3, 5, 4: inferring one from the others misses by more than their mean does."""
    found = InferredColumn(numbers(0, 1, 2, 3), np.array([1.0, 1.0, -1.0, 0.5]), 1.0)
    assert scaled_by_known_rows(found, numbers(0, 1, 2), np.array([3.0, 5.0, 4.0])).values.tolist() == [4.0] * 4


def test_the_range_tells_the_factor_and_the_sign() -> None:
    assert scaled_by_range(HALF, -2.0, 4.0).values.tolist() == pytest.approx(COLUMN.tolist())
    assert scaled_by_range(HALF, -4.0, 2.0).values.tolist() == pytest.approx((-COLUMN).tolist())


def test_an_introduction_tells_the_factor_but_not_the_sign() -> None:
    told = Introduction(0.0, float(np.square(COLUMN).mean()), np.zeros(4, np.uint64))
    found = scaled_by_introduction(HALF, seen_by_label([("party2", "label", told)]), "party2")
    assert found.values.tolist() == pytest.approx((-COLUMN).tolist())
    with pytest.raises(SettingsError, match="nothing scales its answers"):
        scaled_by_introduction(HALF, seen_by_label([("party1", "label", told)]), "party2")


# --- scores -----------------------------------------------------------------------------------------------------


def test_chance_is_the_best_constant() -> None:
    assert best_constant(np.array([0.0, 1.0, 1.2, 5.0]), near=0.1) == 0.5  # 1.1 for all
    assert best_constant(np.array([0.0, 1.0, 1.3, 5.0]), near=0.1) == 0.25


def test_rows_that_were_not_inferred_count_as_not_found() -> None:
    found = InferredColumn(numbers(0, 1), np.array([1.05, 9.0]), 0.0)
    assert share_near(found, np.array([1.0, 2.0, 3.0, 4.0]), np.arange(4), near=0.1) == 0.25


def test_wrong_settings_are_refused() -> None:
    with pytest.raises(SettingsError, match="Did you mean 'range'"):
        ExposedParty(knows="rang")
    with pytest.raises(SettingsError, match="at least 1 column"):
        ExposedParty(columns=0)
    with pytest.raises(SettingsError, match="above 0"):
        ExposedParty(tolerance=0.0)


# --- in small federations ---------------------------------------------------------------------------------------

TRAINING = Training(epochs=6, batch_size=16, l2=1e-4, evaluate_every_epochs=0)


@pytest.fixture(scope="module")
def wine() -> FederatedData:
    return colonnade.dataset("wine", parties=3)


def measured(
    data: FederatedData, algorithm: str, sums: str, exposed: ExposedParty | None = None, trials: int = 1
) -> list[Measurement]:
    federated = Federated(algorithms.find(algorithm).settings(sums=sums, precondition="none"), TRAINING)
    return product_inference(data, federated, exposed or ExposedParty(), Trials(trials))


def test_the_attacked_party_keeps_a_column_and_adds_zeros(wine: FederatedData) -> None:
    narrow = with_columns(wine, "party2", columns=1, padding=2, seed=0).columns["party2"].dense()
    assert narrow.train.shape == (134, 3) and narrow.test.shape[1] == 3 and len(narrow.names) == 3
    assert narrow.train[:, 0].std() > 0 and not narrow.train[:, 1:].any()
    own = wine.columns["party2"].dense().train
    assert any(narrow.train[:, 0].equal(own[:, place]) for place in range(own.shape[1]))
    with pytest.raises(SettingsError, match="cannot keep 9"):
        with_columns(wine, "party2", columns=9, padding=0, seed=0)


@pytest.mark.parametrize("algorithm", ["afsgd", "afsvrg", "fsgd", "fcg"])
def test_plain_products_give_the_column_away(wine: FederatedData, algorithm: str) -> None:
    for line in measured(wine, algorithm, "plain"):
        assert line.mean >= 0.99 and line.beside["chance"] < 0.3
        assert line.beside["one column"] == 1.0


def test_columns_of_zeros_change_nothing(wine: FederatedData) -> None:
    padded = measured(wine, "afsvrg", "plain", ExposedParty(padding=7))
    assert [line.mean for line in padded] == [line.mean for line in measured(wine, "afsvrg", "plain")]
    assert padded[0].mean >= 0.99
    assert [line.beside["one column"] for line in padded] == [1.0, 1.0]


@pytest.mark.parametrize("knows", ["range", "introduction"])
def test_no_known_row_is_needed(wine: FederatedData, knows: str) -> None:
    above, _ = measured(wine, "afsvrg", "plain", ExposedParty(knows=knows))
    assert above.mean >= 0.99 and above.conditions["known rows"] == 0


def test_pairwise_masks_leave_chance(wine: FederatedData) -> None:
    for line in measured(wine, "afsvrg", "pairwise", trials=3):
        assert line.mean <= line.beside["chance"] + 0.05
        assert line.beside["one column"] == 0.0


def test_two_trees_hide_from_each_party_alone_but_not_from_two(wine: FederatedData) -> None:
    above, colluding, wire = measured(wine, "afsvrg", "two-tree", trials=3)
    assert above.mean <= above.beside["chance"] + 0.05 and above.beside["one column"] == 0.0
    assert colluding.mean >= 0.99 and wire.mean >= 0.99


def test_only_parties_that_send_products_are_attacked(wine: FederatedData) -> None:
    with pytest.raises(SettingsError, match="'vafl' has none"):
        product_inference(wine, Federated(algorithms.find("vafl").settings(), TRAINING), ExposedParty(), Trials(1))
    with pytest.raises(SettingsError, match="Share the columns among at least 3"):
        measured(colonnade.dataset("wine", parties=1), "afsgd", "plain")


# --- on the command line ----------------------------------------------------------------------------------------


def test_the_verb_prints_success_beside_chance_and_writes_a_page(tmp_path: Path) -> None:
    call = ["attack", "product-inference", "--data", "wine", "--sums", "plain", "--padding", "0", "--padding", "2"]
    answer = CliRunner().invoke(app, [*call, "--trials", "1", "--epochs", "6", "--out", str(tmp_path / "attack")])
    assert answer.exit_code == 0, answer.output
    assert "100.0 % ± 0.0 %" in answer.stdout and "tolerance 0.1" in answer.stdout
    result = json.loads((tmp_path / "attack" / "attack.json").read_text())
    assert [row["conditions"]["zeros"] for row in result["rows"]] == [0, 0, 2, 2]
    assert result["rows"][0]["adversary"] == "plain sums: party above" and result["rows"][0]["values"] == [1.0]
    assert 'class="bar' in (tmp_path / "attack" / "report.html").read_text()


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("product-inference", "--sums", "plan"), "Did you mean 'plain'"),
        (("product-inference", "--algorithm", "vafl"), "'vafl' has none"),
        (("product-inference", "--tolerance", "0"), "must be above 0"),
        (("product-inference", "--knows", "range", "--known-rows", "3"), "--known-rows is for"),
    ],
)
def test_mistakes_on_the_command_line_are_refused(arguments: tuple[str, ...], told: str) -> None:
    answer = CliRunner().invoke(app, ["attack", *arguments])
    assert isinstance(answer.exception, ColonnadeError) and answer.exception.exit_code == 2
    assert told in str(answer.exception) and answer.stdout == ""
