"""`colonnade account`: prices that come true, figures against everybody, suggestions that keep what they promise."""

from pathlib import Path

import pytest
from command_line import IRIS, colonnade, refused, toml

PRIVATE = """
[data]
set = "iris"
parties = 2
[algorithm]
name = "dpzv"
server_update = "frozen"
clip = 1.0
[training]
epochs = 4
batch_size = 16
learning_rate = 0.01
[privacy]
labels_epsilon = 8.0
"""


@pytest.mark.parametrize("algorithm", ["vafl", "split", "cascaded", "zoo-sync", "czofo", "dpzv", "fdml"])
def test_bytes_are_what_a_run_sends(algorithm: str) -> None:
    chosen = ("--set", f"algorithm.name={algorithm}", "--set", "training.batch_size=15")
    chosen = (*chosen, "--set", "training.learning_rate=0.001")
    flowers = toml("flowers.toml", IRIS)
    if algorithm == "fdml":
        chosen = (*chosen, "--set", "algorithm.max_delay=0")  # refreshes are not foreseen
    told = colonnade("account", flowers, *chosen, "--json").object
    ran = colonnade("run", flowers, *chosen, "--json", "--no-report").object
    assert told["exchanges"] == ran["exchanges"]
    for key in ("bytes_up", "bytes_down", "evaluation_bytes"):
        assert told[key] == pytest.approx(ran[key], rel=0.05), key
    assert {kind: one["frames"] for kind, one in told["messages"].items()} == ran["frames_by_message"]


@pytest.mark.parametrize("algorithm", ["split", "zoo-sync"])
def test_the_last_synchronous_reply_names_no_batch(algorithm: str) -> None:
    chosen = ("--set", f"algorithm.name={algorithm}", "--set", "training.batch_size=16", "--set", "data.parties=3")
    chosen = (*chosen, "--set", "training.learning_rate=0.001")  # with the default one zoo-sync diverges, and says so
    flowers = toml("flowers.toml", IRIS)
    told = colonnade("account", flowers, *chosen, "--json").object
    ran = colonnade("run", flowers, *chosen, "--json", "--no-report").object
    assert {kind: one["bytes"] for kind, one in told["messages"].items()} == ran["bytes_by_message"]


def test_exchanges_are_whole_updates() -> None:
    """Three parties of five batches: with two uploads an update, the eighth update makes the sixteenth exchange."""
    chosen = ("--set", "algorithm.wait_for=2", "--set", "training.batch_size=24", "--set", "training.epochs=1")
    chosen = (*chosen, "--set", "data.parties=3", "--set", "algorithm.max_delay=0")
    flowers = toml("flowers.toml", IRIS)
    told = colonnade("account", flowers, *chosen, "--json").object
    ran = colonnade("run", flowers, *chosen, "--json", "--no-report").object
    assert told["exchanges"] == ran["exchanges"] == 16
    assert told["messages"]["GradientReply"]["frames"] == ran["frames_by_message"]["GradientReply"] == 16
    assert told["refresh_bytes_at_most"] is None


@pytest.mark.parametrize("wait_for", [1, 2])
def test_refreshes_are_bounded_and_said_to_be_beside_the_bytes(wait_for: int) -> None:
    chosen = ("--set", f"algorithm.wait_for={wait_for}", "--set", "algorithm.max_delay=2", "--set", "data.parties=3")
    flowers = toml("flowers.toml", IRIS)
    told = colonnade("account", flowers, *chosen, "--json").object
    ran = colonnade("run", flowers, *chosen, "--json", "--no-report").object
    sent = ran["bytes_by_message"]
    most = told["refresh_bytes_at_most"]
    assert most["up"] / 4 < sent["RefreshedEmbedding"] <= most["up"]
    assert most["down"] / 4 < sent["RefreshRequest"] <= most["down"]
    assert "RefreshRequest" not in told["messages"]
    assert told["bytes_up"] == pytest.approx(ran["bytes_up"] - sent["RefreshedEmbedding"], rel=0.05)
    assert "refreshes (max_delay)" in colonnade("account", flowers, *chosen).out


def test_a_noise_that_misses_its_target_is_warned_of() -> None:
    private = toml("private.toml", PRIVATE)
    assert colonnade("account", private, "--json").object["missed_targets"] == []
    assert "Warning" not in colonnade("account", private).out
    (kept,) = colonnade("account", private, "--json").object["noise"]
    given = ("--set", f"algorithm.noise={0.9 * kept['noise']}")
    told = colonnade("account", private, *given, "--json").object
    (missed,) = told["missed_targets"]
    assert (missed["direction"], missed["target"]) == ("labels of label, training rows", 8.0)
    assert missed["epsilon"] == told["sound"] > 8.5
    shown = colonnade("account", private, *given).out.replace("\n", " ")
    assert "Warning: the noise that is set does not keep ε = 8 for labels of label, training rows" in shown
    by_paper = colonnade("account", private, *given, "--set", "privacy.formula=paper", "--json").object
    assert by_paper["missed_targets"] == []  # which promises nothing, and that is said already


def test_a_linear_federation_is_priced_too() -> None:
    flowers, chosen = toml("flowers.toml", IRIS), ("--set", "algorithm.name=fsgd")
    told = colonnade("account", flowers, *chosen, "--json").object
    ran = colonnade("run", flowers, *chosen, "--json", "--no-report").object
    assert (told["exchanges"], told["sound"], told["noise"]) == (28, None, [])
    for key in ("exchanges", "bytes_up", "bytes_down", "evaluation_bytes"):
        assert told[key] == ran[key], key
    assert {kind: one["bytes"] for kind, one in told["messages"].items()} == ran["bytes_by_message"]
    assert "–" not in colonnade("account", flowers, *chosen).out.split("What one row")[0]


def test_a_target_is_priced_with_the_noise_that_keeps_it() -> None:
    told = colonnade("account", toml("private.toml", PRIVATE), "--json").object
    (noise,) = told["noise"]
    assert (noise["values"], noise["setting"], noise["clip"]) == ("mean slopes", "algorithm.noise", 1.0)
    assert noise["noise_to_signal"] == noise["noise"]
    assert told["sound"] == pytest.approx(8.0) and told["claimed"] < told["sound"]
    labels = [figure for figure in told["figures"] if figure["direction"].startswith("labels")]
    assert [figure["adversary"] for figure in labels][1] == "all feature parties together"
    assert all(figure["sound"] is None for figure in told["figures"] if figure["direction"].startswith("columns"))
    assert told["formula"] == "sound" and told["delta"] == 1e-5


def test_suggestions_come_true() -> None:
    private = toml("private.toml", PRIVATE)
    wanted = ("--noise-to-signal", "0.1")
    (advice,) = colonnade("account", private, *wanted, "--json").object["suggestions"]
    assert advice["noise_to_signal"] > 0.1
    assert advice["epochs"] is None or advice["epochs"] < 4
    changed = ("--set", f"training.batch_size={advice['batch_size']}")
    (noise,) = colonnade("account", private, *changed, "--json").object["noise"]
    assert noise["noise_to_signal"] <= 0.1
    # With a noise that is set, the clip that is suggested keeps the wanted ε.
    given = ("--set", "privacy.labels_epsilon=0", "--set", "algorithm.noise=0.5", "--epsilon", "3")
    (advice,) = colonnade("account", private, *given, "--json").object["suggestions"]
    clipped = ("--set", f"algorithm.clip={advice['clip']}")
    assert colonnade("account", private, *given, *clipped, "--json").object["sound"] == pytest.approx(3.0)


@pytest.mark.usefixtures("drawn_figures")
def test_for_people() -> None:
    paper = ("--set", "privacy.formula=paper", "--delta", "1e-3", "--figure", "epsilon.png")
    answer = colonnade("account", toml("private.toml", PRIVATE), *paper)
    assert (answer.code, answer.err) == (0, "")
    for words in ("exchanges", "bytes up / down", "noise on mean slopes", "chosen by a paper's formula", "δ = 0.001"):
        assert words in answer.out
    for words in ("claimed ε", "sound ε", "∞", "1. ", "asks for noise of", "Figure: epsilon.png"):
        assert words in answer.out
    assert Path("epsilon.png").read_bytes().startswith(b"\x89PNG")


def test_what_cannot_be_priced_or_drawn() -> None:
    flowers = toml("flowers.toml", IRIS)
    assert "nothing to draw" in refused("account", flowers, "--figure", "none.png")
    assert not Path("none.png").exists()
    assert "Choose cascaded or zoo or dpzv" in refused("account", flowers, "--set", "privacy.labels_epsilon=1")
    assert r"privacy.delta is 2.0" in refused("account", flowers, "--delta", "2")
    two_trees = ("--set", "algorithm.name=afsgd", "--set", "algorithm.sums=two-tree")
    assert "at least 3 parties" in refused("account", flowers, *two_trees)
    assert colonnade("account", flowers, "--set", "algorithm.name=centralised").code == 0
    private = toml("private.toml", PRIVATE)
    assert "could not be written" in refused("account", private, "--figure", "private.toml/a.png", code=1)
