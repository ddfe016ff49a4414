"""The pages of attacks, audits and reproductions: the answer first, values without a picture, data to take away."""

import base64
import json
import re
from typing import Any

import pytest

from colonnade.reports.attack_page import attack_page
from colonnade.reports.audit_page import audit_page
from colonnade.reports.bars import Bar, bars
from colonnade.reports.reproduction_page import reproduction_page
from colonnade.reproductions.recorded import FOLDER


def curves(page: str) -> list[dict[str, Any]]:
    return [json.loads(told) for told in re.findall(r"data-curves>(.*?)</script>", page)]


def line(adversary: str, values: list[float], chance: float = 0.1) -> dict[str, Any]:
    mean = sum(values) / len(values)
    return {
        "algorithm": "vafl",
        "adversary": adversary,
        "conditions": {"noise": 0.0},
        "measure": "success",
        "mean": mean,
        "deviation": max(values) - mean,
        "values": values,
        "beside": {"chance": chance, "joint model": float("nan")},
    }


def attack(*lines: dict[str, Any]) -> str:
    facts = {"name": "label-inference", "data": "digits", "training_rows": 300, "trials": 2, "seed": 0}
    return attack_page({**facts, "rows": list(lines), "settings": {"training.epochs": 1.0}, "versions": {"torch": "2"}})


def test_an_attack_is_answered_first_and_shown_beside_chance() -> None:
    page = attack(line("curious party", [0.7, 0.9]), line("eavesdropper", [0.1, 0.1]))
    said = (
        "The most successful (vafl, curious party) found 80.0 % of the labels or values. By chance it would be 10.0 %."
    )
    assert page.index(said) < page.index("What was inferred")
    assert 'title="vafl, curious party: 80.0 %; chance 0.1"' in page and "left:10.00%" in page
    assert "training.epochs" in page and "<img" not in page
    assert "Nothing was found that chance would not explain." in attack(line("eavesdropper", [0.1, 0.12]))


def test_every_trial_of_an_attack_can_be_taken_away() -> None:
    (link,) = re.findall(r"data:text/csv;charset=utf-8;base64,([^\"]+)", attack(line("curious party", [0.7, 0.9])))
    assert base64.b64decode(link).decode().splitlines() == [
        "trial,algorithm,adversary,noise,success,chance,joint model",
        "0,vafl,curious party,0,0.7,0.1000,–",
        "1,vafl,curious party,0,0.9,0.1000,–",
    ]


def audited(observed: float, claimed: float | None, sound: float | None) -> dict[str, Any]:
    asked = {"algorithm": "vafl", "delta": 1e-5, "epochs": 4, "rows": 512, "batch_size": 4, "formula": "paper"}
    return {
        "audit": {**asked, "seed": 0, "confidence": 0.95},
        "protects": "columns",
        "adversary": "a label party",
        "noise": 1.0,
        "canaries": 4,
        "correct": 3,
        "claimed": claimed,
        "claimed_otherwise": None,
        "readings": "",
        "sound": sound,
        "observed": observed,
        "largest": 5.0,
        "gaussian": None,
        "gaussian_largest": None,
        "scores": [[0.0, 1.0], [3.0, 4.0]],
    }


@pytest.mark.parametrize(
    ("observed", "claimed", "sound", "said"),
    [
        (2.4, 1.0, 16.9, "Claimed: ε = 1, which is refuted. | Sound: ε = 16.90."),
        (0.5, 1.0, None, "Claimed: ε = 1, which is not refuted. | Sound: nothing bounds ε end to end (∞)."),
        (0.0, None, 3.0, "guessed no better than chance explains. | Sound: ε = 3.00."),
    ],
)
def test_an_audit_says_what_it_refutes(observed: float, claimed: float | None, sound: float | None, said: str) -> None:
    page = audit_page([audited(observed, claimed, sound)])
    first, second = said.split(" | ")
    assert re.search(rf"{re.escape(first)}</p>\s*<p class=\"verdict\">{re.escape(second)}", page)
    (told,) = curves(page)
    assert [(one["name"], sum(one["canaries"])) for one in told["curves"]] == [("bit 0", 2), ("bit 1", 2)]


def test_a_reproduction_has_its_claims_its_curves_and_its_circumstances() -> None:
    result = json.loads(FOLDER.joinpath("vafl-figure-3-quick.json").read_text(encoding="utf-8"))
    result["rows"] = [{**one, "holds": place > 0 or None} for place, one in enumerate(result["rows"][:3])]
    page = reproduction_page(result, "VAFL")
    assert "2 of 2 claims came out here." in page and result["date"] in page and result["commit"] in page
    result["rows"][2]["holds"] = False
    assert f"1 of 2 claims came out here. Not: {result['rows'][2]['label']}." in reproduction_page(result, "VAFL")
    shown = curves(page)
    assert [len(one["curves"]) for one in shown] == [len(panel["curves"]) for panel in result["panels"]]
    for curve, told in zip(result["panels"][0]["curves"], shown[0]["curves"], strict=True):
        assert (told["name"], told["y"], told.get("dashed", False)) == (curve["label"], curve["y"], curve["dashed"])


def test_bars_of_a_reproduction_are_marked_by_what_was_published() -> None:
    result = json.loads(FOLDER.joinpath("afsgd-table-2-quick.json").read_text(encoding="utf-8"))
    page = reproduction_page(result, "AFSGD-VP")
    assert "Table II 2.14" in page and not curves(page) and "<script" not in page


def test_bars_reach_as_far_as_their_values_say() -> None:
    shown = bars([Bar("a", -1.0, "−1"), Bar("b", 3.0, "3", whisker=(2.0, 3.0), marks=(("<best>", 1.0),))])
    assert 'class="bar c0" style="left:0.00%;width:25.00%"' in shown  # from −1 to 0, of a scale from −1 to 3
    assert 'class="bar c0" style="left:25.00%;width:75.00%"' in shown
    assert 'class="whisker" style="left:75.00%;width:25.00%"' in shown and "&lt;best&gt; 1" in shown
    assert bars([]) == "" == bars([Bar("a", None, "–")])
