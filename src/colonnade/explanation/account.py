"""What an explanation releases, and whether it may: embeddings of rows, noised as in the training, row by row.

A run that noised what feature parties send has promised something about it. Its explanation sends more of the same, so
each variant of a row counts as one more release, after those of the training, of predictions and of explanations
before, in the account beside the party's model that all of them share; where the run has a target, an explanation that
would exceed it is refused before anything is computed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import inf, sqrt
from pathlib import Path
from typing import Any

from colonnade.errors import RunError, SettingsError
from colonnade.files import json_of, read_private
from colonnade.prediction.account import RowAccount, account_names
from colonnade.privacy.events import PrivacyEvent
from colonnade.privacy.gaussian import epsilon_of, mu_of
from colonnade.privacy.ledger import Ledger

_ROWS = {"train": "training rows", "test": "test rows", "validation": "validation rows"}
_ROUNDING = 1e-9


def protected(party: str, part: str) -> str:
    """What a release of these rows tells of, as ledgers have it."""
    return f"columns of {party}, {part_named(part)}"


def part_named(part: str) -> str:
    """As ledgers have it."""
    return _ROWS[part]


def check_target(party: str, part: str, releases: int, cost: float, spent: float, target: tuple[float, float]) -> None:
    """Refuse so many more releases of each row, of `cost` each, where a target (ε, δ) does not allow them.

    `spent`: what the worst row has cost, in μ².
    """
    epsilon, delta = target
    limit = mu_of(epsilon, delta) ** 2 * (1 + _ROUNDING)
    if spent + releases * cost <= limit:
        return
    left = max(0, int((limit - spent) // cost))
    raise SettingsError(
        f"This would release each row of {party} {releases} more times, and so cost ε = "
        f"{epsilon_of(sqrt(spent + releases * cost), delta):.3g} of {protected(party, part)}; the run's target is "
        f"{epsilon:g}, which leaves {left} releases per row. Ask for fewer columns or repeats"
        + (" (--columns 0: parties alone)." if left else ", or explain other rows (--on).")
    )


@dataclass(frozen=True)
class SpentRows:
    """The account beside a party's model, as far as the rows of an explanation go."""

    account: RowAccount
    ids: Sequence[str] = field(repr=False)

    def spent(self) -> float:
        """μ² of the worst of these rows."""
        known = self.account.totals()
        return max((known.get(name, 0.0) for name in account_names(self.ids)), default=0.0)

    def add(self, cost: float) -> None:
        self.account.add(dict.fromkeys(account_names([one for one in self.ids if one]), cost))


@dataclass
class ReleaseAccount:
    """What has left of one part of the rows, and what may. Without noise: nothing is counted in ε."""

    noise: float = 0.0
    clip: float = 0.0
    target: float = 0.0  # ε of one row's columns at one party; 0: none
    delta: float = 1e-5
    part: str = "test"
    label_party: str = ""
    labels_are_noised: bool = False  # then no exact figure of theirs may be told
    spent: dict[str, float] = field(default_factory=dict)  # μ² of the worst row so far, by party
    ledger: Path | None = None
    books: dict[str, SpentRows] = field(default_factory=dict)  # by party with an account of its rows

    @property
    def cost(self) -> float:
        """μ² of one release of a row."""
        sensitivity = 2 * self.clip if self.clip else inf
        return (sensitivity / self.noise) ** 2 if self.noise else 0.0

    def open(self, party: str, book: SpentRows) -> None:
        """Count this party's rows in their account, too: it knows what predictions have cost them."""
        self.books[party] = book
        self.spent[party] = max(self.spent.get(party, 0.0), book.spent())

    def check(self, party: str, releases: int) -> None:
        """Refuse what a target does not allow."""
        if not self.noise or not self.target:
            return
        check_target(party, self.part, releases, self.cost, self.spent.get(party, 0.0), (self.target, self.delta))

    def spend(self, party: str, rows: int, releases: int) -> None:
        """Write so many releases down, before they are made."""
        if not self.noise:
            return
        event = PrivacyEvent(
            "gaussian",
            2 * self.clip if self.clip else inf,
            self.noise,
            rows,
            protected(party, self.part),
            (self.label_party,),
        )
        self.spent[party] = self.spent.get(party, 0.0) + releases * self.cost
        if party in self.books:
            self.books[party].add(releases * self.cost)
        if self.ledger is None:
            return
        try:
            book = Ledger(self.ledger, self.ledger.stat().st_size if self.ledger.exists() else 0)
            for _ in range(releases):
                book.spend(party, event)
            book.close()
        except OSError as error:
            raise RunError(f"{self.ledger} could not be written: {error.strerror}. Nothing was computed.") from None

    def epsilon(self, party: str) -> float | None:
        """What the worst row of a party has cost by now; None: it is not protected."""
        return (
            epsilon_of(sqrt(self.spent[party]), self.delta)
            if self.noise and self.clip and party in self.spent
            else None
        )


def account_of(summary: Mapping[str, Any], part: str, directory: Path | None) -> ReleaseAccount:
    """Of a run that has ended: what it released of these rows, explanations before this one included."""
    told, settings = summary["privacy"], summary["settings"].get("privacy", {})
    events = [one for one in told["events"] if str(one["protects"]).startswith("columns of ")]
    parties = summary["parties"]
    account = ReleaseAccount(
        noise=max((float(one["noise"]) for one in events), default=0.0),
        clip=float(settings.get("clip", 0.0)),
        target=float(settings.get("columns_epsilon", 0.0)) if settings.get("formula", "sound") == "sound" else 0.0,
        delta=float(settings.get("delta", 1e-5)),
        part=part,
        label_party=next((name for name, one in parties.items() if one["role"] == "label"), ""),
        labels_are_noised=any(str(one["protects"]).startswith("labels of ") for one in told["events"]),
        ledger=None if directory is None else directory / "ledger.jsonl",
    )
    earlier = [] if account.ledger is None or not account.ledger.exists() else _lines(account.ledger)
    counted = [(one["party"], one, int(one["max_releases_per_row"])) for one in events]
    for party, one, releases in [*counted, *((line["party"], line, 1) for line in earlier)]:
        if one["protects"] == protected(party, account.part):
            cost = inf if one["sensitivity"] is None else (one["sensitivity"] / one["noise"]) ** 2
            account.spent[party] = account.spent.get(party, 0.0) + releases * cost
    return account


def _lines(path: Path) -> list[dict[str, Any]]:
    try:
        lines = read_private(path).splitlines(keepends=True)
        return [json_of(line) for line in lines if line.endswith(b"\n")]  # no value followed a torn one
    except (OSError, ValueError):
        raise RunError(
            f"{path} is damaged: what explanations have released is no longer known. Put the whole file back."
        ) from None
