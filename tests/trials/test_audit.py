"""Audits of the product's own parties: the papers' noise is refuted, sound noise is not."""

import pytest

from colonnade.errors import SettingsError
from colonnade.trials.audit import Audit, run_audit


@pytest.mark.parametrize("update", ["zeroth-order", "frozen"])
def test_the_papers_noise_for_epsilon_one_keeps_no_three(update: str) -> None:
    """D/B = 512 batches: a row that is known to be used costs √512 times the μ that subsampling would give it."""
    audited = run_audit(Audit(formula="paper", rows=4096, batch_size=8, epochs=2, server_update=update))
    assert audited.claimed == pytest.approx(1.0, rel=1e-6)
    assert audited.observed > 3
    assert audited.observed <= audited.largest
    assert audited.observed <= audited.sound


@pytest.mark.parametrize("algorithm", ["vafl", "czofo"])
def test_so_for_noised_embeddings(algorithm: str) -> None:
    audited = run_audit(Audit(algorithm, formula="paper", rows=2048, batch_size=4, epochs=3))
    if algorithm == "vafl":
        assert audited.claimed == pytest.approx(1.0, rel=1e-6)
    else:
        assert audited.claimed is None and audited.as_values()["claimed"] is None  # its paper has no formula
    assert 3 < audited.observed <= audited.sound


@pytest.mark.parametrize(
    "audit",
    [
        Audit("dpzv", formula="sound", rows=512, batch_size=4, epochs=2, server_update="frozen"),
        Audit("dpzv", formula="sound", rows=512, batch_size=4, epochs=2, server_update="private-zo"),
        Audit("vafl", formula="sound", rows=256, batch_size=16, epochs=2),
    ],
    ids=["frozen", "private-zo", "vafl"],
)
def test_twenty_audits_of_sound_noise_do_not_exceed_it(audit: Audit) -> None:
    """At 95 % confidence each one may, once in twenty; two or fewer in 20 is what a sound figure gives (p = 0.92)."""
    results = [run_audit(Audit(**{**vars(audit), "seed": seed})) for seed in range(20)]
    for result in results:
        assert result.sound == pytest.approx(1.0, rel=1e-6)
    assert sum(result.observed > result.sound for result in results) <= 2


def test_a_plain_server_update_has_no_sound_figure() -> None:
    audited = run_audit(Audit(rows=64, batch_size=4, epochs=1))
    assert audited.sound == float("inf")
    assert audited.as_values()["sound"] is None
    with pytest.raises(SettingsError, match="server_update"):
        run_audit(Audit(formula="sound", rows=64, batch_size=4, epochs=1))


def test_more_noise_hides_more() -> None:
    """The same seed, so the same bits: with ε = 8 more of them are guessed than with ε = 0.5."""
    little, much = (
        run_audit(Audit("vafl", epsilon=epsilon, formula="sound", rows=512, batch_size=16, epochs=2))
        for epsilon in (8.0, 0.5)
    )
    assert little.correct > much.correct
    assert little.noise < much.noise


@pytest.mark.parametrize("wrong", [{"algorithm": "split"}, {"formula": "guess"}, {"rows": 4, "batch_size": 8}])
def test_what_cannot_be_audited_is_said(wrong: dict[str, object]) -> None:
    with pytest.raises(SettingsError):
        Audit(**wrong)  # type: ignore[arg-type]
