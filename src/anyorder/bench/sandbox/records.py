"""The fixed-size records between grader and fork-server, whichever of them reads this file."""

from __future__ import annotations

import struct

REQUEST = struct.Struct("<BBxxIdQQII")
"""What, which descriptors, child's number; for START: seconds, memory, stack, files, threads."""
RECORD = struct.Struct("<BxxxIidQ")
"""Why it ended, child's number, wait status, processor seconds, most resident bytes."""

START, STOP, COLLECT = 1, 2, 3
"""A new child; kill one; say how one ended whose channel has closed."""
CONSOLE = 1
"""With the channel come standard input and standard output."""
BY_ITSELF, CPU_LIMIT, STOPPED, NOT_STARTED = 0, 1, 2, 3
OUT_OF_MEMORY = 86
"""How a child exits that has not even the memory to say so."""
