"""Stories: end to end on the embedded broker."""
