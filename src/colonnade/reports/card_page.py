"""card.md: a model's card for people. What counts is card.json, which can be signed; this says the same."""

from collections.abc import Mapping, Sequence
from typing import Any

from colonnade.reports.amounts import flat_settings
from colonnade.reports.epsilons import figure_rows, heads


def card_text(card: Mapping[str, Any], signatures: Sequence[Mapping[str, Any]]) -> str:
    """Markdown, with one section for each part that there is something to say of."""
    model = card["model"]
    parts = [
        f"# Model card: {_cell(model['name'])}",
        _signed(signatures),
        _section("Model", _pairs(model)),
        _section("Data", _pairs(card["data"])),
        _section("Results", _results(card)),
        _section("Privacy", _privacy(card["privacy"])),
        _section("Settings", _pairs(flat_settings(card["settings"]), as_written=True)),
        _section("Weights (SHA-256)", _pairs(card["weights"])),
        _section("Versions", _pairs(card["versions"])),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _signed(signatures: Sequence[Mapping[str, Any]]) -> str:
    if not signatures:
        return "Nobody has signed this card."
    lines = [f"- {one['name']}, {one['signed_at']}" for one in signatures]
    return "\n".join(["Signed by", "", *lines, "", "`colonnade card --verify card.json` says whether that is so."])


def _results(card: Mapping[str, Any]) -> str:
    metrics, training = card["metrics"] or {}, card["training"] or {}
    named = {
        f"{part} {name}": value for part in ("test", "validation") for name, value in (metrics.get(part) or {}).items()
    }
    kept = {f"kept {name}": value for name, value in (metrics.get("kept") or {}).items()}
    return _pairs({**({"judged by": metrics["headline"]} if metrics else {}), **named, **kept, **training})


def _privacy(privacy: Mapping[str, Any] | None) -> str:
    if privacy is None:
        return "Not known here: the card was made from a model without its run."
    if not privacy["noised"]:
        return "No value was noised. Nothing here is differentially private: ε = ∞."
    rows, conditions = figure_rows(privacy["figures"])
    names = heads(privacy["figures"])
    lines = [_line(names), _line("---" for _ in names), *(_line(map(_cell, row)) for row in rows)]
    numbered = [f"{number}. {_cell(words)}" for number, words in enumerate(conditions, 1)]
    head = f"δ = {privacy['delta']:g}" + (", noise by a paper's formula" if privacy["formula"] == "paper" else "")
    audit = ["", _cell(privacy["audit"])] if privacy["audit"] else []
    return "\n".join([head, "", *lines, *audit, "", *numbered])


def _section(heading: str, text: str) -> str:
    return f"## {heading}\n\n{text}" if text else ""


def _pairs(values: Mapping[str, Any], as_written: bool = False) -> str:
    """A table of names and values; `as_written`: names as settings have them, to be copied."""
    lines = [
        _line([f"`{name}`" if as_written else _cell(name.replace("_", " ")), _cell(value)])
        for name, value in values.items()
        if value is not None and value != ""
    ]
    return "\n".join(["| | |", "| --- | --- |", *lines]) if lines else ""


def _cell(value: Any) -> str:
    if isinstance(value, float):
        text = f"{value:.6g}"
    elif isinstance(value, Mapping):
        text = ", ".join(f"{name}: {_cell(one)}" for name, one in value.items())
    elif isinstance(value, list):
        text = ", ".join(_cell(one) for one in value)
    else:
        text = str(value)
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")


def _line(cells: Any) -> str:
    return "| " + " | ".join(cells) + " |"
