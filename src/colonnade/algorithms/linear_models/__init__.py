"""Linear models: every party updates its own block, from sums over all of them. One file per algorithm."""
