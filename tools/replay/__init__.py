"""Replay: recorded states go to a fleet again, at their original times, and its answers are recorded beside them."""
