"""Networks to sequences: loops that propose, score and take, and write down what they did."""

from __future__ import annotations
