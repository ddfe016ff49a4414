"""A federation's plan in the terms of privacy: what it is going to release, and which noise keeps a target.

`calibrated` fills in the noise before a run. Every party computes it from the same plan and facts, so that all agree
without a word. The arithmetic is in privacy/; what an algorithm sends is said by its row.
"""

import math
from dataclasses import replace

from colonnade import algorithms
from colonnade.algorithms.row import NoisedAnswers
from colonnade.data.batches import batches_per_epoch
from colonnade.errors import SettingsError
from colonnade.federation.plan import Facts, Plan
from colonnade.privacy.accounting import Release, columns_hidden_state, labels_hidden_state, worst_row_mu
from colonnade.privacy.calibration import slope_noise, top_noise
from colonnade.privacy.gaussian import mu_of
from colonnade.privacy.plan import ReleasePlan, embedding_releases, slope_releases, update_releases

_BOTTOM_SHARE = 0.1
_TOP_SHARES = {"dp-sgd": 0.9, "private-zo": 0.5}
"""Of μ², for private updates where privacy.update_share does not say it, found by trying (docs/privacy.md). A step of a
bottom model is a mean over a batch and needs little noise beside an embedding, which nothing averages. A top model by
DP-SGD learns most of what is learnt at all; by private-zo its update is as noisy as an answer."""


# --- what is asked for ------------------------------------------------------------------------------------------


def check_privacy(plan: Plan) -> None:
    """Refuse a target that this algorithm cannot keep, and settings of [privacy] that would do nothing."""
    name, privacy = plan.chosen.name, plan.privacy
    if plan.is_linear:
        return  # refused by check_plan of federation/plan.py, whatever is set
    wanted = [target for target in ("labels_epsilon", "columns_epsilon") if getattr(privacy, target) > 0]
    if privacy.formula == "paper" and not wanted:
        raise SettingsError(
            'privacy.formula = "paper" says how noise follows from a target, but there is none: give labels_epsilon or '
            "columns_epsilon, or leave it out."
        )
    if plan.is_alone:
        if wanted:
            raise SettingsError(
                f"{name} trains in one place and adds no noise: privacy.{wanted[0]} would not be kept. Leave it out, "
                "or choose another algorithm."
            )
        return
    if not plan.conversation.bottom_needs_gradients and privacy.bottom_update != "plain":
        raise SettingsError(
            f"privacy.bottom_update is {privacy.bottom_update!r}, but bottom models of {name} move along random "
            "directions by numbers that come back; they take no gradient through raw columns. Leave it out."
        )
    if privacy.update_share > 0:
        _check_share(plan)
    if privacy.labels_epsilon > 0:
        _check_labels(plan)
    if privacy.columns_epsilon > 0:
        _check_columns(plan)


def _check_share(plan: Plan) -> None:
    privacy = plan.privacy
    of_labels = privacy.labels_epsilon > 0 and top_share(plan) > 0
    of_columns = privacy.columns_epsilon > 0 and bottom_share(plan) > 0
    if not (of_labels or of_columns):
        raise SettingsError(
            "privacy.update_share divides a target between what is sent and private updates, but here is no target "
            "with a private update: leave it out."
        )


def _check_labels(plan: Plan) -> None:
    answers, privacy = plan.noised_answers, plan.privacy
    if answers is None:
        able = " or ".join(row.name for row in algorithms.which(lambda row: row.noises_answers))
        raise SettingsError(
            f"privacy.labels_epsilon cannot be kept with {plan.chosen.name}: its label party answers with exact "
            f"{plan.conversation.answers}, which tell of the labels without any noise. Choose {able}, or leave it out."
        )
    if answers.clip_bound == 0:
        raise SettingsError(
            "privacy.labels_epsilon without algorithm.clip cannot be kept: nothing bounds what one label may change. "
            "Give a clip above 0."
        )
    if answers.private_update and (answers.noise > 0) != (answers.server_noise > 0):
        raise SettingsError(
            "privacy.labels_epsilon: give both algorithm.noise and server_noise, then it is a budget; or neither, then "
            "both follow from it."
        )
    if privacy.formula == "paper" and plan.conversation.answers_claim is None:
        raise SettingsError(
            f'privacy.formula = "paper": the paper of {plan.chosen.name} has no noise on answers, so no formula for '
            'it. Choose formula = "sound".'
        )
    if privacy.formula == "paper" and answers.private_update:
        raise SettingsError(
            f'privacy.formula = "paper": that of {plan.chosen.name} has none for server_update = '
            f"{answers.server_update!r}. "
            'Choose formula = "sound", or one of the paper\'s own updates.'
        )
    if privacy.formula == "sound" and answers.noise == 0 and not _top_is_private(answers):
        raise SettingsError(
            f"privacy.labels_epsilon: no noise on answers keeps it with server_update = {answers.server_update!r}, "
            "which updates the top model from raw labels. Choose private-zo, dp-sgd or frozen; or give algorithm.noise "
            "yourself for a figure that is conditional on the top model."
        )


def _check_columns(plan: Plan) -> None:
    name, privacy = plan.chosen.name, plan.privacy
    private_update = privacy.bottom_update == "dp-sgd"
    if private_update and (privacy.noise > 0) != (privacy.update_noise > 0):
        raise SettingsError(
            "privacy.columns_epsilon: give both privacy.noise and update_noise, then it is a budget; or neither, then "
            "both follow from it."
        )
    if privacy.formula == "paper" and (plan.conversation.embeddings_claim is None or private_update):
        what = "a private update of bottom models" if private_update else f"the columns of {name}"
        claimed = [row.name for row in algorithms.which(lambda row: row.claims_embeddings)]
        raise SettingsError(
            f'privacy.formula = "paper": there is none for {what}. Papers have one for the embeddings of '
            f'{", ".join(claimed)}. Choose formula = "sound".'
        )
    hidden = columns_hidden_state("a party", bottom_update_of(plan))
    if privacy.formula == "sound" and privacy.noise == 0 and hidden is not None:
        raise SettingsError(
            f"privacy.columns_epsilon: no noise on embeddings keeps it with bottom_update = 'plain', by which {name} "
            "updates bottom models from raw columns. Choose frozen or dp-sgd; or give privacy.noise yourself for a "
            "figure that is conditional on the bottom models."
        )


def _top_is_private(answers: NoisedAnswers) -> bool:
    return labels_hidden_state("", answers.server_update) is None


def bottom_update_of(plan: Plan) -> str:
    """In the words of privacy/accounting.py."""
    if not plan.conversation.bottom_needs_gradients:
        return "zeroth-order"
    return {"plain": "first-order"}.get(plan.privacy.bottom_update, plan.privacy.bottom_update)


# --- the plan and its noise -------------------------------------------------------------------------------------


def release_plan(plan: Plan, facts: Facts) -> ReleasePlan:
    """How often the training of a split model uses a row, at most."""
    algorithm, training = plan.algorithm, plan.training
    conversation = plan.conversation
    asynchronous = conversation.asynchronous
    counted = ReleasePlan(
        rows=facts.rows,
        batch_size=training.batch_size,
        epochs=training.epochs,
        label_party=facts.label_party,
        feature_parties=facts.feature_parties,
        in_flight=algorithm.in_flight if asynchronous else 0,
        warm_up=algorithm.warm_up if asynchronous else False,
        # Where there are validation rows, test rows are looked at once.
        evaluations=(1 if facts.validation_rows else _evaluations(plan, facts)) if facts.test_rows else 0,
        validations=_evaluations(plan, facts) if facts.validation_rows else 0,
        embeddings_per_upload=1 if conversation.derived_points else conversation.points(algorithm),
    )
    if not asynchronous or algorithm.max_delay == 0:
        return counted
    # A party is asked for a row afresh at most once for every use of the row by another party.
    return replace(counted, refreshes=(len(facts.feature_parties) - 1) * counted.uploads_of_a_row)


def _evaluations(plan: Plan, facts: Facts) -> int:
    """Of a row that evaluations score, at one party: in the course of the training, and at its end."""
    training, parties = plan.training, len(facts.feature_parties)
    every = round(training.evaluate_every_epochs * batches_per_epoch(facts.rows, training.batch_size) * parties)
    overshoot = getattr(plan.algorithm, "wait_for", 1) - 1  # exchanges beyond the last one that was planned
    return math.ceil((training.steps(facts.rows) * parties + overshoot) / every) if every else 1


def calibrated(plan: Plan, facts: Facts) -> Plan:
    """The same plan with the noise that its targets ask for; where a noise is given, the target is a budget only.

    The targets stay: parties keep to them row by row (algorithms/parts/budget.py).
    """
    check_privacy(plan)
    if plan.is_linear:
        return plan
    answers, privacy = plan.noised_answers, plan.privacy
    if answers is not None and privacy.labels_epsilon > 0 and answers.noise == 0:
        counted, share = release_plan(plan, facts), top_share(plan)
        budget = privacy.labels_epsilon, privacy.delta, counted
        claim = plan.conversation.answers_claim
        if privacy.formula == "paper" and claim is not None:
            mu = mu_of(privacy.labels_epsilon, privacy.delta)
            noise = claim.noise(mu, plan.answer_clip, counted.exchanges, counted.rows)
        else:
            noise = slope_noise(*budget, plan.answer_clip, update_share=share)
        own = top_noise(*budget, answers.server_clip_bound, share) if share else answers.server_noise
        plan = replace(plan, algorithm=replace(plan.algorithm, noise=noise, server_noise=own))
    if privacy.columns_epsilon > 0 and privacy.noise == 0:
        noise, own = _columns_noise(plan, release_plan(plan, facts))
        plan = replace(plan, privacy=replace(privacy, noise=noise, update_noise=own))
    return plan


def top_share(plan: Plan) -> float:
    """Which part of the labels' μ² is for the label party's own private updates."""
    answers = plan.noised_answers
    if answers is None or not answers.private_update:
        return 0.0
    return plan.privacy.update_share or _TOP_SHARES[answers.server_update]


def bottom_share(plan: Plan) -> float:
    """Which part of the μ² of a party's columns is for its own private updates."""
    return (plan.privacy.update_share or _BOTTOM_SHARE) if plan.privacy.bottom_update == "dp-sgd" else 0.0


def _columns_noise(plan: Plan, counted: ReleasePlan) -> tuple[float, float]:
    """Of embeddings and of DP-SGD steps. Training rows pay for both; others for embeddings."""
    privacy = plan.privacy
    mu = mu_of(privacy.columns_epsilon, privacy.delta)
    party = counted.feature_parties[0]
    claim = plan.conversation.embeddings_claim
    if privacy.formula == "paper" and claim is not None:
        queries = counted.exchanges_per_party
        return claim.noise(mu, privacy.clip, queries, counted.batch_size, counted.rows), 0.0
    training, *others = (worst_row_mu([one]) for one in embedding_releases(counted, party, privacy.clip, 1.0))
    test = max(others)
    if privacy.bottom_update != "dp-sgd":
        return max(training, test) / mu, 0.0
    noise = max(training / (mu * math.sqrt(1 - bottom_share(plan))), test / mu)
    steps = worst_row_mu(update_releases(counted, party, privacy.update_clip, 1.0))
    return noise, steps / math.sqrt(mu**2 - (training / noise) ** 2)


def planned_releases(plan: Plan, facts: Facts) -> list[Release]:
    """What a calibrated plan is going to release."""
    counted, answers, privacy = release_plan(plan, facts), plan.noised_answers, plan.privacy
    releases: list[Release] = []
    if answers is not None and answers.noise > 0:
        own = (answers.server_clip_bound, answers.server_noise) if answers.private_update else (0.0, 0.0)
        releases += slope_releases(counted, plan.answer_clip, answers.noise, *own)
    for party in facts.feature_parties:
        if privacy.noise > 0:
            releases += embedding_releases(counted, party, privacy.clip, privacy.noise)
        if privacy.update_noise > 0:
            releases += update_releases(counted, party, privacy.update_clip, privacy.update_noise)
    return releases
