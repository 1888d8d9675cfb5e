"""Tests of the agents' client."""
