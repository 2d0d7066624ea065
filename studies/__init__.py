"""`make study`: asks the paper's questions of trained models and writes the answers to a page.

plan.py        which models, which runs, which measures: one typed table
models.py      trains what is missing
runs.py        samples, grades and measures what is missing, and stores what the tables need
records.py     the small files that stay of a run
model_free.py  runs without a network: posteriors from many renderings of one problem
cells.py       means and differences with intervals, over problems and seeds
questions/     one file for each question: records -> tables, figures, claims
page.py        docs/results.md and its figures, from the stored records alone
studying.py    all stages, in order
__main__.py    the command: its flags, and what it prints
tiny/          the records: trained checkpoints, and the small files of every run
"""

from __future__ import annotations
