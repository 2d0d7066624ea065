"""Combines the parts of ar: the backbone alone, causal, written left to right."""

from __future__ import annotations

from anyorder.decode.canvas import Canvas
from anyorder.families.ar.config import DESCRIPTION, ArOptions
from anyorder.families.ar.decode import check, decode, resolve
from anyorder.families.ar.loss import causal_mean
from anyorder.families.family import Family, Network, no_frame
from anyorder.nets.denoiser import start_backbone
from anyorder.nets.shapes import TransformerConfig
from anyorder.nets.transformer import Transformer

FAMILY = Family(
    name=DESCRIPTION.name,
    summary=DESCRIPTION.summary,
    causal=True,
    answers="eos",
    network=Network(
        complete=lambda backbone, recipe, eos: backbone,
        read=lambda record: TransformerConfig(**record),
        build=Transformer,
        start=start_backbone,
    ),
    frame=no_frame,
    canvas=Canvas.of_text,
    options=ArOptions,
    resolve=resolve,
    check=check,
    decode=decode,
    reader=None,
    losses={"mean": lambda vocab, *_: causal_mean(vocab)},
    levels=(None,),
)
