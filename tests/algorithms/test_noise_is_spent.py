"""Nothing noised leaves a party before it is accounted for: every embedding has its `Spend` right before its `Send`.

Training, warm-up, refresh and evaluation alike; and without noise nothing is spent, because nothing is claimed.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from recorded_runs import read_run

from colonnade import PerturbationSettings, Simulate, SimulatedParty, Split, Vafl
from colonnade.messages import EmbeddingUpload, EvaluationEmbedding, RefreshedEmbedding, WarmUpUpload
from colonnade.testing import TinyFederation, tiny_data

EMBEDDINGS = (EmbeddingUpload, WarmUpUpload, RefreshedEmbedding, EvaluationEmbedding)
SLOW = Simulate(parties={"party1": SimulatedParty(slowdown=4.0)})
NOISE = PerturbationSettings(noise=0.5, clip=1.5)
ALGORITHMS = [Vafl(warm_up=True, max_delay=3, in_flight=2), Vafl(wait_for=2), Split()]


def plan(algorithm: Any, privacy: PerturbationSettings) -> TinyFederation:
    return TinyFederation(tiny_data(), algorithm, privacy=privacy, simulate=SLOW)


@pytest.mark.parametrize("algorithm", ALGORITHMS, ids=repr)
def test_every_embedding_is_spent_before_it_is_sent(algorithm: Any, tmp_path: Path) -> None:
    given = plan(algorithm, NOISE)
    outcome = given.run(tmp_path / "run")
    run = read_run(tmp_path / "run")
    kinds = set()
    spends = 0
    for party in given.data.feature_parties:
        items = run[party]
        for before, item in zip([None, *items], items, strict=False):
            if item.type == "Send":
                message: Any = item.message
                assert isinstance(message, EMBEDDINGS)
                assert before is not None and before.type == "Spend"
                mechanism, sensitivity, noise, rows, row_ids, protects, viewers = before.fields
                test = isinstance(message, EvaluationEmbedding)
                sent = range(message.first_row, message.first_row + 8) if test else message.rows.tolist()
                assert np.frombuffer(row_ids, "<u4").tolist() == list(sent)
                assert rows == len(message.embedding) == len(sent)
                assert (mechanism, sensitivity, noise) == ("gaussian", 3.0, 0.5)
                assert protects == f"columns of {party}, {'test' if test else 'training'} rows"
                assert viewers == ["label"]
                kinds.add(type(message))
            spends += item.type == "Spend"
        assert sum(item.type == "Spend" for item in items) == sum(item.type == "Send" for item in items)
    expected = {EmbeddingUpload, EvaluationEmbedding}
    if isinstance(algorithm, Vafl) and algorithm.warm_up:
        expected |= {WarmUpUpload, RefreshedEmbedding}
    assert kinds == expected
    assert not any(item.type == "Spend" for item in run["label"])
    assert len((tmp_path / "run" / "ledger.jsonl").read_text().splitlines()) == spends
    assert sum(event["releases"] for event in outcome.summary["privacy"]["events"]) == spends


@pytest.mark.parametrize("privacy", [PerturbationSettings(), PerturbationSettings(inner_noise=0.1, clip=1.0)], ids=repr)
@pytest.mark.parametrize("algorithm", ALGORITHMS, ids=repr)
def test_nothing_is_spent_without_noise(algorithm: Any, privacy: PerturbationSettings, tmp_path: Path) -> None:
    outcome = plan(algorithm, privacy).run(tmp_path / "run")
    assert not any(item.type == "Spend" for items in read_run(tmp_path / "run").values() for item in items)
    assert (tmp_path / "run" / "ledger.jsonl").read_text() == ""
    assert outcome.summary["privacy"]["events"] == []
