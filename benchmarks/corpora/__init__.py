"""Recorded corpora under fixed sets of contracts: one module of contracts a domain, `measure` for the arithmetic, `report`.

The contracts are written from each corpus's policy or domain description and from templates of `mat_contracts`; what a corpus
says about its runs besides the steps (rewards, annotations, injected faults) is only ever compared with their verdicts.
"""
