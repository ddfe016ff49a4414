"""Parties as actors of a Ray cluster."""
