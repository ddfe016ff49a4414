"""What an adversary can infer from what it saw. An attack gets a view (view.py) and what the literature grants it,
stated in its signature; never the secret itself. Federations for it to look at are run by `attack_trials.py`.
"""
