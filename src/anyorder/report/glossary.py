"""Every term and acronym of the report, in words for somebody who has not read the paper."""

from __future__ import annotations

from typing import NamedTuple


class Term(NamedTuple):
    """One entry."""

    title: str
    means: str


TERMS = {
    "AR": Term(
        "AR (autoregressive model)",
        "A language model that writes one token after the other, from left to right. The kind "
        "behind most chat programs, and the yardstick here.",
    ),
    "MDM": Term(
        "MDM (masked diffusion model)",
        "Starts from a canvas of masked slots, all of them there from the start, and reveals them "
        "in any order. It must say of every token at which slot it belongs.",
    ),
    "FlexMDM": Term(
        "FlexMDM (masked diffusion model with insertion)",
        "Like an MDM, but the canvas begins empty and grows: slots are inserted wherever something "
        "is missing. A token can be written before it is known how much comes before it.",
    ),
    "LatentMDM": Term(
        "LatentMDM (masked diffusion model over segments)",
        "Works on whole segments, here lines of a text: in each step it drafts every open line, "
        "and commits the ones it is surest of. Lines may come in any order; inside a line it "
        "writes from left to right.",
    ),
    "FlexLatent": Term(
        "FlexLatent (insertion of segments)",
        "LatentMDM with insertion: lines are inserted where they are missing, and then written.",
    ),
    "DUO": Term(
        "DUO (diffusion over uniform states)",
        "Has no masks: it begins with random tokens in all places and may change any of them in "
        "every step, until nothing but the text is left. When a token came is the step in which "
        "its place changed for the last time.",
    ),
    "S-FLM": Term(
        "S-FLM (flow on a sphere)",
        "Has no masks: every place begins as a random direction and is turned, a little in every "
        "step and all places at once, towards the direction that stands for a token. When a token "
        "came is the step in which its place read otherwise for the last time.",
    ),
    "token": Term(
        "token", "A piece of text, a word or a part of one. Models read and write these."
    ),
    "mask": Term("mask", "The sign for a slot whose token is not written yet."),
    "slot": Term("slot", "A place on the canvas. It is masked until its token is revealed."),
    "canvas": Term("canvas", "The slots that are there at a step, written or not."),
    "segment": Term("segment", "A stretch of text that is written at once; here, a line."),
    "reveal": Term("reveal", "To write a token into a masked slot."),
    "remask": Term(
        "remasked",
        "A token that was revealed and is masked again, so that its place can be written again. "
        "Its order is that of its last reveal.",
    ),
    "insert": Term("insert", "To make a new masked slot between others."),
    "commit": Term("commit", "To decide on a token, or on a line, for good."),
    "policy": Term(
        "policy",
        "The rule that says which of the open slots comes next: the leftmost, one at random, or "
        "the one of which the model is surest (its confidence: the probability of its most likely "
        "token).",
    ),
    "planner": Term(
        "planner",
        "A small network beside the model that decides which slots are ready to be revealed, "
        "several at once where it can. It is trained for that alone.",
    ),
    "log-probability": Term(
        "log-probability",
        "The logarithm of the probability that a model gives to a token: 0 is certainty, "
        "\N{MINUS SIGN}0.7 one in two, \N{MINUS SIGN}2.3 one in ten. The closer to 0, the surer.",
    ),
    "stories": Term(
        "stories",
        "The problems that come with anyorder: a few sentences about buying, sharing and counting "
        "things, and a short Python function as the answer. Here they are of kinds that the "
        "models did not see in training.",
    ),
    "tie": Term(
        "tie",
        "Two slots that the rule for the order ranks alike, so that chance, or the one further "
        "left, decides. Many ties would make an order that is not the model's own.",
    ),
    "temperature": Term(
        "temperature",
        "How freely tokens are drawn. At 0 the most likely one is taken, so that all samples of a "
        "problem are alike unless chance enters elsewhere, as where slots are inserted; at 1 they "
        "are drawn as likely as the model says.",
    ),
    "insertion temperature": Term(
        "insertion temperature",
        "How freely new slots are placed. Below 1 they go rather where the model misses most.",
    ),
    "sample": Term("sample", "One answer of a model to one problem."),
    "problem": Term("problem", "One prompt; in most tasks an exercise, with tests that decide."),
    "passed": Term(
        "passed",
        "The program was run in a sandbox, a confined process, and passed every test of its "
        "problem.",
    ),
    "pass@k": Term(
        "pass@k",
        "The chance that at least one of k samples of a problem passes all tests, averaged over "
        "problems. pass@1 is the plain share of right programs.",
    ),
    "interval": Term(
        "95 % interval",
        "How far a number might move on other problems of the same kind. Problems are drawn with "
        "replacement many times over, and 95 % of the results lie inside. Where none or all "
        "passed, it is Wilson's interval.",
    ),
    "paired": Term(
        "paired difference",
        "Two runs compared problem by problem, so that easy and hard problems cancel. Where its "
        "interval holds 0, no difference could be seen. Each is about one comparison: of twenty "
        "comparisons without a difference, one will seem to have one.",
    ),
    "control": Term(
        "control",
        "The same finished texts, as if their tokens had come strictly from left to right, or "
        "at random. A score means nothing without these two.",
    ),
    "leftmost": Term(
        "leftmost-first share",
        "How often the token that comes next is the leftmost one still missing (global AR-ness at "
        "1). 100 % is writing from left to right, one token a step.",
    ),
    "slot block": Term(
        "block of slots",
        "Slots that a sampler fills before it goes on to the next ones on the right. The model "
        "chooses the order inside a block only.",
    ),
    "tau": Term(
        "tau (Kendall's tau)",
        "Of all pairs of tokens, or of lines, the share in reading order less the share against "
        "it: 1 is reading order, 0 is no order at all, \N{MINUS SIGN}1 is backwards.",
    ),
    "CBC": Term(
        "preview before finishing (CBC, coverage before commitment)",
        "Of the parts of a block, the share that was begun when the first one was finished.",
    ),
    "RUB": Term(
        "returns (RUB, return to unfinished blocks)",
        "Of the parts of a block, the share that was left unfinished while another got a token.",
    ),
    "RUB+": Term(
        "repeated returns (RUB+)",
        "Like returns (RUB), counting how often a part was returned to: half a point for one "
        "return, one for two or more.",
    ),
    "OBW": Term(
        "open at once (OBW, open-block width)",
        "Of the parts of a block, the largest share that stood begun and unfinished at one time.",
    ),
    "tree": Term(
        "statement tree",
        "A program as a tree: functions, loops and conditions hold the statements inside them.",
    ),
    "ASTD": Term(
        "tree similarity (ASTD)",
        "1 less the number of edits that turn one program's syntax tree into the other's, divided "
        "by the larger tree's size. Names do not count. 1 is the same tree.",
    ),
    "TSED": Term(
        "tree similarity of the parser (TSED)",
        "Like tree similarity (ASTD), on another parser's trees, where changing a label is free.",
    ),
    "Coarse": Term(
        "similarity of statements (Coarse)",
        "Like tree similarity (ASTD), on the kinds of statements alone: loops, conditions, "
        "assignments.",
    ),
    "mass": Term(
        "mass",
        "The probability that a model gives a token, added up over all masked slots: about how "
        "often it expects to write it.",
    ),
    "localisation": Term(
        "localisation (LOC)",
        "The share of a token's mass at its best slot. 1: the model knows where it goes; near 0: "
        "it may go anywhere.",
    ),
    "k-localisation": Term(
        "localisation of copies (k-LOC)",
        "Localisation that allows for repetition: the share of the mass in as many slots as the "
        "token is expected to occur.",
    ),
    "schedule": Term(
        "schedule", "How much of a text is meant to be inserted, and to be revealed, by each step."
    ),
    "network call": Term(
        "network call",
        "One evaluation of the network: what decoding costs, whatever the machine.",
    ),
    "trace": Term(
        "trace", "The record of a generation: when each token was inserted and revealed."
    ),
    "run": Term("run", "A folder with the samples of one model under one setting."),
}
