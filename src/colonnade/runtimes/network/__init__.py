"""Parties of different organisations: gRPC and mutual TLS."""
