"""Ids are written alike by declared rules; what cannot be used is counted; no sentence holds an id."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from colonnade.alignment.normalisation import keys_of, likely_causes, written_alike
from colonnade.alignment.points import hashed_to_curve
from colonnade.alignment.settings import AlignmentSettings, IdRules
from colonnade.errors import SettingsError
from colonnade.settings import build


@pytest.mark.parametrize(
    ("rules", "text", "wanted"),
    [
        ({}, "  7 ", "7"),
        ({"spaces": "keep"}, " 7", " 7"),
        ({"spaces": "single"}, " a \t b ", "a b"),
        ({"spaces": "remove"}, "DE 12 34", "DE1234"),
        ({"case": "lower"}, "AbC", "abc"),
        ({"case": "upper"}, "AbC", "ABC"),
        ({"zeros": "strip"}, "0007", "7"),
        ({"zeros": "strip"}, "000", "0"),
        ({"zeros": "strip"}, "00a7", "00a7"),
        ({"pad": 5}, "42", "00042"),
        ({}, "e\u0301", "\u00e9"),
        ({"unicode": "keep"}, "e\u0301", "e\u0301"),
        ({"unicode": "NFKC"}, "\uff11\uff12", "12"),
        ({"form": "email"}, " MailTo:Ann@Ex.org", "ann@ex.org"),
        ({"form": "email"}, "ann at ex.org", None),
        ({"form": "phone", "country": "49"}, "(0171) 234-5678", "+491712345678"),
        ({"form": "phone"}, "0049 171 2345678", "+491712345678"),
        ({"form": "phone"}, "call me", None),
        ({}, "", ""),
        ({}, "   ", ""),
        ({}, "a\x00b", None),
        ({}, "x" * 257, None),
    ],
)
def test_rules(rules: dict[str, object], text: str, wanted: str | None) -> None:
    assert written_alike(text, build(IdRules, rules, "alignment.rules.id")) == wanted


def test_counts_are_of_rows_and_repeated_ids_are_left_out_altogether() -> None:
    keys = keys_of([["7", "07", "8", "", "a\x00", "9"]], [IdRules(zeros="strip")])
    assert keys.counts() == {"held": 6, "usable": 2, "missing": 1, "malformed": 1, "repeated": 2}
    assert keys.rows.tolist() == [2, 5]
    assert (keys.points == hashed_to_curve([b"8", b"9"], b"")).all()


@given(st.tuples(*[st.text(max_size=4)] * 4))
def test_joined_keys_are_the_same_for_the_same_values_only(values: tuple[str, str, str, str]) -> None:
    exact = IdRules(spaces="keep", unicode="keep")
    one, other = values[:2], values[2:]
    first = keys_of([[one[0]], [one[1]]], [exact, exact])
    second = keys_of([[other[0]], [other[1]]], [exact, exact])
    if len(first.rows) and len(second.rows):
        assert bool((first.points == second.points).all()) == (one == other)


@pytest.mark.parametrize(
    ("texts", "rules", "cause"),
    [
        (["007", "123"], {}, "begin with zeros"),
        (["7", "123"], {}, "leading zeros may be lost here"),
        (["Ab1", "cd2"], {}, "capital letters"),
        (["ab1", "cd2"], {}, "small letters"),
        (["a b", "cd"], {"case": "lower"}, "spaces inside"),
        (["7.0", "8.0"], {}, "decimals"),
        (["a@b.c", "d@e.f"], {}, "e-mail"),
    ],
)
def test_a_likely_cause_is_told_without_an_id(texts: list[str], rules: dict[str, object], cause: str) -> None:
    found = likely_causes(texts, build(IdRules, rules, "r"))
    assert any(cause in one for one in found)
    assert not any(text in one for text in texts if len(text) > 2 for one in found)


@pytest.mark.parametrize(
    ("values", "complaint"),
    [
        ({"method": "magic"}, "method of alignment"),
        ({"pad_to": -1}, "pad_to is -1"),
        ({"columns": ["a", "a"]}, "twice"),
        ({"rules": {"id": {"case": "title"}}}, "title"),
        ({"rules": {"id": {"pad": 100}}}, "64 digits"),
        ({"rules": {"id": {"country": "49"}}}, "form = 'phone'"),
    ],
)
def test_wrong_settings_are_one_sentence(values: dict[str, object], complaint: str) -> None:
    with pytest.raises(SettingsError, match=complaint):
        build(AlignmentSettings, values, "alignment")


def test_rules_are_for_columns_that_are_ids() -> None:
    with pytest.raises(SettingsError, match=r"(?s)eimail.*email"):
        build(AlignmentSettings, {"columns": ["email"], "rules": {"eimail": {}}}, "alignment").key_columns("id")
