"""flexlatent: insertion over segments. `family.py` lists its parts."""
