"""`anyorder data`: published corpora -> shards to train on; and a recipe's data for training.

inputs.py turns flags into a plan, pipeline.py makes the shards, corpus.py opens data for training.
"""

from __future__ import annotations
