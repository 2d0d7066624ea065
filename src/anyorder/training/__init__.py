"""Training: one loop for all families, its optimiser, EMA, checkpoints and log."""
