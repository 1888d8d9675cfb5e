"""Tests that need a CUDA device; skipped where there is none."""
