"""`colonnade attack`: the table, the JSON object, the page, and one sentence for every mistake."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from colonnade.cli.application import app
from colonnade.errors import ColonnadeError


def attack(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, ["attack", *map(str, arguments)])


def refused(*arguments: str | Path) -> str:
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
    assert 'class="bar' in page and "<script" not in page and "http:" not in page and "https:" not in page
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


OWN = """
[data]
set = "iris"
parties = 2
validation = 0.1
[algorithm]
name = "vafl"
[training]
epochs = 2
batch_size = 16
"""


@pytest.fixture
def own(tmp_path: Path) -> Path:
    file = tmp_path / "federation.toml"
    file.write_text(OWN)
    return file


def test_ones_own_federation_is_attacked_as_it_is(own: Path) -> None:
    short = (own, "--trials", "1", "--json")
    (completed,) = json.loads(attack("model-completion", *short, "--party", "party2").stdout)["rows"]
    assert completed["algorithm"] == "vafl" and 0 < completed["beside"]["joint model"] <= 1
    private = ("--set", "algorithm.name=dpzv", "--set", "algorithm.server_update=frozen")
    labels = ("--set", "privacy.labels_epsilon=4")
    (hidden,) = json.loads(attack("model-completion", *short, *private, *labels).stdout)["rows"]
    assert hidden["conditions"]["answer noise"] > 0
    noisy = ("--set", "privacy.clip=1", "--set", "privacy.noise=2", "--set", "bottom.embedding=5")
    (inverted,) = json.loads(attack("embedding-inversion", *short, *noisy, "--auxiliary", "0.3").stdout)["rows"]
    assert inverted["conditions"]["noise"] > 0 and inverted["conditions"]["width"] == 5
    summed = json.loads(attack("label-inference", *short, "--set", "top.kind=sum").stdout)["rows"]
    assert [row["mean"] for row in summed] == [1.0, 1.0]
    probed = json.loads(attack("label-inference", *short, "--active", "--set", "algorithm.name=cascaded").stdout)
    assert [row["adversary"] for row in probed["rows"]] == ["one row named again and again", "one row moved"]


def test_products_of_ones_own_federation(own: Path) -> None:
    small = ("--set", "data.set=breast_cancer", "--set", "data.parties=4", "--set", "data.max_rows=80")
    linear = ("--set", "algorithm.name=afsvrg", *small, "--trials", "1", "--json")
    plain = json.loads(attack("product-inference", own, *linear).stdout)["rows"]
    assert {row["adversary"] for row in plain} == {"plain sums: party above", "plain sums: eavesdropper"}
    assert all(row["conditions"]["columns"] > 1 and row["beside"]["one column"] == 0.0 for row in plain), "all of them"
    assert "hold the intercept" in refused("product-inference", str(own), *linear, "--party", "party1")


def test_mistakes_about_ones_own_federation(own: Path) -> None:
    file = str(own)
    assert "--epochs is for federations over a data set" in refused("model-completion", file, "--epochs", "3")
    assert "--set and --party are for a federation of your own" in refused("model-completion", "--party", "shop")
    assert "Did you mean 'party2'" in refused("model-completion", file, "--party", "partie2")
    assert "it does not apply" in refused("label-inference", file)
    assert "not embeddings" in refused("embedding-inversion", file, "--set", "algorithm.name=afsgd")
    assert "nothing to attack" in refused("model-completion", file, "--set", "algorithm.name=centralised")
