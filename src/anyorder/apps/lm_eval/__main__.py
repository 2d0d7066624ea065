"""`python -m anyorder.apps.lm_eval`: the harness's command line with our model in it."""

from __future__ import annotations

from anyorder.apps.lm_eval import main

main()
