"""Published checkpoints: their files, tensor names, configurations and tokenizers."""

from __future__ import annotations
