"""`fleet tune`: from a target to settings, on simulated time, and a run that checks them."""
