"""`colonnade tune` from the command line."""

from pathlib import Path

from command_line import IRIS, colonnade, refused, toml


def test_a_search_for_people() -> None:
    flowers = toml("flowers.toml", IRIS)
    command = ["tune", flowers, "--trials", "2", "--workers", "1"]
    answer = colonnade(*command)
    assert answer.code == 0, answer.err
    assert "on held-out rows" in answer.out.replace("On", "on") and "Settings: tunes/flowers/tuned.toml" in answer.out
    assert "Report:   tunes/flowers/tune.html" in answer.out and Path("tunes/flowers/tune.html").exists()
    assert colonnade(*command, "--resume", "--json").object["rungs"][-1]["trials"]
    assert "exists already" in refused(*command)


def test_a_file_that_is_not_there() -> None:
    assert "nowhere.toml" in refused("tune", "nowhere.toml")
