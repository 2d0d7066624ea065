"""Autoregressive models: the baseline family."""
