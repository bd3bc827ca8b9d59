"""Realistic traces for each contract template, written from the documentation by somebody who has not read the templates.

`python -m tests.truth.templates [NAME...]` prints precision and recall of each template and every trace that is judged
wrongly. A file holds the traces of a family of templates, in the notation of `notation`: `template.broken(why, *steps)` is a
trace that truly breaks the contract, `template.kept(why, *steps)` one that truly keeps it, though it comes near a violation.
Judge by what the documentation promises and a user expects, not by what the template does. If a template is wrong, and it
should or can not be changed now, the trace goes to `known` with the reason.

The docstring of each template states its figures. They describe these traces: templates that judged some of them wrongly have
been corrected since, so expect lower figures for other texts, above all where a template reads English.
"""
