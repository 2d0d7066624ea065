"""Combines the parts of latentmdm: encoder, latent transformer and decoder, over slots."""

from __future__ import annotations

from anyorder.decode.canvas import SegmentCanvas
from anyorder.families.family import GRID, Family, Network, no_frame
from anyorder.families.latentmdm.config import DESCRIPTION, LatentConfig, LatentOptions
from anyorder.families.latentmdm.decode import check, decode, resolve
from anyorder.families.latentmdm.loss import segment_mean, segment_tokens
from anyorder.families.latentmdm.net import LatentNet
from anyorder.families.replay_segments import latent_reader

FAMILY = Family(
    name=DESCRIPTION.name,
    summary=DESCRIPTION.summary,
    causal=False,
    answers="slots",
    network=Network(
        complete=LatentConfig.of,
        read=LatentConfig.from_record,
        build=LatentNet,
        start=LatentNet.start_from,
    ),
    frame=no_frame,
    canvas=SegmentCanvas.of_text,
    options=LatentOptions,
    resolve=resolve,
    check=check,
    decode=decode,
    reader=latent_reader,
    losses={
        "mean": lambda vocab, settings, _: segment_mean(vocab, settings),
        "tokens": lambda vocab, settings, _: segment_tokens(vocab, settings),
    },
    levels=GRID,
)
