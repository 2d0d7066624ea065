"""TrainConfig: refuses what cannot be trained, says what to do, and costs no torch import."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import fields, replace

import pytest

from anyorder.model import SHIPPED
from anyorder.training.config import BEFORE, LATER, MAY_CHANGE, TrainConfig, digest, fixed_fields


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"steps": 0}, "steps=0"),
        ({"batch": 2.5}, "whole number"),
        ({"lr": 0.0}, "positive"),
        ({"lr": float("nan")}, "positive"),
        ({"warmup": 2000}, "lower warmup or raise steps"),
        ({"final_lr_fraction": 1.5}, r"\[0, 1\]"),
        ({"betas": (0.9, 1.0)}, "betas"),
        ({"weight_decay": -1.0}, "weight_decay"),
        ({"clip": -1.0}, "clip"),
        ({"ema": 1.0}, "ema"),
        ({"minutes": 0.0}, "minutes"),
        ({"batch": 10, "accumulate": 4}, "multiple of accumulate"),
        ({"multipliers": {"head": 0.0}}, "multipliers"),
        ({"validate_every": -1}, "validate_every"),
        ({"keep": 0}, "keep"),
        ({"dtype": "float16"}, "choose 'float32' or 'float64' or 'bfloat16'"),
        ({"shard": "some"}, "choose 'full' or 'hybrid' or 'none'"),
        ({"reduce": "never"}, "choose 'step' or 'micro'"),
        ({"first_weights": "zero"}, "choose 'by_name' or 'in_order'"),
        ({"lora": -1}, "lora=-1"),
        ({"lora_scale": 1.0}, "no effect without lora"),
        ({"lora_targets": ("query",)}, "no effect without lora"),
        ({"lora": 4, "lora_scale": 0.0}, "positive"),
    ],
)
def test_bad_values_are_refused_by_name(changes: dict[str, object], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        TrainConfig(**changes)  # type: ignore[arg-type]


def test_json_round_trip() -> None:
    config = TrainConfig(multipliers={"head": 2.0}, minutes=1.5)
    read = json.loads(json.dumps(config.as_json()))
    assert TrainConfig.from_json(read) == config


def test_a_record_without_first_weights_is_from_before_that_setting() -> None:
    record = TrainConfig(steps=7, warmup=1).as_json()
    del record["first_weights"]
    assert TrainConfig.from_json(record) == TrainConfig(steps=7, warmup=1, first_weights="in_order")
    card = json.loads((SHIPPED / "mdm" / "config.json").read_bytes())
    assert TrainConfig.from_json(card["recipe"]["train"]).first_weights == "in_order"


def test_only_free_fields_leave_the_digest_alone() -> None:
    config = TrainConfig(batch=8)
    other = {"minutes": 3.0, "threads": 2, "device": "cuda", "save_every": 7}
    other |= {"validate_every": 9, "log_every": 3, "keep": 5}
    other |= {"shard": "none", "reduce": "micro", "recompute": True, "compile": True}
    assert set(other) == MAY_CHANGE
    assert digest(fixed_fields(replace(config, **other))) == digest(fixed_fields(config))  # type: ignore[arg-type]
    for field in fields(TrainConfig):
        if field.name not in MAY_CHANGE | LATER | BEFORE.keys():
            assert field.name in fixed_fields(config)
    assert digest(fixed_fields(replace(config, steps=3000))) != digest(fixed_fields(config))


def test_runs_from_before_a_field_existed_go_on() -> None:
    """The digest of a plain run, as it was written before there were the fields of `LATER`."""
    old = TrainConfig(**BEFORE)
    assert not (LATER | BEFORE.keys()) & fixed_fields(old).keys()
    known = "5a0dc21acd791573"
    assert digest(fixed_fields(old)).startswith(known)
    assert fixed_fields(TrainConfig())["first_weights"] == "by_name"
    assert fixed_fields(TrainConfig(dtype="float64"))["dtype"] == "float64"
    assert fixed_fields(TrainConfig(lora=4, lora_targets=("out",)))["lora_targets"] == ["out"]


def test_reading_a_configuration_does_not_import_torch() -> None:
    code = (
        "import sys, anyorder.training.config as c; c.TrainConfig(); print('torch' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=240
    )
    assert done.stdout.strip() == "False"
