"""Predictions one by one, as they are asked for: an HTTP endpoint at the label party, answers from all parties."""
