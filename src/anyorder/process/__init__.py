"""The mathematics of corruption and loss: pure tensor functions, no files and no networks."""
