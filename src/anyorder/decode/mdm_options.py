"""The options of mdm decoding: what a user may choose, what is filled in, what is refused.

An option that the chosen path would not use is an error, never ignored. The loop is mdm.py.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from anyorder.decode.draw import Draw
from anyorder.decode.policy import Policy, find_score
from anyorder.decode.quota import parse_quota
from anyorder.decode.stopping import Stopping, find_stopping


@dataclass(frozen=True)
class MdmOptions:
    """How to decode with mdm. Unset choices follow `mode`."""

    policy: str | None = None
    """confidence, sampled, margin, entropy, left_to_right or random.
    Exact: confidence; compat: sampled."""
    quota: str | None = None
    """even, dream[:eps] or threshold[:p]. Exact: even; compat: dream."""
    posterior: Literal["untempered", "filtered"] | None = None
    """What scores read. Exact: untempered; compat: filtered."""
    ties: Literal["random", "leftmost"] | None = None
    """Who wins among equal scores. Exact: random; compat: leftmost."""
    block: int | None = None
    """Semi-autoregressive blocks of so many slots; unset: the whole canvas."""
    steps: int | None = None
    """Steps in all; unset: one for each free slot."""
    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    eos: str = "plain"
    """plain, last, fill or forbid (see Stopping)."""
    mode: Literal["exact", "compat"] = "exact"
    """compat: the choices of the published Dream sampler."""

    def resolved(self) -> MdmOptions:
        """The same options with every unset choice filled in that has an effect; checked."""
        if self.mode not in ("exact", "compat"):
            raise ValueError(f"mode must be 'exact' or 'compat', not {self.mode!r}")
        compat = self.mode == "compat"
        full = replace(
            self,
            policy=self.policy or ("sampled" if compat else "confidence"),
            quota=self.quota or ("dream" if compat else "even"),
        )
        if full.build_policy().score.reads != "nothing":
            # Without temperature and filters the two posteriors are one.
            apart = compat and (self.temperature > 0 or self._filters())
            full = replace(
                full,
                posterior=self.posterior or ("filtered" if apart else "untempered"),
                ties=self.ties or ("leftmost" if compat else "random"),
            )
        full._refuse_unused()
        return full

    def _filters(self) -> bool:
        return self.top_p < 1 or self.top_k > 0

    def _refuse_unused(self) -> None:
        """What is set must have an effect."""
        policy, draw, stopping = self.build_policy(), self.draw(), self.stopping()
        name, reads_nothing = policy.score.name, policy.score.reads == "nothing"
        if self.steps is not None and self.steps < 1:
            raise ValueError(f"steps must be at least 1, not {self.steps}")
        if self.steps is not None and policy.quota.reads_scores:
            raise ValueError("the threshold quota decides its own steps: leave --steps out")
        if reads_nothing and stopping.waits:
            raise ValueError(f"eos={self.eos!r} has no effect on the policy {name!r}: leave it out")
        if reads_nothing and self.posterior is not None:
            raise ValueError(f"posterior has no effect on the policy {name!r}: leave it out")
        if reads_nothing and self.ties is not None:
            raise ValueError(f"the policy {name!r} has no ties: leave --ties out")
        if self.posterior == "filtered" and draw.temperature == 0 and not self._filters():
            raise ValueError(
                "posterior='filtered' is the untempered one at temperature 0 without top_p or "
                "top_k: leave it out, or set one of them"
            )
        if self.posterior != "filtered":
            draw.refuse_idle_filters()

    def draw(self) -> Draw:
        return Draw(self.temperature, self.top_p, self.top_k)

    def stopping(self) -> Stopping:
        return find_stopping(self.eos)

    def build_policy(self) -> Policy:
        return Policy(
            score=find_score(self.policy or "confidence"),
            quota=parse_quota(self.quota or "even"),
            posterior=self.posterior or "untempered",
            ties=self.ties or "random",
            block=self.block,
        )
