"""What an audit says of a run: the observed ε beside the claimed and the sound one.

An audit (`colonnade audit --out`) is a training of its own, with canaries. It bounds a run from below only if the run
gave away at least as much: same algorithm and δ, and releases that cost one row no less. Private updates of a model
cost, too, and nobody is shown them: with these the costs of two trainings do not compare. Where nothing can be said, a
sentence tells why, and no number is shown.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from colonnade.errors import RunError, SettingsError
from colonnade.files import json_of, read_whole
from colonnade.reports.amounts import number, significant
from colonnade.reports.rundir import Run

AUDIT_FILE = "audit.json"
_AS_MUCH = 1e-6  # relative: by how much an ε that was computed in two ways may differ
_PRIVATE_UPDATES = ("private-zo", "dp-sgd")
_WHO = {"labels of ": ("feature part",), "columns of ": ("label party", "all other parties")}
"""Whose word for an adversary includes the one that the audit plays, in each kind of direction."""


@dataclass(frozen=True)
class Observed:
    """Figures of `summary.json`, with `observed` where the audit bounds them; and what is to be said about it."""

    figures: Sequence[Mapping[str, Any]]
    words: str

    @property
    def any(self) -> bool:
        return any(figure.get("observed") is not None for figure in self.figures)


def audit_of(run: Run, given: Path | None = None) -> list[Mapping[str, Any]]:
    """The audits to show with a run: of a file, of a directory's audit.json, or else of the run's own; perhaps none."""
    path = run.path if given is None else given
    path = path / AUDIT_FILE if path.is_dir() else path
    if given is None and not path.is_file():
        return []
    try:
        found = json_of(read_whole(path, links=given is not None))
    except OSError as reason:
        raise SettingsError(
            f"{path} could not be read ({reason.strerror}). Name what `colonnade audit --out` wrote."
        ) from None
    except ValueError:
        found = None
    if not isinstance(found, list) or not found or not all(map(_understood, found)):
        raise RunError(f"{path} is no audit. Write one with `colonnade audit --out`, or take the file away.")
    return found


def observe(run: Run, figures: Sequence[Mapping[str, Any]], audits: Sequence[Mapping[str, Any]]) -> Observed:
    """Of several audits the smallest bound counts: each holds at its confidence, the largest of them would not."""
    first = audits[0]
    asked = first["audit"]
    of_labels = first["protects"].endswith("label")
    other = _what_differs(run, asked, of_labels)
    if other:
        return Observed(figures, f"{other} What it saw says nothing of this run.")
    way = "labels of " if of_labels else "columns of "
    least = min(float(one["observed"]) for one in audits)
    cost = max(float(one["given_hidden_state"]) for one in audits)
    bounded: list[Mapping[str, Any]] = []
    most = 0.0
    for figure in figures:
        own = _cost(figure) if _audited(figure, way) else None
        most = max(most, own or 0.0)
        holds = own is not None and cost <= own * (1 + _AS_MUCH)
        bounded.append({**figure, "observed": least} if holds else figure)
    found = Observed(bounded, "")
    if not found.any:
        return Observed(
            figures,
            f"There is an audit, whose releases cost ε = {significant(cost)}; this run's cost less (at most "
            f"{significant(most)}), so what it saw says nothing of this run. Audit with a smaller --epsilon.",
        )
    several = f" It is the smallest of {len(audits)}." if len(audits) > 1 else ""
    return Observed(
        bounded,
        f"Observed: in an audit of {asked['algorithm']} with {first['canaries']:,} canaries, by {first['adversary']}. "
        f"Its releases cost ε = {significant(cost)}, no more than those of this run; ε was at least the number shown, "
        f"at {100 * asked['confidence']:g} % confidence.{several}{_at_best(first)}",
    )


def _at_best(audit: Mapping[str, Any]) -> str:
    """What it could have shown: a bound that could not have been larger refutes nothing beyond."""
    largest = number(audit.get("largest"))
    return (
        "" if largest is None else f" With all guesses right it would have shown {significant(largest)}, and no more."
    )


def _what_differs(run: Run, asked: Mapping[str, Any], of_labels: bool) -> str | None:
    if asked["algorithm"] != run.algorithm:
        return f"There is an audit of {asked['algorithm']}, and this run is of {run.algorithm}."
    delta = number(run.section("privacy").get("delta"))
    if delta is None or abs(asked["delta"] - delta) > _AS_MUCH * delta:
        return f"There is an audit at δ = {asked['delta']:g}, and this run's figures are at δ = {significant(delta)}."
    update = _setting(run, "algorithm", "server_update") if of_labels else _setting(run, "privacy", "bottom_update")
    if of_labels and update != asked["server_update"]:
        return f"There is an audit with server_update = {asked['server_update']}, and this run's is {update}."
    if update in _PRIVATE_UPDATES:
        return f"There is an audit, and part of what this run cost went into private updates ({update}), unseen."
    return None


def _setting(run: Run, section: str, name: str) -> Any:
    settings = run.section("settings").get(section)
    return settings.get(name) if isinstance(settings, Mapping) else None


def _audited(figure: Mapping[str, Any], way: str) -> bool:
    """No audit looks at test rows, or plays somebody on the wire."""
    direction, adversary = str(figure.get("direction")), str(figure.get("adversary"))
    known = any(words in adversary for words in _WHO[way])
    return direction.startswith(way) and not direction.endswith("test rows") and known


def _cost(figure: Mapping[str, Any]) -> float | None:
    """ε of the releases that this adversary is sent; None where there is no such number."""
    conditional = number(figure.get("conditional"))
    return number(figure.get("sound")) if conditional is None else conditional


def _understood(audit: object) -> bool:
    """Whether this is what `colonnade audit` writes, as far as it is read here."""
    if not isinstance(audit, Mapping) or not isinstance(audit.get("audit"), Mapping):
        return False
    asked = audit["audit"]
    numbers = [audit.get(name) for name in ("observed", "given_hidden_state", "canaries")]
    numbers += [asked.get(name) for name in ("delta", "confidence")]
    words = [audit.get("protects"), audit.get("adversary"), asked.get("algorithm"), asked.get("server_update")]
    return all(number(one) is not None for one in numbers) and all(isinstance(one, str) for one in words)
