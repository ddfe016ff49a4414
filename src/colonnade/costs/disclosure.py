"""What each party learnt, in plain words: which values reached it, how many, of how many rows, noised or exact.

One sentence for a viewer and a kind of message, from the counts of what was sent. Nothing is read but sizes. Whoever
wants to know what can be inferred from these values asks the attacks.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from colonnade.algorithms.split_models.parts.evaluation import ROWS_A_REQUEST
from colonnade.array_fields import PRECISIONS, record_bytes
from colonnade.costs.traffic import is_sized, position_bytes, sent_bytes, upload_of
from colonnade.federation.plan import Facts, Plan
from colonnade.messages import KINDS, Message, RefreshedEmbedding, WarmUpUpload
from colonnade.wire.codec import encode

Counts = Mapping[str, Mapping[str, int]]
"""By sender, then by kind of message."""

TOGETHER = "feature parties"
"""The viewer of what is counted for all feature parties together, and not for each."""

# Words that carry no data of anybody's.
_CONTROL = (
    *("Stop", "LastCall", "WeightsSettled", "Abandoned", "EvaluationAbandoned", "BudgetSpent"),
    *("WentBack", "GoOn", "LessonStep", "SearchReply", "SearchStop"),
)


@dataclass(frozen=True)
class Disclosure:
    """One kind of values that one party saw of another's."""

    sender: str
    viewer: str
    kind: str
    frames: int
    sentence: str


def disclosures(
    plan: Plan, facts: Facts, frames: Counts, sizes: Counts, exchanges: Mapping[str, int]
) -> list[Disclosure]:
    """Sentences, what feature parties sent first. `exchanges`: replies that each feature party got."""
    if plan.is_alone:
        return []
    if plan.is_linear or not is_sized(plan.conversation):
        return _plain(plan, frames, facts.weighted)
    told = _Told(plan, facts, frames, sizes, exchanges)
    found: list[Disclosure] = []
    for party in facts.feature_parties:
        found += [
            Disclosure(party, facts.label_party, kind, count, told.upwards(party, kind))
            for kind, count in frames.get(party, {}).items()
            if kind not in _CONTROL
        ]
    for party in facts.feature_parties:
        for kind in frames.get(facts.label_party, {}):
            if kind not in _CONTROL and (count := told.received(party, kind)):
                found.append(Disclosure(facts.label_party, party, kind, count, told.downwards(party, kind, count)))
    for kind, count in frames.get(facts.label_party, {}).items():
        if told.is_counted_for_all(kind):
            found.append(Disclosure(facts.label_party, TOGETHER, kind, count, told.to_all(kind, count)))
    return found


def as_sentences(found: list[Disclosure]) -> list[dict[str, Any]]:
    """For summary.json."""
    return [dict(vars(one)) for one in found]


class _Told:
    """The sentences of a split training."""

    def __init__(self, plan: Plan, facts: Facts, frames: Counts, sizes: Counts, exchanges: Mapping[str, int]) -> None:
        self._plan = plan
        self._facts = facts
        self._frames = frames
        self._sizes = sizes
        self._exchanges = exchanges
        self._points = plan.conversation.points(plan.algorithm)
        self._upload = plan.conversation.upload.__name__
        self._is_noisy = plan.privacy.noise > 0

    def upwards(self, party: str, kind: str) -> str:
        facts, width = self._facts, self._facts.widths[party]
        if kind == self._upload:
            rows = self._uploaded_rows(party)
            of, distinct = "training", min(rows, facts.rows)
            count = rows * self._points
        elif kind == "WarmUpUpload":
            of, distinct = "training", self._warmed_up_rows(party)
            count = distinct
        elif kind == "RefreshedEmbedding":
            count = self._refreshed_rows(party)
            of, distinct = "training", min(count, facts.rows)
        elif kind in ("EvaluationEmbedding", "ValidationEmbedding"):
            of, rows = ("test", facts.test_rows) if kind[0] == "E" else ("validation", facts.validation_rows)
            count = self._scored_rows(party, kind, rows)
            distinct = rows if count else 0
        else:
            return f"{facts.label_party} got {_counted(self._frames[party][kind], 'message')} {kind} of {party}."
        when = {"WarmUpUpload": " before the training", "RefreshedEmbedding": " that it asked for afresh"}
        about = "about " if kind == "RefreshedEmbedding" else ""
        of_rows = _counted(distinct, f"{of} row")
        sort = _sort(self._plan, "" if KINDS[kind].message.off_clock else "up", self._is_noisy)
        return (
            f"{facts.label_party} saw {about}{_counted(count, f'{sort} {width}-number embedding')} of {of_rows} "
            f"of {party}{when.get(kind, '')}.{self._alike(party)}"
        )

    def _alike(self, party: str) -> str:
        """What exact embeddings tell besides, where parties may lack rows."""
        if not self._facts.expects_absence or self._is_noisy:
            return ""
        return (
            f" Those of rows that {party} lacks, or dropped, are all alike, so {self._facts.label_party} can tell them."
        )

    def received(self, party: str, kind: str) -> int:
        """Frames of that kind that the label party sent to this party, from what this party answered or took."""
        if self.is_counted_for_all(kind):
            return 0
        if kind in _ANSWERS:
            return self._frames.get(party, {}).get(_ANSWERS[kind], 0)
        if kind in (*_UNANSWERED, *_TO_EVERYBODY):
            return self._frames[self._facts.label_party][kind] // len(self._facts.feature_parties)
        return self._exchanges.get(party, 0)

    def is_counted_for_all(self, kind: str) -> bool:
        """Whether nothing tells who got how many: only the first batch is asked of each once, if nobody was away."""
        parties = len(self._facts.feature_parties)
        total = self._frames[self._facts.label_party].get(kind, 0)
        return kind in _UNANSWERED and parties > 1 and not (kind == "BatchRequest" and total == parties)

    def to_all(self, kind: str, count: int) -> str:
        what = "have no budget left" if kind == "RowsRefused" else "are wanted"
        times = _counted(count, "time")
        return f"The feature parties were told by {self._facts.label_party} which rows {what}, {times} in all."

    def downwards(self, party: str, kind: str, count: int) -> str:
        label, width = self._facts.label_party, self._facts.widths[party]
        secrets = f"{label}'s labels{_AND_WEIGHTS if self._facts.weighted else ''}"
        if kind in ("GradientReply", "GradientAndBatch"):
            rows = self._answered_rows(party, count)
            what = f"{_sort(self._plan, 'down')} {width}-number gradient"
            return f"{party} saw {_counted(rows, what)} that tell of {secrets}."
        noised = self._plan.noised_answers
        if kind == "LossReply" and noised is not None and noised.noise > 0:
            answered = self._plan.conversation.answered(self._plan.algorithm)
            slopes = _counted(count * answered, "noisy mean slope")
            return f"{party} saw {slopes} of {_counted(count, 'batch', 'batches')}, that tell of {secrets}."
        if kind in ("LossReply", "LossAndBatch"):
            losses = _counted(count * self._points, "exact mean loss", "exact mean losses")
            return f"{party} saw {losses} of {_counted(count, 'batch', 'batches')}, that tell of {secrets}."
        if kind == "RowLossReply":
            rows = self._answered_rows(party, count)
            losses = _counted(rows * self._points, "exact loss of a single row", "exact losses of single rows")
            return f"{party} saw {losses}, that tell of {secrets}."
        if kind in ("SlopeReply", "SlopesReply"):
            sort = "noisy" if noised is not None and noised.noise > 0 else "exact"
            answered = self._plan.conversation.answered(self._plan.algorithm)
            slopes = _counted(count * answered, f"{sort} mean slope")
            each = "one number" if answered == 1 else f"{answered} numbers"
            return f"{party} saw {slopes}, {each} per batch, that tell of {secrets}."
        if kind in ("EvaluationRequest", "ValidationRequest"):
            of = "test" if kind == "EvaluationRequest" else "validation"
            return f"{party} was asked {_counted(count, 'time')} by {label} for {of} rows."
        if kind in ("Keep", "GoBack"):
            what = {"Keep": "which model was the best so far", "GoBack": "to go back to an earlier model"}[kind]
            return (
                f"{party} was told by {label} {what}, {_counted(count, 'time')}; that tells of labels how well it did."
            )
        if kind == "RowsRefused":
            return f"{party} was told by {label} which rows have no budget left, {_counted(count, 'time')}."
        return f"{party} was told by {label} which rows are wanted, {_counted(count, 'time')}."

    def _uploaded_rows(self, party: str) -> int:
        """How many rows the uploads had together: as many as whole batches, less what the bytes fall short by."""
        frames, size = (by_kind[party].get(self._upload, 0) for by_kind in (self._frames, self._sizes))
        batch, width = self._plan.training.batch_size, self._facts.widths[party]
        whole = sum(
            count * self._bytes_of(upload_of(self._plan, first, batch, width)) for first, count in _by_length(frames)
        )
        return frames * batch - round((whole - size) / self._row_bytes(width, self._points))

    def _answered_rows(self, party: str, answered: int) -> int:
        """Without the uploads that no reply came to."""
        unanswered = self._frames[party].get(self._upload, 0) - answered
        return self._uploaded_rows(party) - max(0, unanswered) * self._plan.training.batch_size

    def _warmed_up_rows(self, party: str) -> int:
        """All or none: before the training, every row can be afforded or no row can."""
        width, rows = self._facts.widths[party], self._facts.rows
        frames, size = self._frames[party]["WarmUpUpload"], self._sizes[party]["WarmUpUpload"]
        empty = WarmUpUpload(np.zeros(0, np.uint32), np.zeros((0, width), np.float32))
        return rows if size - frames * self._bytes_of(empty) > rows * self._row_bytes(width) / 2 else 0

    def _scored_rows(self, party: str, kind: str, rows: int) -> int:
        """Of whole evaluations: answers are empty once the budget of their rows is spent, the same for all."""
        width, answer_of = self._facts.widths[party], KINDS[kind].message
        starts = range(0, max(rows, 1), ROWS_A_REQUEST)
        frames, size = self._frames[party][kind], self._sizes[party][kind]

        def bytes_of(number: int, full: bool) -> int:
            counts = [min(ROWS_A_REQUEST, rows - start) if full else 0 for start in starts]
            answers = [np.zeros((count, width), np.float32) for count in counts]
            return sum(
                len(encode(answer_of(evaluation=number, first_row=start, embedding=answer)))
                for start, answer in zip(starts, answers, strict=True)
            )

        empty = sum(count * bytes_of(1 + first, False) for first, count in _by_length(frames // len(starts)))
        return round((size - empty) / max(1, bytes_of(1, True) - bytes_of(1, False))) * rows

    def _refreshed_rows(self, party: str) -> int:
        """From the bytes alone, as requests are of any size: right but for the padding of their frames."""
        width = self._facts.widths[party]
        empty = RefreshedEmbedding(1, np.zeros(0, np.uint32), np.zeros((0, width), np.float32))
        frames, size = self._frames[party]["RefreshedEmbedding"], self._sizes[party]["RefreshedEmbedding"]
        return max(0, round((size - frames * self._bytes_of(empty)) / self._row_bytes(width)))

    def _bytes_of(self, message: Message) -> int:
        return sent_bytes(self._plan, self._facts.rows, message)

    def _row_bytes(self, width: int, points: int = 1) -> int:
        """What a row adds to a message with so many embeddings of it."""
        return position_bytes(self._plan, self._facts.rows) + points * record_bytes(
            self._plan.training.precisions["up"], width
        )


_AND_WEIGHTS = " and of what its rows weigh"
_UNANSWERED = ("BatchRequest", "RowsRefused")
_TO_EVERYBODY = ("Keep", "GoBack")
_ANSWERS = {
    "RefreshRequest": "RefreshedEmbedding",
    "EvaluationRequest": "EvaluationEmbedding",
    "ValidationRequest": "ValidationEmbedding",
}


def _by_length(frames: int) -> list[tuple[int, int]]:
    """Frames numbered from 0, by how many bytes the number takes in a header: the first number, and how many.

    >>> _by_length(300)
    [(0, 128), (128, 128), (256, 44)]
    """
    ranges = ((0, 128), (128, 256), (256, 65_536), (65_536, frames))
    return [(first, min(frames, last) - first) for first, last in ranges if frames > first]


_SUMS = {
    "ProductSum": "exact sums of products",
    "MaskedSum": "masked sums of products",
    "EvaluationProductSum": "exact sums of products of test or validation rows",
    "EvaluationMaskedSum": "masked sums of products of test or validation rows",
    "ResidualReply": "exact residuals of the rows that were asked for",
    "SharedResiduals": "for everybody the same exact residuals or sums of rows",
    "SharedRequest": "positions of rows from which everybody learns",
    "SharedStep": "exact residuals or sums of a shared batch",
    "JointStep": "exact residuals of every row",
    "SearchRequest": "that all rows' products at a point of everybody's choice are wanted",
    "SearchStep": "exact residuals of every row, and shares of earlier weights",
    "Introduction": "figures about its columns and a public key",
    "LossReport": "mean losses",
    "Keep": "which model did best on validation rows so far",
    "GoBack": "which earlier model to use",
    "ProductRequest": "positions of rows that it wanted",
    "ResidualRequest": "positions of rows that it wanted",
    "EvaluationProductRequest": "positions of test or validation rows that it wanted",
}


_WAYS = {"ProductSum": "up", "ResidualReply": "down", "SharedResiduals": "down", "SharedStep": "down"}
_OF_LABELS = ("ResidualReply", "SharedResiduals", "SharedStep", "JointStep", "SearchStep")


def _sort(plan: Plan, way: str, is_noisy: bool = False) -> str:
    """Of numbers that went that way: noisy or exact, or rounded to which form."""
    form = plan.training.precisions.get(way, PRECISIONS[0])
    if form == PRECISIONS[0]:
        return "noisy" if is_noisy else "exact"
    return f"noisy {form}" if is_noisy else form


def _plain(plan: Plan, frames: Counts, weighted: bool) -> list[Disclosure]:
    """Of an algorithm whose messages go along trees, or are not known here: what left each party."""
    found = []
    for sender, kinds in frames.items():
        for kind, count in kinds.items():
            if kind not in _CONTROL:
                what = _SUMS.get(kind, f"values of the kind {kind}").replace("exact", _sort(plan, _WAYS.get(kind, "")))
                if weighted and kind in _OF_LABELS:
                    what += f" that tell of its labels{_AND_WEIGHTS}"
                sentence = f"Other parties saw what {sender} sent: {what}, in {_counted(count, 'message')}."
                found.append(Disclosure(sender, "other parties", kind, count, sentence))
    return found


def _counted(count: int, one: str, several: str = "") -> str:
    """
    >>> _counted(1, "row"), _counted(6000, "row")
    ('1 row', '6,000 rows')
    """
    return f"{count:,} {one if count == 1 else several or one + 's'}"


# --- an alignment ------------------------------------------------------------------------------------------------


_HASHES = (
    "Hashes of all ids of all others, under a key that it knows: of every id that it can guess, whether a party holds "
    "it; and how many ids each two parties share."
)


def learnt_by_aligning(
    name: str, label_party: str, parties: Sequence[str], method: str, pad_to: int, sizes: Mapping[str, int]
) -> list[str]:
    """What one party has learnt by an alignment, in sentences. `sizes`: how many ids others have said they have."""
    others = [party for party in parties if party != name]
    learnt = ["Which of its own ids all parties hold, and so how many those are."]
    if pad_to:
        learnt.append(f"That no other party it hears of has more than {pad_to} ids: sizes are padded.")
    else:
        learnt += [f"That {party} has {size} usable ids." for party, size in sizes.items()]
    if name != label_party:
        learnt.append("Nothing else: what it was sent is random for whoever lacks the label party's secret.")
    elif method == "hashed":
        learnt.append(_HASHES)
    elif len(others) == 1:
        learnt.append("Nothing else: an id outside the intersection leaves a random value.")
    else:
        learnt.append(
            "Nothing else, as long as no feature party tells it more: an id that some of the others hold and one that "
            "none of them holds both leave a random value. Together with a feature party that gives its keys away, it "
            "learns which of its ids all the rest hold."
        )
    return learnt


def learnt_by_placing(name: str, label_party: str, method: str, total: int, held_by: Mapping[str, int]) -> list[str]:
    """The same of an alignment with alignment.rows = "any". `held_by`: the rows of the label party that each holds."""
    if name != label_party:
        return [
            f"Which {held_by[name]} of its own ids are among the {total} of {label_party}, and their places in order.",
            "Nothing else: of every other row of the label party it has a random name.",
        ]
    learnt = [f"Which of its own rows {party} holds: {count} of {total}." for party, count in held_by.items()]
    if method == "hashed":
        learnt.append(_HASHES)
    else:
        learnt.append(
            "How many usable ids each of them has, unless sizes are padded. No id that it does not hold itself."
        )
    return learnt


# --- a prediction ------------------------------------------------------------------------------------------------


def learnt_by_predicting(name: str, label_party: str, kind: str, aligned: bool) -> list[str]:
    """What one party has learnt by a prediction, in sentences. `kind`: of what a feature party answers with."""
    if name != label_party:
        which = "of the rows that all parties hold" if aligned else "of its own rows"
        learnt = [f"Which {which} {label_party} wanted to predict; not what was predicted."]
        if not aligned:
            learnt.append(
                "Hashes of the ids that it does not hold: of every id that it can guess, whether it was asked for."
            )
        return learnt
    learnt = [] if aligned else ["Which of the rows that it asked for each feature party holds."]
    what = {
        "masked products": "The sum of all parties' products of each row, and nobody's alone.",
        "products": "Each feature party's product of each row, exactly.",
        "noised embeddings": "Each feature party's embedding of each row, clipped and noised as in training.",
        "embeddings": "Each feature party's embedding of each row, exactly.",
    }
    return [*learnt, what[kind]]
