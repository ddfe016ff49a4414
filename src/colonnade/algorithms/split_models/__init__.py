"""Split models: a bottom model at every feature party, a top model at the label party. One file per algorithm."""
