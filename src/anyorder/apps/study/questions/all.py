"""All questions by name, in the order of the page."""

from __future__ import annotations

from anyorder.apps.study.questions.dial import QUESTION as DIAL
from anyorder.apps.study.questions.flexlatent import QUESTION as FLEXLATENT
from anyorder.apps.study.questions.s1_similarity import QUESTION as S1
from anyorder.apps.study.questions.s2_placement import QUESTION as S2
from anyorder.apps.study.questions.s3_order import QUESTION as S3
from anyorder.apps.study.questions.s4_segments import QUESTION as S4
from anyorder.apps.study.questions.s5_insertion import QUESTION as S5
from anyorder.apps.study.questions.s6_speed import QUESTION as S6
from anyorder.apps.study.questions.section import Question
from anyorder.apps.study.questions.ties import QUESTION as TIES

QUESTIONS: dict[str, Question] = {
    each.name: each for each in (S1, S2, S3, S4, S5, S6, DIAL, TIES, FLEXLATENT)
}
