"""Record what other software generates: a `Recorder` follows canvases, gives traces and a run.

transformers, diffusers and torch are not imported: a recorder only looks at what they hand to it.
"""

from __future__ import annotations

from anyorder.trace.recorders.recorder import DraftStreamer, Recorder

__all__ = ["DraftStreamer", "Recorder"]
