"""How a model errs, counted by hand."""

import numpy as np
from sklearn.metrics import roc_auc_score

from colonnade.launch.errors_made import MOST_POINTS, calibration, errors_made, roc


def test_two_classes() -> None:
    says = np.array([0.9, 0.8, 0.35, 0.1])
    told = errors_made(np.array([1, 0, 1, 0]), np.stack([1 - says, says], 1))
    assert told["confusion"] == [[1, 1], [1, 1]]
    assert told["roc"] == [[0.0, 0.0], [0.0, 0.5], [0.5, 0.5], [0.5, 1.0], [1.0, 1.0]]
    assert [bin_[1:] for bin_ in told["calibration"]] == [[0.0, 1], [1.0, 1], [0.0, 1], [1.0, 1]]
    assert errors_made(np.array([1, 0, 1, 0]), np.stack([1 - says, says], 1), threshold=0.3)["confusion"][1] == [0, 2]


def test_several_classes_are_calibrated_by_the_one_that_is_said() -> None:
    told = errors_made(np.array([0, 2]), np.array([[0.8, 0.1, 0.1], [0.5, 0.25, 0.25]]))
    assert told["confusion"] == [[1, 0, 0], [0, 0, 0], [1, 0, 0]] and "roc" not in told
    assert told["calibration"] == [[0.5, 0.0, 1], [0.8, 1.0, 1]]


def test_a_long_curve_is_short_and_keeps_its_area() -> None:
    generator = np.random.default_rng(0)
    positive = generator.random(5000) < 0.3
    scores = generator.normal(size=5000) + positive
    points = np.array(roc(scores, positive))
    assert len(points) <= MOST_POINTS + 1 and points[-1].tolist() == [1.0, 1.0]
    assert abs(np.trapezoid(points[:, 1], points[:, 0]) - roc_auc_score(positive, scores)) < 1e-3


def test_what_cannot_be_told_is_left_out() -> None:
    assert errors_made(np.zeros(0, np.int64), np.zeros((0, 2))) == {}
    assert errors_made(np.array([0]), np.array([[np.nan, 1.0]])) == {}
    assert "roc" not in errors_made(np.array([0, 0]), np.array([[0.6, 0.4], [0.7, 0.3]]))
    assert calibration(np.array([1.0, 0.0]), np.array([True, False])) == [[0.0, 0.0, 1], [1.0, 1.0, 1]]
