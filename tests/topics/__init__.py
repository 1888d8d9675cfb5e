"""Tests of topics/."""
