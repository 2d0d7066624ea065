"""All questions by name, in the order of the page."""

from __future__ import annotations

from studies.questions.dial import QUESTION as DIAL
from studies.questions.flexlatent import QUESTION as FLEXLATENT
from studies.questions.s1_similarity import QUESTION as S1
from studies.questions.s2_placement import QUESTION as S2
from studies.questions.s3_order import QUESTION as S3
from studies.questions.s4_segments import QUESTION as S4
from studies.questions.s5_insertion import QUESTION as S5
from studies.questions.s6_speed import QUESTION as S6
from studies.questions.section import Question
from studies.questions.ties import QUESTION as TIES

QUESTIONS: dict[str, Question] = {
    each.name: each for each in (S1, S2, S3, S4, S5, S6, DIAL, TIES, FLEXLATENT)
}
