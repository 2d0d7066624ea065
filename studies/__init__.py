"""`make study`: the paper's questions, asked of trained models, and what comes out as a page.

plan.py        which models, which runs, which measures: one typed table
models.py      trains what is missing
runs.py        samples, grades and measures what is missing, and keeps what the tables need
records.py     the small files that are kept of a run
model_free.py  runs without a network: posteriors from many renderings of one problem
cells.py       means and differences with intervals, over problems and seeds
questions/     one file for each question: records -> tables, figures, claims
page.py        docs/results.md and its figures, from the stored records alone
studying.py    all stages, in order
__main__.py    the command: its flags, and what it prints
tiny/          the records: checkpoints that were trained, and what is kept of every run
"""

from __future__ import annotations
