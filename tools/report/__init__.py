"""`fleet report`: a recording as one page that opens without a network."""
