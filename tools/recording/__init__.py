"""Recordings: a fleet's records in MCAP files, original bytes, offsets and times. docs/recordings.md has the format."""
