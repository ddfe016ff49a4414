"""Parties as processes of one machine, over Unix sockets."""
