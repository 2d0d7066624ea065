"""`anyorder data`: its flags, and what it prints. The work is apps/data_pipeline.py."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Annotated, Any

import tyro

from anyorder.apps.pipeline.inputs import DataJob
from anyorder.cli.parsing import parse


@dataclass(frozen=True)
class Flags:
    """Make shards to train on: filter, decontaminate, remove duplicates, tokenise.

    Recipes: tinygsm; gsm8k-programs (GSM8K's training answers as programs); code-mixture, or one of
    its sources: rstarcoder-seed-sft, rstarcoder-synthetic-sft, opc-sft-stage2-educational,
    KodCode-V1-SFT-4o, OpenCodeInstruct-score1-py-all. Repeating a command goes on where it stopped.
    What was dropped and why is in dropped.jsonl, the counts in manifest.json (docs/data.md).

      anyorder data gsm8k-programs --source gsm8k_train.jsonl.gz --vocab bytes
        --against HumanEval.jsonl.gz mbpp.jsonl.gz gsm8k_test.jsonl.gz --out data/gsm8k
      anyorder data code-mixture --limit 10000 --without KodCode-V1-SFT-4o
      anyorder train tiny/mdm --data.source data/gsm8k --data.vocab data/gsm8k
        --data.canvas 400 --data.max-length 1000
    """

    job: Annotated[DataJob, tyro.conf.arg(name="")]
    json: bool = False
    """Print one JSON document."""


def main(words: list[str]) -> None:
    flags = parse(Flags, "data", words)
    from anyorder.apps.pipeline.inputs import open_plan
    from anyorder.apps.pipeline.pipeline import make_shards

    plan = open_plan(flags.job)
    manifest = make_shards(plan)
    if flags.json:
        print(json.dumps({"folder": str(plan.out), **manifest}))
        return
    for source in manifest["sources"]:
        print(_line(source))
    rows = manifest["rows"]
    print(
        f"{plan.out}: {rows['train']:,} rows to train on ({manifest['rows_an_epoch']:,} an epoch), "
        f"{rows['validation']:,} to validate on. Train on them:"
    )
    print(f"  anyorder train RECIPE --data.source {plan.out} --data.vocab {plan.out}")


def _line(source: dict[str, Any]) -> str:
    reasons = "; ".join(f"{reason} {count:,}" for reason, count in source["left_out"].items())
    return (
        f"{source['alias']} ({source['licence']}): {source['read']:,} rows read, "
        f"{source['train'] + source['validation']:,} kept; left out: {reasons or 'none'}"
    )
