"""`colonnade attack`: the table, the JSON object, the page, and one sentence for every mistake."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from colonnade.cli.application import app
from colonnade.errors import ColonnadeError


def attack(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, ["attack", *map(str, arguments)])


def refused(*arguments: str) -> str:
    answer = attack(*arguments)
    assert isinstance(answer.exception, ColonnadeError) and answer.exception.exit_code == 2
    assert answer.stdout == ""
    return str(answer.exception)


def test_label_inference_prints_a_table_and_writes_a_page(tmp_path: Path) -> None:
    out = tmp_path / "deep" / "attack"
    answer = attack("label-inference", "--data", "iris", "--algorithm", "split", "--trials", "2", "--out", out)
    assert answer.exit_code == 0, answer.output
    assert "100.0 % ± 0.0 %" in answer.stdout and "33.3 %" in answer.stdout
    assert "split, seed 1" in answer.stderr and "seed" not in answer.stdout
    result = json.loads((out / "attack.json").read_text())
    assert [row["adversary"] for row in result["rows"]] == ["curious party", "eavesdropper"]
    assert result["rows"][0]["values"] == [1.0, 1.0]
    page = (out / "report.html").read_text()
    assert "data:image/png;base64," in page and "<script" not in page and "http:" not in page and "https:" not in page
    assert "1.0000 ± 0.0000" in page


def test_json_is_one_object_and_the_same_each_time() -> None:
    call = (
        "label-inference",
        "--data",
        "iris",
        "--algorithm",
        "cascaded",
        "--trials",
        "2",
        "--directions",
        "3",
        "--json",
    )
    one, other = json.loads(attack(*call).stdout), json.loads(attack(*call).stdout)
    assert one["rows"] == other["rows"]
    assert one["rows"][0]["conditions"] == {"noise": 0.0, "directions": 3}
    assert one["rows"][0]["beside"]["chance"] == pytest.approx(1 / 3)


def test_the_other_attacks_run_too() -> None:
    short = ("--data", "iris", "--trials", "1", "--epochs", "2", "--json")
    completed = json.loads(attack("model-completion", "--labels-per-class", "2", "--width", "4", *short).stdout)
    (row,) = completed["rows"]
    assert row["conditions"]["labels per class"] == 2 and {"untrained bottom", "no bottom", "chance"} <= set(
        row["beside"]
    )
    inverted = json.loads(
        attack("embedding-inversion", "--noise", "0", "--noise", "9", "--auxiliary", "0.3", *short).stdout
    )
    assert [row["conditions"]["noise"] for row in inverted["rows"]] == [0.0, 9.0]
    assert inverted["rows"][0]["mean"] > inverted["rows"][1]["mean"]


def test_the_parser_refuses_what_no_attack_has() -> None:
    for call, words in (
        (("label-inferense",), "No such command 'label-inferense'. Did you mean 'label-inference'?"),
        (("label-inference", "--last", "3"), "No such option: --last"),
        (("label-inference", "--padding", "1"), "No such option: --padding"),
        (("product-inference", "--noise", "1"), "No such option: --noise"),
    ):
        answer = attack(*call)
        assert (answer.exit_code, answer.stdout) == (2, "")
        assert words in " ".join(answer.stderr.replace("│", "").split())


def test_mistakes_are_refused_with_the_nearest_name(tmp_path: Path) -> None:
    assert "Did you mean 'vafl'" in refused("label-inference", "--algorithm", "valf")
    assert "Did you mean 'iris'" in refused("label-inference", "--data", "irsi")
    assert "nothing to attack" in refused("label-inference", "--algorithm", "centralised")
    assert "--directions is for algorithms" in refused("label-inference", "--directions", "3")
    assert "exists already" in refused("label-inference", "--out", str(tmp_path))
    assert "is a regression" in refused("label-inference", "--data", "diabetes")
