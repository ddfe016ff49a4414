"""`colonnade plan` from the command line."""

from command_line import IRIS, colonnade, refused, toml


def test_a_plan_for_people_and_for_machines() -> None:
    flowers = toml("flowers.toml", IRIS)
    command = ["plan", flowers, "--runtime", "simulate", "--seconds", "0.1", "--set-each", "algorithm.in_flight=1,2"]
    answer = colonnade(*command)
    assert answer.code == 0, answer.err
    assert "Foretold: in one process" in answer.out and "As the file is: " in answer.out
    assert "`colonnade tune` tries it" in answer.out
    found = colonnade(*command, "--json").object
    assert found["runtime"] == "simulate" and len(found["variants"]) == 2


def test_mistakes() -> None:
    assert "nowhere.toml" in refused("plan", "nowhere.toml")
    assert "not for 'moon'" in refused("plan", toml("flowers.toml", IRIS), "--runtime", "moon")
