"""Step 5, predict: model instances with their threads."""
