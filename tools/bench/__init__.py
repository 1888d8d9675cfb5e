"""`fleet bench`: what a worker costs, always beside the floor that was measured in the same run."""
