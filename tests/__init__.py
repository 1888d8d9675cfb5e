"""Tests mirror the code; stories/ run end to end on a real broker."""
