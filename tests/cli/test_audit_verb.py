"""`colonnade audit`."""

import json
from pathlib import Path

import pytest
from command_line import IRIS, colonnade, refused, toml


def test_the_verb_prints_json_and_writes_a_page() -> None:
    small = ("--rows", "256", "--batch-size", "4", "--epochs", "2")
    made = colonnade("audit", "vafl", *small, "--page", "audit.html", "--json")
    assert made.code == 0, made.err
    (result,) = json.loads(made.out)
    assert result["observed"] <= result["sound"]
    assert "Claimed, sound, observed" in Path("audit.html").read_text(encoding="utf-8")
    shown = colonnade("audit", "dpzv", *small)
    assert "nothing bounds ε" in shown.out.replace("\n", " ")


@pytest.mark.parametrize("algorithm", ["vafl", "czofo"])
def test_both_readings_of_a_claim_are_shown(algorithm: str) -> None:
    asked = ("--rows", "512", "--batch-size", "4", "--epochs", "4", "--page", "audit.html")
    shown = colonnade("audit", algorithm, *asked)
    assert shown.code == 0, shown.err
    assert "│ 1 or" in shown.out and "the claim does not hold by either reading" in shown.out.replace("\n", " ")
    assert "its words count the samples" in shown.out.replace("\n", " ")
    page = Path("audit.html").read_text(encoding="utf-8")
    assert ">1 or 2.155<" in page and "its words count the samples" in page


def test_what_was_observed_stands_in_the_runs_own_report() -> None:
    private = """
    [privacy]
    clip = 4.0
    columns_epsilon = 8.0
    bottom_update = "frozen"
    """
    told = colonnade("run", toml("private.toml", IRIS + private), "--out", "runs/private", "--json").object
    assert told["privacy"]["sound"] > 7.99
    small = ("audit", "vafl", "--formula", "sound", "--rows", "256", "--batch-size", "4", "--epochs", "2", "--json")
    made = colonnade(*small, "--epsilon", "8", "--out", "runs/private")
    assert json.loads(made.out) == json.loads(Path("runs/private/audit.json").read_text(encoding="utf-8"))
    page = Path(colonnade("report", "runs/private", "--json").object["report"])
    assert "observed ε ≥" in page.read_text(encoding="utf-8") and "256 canaries" in page.read_text(encoding="utf-8")
    made = colonnade(*small, "--epsilon", "20", "--out", "other.json")
    assert made.code == 0, made.err
    assert "this run's cost less" in refused("report", "runs/private", "--audit", "other.json")
    assert "could not be written" in refused(*small, "--out", "private.toml/audit.json", code=1)


def test_ones_own_federation_is_audited_with_its_own_noise() -> None:
    private = """
    [privacy]
    clip = 4.0
    columns_epsilon = 2.0
    bottom_update = "frozen"
    """
    file = toml("own.toml", IRIS + private)
    made = colonnade("audit", file, "--set", "training.epochs=2", "--set", "training.batch_size=8", "--json")
    assert made.code == 0, made.err
    (result,) = json.loads(made.out)
    assert result["audit"]["formula"] == "given" and result["audit"]["epsilon"] == 2.0
    assert result["observed"] <= result["sound"] <= 2.0 + 1e-6
    assert result["canaries"] % 8 == 0 and result["correct"] > result["canaries"] / 2
    begun = colonnade("audit", file, "--set", "training.epochs=2.5", "--set", "training.batch_size=8", "--json")
    assert json.loads(begun.out)[0]["audit"]["epochs"] == 3  # some rows are used a third time
    plain = ("--set", "privacy.bottom_update=plain", "--set", "privacy.columns_epsilon=0", "--set", "privacy.noise=9")
    (result,) = json.loads(colonnade("audit", file, *plain, "--set", "training.epochs=1", "--json").out)
    assert result["sound"] is None and result["given_hidden_state"] > 0
    assert "--rows is for an audit of an algorithm" in refused("audit", file, "--rows", "64")
    assert "nothing that an audit could refute" in refused("audit", toml("plain.toml", IRIS))
    assert "algorithm with an audit" in refused("audit", file, "--set", "algorithm.name=split")
    assert "--set and --party" in refused("audit", "vafl", "--party", "shop")


def test_noised_answers_of_ones_own_federation_are_audited() -> None:
    labels = ("--set", "algorithm.name=dpzv", "--set", "algorithm.server_update=frozen")
    target = ("--set", "privacy.labels_epsilon=4", "--set", "training.epochs=2", "--set", "training.batch_size=4")
    made = colonnade("audit", toml("labels.toml", IRIS), *labels, *target, "--json")
    assert made.code == 0, made.err
    (result,) = json.loads(made.out)
    # The target is of both feature parties' answers together.
    assert result["observed"] <= result["sound"] <= 4.0 + 1e-6 and result["sound"] > 3.9
    assert result["protects"] == "one row's label" and result["correct"] > result["canaries"] / 2
