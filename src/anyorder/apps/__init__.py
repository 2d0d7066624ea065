"""What needs several rooms at once: the verbs of the command line, as functions."""
