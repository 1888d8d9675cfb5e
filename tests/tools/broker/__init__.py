"""Tests of tools/broker."""
