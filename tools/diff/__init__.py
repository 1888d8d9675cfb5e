"""`fleet diff`: do two recordings, or two streams, give the same answers to the same states?"""
