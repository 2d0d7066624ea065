"""`anyorder doctor`: its flags, and what it prints. The work is apps/doctor.py."""

from __future__ import annotations

import json
from dataclasses import dataclass

from anyorder.cli.parsing import parse


@dataclass(frozen=True)
class Flags:
    """Tell what this machine offers: devices, threads, memory, how well programs
    can be confined, installed extras.

    anyorder doctor --json
    """

    json: bool = False
    """Print one JSON document."""


def main(words: list[str]) -> None:
    flags = parse(Flags, "doctor", words)
    from anyorder.apps.doctor import examine, print_findings

    findings = examine()
    if flags.json:
        print(json.dumps(findings))
    else:
        print_findings(findings)
