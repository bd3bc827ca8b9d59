"""Agents under resource contracts: four experiments and an eleven-day loop, with scripted models. See README.md."""
