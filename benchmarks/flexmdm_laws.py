"""How far flexmdm's samplers are from the data when the network is perfect: total variations.

The exact output law of each sampler, pushed through its kernel (insertion_laws.py and
insertion_event_laws.py in tests/support), against a data law on all strings of three tokens up to a
length. Nothing is trained or sampled. The rows are the analysis behind the defaults
of the decoder. The second table compares the event-driven sampler with step-wise ones of as many
calls.

    python benchmarks/flexmdm_laws.py                          lengths 0-4, some minutes
    python benchmarks/flexmdm_laws.py --longest 5              lengths 0-5, about ten minutes
    python benchmarks/flexmdm_laws.py --longest 3 --steps 8 32   seconds, to try the script
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1] / "tests" / "support"))

from insertion_event_laws import EventLaw
from insertion_laws import Rule, distance, total_variation
from insertion_space import Asker, Space, generic_data

from anyorder.decode.growing import END, RISE
from anyorder.nets.oracles import InsertionOracle
from tables import show

DOMINATES = """
No network: small float64 matrix products over all states, one per step and rule. The table is about
distances, not about time.
"""

TOKENS, CARRIED = 3, 2.89 / 1.7 * 2.9
SAMPLERS = {
    "1.7/2.89, Poisson counts, exact hazard": Rule(counts="poisson"),
    "1.7/2.89, Poisson counts, left-endpoint hazard": Rule(counts="poisson", hazard="left"),
    "1.7/2.89, Poisson counts, midpoint hazard": Rule(counts="poisson", hazard="midpoint"),
    "1.7/2.89, Poisson counts, integrated hazard": Rule(counts="poisson", hazard="integrated"),
    "1.7/2.89, binomial counts (the default)": Rule(),
    "inference 2.9, beta kept, Poisson": Rule(counts="poisson", insertion=2.9),
    "inference 2.9, beta carried, Poisson": Rule(
        counts="poisson", insertion=2.9, unmasking=CARRIED
    ),
    "inference 2.9, beta kept, binomial": Rule(insertion=2.9),
    "inference 2.9, beta carried, binomial": Rule(insertion=2.9, unmasking=CARRIED),
    "inference 2.9, asked at raw t (control)": Rule(
        counts="poisson", insertion=2.9, wrong_time=True
    ),
    "top-k, sampled token (published), Poisson": Rule(counts="poisson", policy="sampled"),
    "top-k, largest probability, Poisson": Rule(counts="poisson", policy="confidence"),
    "top-k, largest probability, Poisson, Poisson quota": Rule(
        counts="poisson", policy="confidence", quota="poisson"
    ),
    "top-k, sampled token, inference 2.9": Rule(counts="poisson", policy="sampled", insertion=2.9),
    "top-k, largest probability, inference 2.9": Rule(
        counts="poisson", policy="confidence", insertion=2.9
    ),
}


def steps_table(ask: Asker, data: dict[tuple[int, ...], float], steps: list[int]) -> None:
    rows = [
        [name, *(f"{distance(replace(rule, steps=n), ask, data):.4f}" for n in steps)]
        for name, rule in SAMPLERS.items()
    ]
    head = ["sampler", *(f"{n} steps" for n in steps)]
    show("total variation to the data law", head, rows)


def events_table(ask: Asker, data: dict[tuple[int, ...], float], cells: int) -> None:
    """A step-wise sampler of N steps makes at most N + 1 calls.

    The error of the event law's own grid falls with the square of the cells: two grids tell it, and
    their combination is free of it to the next order.
    """
    target = ask.space.vector(data)
    rows = []
    for name, unmasking in (("kept", 2.89), ("carried", CARRIED), ("late, 1.0", 1.0)):
        rule = Rule(insertion=2.9, unmasking=unmasking, policy="confidence")
        coarse, events = (EventLaw(ask, rule, n, rise=RISE, end=END) for n in (cells // 2, cells))
        apart = total_variation((4 * events.law - coarse.law) / 3, target)
        grid = total_variation(events.law, coarse.law) / 3
        found = (f"{events.mean_calls:.2f}", f"{apart:.5f}", f"{grid:.5f}")
        rows.append([f"events, beta {name}", *found])
        for calls in (round(events.mean_calls), 4 * round(events.mean_calls)):
            apart = distance(replace(rule, steps=calls - 1), ask, data)
            rows.append([f"steps, beta {name}, binomial counts", calls, f"{apart:.4f}", ""])
    head = ["inference 2.9, largest probability", "calls", "total variation", "error of the grid"]
    show("event by event, beside steps of as many calls", head, rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--longest", type=int, default=4)
    parser.add_argument("--steps", type=int, nargs="+", default=[16, 64, 256])
    parser.add_argument("--cells", type=int, default=150)
    options = parser.parse_args()
    data = generic_data(TOKENS, options.longest)
    space = Space(TOKENS, options.longest)
    ask = Asker(InsertionOracle(data, mask_id=TOKENS, vocab_size=TOKENS + 2), space)
    print(f"{TOKENS} tokens, lengths 0-{options.longest}: {len(data)} strings", end=", ")
    print(f"{len(space.strings)} states, {len(space.move_target)} moves")
    steps_table(ask, data, options.steps)
    events_table(ask, data, options.cells)


if __name__ == "__main__":
    main()
