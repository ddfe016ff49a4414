"""What is served is what the joint model says; who is away is stood in for; a wrong call has its own sentence."""

import asyncio
import errno
import json
import shutil
import tomllib
from collections.abc import Callable
from pathlib import Path
from unittest import mock

import numpy as np
import pandas as pd
import pytest
from serving_together import Together

import colonnade
from colonnade.data.prepared import Preparation
from colonnade.errors import DataError, SettingsError
from colonnade.federation.toml import write_toml
from colonnade.launch.serving import check_servable
from colonnade.prediction.account import RowAccount
from colonnade.prediction.joint_model import JointModel, load_model
from colonnade.prediction.saved_model import read_model
from colonnade.prediction.tables import predict_tables
from colonnade.serving.cache import AnswerCache
from colonnade.serving.keys import ApiKeys, add_key
from colonnade.serving.label_party import ServingLimits, _Asked


def test_answers_are_those_of_the_joint_model_and_requests_are_merged(run: Path) -> None:
    served = Together(run)
    served.connect()
    ids = [f"c{number:03}" for number in range(48)]
    replies = served.ask(*({"id": one} for one in ids), {"ids": ids})
    assert {reply.status for reply in replies} == {200}
    joint = colonnade.predict(run, ids)
    one_by_one = [reply.body["predictions"][0] for reply in replies[:-1]]
    for found in (one_by_one, replies[-1].body["predictions"]):
        assert [row["id"] for row in found] == ids
        assert [row["prediction"] for row in found] == joint.predicted.tolist()
        assert [row["probabilities"]["yes"] for row in found] == pytest.approx(joint.probabilities["yes"], rel=1e-5)
        assert all(row["parties"] == ["shop", "clinic"] and not row["degraded"] for row in found)
    batches = (
        served.party.metrics.batch_rows._sum.get(),
        sum(one.get() for one in served.party.metrics.batch_rows._buckets),
    )
    assert batches[0] == 96 and batches[1] <= 4, "requests that come together go out together"


def test_a_linear_model_is_served_too(trained: Callable[..., Path]) -> None:
    run = trained("linear", algorithm={"name": "afsaga"})
    served = Together(run)
    served.connect()
    (reply,) = served.ask({"ids": ["c001", "c002"]})
    joint = colonnade.predict(run, ["c001", "c002"])
    found = [row["probabilities"]["yes"] for row in reply.body["predictions"]]
    assert found == joint.probabilities["yes"].tolist()
    masked = trained("masked", algorithm={"name": "fsgd", "sums": "pairwise"})
    with pytest.raises(SettingsError, match="--show-products"):
        check_servable(read_model(masked / "model" / "bank"), show_products=False)
    check_servable(read_model(masked / "model" / "bank"), show_products=True)


def test_who_is_away_or_late_is_stood_in_for_and_told(run: Path) -> None:
    served = Together(run, ServingLimits(party_seconds=0.05))
    served.connect("shop")
    (reply,) = served.ask({"id": "c001"})
    (row,) = reply.body["predictions"]
    assert row["degraded"] and row["parties"] == ["shop"] and row["missing"] == {"clinic": "is away"}
    served.connect("clinic")
    served.deaf.add("clinic")
    (reply,) = served.ask({"id": "c001"})
    assert reply.body["predictions"][0]["missing"] == {"clinic": "did not answer in time"}
    served.ask(*([{"id": "c001"}] * 20))
    assert served.party.metrics.late.labels("clinic")._value.get() == 1, "nobody waits for it again"
    served.deaf.clear()
    served.disconnect("clinic")
    served.connect("clinic")
    (reply,) = served.ask({"id": "c001"})
    assert not reply.body["predictions"][0]["degraded"], "it is back"
    served.disconnect("shop")
    served.disconnect("clinic")
    alone, health = served.ask({"id": "c001"})[0], served.ask(b"", path="/healthz", method="GET")[0]
    assert alone.body["predictions"][0]["parties"] == [] and alone.body["predictions"][0]["degraded"]
    assert (health.status, health.body["status"]) == (503, "alone")


def test_a_party_that_goes_while_it_is_asked_is_not_waited_for(run: Path) -> None:
    served = Together(run, ServingLimits(party_seconds=60.0))
    served.connect()
    served.deaf.add("clinic")
    loop_calls: list[None] = []

    def go() -> None:
        loop_calls.append(None)
        served.disconnect("clinic")

    begin = served.party._begin

    def begin_and_lose(requests: list[object]) -> None:
        import asyncio

        begin(requests)  # type: ignore[arg-type]
        asyncio.get_running_loop().call_later(0.02, go)

    served.party._begin = begin_and_lose  # type: ignore[method-assign,assignment]
    (reply,) = served.ask({"id": "c001"})
    assert loop_calls and reply.status == 200
    assert reply.body["predictions"][0]["missing"] == {"clinic": "is away"}


def test_the_stand_in_is_the_mean_embedding_of_training(run: Path) -> None:
    label = read_model(run / "model" / "bank")
    assert set(label.stand_ins) == {"shop", "clinic"}
    widths = label.description.widths
    assert {name: tuple(one.shape) for name, one in label.stand_ins.items()} == {
        name: (widths[name],) for name in ("shop", "clinic")
    }
    assert all(bool(one.abs().sum() > 0) for one in label.stand_ins.values())


def test_what_a_party_has_learnt_stands_in_for_it(trained: Callable[..., Path]) -> None:
    run = trained("any", data={"label": "bought", "rows": "any"})
    served = Together(run)
    served.connect()
    whole = served.ask({"id": "c001"})[0].body["predictions"][0]
    joint = colonnade.predict(run, ["c001"])
    assert whole["probabilities"]["yes"] == pytest.approx(joint.probabilities["yes"][0], rel=1e-5)
    served.disconnect("clinic")
    without = served.ask({"id": "c001"})[0].body["predictions"][0]
    tables = {name: run.parent / f"{name}.csv" for name in ("bank", "shop")}
    model = load_model(run)
    assert isinstance(model, JointModel)
    expected = predict_tables(model, tables, wanted=["c001"])
    assert without["degraded"]
    assert without["probabilities"]["yes"] == pytest.approx(expected.probabilities["yes"][0], rel=1e-5)


def test_an_update_is_seen_by_the_next_answer(run: Path) -> None:
    served = Together(run)
    served.connect()
    before = served.ask({"id": "c001"})[0].body["predictions"][0]
    table = pd.read_csv(run.parent / "shop.csv")
    table.loc[table["id"] == "c001", "orders"] += 5.0
    table = pd.concat([table, pd.DataFrame({"id": ["new"], "orders": [0.5]})])
    table.to_csv(run.parent / "shop.csv", index=False)
    after, new = served.ask({"id": "c001"}, {"id": "new"})
    assert after.body["predictions"][0]["probabilities"] != before["probabilities"]
    row = new.body["predictions"][0]
    assert row["parties"] == ["shop"]
    assert row["missing"] == {"clinic": "does not hold this row", "bank": "does not hold this row"}
    (run.parent / "shop.csv").write_text("torn", encoding="utf-8")
    assert (
        served.ask({"id": "c001"})[0].body["predictions"][0]["probabilities"]
        == (after.body["predictions"][0]["probabilities"])
    )


def test_a_query_is_asked_for_each_row(run: Path) -> None:
    settings = tomllib.loads((run / "federation.toml").read_text(encoding="utf-8"))
    file = run.parent / "shop.csv"
    settings["parties"]["shop"] |= {"file": "", "sql": "SELECT * FROM 'shop.csv'", "folder": ".."}
    (run / "federation.toml").write_text(write_toml(settings), encoding="utf-8")
    served = Together(run)
    served.connect()
    before = served.ask({"id": "c001"})[0].body["predictions"][0]
    assert before["parties"] == ["shop", "clinic"]
    table = pd.read_csv(file)
    table.loc[table["id"] == "c001", "orders"] += 5.0
    table.to_csv(file, index=False)
    after, unknown = served.ask({"ids": ["c001", "it's"]})[0].body["predictions"]
    assert after["probabilities"] != before["probabilities"]
    assert "error" in unknown


def test_whoever_asks_first_does_not_wait_for_what_a_query_is_prepared_with(run: Path) -> None:
    settings = tomllib.loads((run / "federation.toml").read_text(encoding="utf-8"))
    settings["parties"]["shop"] |= {"file": "", "sql": "SELECT * FROM 'shop.csv'", "folder": ".."}
    (run / "federation.toml").write_text(write_toml(settings), encoding="utf-8")
    with mock.patch.object(Preparation, "apply", autospec=True, side_effect=Preparation.apply) as applied:
        Together(run)
    rows = {call.kwargs["party"]: len(call.args[2]) for call in applied.call_args_list}
    assert rows["shop"] == 1, "a row of the database, before anybody asks"


def test_a_row_that_several_ask_for_at_once_is_asked_for_once(run: Path) -> None:
    served = Together(run)
    served.connect()
    asked = []
    ask = served.station.ask
    served.station.ask = lambda peer, message: (asked.append(len(message.names)), ask(peer, message))[1]  # type: ignore
    several, (single,) = served.ask({"ids": ["c001", "c002", "c001"]})[0], served.ask({"id": "c001"})
    assert asked == [2, 2, 1, 1]
    first, second, third = several.body["predictions"]
    assert first == third and [first["id"], second["id"]] == ["c001", "c002"]
    assert first["probabilities"]["yes"] == pytest.approx(
        single.body["predictions"][0]["probabilities"]["yes"], abs=1e-6
    )
    served.disconnect("shop")
    degraded = served.ask({"ids": ["c001", "nobody", "c001"]})[0].body["predictions"]
    assert degraded[0] == degraded[2] and degraded[0]["degraded"] and "error" in degraded[1]


def test_rows_of_a_request_that_has_timed_out_are_not_asked_for(run: Path) -> None:
    served = Together(run, ServingLimits(party_seconds=0.05))
    served.connect()
    served.deaf |= {"shop", "clinic"}

    async def conversation() -> None:
        asked = [asyncio.create_task(served.party.predict([f"c00{one}"])) for one in (1, 2, 3)]  # two are under way
        await asyncio.sleep(0.01)
        asked[2].cancel()
        await asyncio.gather(*asked[:2])
        await asyncio.sleep(0)
        assert served.party._number == 2, "batches that were begun"

    asyncio.run(conversation())


def test_a_table_that_fails_is_told_to_those_who_still_wait(run: Path) -> None:
    served = Together(run)
    served.connect()

    async def conversation() -> None:
        begin, gone = served.party._begin, asyncio.get_running_loop().create_future()
        asked = asyncio.create_task(served.party.predict(["c001"]))
        gone.cancel()
        served.party._begin = lambda requests: begin([_Asked(["c002"], gone), *requests])  # type: ignore
        torn = mock.patch.object(served.party, "_own_part", side_effect=DataError("The table is torn."))
        with torn, pytest.raises(DataError, match="torn"):
            await asked

    asyncio.run(conversation())


def test_a_new_version_is_taken_when_all_have_it_and_can_be_taken_back(
    run: Path, trained: Callable[..., Path], tmp_path: Path
) -> None:
    served = Together(run)
    served.connect()
    first = served.ask({"id": "c001"})[0].body
    shutil.copytree(run / "model", tmp_path / "before")

    def put(source: Path, *names: str) -> None:
        for name in names:
            shutil.copytree(source / name, run / "model" / name, dirs_exist_ok=True)
            if served.versions[name].look() and name != served.label:
                for news in served.answering[name].told():
                    served.stations[name].ask(served.label, news)
        served.move()
        served.party.choose_version()

    other = trained("other", seed=1) / "model"
    put(other, "bank", "shop")
    assert served.ask({"id": "c001"})[0].body == first, "not everybody has the new one"
    put(other, "clinic")
    second = served.ask({"id": "c001"})[0].body
    assert second["version"] != first["version"] and not second["predictions"][0]["degraded"]
    put(tmp_path / "before", "bank", "shop", "clinic")
    assert served.ask({"id": "c001"})[0].body == first


@pytest.mark.parametrize(
    ("body", "status", "said"),
    [
        ({"id": "nobody"}, 404, "No party that answered holds this id."),
        (b"{", 400, "Input data was truncated"),
        ({"name": "c001"}, 400, "unknown field"),
        ({"ids": "c001"}, 400, "$.ids"),
        ({"id": 7}, 400, "$.id"),
        ({"ids": []}, 400, "at least one row"),
        ({}, 400, "not both"),
        ({"id": "c001", "ids": ["c002"]}, 400, "not both"),
        (
            {"ids": [f"c{number}" for number in range(10_000)]},
            413,
            "10000 rows were asked for at once; 1000 are the most",
        ),
        ({"ids": ["x" * 200] * 10_000}, 413, "bytes"),
    ],
)
def test_a_wrong_call_has_its_status_and_sentence(
    body: object, status: int, said: str, trained: Callable[..., Path]
) -> None:
    served = Together(trained())
    served.connect()
    (reply,) = served.ask(body)
    assert reply.status == status
    assert said in reply.body["error"]
    assert "c001" not in reply.body["error"]


def test_too_much_at_once_is_put_off(trained: Callable[..., Path]) -> None:
    served = Together(trained(), ServingLimits(most_waiting=50, party_seconds=0.05))
    served.connect()
    served.deaf |= {"shop", "clinic"}
    statuses = [reply.status for reply in served.ask(*([{"ids": ["c001"] * 20}] * 8))]
    assert statuses.count(503) == 4, "two under way, two that wait"
    assert statuses.count(200) == 4, "and each of them has an answer"


def test_keys_are_asked_for_and_kept_as_hashes(trained: Callable[..., Path], tmp_path: Path) -> None:
    path = tmp_path / "keys.txt"
    key = add_key(path, "teller")
    assert key not in path.read_text(encoding="utf-8")
    assert path.stat().st_mode & 0o077 == 0
    served = Together(trained(), keys=ApiKeys(path))
    served.connect()
    assert served.ask({"id": "c001"}, key=key)[0].status == 200
    for wrong in ("", "x", key + "x", "k" * 1000):
        reply = served.ask({"id": "c001"}, key=wrong)[0]
        assert (reply.status, "API key is missing or wrong" in reply.body["error"]) == (401, True)
    with pytest.raises(SettingsError, match="already"):
        add_key(path, "teller")
    path.write_text("nonsense\n", encoding="utf-8")
    assert served.ask({"id": "c001"}, key=key)[0].status == 200, "a torn file changes nothing"
    with pytest.raises(SettingsError, match="a line is no key"):
        ApiKeys(path)


def test_the_page_describes_it_and_metrics_count_no_ids(trained: Callable[..., Path]) -> None:
    served = Together(trained())
    served.connect()
    served.ask({"id": "c001"}, {"id": "nobody"})
    page = served.ask(b"", path="/openapi.json", method="GET")[0].body
    assert {"/predict", "/healthz", "/metrics"} <= set(page["paths"])
    assert "413" in page["paths"]["/predict"]["post"]["responses"]
    text = served.ask(b"", path="/metrics", method="GET")[0].body
    assert 'colonnade_serve_requests_total{status="200"} 1.0' in text
    assert 'colonnade_serve_connected{party="shop"} 1.0' in text
    assert "c001" not in text and "nobody" not in text
    wrong = served.ask(b"", path="/predict", method="GET")[0]
    assert (wrong.status, wrong.body) == (405, {"error": "/predict is asked for with POST."})
    nowhere = served.ask(b"", path="/nothing", method="GET")[0]
    assert nowhere.status == 404 and "There is nothing at this address; there is at /docs, " in nowhere.body["error"]


def test_budgets_hold(trained: Callable[..., Path], tmp_path: Path) -> None:
    """Noise as in training; every release is written down; a spent row is refused in words."""
    target = {"columns_epsilon": 20.0, "delta": 1e-3, "clip": 1.0, "bottom_update": "frozen"}
    private = trained("private", privacy=target)
    for name in ("shop", "clinic"):
        RowAccount(private / "model" / name).create({})
    served = Together(private)
    served.connect()
    replies = [served.ask({"id": "c001"})[0] for _ in range(60)]
    statuses = [reply.status for reply in replies]
    assert statuses[0] == 200 and statuses[-1] == 403
    assert statuses == sorted(statuses), "once it is spent it stays so"
    assert "privacy budget of this row is spent at shop and clinic" in replies[-1].body["error"]
    probabilities = [json.dumps(one.body["predictions"][0]["probabilities"]) for one in replies if one.status == 200]
    assert len(set(probabilities)) == len(probabilities), "noise is drawn anew"
    lines = (private / "served-shop.jsonl").read_text(encoding="utf-8").splitlines()
    assert len(lines) == statuses.count(200)
    assert served.ask({"id": "c002"})[0].status == 200, "another row has its own"
    full = OSError(errno.ENOSPC, "No space left on device")
    with mock.patch("colonnade.prediction.account.os.fdatasync", side_effect=full):
        (reply,) = served.ask({"id": "c003"})
    assert reply.body["predictions"][0]["parties"] == [], "what is not counted does not leave"
    assert served.ask({"id": "c003"})[0].body["predictions"][0]["parties"] == ["shop", "clinic"]


def test_what_was_answered_a_moment_ago_is_used_again(run: Path) -> None:
    served = Together(run, ServingLimits(cache_seconds=60.0))
    served.connect()
    first = served.ask({"id": "c001"})[0].body
    answered = served.answering["shop"].answered
    both = served.ask({"ids": ["c002", "c001"]})[0].body["predictions"]
    assert served.answering["shop"].answered == answered + 1, "for the row that is new"
    assert both[1]["prediction"] == first["predictions"][0]["prediction"]
    assert both[1]["probabilities"] == pytest.approx(first["predictions"][0]["probabilities"], rel=1e-5)
    assert served.ask({"id": "c002"})[0].body["predictions"][0]["parties"] == ["shop", "clinic"]
    assert served.answering["shop"].answered == answered + 1
    assert 'colonnade_serve_cached_total{party="shop"} 2.0' in served.party.metrics.text().decode()
    now = [0.0]
    cache = AnswerCache(10.0, lambda: now[0])
    names = np.array([[7, 1], [7, 2]], np.uint64)
    cache.put("v", "shop", names[1:], np.ones((1, 2)))
    assert list(cache.get("v", "shop", names)) == [1]
    assert not cache.get("w", "shop", names) and not cache.get("v", "clinic", names)
    now[0] = 11.0
    assert not cache.get("v", "shop", names), "too old"


def test_a_shadow_is_scored_and_answers_nobody(run: Path, trained: Callable[..., Path]) -> None:
    other = trained("other", seed=1)
    plain, served = Together(run), Together(run, shadow=other)
    plain.connect()
    served.connect()
    expected, found = (one.ask({"ids": ["c001", "c002"]})[0].body for one in (plain, served))
    assert found == expected
    served.ask(b"", path="/healthz", method="GET")  # a moment for what is under way
    text = served.party.metrics.text().decode()
    assert "colonnade_serve_shadow_rows_total 2.0" in text
    ours, theirs = colonnade.predict(run, ["c001", "c002"]), colonnade.predict(other, ["c001", "c002"])
    difference = np.abs(ours.probabilities["yes"] - theirs.probabilities["yes"]).sum()
    line = next(one for one in text.splitlines() if one.startswith("colonnade_serve_shadow_difference_total"))
    assert float(line.split()[1]) == pytest.approx(difference, rel=1e-4)
