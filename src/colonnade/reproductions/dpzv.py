"""Table I and Figures 2, 3, 5, 6 and 7 of DPZV; Figure 4 is in dpzv_memory.py, how runs are made in dpzv_runs.py.

Of the paper's four sets MNIST and CIFAR-10 are here, and ModelNet10 stands in for ModelNet40, in full runs. Every
algorithm takes the learning rate with the best accuracy on validation rows. Bytes are those of messages, both ways,
evaluation left out.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import inf, nan
from typing import Any

from colonnade.reproductions.dpzv_runs import (
    ALONE,
    METHODS,
    NO_CLIP,
    Learnt,
    Trial,
    at_best_rate,
    rate_by_rate,
    run_all,
)
from colonnade.reproductions.published import published
from colonnade.reproductions.reproduction import Curve, Panel, Reproduction, Row, Scope, Shown

NAMES = {"dpzv": "DPZV", "vafl": "VAFL", "czofo": "CZOFO", "zoo": "ZOO-VFL"}
"""What the paper calls the algorithms."""
SETS, VIEWS = ("mnist", "cifar10"), "modelnet10_voxel"
FULL_EPOCHS = 100.0


QUICK_EPOCHS, QUICK_LONG_EPOCHS = 6.0, 40.0
"""The second where few are compared: zeroth order needs many exchanges."""


def _trial(algorithm: str, data: str, scope: Scope, quick_epochs: float = QUICK_EPOCHS, **more: Any) -> Trial:
    """Quick: 3,000 rows, of which 2,400 are trained on; and as many epochs as leave a few minutes for all."""
    size = {"epochs": quick_epochs, "max_rows": 3_000} if scope.quick else {"epochs": FULL_EPOCHS}
    return Trial(algorithm, data, **{**size, **more})


def _words(epsilon: float) -> str:
    return "no noise" if epsilon == inf else f"ε = {epsilon:g} as claimed"


# --- Table I ----------------------------------------------------------------------------------------------------


def table_1(scope: Scope) -> Shown:
    """Megabytes until the target accuracy; quick: fewer rows, and an accuracy that these can reach."""
    target = 40.0 if scope.quick else 90.0
    size = {"epochs": 10.0} if scope.quick else {"patience": 10.0}
    trials = {
        name: [_trial(name, "mnist", scope, seed=seed, until=target, **size) for seed in scope.seeds]
        for name in METHODS
    }
    found = run_all(rate_by_rate([one for own in trials.values() for one in own]), scope)
    chosen = {name: [_quickest(one, found, target) for one in own] for name, own in trials.items()}
    rows = [_bytes_row(name, own, target, chosen["dpzv"], scope) for name, own in chosen.items()]
    curves = [_curve(name, own[0][1], lambda look: look.megabytes) for name, own in chosen.items()]
    panel = Panel("MNIST, ε = 1 as claimed", "megabytes", "accuracy of validation rows, %", tuple(curves))
    remark = (
        "The table does not say its ε, nor the width of its embeddings, to which bytes are proportional: ours are 1 "
        "and 16. Accuracy is that of validation rows, a fifth of those to train on."
    )
    if scope.quick:
        remark += (
            " Quick: 3,000 rows and 40 % in place of 60,000 and 90 %. 50 % was tried first, and none of the four came "
            "there: 40 % is what dpzv can reach with so few rows, not a target of the paper."
        )
    else:
        remark += (
            " Noise is that of 100 epochs; a run ends where it has come to the target, or has not come nearer for ten "
            "epochs."
        )
    return Shown(rows, (panel,), remark)


def _quickest(trial: Trial, found: Mapping[Trial, Learnt], target: float) -> tuple[float, Learnt]:
    """The rate that comes to the target with the fewest bytes; of those that do not, the one that comes nearest."""
    own = {one.rate: learnt for one, learnt in found.items() if replace(one, rate=0.0) == trial}
    rate = min(own, key=lambda one: (own[one].megabytes_to(target), -own[one].best))
    return rate, own[rate]


def _bytes_row(
    name: str, own: Sequence[tuple[float, Learnt]], target: float, of_dpzv: Sequence[tuple[float, Learnt]], scope: Scope
) -> Row:
    there = None if scope.quick else published("dpzv", "Table I", "MNIST (MB)", NAMES[name])
    megabytes = [learnt.megabytes_to(target) for _, learnt in own]
    rates = ", ".join(f"{rate:g}" for rate in dict.fromkeys(rate for rate, _ in own))
    best = max(learnt.best for _, learnt in own)
    note = f"to {target:.0f} %; {best:.1f} % at best; learning rate {rates}; {_sound([one for _, one in own])}"
    note += "; in the paper never" if there is not None and there.value == inf else ""
    row = Row.beside(there, f"{name}, megabytes to {target:.0f} %", [min(sent, 1e9) for sent in megabytes], note)
    if inf in megabytes:
        row = replace(row, ours=nan, deviation=None, note=f"never {note}")
    if name == "dpzv":
        return row
    fewer = sum(learnt.megabytes_to(target) for _, learnt in of_dpzv) < sum(megabytes)
    return replace(row, claim="more than dpzv", holds=fewer)


def _sound(runs: Sequence[Learnt]) -> str:
    """What the noise is worth: nothing end to end, since models learn beside it; and if that were no way out."""
    figures = [one.conditional for one in runs if one.conditional is not None]
    sound = [one.sound for one in runs if one.sound is not None]
    if sound and len(sound) == len(runs):
        return f"sound ε = {max(sound):,.0f}"
    return f"sound ε = ∞, {max(figures):,.0f} conditionally" if figures else "sound ε = ∞"


def _curve(label: str, learnt: Learnt, x: Callable[[Any], float], loss: bool = False) -> Curve:
    looks = [look for look in learnt.looks if look.loss < 10] if loss else learnt.looks
    return Curve(label, tuple(map(x, looks)), tuple(look.loss if loss else look.accuracy for look in looks))


# --- Figures 2, 3 and 5: accuracy under noise -------------------------------------------------------------------

Best = dict[tuple[str, float, str], tuple[float, Learnt]]
"""By set, ε and algorithm: the rate that was best on validation rows, and what came of it."""


def _under_noise(cases: Mapping[str, Sequence[float]], scope: Scope, quick_epochs: float = QUICK_EPOCHS) -> Best:
    trials = [
        _trial(name, data, scope, quick_epochs, epsilon=epsilon)
        for data, epsilons in cases.items()
        for epsilon in epsilons
        for name in METHODS
    ]
    found = run_all(rate_by_rate(trials), scope)
    return {(one.data, one.epsilon, one.algorithm): at_best_rate(one, found) for one in trials}


def _accuracy_row(
    best: Best, case: tuple[str, float, str], ours: Callable[[Learnt], float], claim: str, holds: bool | None, what: str
) -> Row:
    data, epsilon, name = case
    rate, learnt = best[case]
    note = f"learning rate {rate:g}" + (f"; {_sound([learnt])}" if epsilon < inf else "")
    return Row(f"{data}, {name}, {_words(epsilon)}, {what} %", None, ours(learnt), None, note, "", claim, holds)


def _test(learnt: Learnt) -> float:
    return nan if learnt.test is None else learnt.test


def _above_all(best: Best, data: str, epsilon: float, name: str, ours: Callable[[Learnt], float]) -> bool:
    others = [ours(best[data, epsilon, one][1]) for one in METHODS if one != name]
    return all(ours(best[data, epsilon, name][1]) > other or other != other for other in others)


def figure_2(scope: Scope) -> Shown:
    """Accuracy over exchanges at two ε."""
    cases = dict.fromkeys(SETS, (1.0, 0.5)) | ({} if scope.quick else {VIEWS: (10.0, 5.0)})
    best = _under_noise(cases, scope)
    rows, panels = [], []
    for data, epsilons in cases.items():
        for epsilon in epsilons:
            curves = []
            for name in METHODS:
                leads = name == "dpzv"
                claim = "above the other three" if leads else ""
                holds = _above_all(best, data, epsilon, name, _test) if leads else None
                rows.append(_accuracy_row(best, (data, epsilon, name), _test, claim, holds, "test accuracy"))
                curves.append(_curve(name, best[data, epsilon, name][1], lambda look: float(look.exchanges)))
            title = f"{data}, {_words(epsilon)}"
            panels.append(Panel(title, "exchanges", "accuracy of validation rows, %", tuple(curves)))
    return Shown(rows, tuple(panels), f"Curves only in the paper, no numbers. {_missing_sets(scope)}")


def _missing_sets(scope: Scope, quick_epochs: float = QUICK_EPOCHS) -> str:
    words = (
        "Its Amazon reviews are not here, and ModelNet10 stands in for ModelNet40 in full runs alone. Bottom models "
        "have one layer, the paper's have convolutions. Sound ε: the batch is known to the party that asked, and the "
        "label party's model learns from labels without noise, so that nothing holds end to end. dpzv is tested after "
        "its last epoch, the others after their best: it keeps no second model."
    )
    if scope.quick:
        words += f" Quick: 2,400 rows to train on and {quick_epochs:g} epochs, in place of all rows and 100 epochs."
    return words


EPSILONS, QUICK_EPSILONS = (0.1, 0.5, 1.0, 5.0, 10.0, inf), (0.1, 1.0, 5.0, inf)


def figure_3(scope: Scope) -> Shown:
    """Test accuracy over ε."""
    epsilons, sets = (QUICK_EPSILONS, SETS) if scope.quick else (EPSILONS, (*SETS, VIEWS))
    best = _under_noise(dict.fromkeys(sets, epsilons), scope)
    still = [_trial(ALONE, data, scope, epsilon=inf) for data in sets]
    without = run_all(rate_by_rate(still), scope)
    rows, panels = [], []
    finite = [epsilon for epsilon in epsilons if epsilon < inf]
    for data in sets:
        for epsilon in epsilons:
            for name in METHODS:
                tight = name == "dpzv" and epsilon <= 1
                claim = "above the other three" if tight else ""
                holds = _above_all(best, data, epsilon, name, _test) if tight else None
                rows.append(_accuracy_row(best, (data, epsilon, name), _test, claim, holds, "test accuracy"))
        curves = [
            Curve(name, tuple(finite), tuple(_test(best[data, epsilon, name][1]) for epsilon in finite))
            for name in METHODS
        ]
        rate, learnt = at_best_rate(next(one for one in still if one.data == data), without)
        note = f"learning rate {rate:g}; feature parties keep their first weights"
        rows.append(Row(f"{data}, {ALONE}, test accuracy %", None, _test(learnt), None, note))
        level = Curve("the label party alone", (finite[0], finite[-1]), (_test(learnt),) * 2, level=True)
        panels.append(Panel(data, "ε, as claimed", "test accuracy, %", (*curves, level), log_x=True))
    words = (
        "Curves only in the paper; it says that dpzv is the best for ε ≤ 1. One number stands in the text, over 90 % "
        "on CIFAR-10 at ε = 0.1; since Table I asks 40 % of CIFAR-10 and 90 % of MNIST, it is most likely MNIST's, and "
        "nothing is held against it. The label party of dpzv learns from labels without any noise. Its rows alone, "
        "with feature parties that learn nothing and so are told nothing, show how much of dpzv's accuracy at a small "
        f"ε that is. {_missing_sets(scope)}"
    )
    return Shown(rows, tuple(panels), words)


def figure_5(scope: Scope) -> Shown:
    """CIFAR-10: accuracy once as much was sent as the most frugal of the four sends in all."""
    data, epsilons = "cifar10", (inf, 5.0, 1.0)
    best = _under_noise({data: epsilons}, scope, QUICK_LONG_EPOCHS)
    budget = min(learnt.looks[-1].megabytes for _, learnt in best.values() if learnt.looks)
    rows = []

    def ours(learnt: Learnt) -> float:
        return learnt.accuracy_within(budget)

    for epsilon in epsilons:
        leader = "vafl" if epsilon == inf else "dpzv"
        for name in METHODS:
            claim = "above the other three" if name == leader else ""
            holds = _above_all(best, data, epsilon, name, ours) if name == leader else None
            what = f"accuracy of validation rows after {budget:.0f} MB,"
            rows.append(_accuracy_row(best, (data, epsilon, name), ours, claim, holds, what))
    places = tuple(float(place) for place in range(len(METHODS)))
    panels = tuple(
        Panel(
            f"{data}, {_words(epsilon)}, {budget:.0f} MB",
            "",
            "accuracy of validation rows, %",
            (Curve("ours", places, tuple(ours(best[data, epsilon, name][1]) for name in METHODS)),),
            bars=METHODS,
        )
        for epsilon in epsilons
    )
    words = (
        "Bars only in the paper, no numbers; it says that vafl is ahead without noise and dpzv with it. "
        f"{_missing_sets(scope, QUICK_LONG_EPOCHS)}"
    )
    if scope.quick:
        words += (
            f" Zeroth order needs exchanges: after {QUICK_EPOCHS:g} epochs in place of {QUICK_LONG_EPOCHS:g}, dpzv had "
            "come to 17.0 and vafl to 20.0 at ε = 5."
        )
    return Shown(rows, panels, words)


# --- Figures 6 and 7: clipping ----------------------------------------------------------------------------------

CLIP_RATES = (0.001, 0.005, 0.0075, 0.01, 0.02)
CLIP_EPOCHS = 20.0
"""Of the two figures, quick."""


def figure_6(scope: Scope) -> Shown:
    """Loss over exchanges without noise, with slopes clipped and not."""
    clips = {"clipped to ±1": 1.0, "not clipped": NO_CLIP}
    rows, panels = [], []
    for data in SETS:
        trials = {
            words: _trial("dpzv", data, scope, CLIP_EPOCHS, epsilon=inf, clip=clip) for words, clip in clips.items()
        }
        found = run_all(rate_by_rate([*trials.values()], CLIP_RATES), scope)
        best = {words: at_best_rate(one, found, by_loss=True) for words, one in trials.items()}
        for words, (rate, learnt) in best.items():
            others = [
                f"{one.rate:g}: {other.least_loss:.2f}"
                for one, other in found.items()
                if one.clip == trials[words].clip and one.rate != rate
            ]
            note = f"learning rate {rate:g}; with {', '.join(others)}; test accuracy {_test(learnt):.1f} %"
            clipped = words == "clipped to ±1"
            claim = "below that without a clip" if clipped else ""
            holds = learnt.least_loss < best["not clipped"][1].least_loss if clipped else None
            label = f"{data}, {words}, least log loss of validation rows"
            rows.append(Row(label, None, learnt.least_loss, None, note, "", claim, holds))
        curves = tuple(
            _curve(words, learnt, lambda look: float(look.exchanges), loss=True) for words, (_, learnt) in best.items()
        )
        panels.append(Panel(f"{data}, no noise", "exchanges", "log loss of validation rows", curves))
    words = (
        "Curves only in the paper, no numbers; it says that clipping makes it quicker and steadier. Each is shown at "
        "the rate that is best for it; the notes have the others, inf where it diverged. At the same rate clipped "
        "steps are never the longer ones: what clipping gives is that larger rates are survived. It shows where rates "
        "are compared closely enough; with 0.001, 0.005 and 0.02 alone, as this was first done, both were best at "
        "0.005, and not clipping was ahead."
    )
    if scope.quick:
        words += " Quick, on CIFAR-10: so few rows hardly lift either above guessing (2.303), and the two end alike."
    return Shown(rows, tuple(panels), words)


CLIPS = (1.0, 10.0, 100.0, 500.0)
ALIKE = 3.0
"""Points within which accuracies are called similar."""
REACHES, TOP_RATES = (0.002, 0.01), (0.005, 0.02)
"""Rates of feature parties times the clip: how far the noise of a slope can carry them; and of the label party."""


def figure_7(scope: Scope) -> Shown:
    """Accuracy at ε = 1 with several clips; noise is in proportion to the clip, and so rates are divided by it."""
    rows, panels = [], []
    for data in SETS:
        tries = {
            clip: [
                _trial("dpzv", data, scope, CLIP_EPOCHS, clip=clip, rate=reach / clip, top_rate=top)
                for reach in REACHES
                for top in TOP_RATES
            ]
            for clip in CLIPS
        }
        found = run_all([one for own in tries.values() for one in own], scope)
        best = {clip: max(own, key=lambda one: found[one].best) for clip, own in tries.items()}
        reached = {clip: found[trial].best for clip, trial in best.items()}
        for clip, trial in best.items():
            claim, holds = "", None
            if data == "mnist":
                claim = f"within {ALIKE:g} points of the best"
                holds = reached[clip] >= max(reached.values()) - ALIKE
            elif clip == 10.0:
                claim, holds = "above C = 500", reached[clip] > reached[500.0]
            note = f"learning rate {trial.rate:g}, the label party's {trial.top_rate:g}; {_sound([found[trial]])}; "
            note += f"test accuracy after the last epoch {_test(found[trial]):.1f} %"
            label = f"{data}, C = {clip:g}, best accuracy of validation rows %"
            rows.append(Row(label, None, reached[clip], None, note, "", claim, holds))
        curves = tuple(
            _curve(f"C = {clip:g}", found[trial], lambda look: float(look.exchanges)) for clip, trial in best.items()
        )
        panels.append(Panel(f"{data}, ε = 1 as claimed", "exchanges", "accuracy of validation rows, %", curves))
    words = (
        "Curves only in the paper, no numbers; it says that all clips do as well on MNIST, and C = 10 better than 500 "
        "on CIFAR-10. Noise grows with C and slopes do not, so a feature party's rate is divided by C; the label "
        "party's, whose steps have no noise, is not. With one rate for both and none below 0.001, as this was first "
        "done, C = 100 came to 13.7 % on MNIST: the rate decides, not the clip. The paper takes the model that is best "
        "on validation rows, so accuracy is theirs; dpzv keeps no such model, and test rows are scored by the last."
    )
    return Shown(rows, tuple(panels), words)


def _item(name: str, item: str, summary: str, data: Sequence[str], run: Callable[[Scope], Shown]) -> Reproduction:
    return Reproduction(name, "dpzv", item, summary, tuple(data), run)


REPRODUCTIONS = (
    _item("dpzv-table-1", "Table I", "bytes until a target accuracy, under noise", ["mnist"], table_1),
    _item("dpzv-figure-2", "Figure 2", "accuracy over exchanges, under noise", (*SETS, VIEWS), figure_2),
    _item("dpzv-figure-3", "Figure 3", "accuracy over the claimed ε", (*SETS, VIEWS), figure_3),
    _item("dpzv-figure-5", "Figure 5", "accuracy at equal bytes, under noise", ["cifar10"], figure_5),
    _item("dpzv-figure-6", "Figure 6", "slopes clipped and not, without noise", SETS, figure_6),
    _item("dpzv-figure-7", "Figure 7", "the size of the clip, under noise", SETS, figure_7),
)
