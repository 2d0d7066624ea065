"""The entry of ar in the family table: next-token training, left-to-right decoding."""

from __future__ import annotations

from anyorder.decode.canvas import fixed_canvas
from anyorder.families.ar.config import DESCRIPTION, ArOptions
from anyorder.families.ar.decode import check, decode, resolve
from anyorder.families.ar.loss import causal_mean
from anyorder.families.backbone import plain_network
from anyorder.families.family import Family, no_frame

FAMILY = Family(
    name=DESCRIPTION.name,
    summary=DESCRIPTION.summary,
    causal=True,
    answers="eos",
    network=plain_network(),
    frame=no_frame,
    canvas=fixed_canvas,
    options=ArOptions,
    resolve=resolve,
    check=check,
    decode=decode,
    reader=None,
    losses={"mean": lambda vocab, *_: causal_mean(vocab)},
    levels=(None,),
)
